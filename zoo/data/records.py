"""Reads the user's own examples from tables with declared columns. What all domains promise of them stands here, once.

columns = {"text": Column("text", required=True), "id": Column("id", "id"), "split": Column("split", "split")}
records = Records(path, Schema(noun="text", columns=columns, usage="a text has an id and a split"), TableOptions())
examples = list(records.parse(lambda record: (record.id, record["text"], record.split)))
splits = assign_splits(path, "text", [split for *_, split in examples], seed=0)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Int

from zoo.data.csv_recovery import NUL
from zoo.data.encodings import Fault
from zoo.data.json_lines import JSONTable, open_table
from zoo.data.labels import count_label_uses, find_untrained, warn_of_similar, warn_of_unscored
from zoo.data.lazy_text import LazyColumn
from zoo.data.line_index import Lines
from zoo.data.option_hints import format_option
from zoo.data.splits import NONE, SPLITS, TEST, split_stratified
from zoo.data.tables import Required, Row, RowError, TableOptions, collect_error, message
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, join_names, warn

T = TypeVar("T")
Kind = Literal["text", "number", "file", "label", "id", "split"]
"""What cells hold: `label` is one of few, which a trained model must know; `id` is that of one example alone."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: Its name in the file; None: the table has none.
        kind: What its cells hold.
        required: Whether a table must have it.
        empty: Whether its cells may be empty. Default: unless the table must have it.
        most: The most characters of a text. Default: any number.
        most_option: Option that raises it; "" if there is none.
    """

    name: str | None
    kind: Kind = "text"
    required: bool = False
    empty: bool | None = None
    most: int | None = None
    most_option: str = ""

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether its cells may be empty."""
        return not self.required if self.empty is None else self.empty


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a table, and what its rows are.

    Args:
        noun: Word for an example.
        columns: Role -> column, in the order in which cells are read.
        usage: What such a table has, the end of the sentence that names other columns. "": they are no mistakes.
        has_options: Whether options of the data, called as the roles, say which columns are meant.
        id: Role of the column whose cells are names of the examples, where a table has it; otherwise their lines are.
        splits_all: Whether a row without a split is a bad one if others have a split. Otherwise it is not used.
    """

    noun: str
    columns: Mapping[str, Column]
    usage: str = ""
    has_options: bool = False
    id: str = "id"
    splits_all: bool = False

    @property
    def required_names(self) -> Required:
        """Names of the columns that must exist, each with the option that names it if there are such options."""
        columns = [(column.name, f"data.{role}") for role, column in self.columns.items() if column.required]
        names = {name: option for name, option in columns if name is not None}
        return names if self.has_options else list(names)


@dataclass(slots=True)
class Record:
    """A row whose cells are as declared: `record[role]` is a text or a number; "" or None where there is none."""

    records: Records
    row: Row
    id: str
    values: dict[str, Any]
    split: int = NONE
    numbers: Float32[np.ndarray, " _"] | None = None
    """Those of `Records.number_columns`."""
    claims: list[tuple[str, str]] = field(default_factory=list)

    @property
    def line(self) -> int:
        """The line on which it begins."""
        return self.row.line

    def __getitem__(self, role: str) -> Any:
        return self.values[role]

    def error(self, role: str, problem: str, remedy: str) -> RowError:
        """Returns the error of a cell, to be raised."""
        return self.row.error(self.records.schema.columns[role].name, problem, remedy)

    def claim(self, role: str, key: str, noun: str, *, shown: str = "", remedy: str = "") -> None:
        """Refuses what a good row above has, and no two may have.

        Args:
            role: The column.
            key: What is compared.
            noun: What it is of a row.
            shown: What the message names. Default: `key`.
            remedy: How to mend it.
        """
        if (line := self.records.lines[role].get(key)) is not None:
            problem = f"{shown or key!r} is already the {noun} of line {line}"
            raise self.error(role, problem, remedy or "Rename or remove one of the two.")
        self.claims.append((role, key))


class Records:
    """The examples of a user's table: CSV, TSV or JSONL.

    Args:
        path: The table.
        schema: Its columns.
        options: How it is read.
        is_input: Whether the examples are for a trained model; a table may then have splits in some rows alone.
        known: Labels of a trained model. Default: all are.
        unknown: Where other labels go. Default: they are errors.

    Raises:
        DataError: The file is missing or empty, or its header is not as declared.
    """

    def __init__(
        self,
        path: Path | str,
        schema: Schema,
        options: TableOptions,
        *,
        is_input: bool = False,
        known: Collection[str] | None = None,
        unknown: UnknownLabels | None = None,
    ) -> None:
        self.schema, self.is_input, self.known, self.unknown = schema, is_input, known, unknown
        self.path = Path(path)
        self.table = open_table(
            self.path, required=schema.required_names, on_bad_row=options.on_bad_row, encoding=options.encoding
        )
        present = {role: column for role, column in schema.columns.items() if column.name in self.table.columns}
        self.names = {role: column.name or "" for role, column in present.items()}
        """Role -> name of each column that the table has."""
        self._labels = [role for role, column in present.items() if column.kind == "label"]
        self._absent = {role: None if column.kind == "number" else "" for role, column in schema.columns.items()}
        readers = {"number": self._read_number, "label": self._read_label, "split": self._read_split}
        self._readers = [(role, readers.get(column.kind, self._read_text), column) for role, column in present.items()]
        self.lines = defaultdict[str, dict[str, int]](dict)
        """Role -> lines of what no two rows may have."""
        self.ids: set[str] = set()
        """Names of all rows, also of bad ones, if problems are listed."""
        self.number_columns: Sequence[str] = ()
        """Many columns of numbers beside those of the schema, which are read together."""
        self._first_lines: dict[bool, int] = {}  # of the rows without a split and with one

    def __contains__(self, role: str) -> bool:
        """Returns whether the table has such a column."""
        return role in self.names

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing because its problems were listed, after all rows were read."""
        return not self.table.bad.listed

    def parse(self, make: Callable[[Record], T], *, reports_bad: bool = True) -> Iterator[T]:
        """Yields what `make` makes of each good row, and then warns of columns that are not used and of bad rows.

        Args:
            make: Makes an example of a record, or raises a `RowError` (`Record.error`).
            reports_bad: False: the domain finds more bad ones later, and reports all (`Table.bad`).
        """
        yield from self.table.parse(lambda row: self._read(row, make))
        if reports_bad:
            self.table.bad.warn()
        if self.schema.usage:
            self.table.warn_of_unused([column.name for column in self.schema.columns.values()], self.schema.usage)

    def index_texts(self, cache: Path | None) -> Callable[[str, Sequence[int]], LazyColumn] | None:
        """Returns a function of role and lines, whose texts are read from the file when they are asked for.

        None if there is no folder for its index, or the file is no JSONL; texts are then held in memory.
        """
        table = self.table
        if cache is None or not isinstance(table, JSONTable):
            return None
        lines = Lines(self.path, cache, encoding=table.encoding)
        return lambda role, numbers: LazyColumn(table, lines, numbers, self.schema.columns[role].name or "")

    def _read(self, row: Row, make: Callable[[Record], T]) -> T:
        record = Record(self, row, str(row.line), dict(self._absent))
        id_role = self.schema.id
        has_id = id_role in self.names
        if has_id and self.table.bad.are_listed:
            self.ids.add(row.text(self.names[id_role], empty=True))
        for role, read, column in self._readers:
            record.values[role] = read(record, role, column)
        if self.number_columns:
            record.numbers = row.numbers(self.number_columns)
        if row.is_bad:
            raise row.error(None, "a cell is bad", "")  # listed already
        if has_id and self.schema.columns[id_role].kind == "id":
            record.claim(id_role, record.id, id_role)
        value = make(record)
        if not row.is_bad:
            for role, key in record.claims:
                self.lines[role][key] = row.line
        return value

    def _read_text(self, record: Record, role: str, column: Column) -> str:
        row, name = record.row, self.names[role]
        text = row.text(name, empty=column.may_be_empty)
        if role == self.schema.id:
            record.id = text or record.id
        if column.most is not None and (fault := find_length_fault(text, column.most, column.most_option)) is not None:
            raise row.error(name, *fault)
        return row.name(name) if column.kind == "file" and text else text

    def _read_number(self, record: Record, role: str, column: Column) -> float | None:
        row, name = record.row, self.names[role]
        return row.number(name) if row.text(name, empty=column.may_be_empty) else None

    def _read_label(self, record: Record, role: str, _: Column) -> str:
        """Returns a label that the model has; "" for one that it has not, and need not."""
        label = record.row.text(self.names[role], empty=True)
        if not label or self.known is None or label in self.known:
            return label
        if self.unknown is None:
            return record.row.choice(self.names[role], self.known)
        self.unknown.add(record.id, label)
        return ""

    def _read_split(self, record: Record, role: str, _: Column) -> str:
        row, column, noun = record.row, self.names[role], self.schema.noun
        split = row.choice(column, SPLITS, empty=True)
        record.split = SPLITS.index(split) if split else NONE
        if self.schema.splits_all and not self.is_input:
            is_there = bool(row.text(column, empty=True))  # also where it is no split, and problems are collected
            if not is_there and True in self._first_lines:
                row.text(column)  # is an error
            if is_there and False in self._first_lines:
                problem = f"{split!r} stands here, and nothing in line {self._first_lines[False]}"
                raise row.error(column, problem, f"Give every {noun} a split, or none.")
            self._first_lines.setdefault(is_there, row.line)
        if split and self.known is None and not all(map(record.values.get, self._labels)):
            problem = f"the {noun} is in split {split!r} and has no label"
            raise record.error(self._labels[0], problem, "Fill it in, or leave the split empty.")
        return split


def find_length_fault(text: str, most: int, option: str = "") -> Fault | None:
    """Returns what is wrong with a text of more than `most` characters, which an option may raise, or None."""
    if len(text) <= most:
        return None
    remedy = f"Part it, or raise {format_option(option)}." if option else "Shorten it."
    return Fault(f"the text has {len(text):,} characters, and {most:,} are the most", remedy)


def name_given_texts(texts: Sequence[str], first: int, most: int, clean: Callable[[str], str] = str.strip) -> list[str]:
    """Returns names of texts of the command line, or of lines of standard input, which obey the limits of files.

    Args:
        texts: The texts.
        first: Number of the first.
        most: The most characters.
        clean: Removes what is no text.
    """
    ids = [f"text {number}" for number in range(first, first + len(texts))]
    for id, text in zip(ids, texts, strict=True):
        if not clean(text[:most]).strip():
            raise DataError(f"{id} is empty. Write a text.")
        if (fault := find_length_fault(text.strip(), most)) is not None:
            raise DataError(f"{id}: {fault.what}. Part it.")
        if "\0" in text:
            raise DataError(f"{id}: {NUL.what}. {NUL.remedy}")
    return ids


def assign_splits(
    place: Path,
    noun: str,
    splits: Sequence[int] | Int[np.ndarray, " n"],
    *,
    seed: int | None,
    known: Bool[np.ndarray, " n"] | bool = True,
    labels: Int[np.ndarray, " n"] | None = None,
    checks: bool = True,
) -> Int[np.ndarray, " n"]:
    """Returns the split of each example. Those that all are in no split are split 60/20/20.

    Args:
        place: File or folder, for messages.
        noun: Word for an example.
        splits: Splits as readers find them.
        seed: Seed of the 60/20/20 split. None: the examples are for a trained model; each that has an answer and no
            split is for its test.
        known: Whether the answer of each is known.
        labels: Label of each, negative if it is unknown; each label is split alike. Default: there are none.
        checks: Whether a split without examples is an error: not where bad ones are missing, or `check_labels` follows.
    """
    numbers = np.array(splits, dtype=np.int64)
    if seed is None:
        numbers[(numbers == NONE) & known] = TEST
        return numbers
    if (numbers == NONE).all():
        numbers = split_stratified(np.zeros(len(numbers), dtype=np.int64) if labels is None else labels, seed)
    if checks:
        _check_splits(place, noun, numbers)
    return numbers


def check_labels(
    place: Path,
    noun: str,
    names: Sequence[str],
    labels: Int[np.ndarray, " n"] | Bool[np.ndarray, "n c"],
    splits: Int[np.ndarray, " n"],
    *,
    locate: Callable[[int], tuple[Path, int | None]],
    column: str | None = None,
    min_labels: int = 2,
    are_numbers: bool = False,
    are_scored: bool = True,
) -> None:
    """Refuses labels that cannot be learned and splits without examples; warns of labels that look like slips.

    Args:
        place: File or folder, for messages.
        noun: Word for an example.
        names: Name of each label.
        labels: Label of each example, negative if it is unknown; or a flag for each label, some of which may be rare.
        splits: Split of each example.
        locate: Returns the file of an example, and its line if it is in a table.
        column: Column of labels.
        min_labels: The fewest labels.
        are_numbers: Whether names are numbers, of which none is a slip.
        are_scored: Whether labels that are not in every split are named.
    """
    if len(names) < min_labels:
        problem = f"{names[0]!r} is the only label" if names else f"no {noun} has a label"
        remedy = "Give two labels at least." if min_labels > 1 else "Fill it in where it is known."
        raise DataError(message(place, None, column, problem, remedy))
    is_multi, uses = labels.ndim == 2, count_label_uses(names, labels, splits)
    untrained = find_untrained(uses)
    if is_multi and untrained:
        rare = join_names([use.name for use in untrained])
        warn(f"{place}: {rare} never in train, where no model can learn it. Put {noun}s with it there.")
    for use in untrained if not is_multi else ():
        file, line = locate(use.first)
        twins = [name for name in names if name != use.name and name.casefold() == use.name.casefold()]
        remedy = f"Rename it to {twins[0]!r}." if twins else f"Put a {noun} with it into train, or take it out."
        problem = f"the label {use.name!r} is seen in {use.where}, and never in train"
        with collect_error():
            raise DataError(message(file, line, None if line is None else column, problem, remedy))
    _check_splits(place, noun, splits if is_multi else np.where(labels < 0, NONE, splits), " of each label")
    if are_scored and not is_multi:
        warn_of_unscored(place, uses, f"; there are too few {noun}s.")
    if not are_numbers:
        warn_of_similar(place, uses)


def _check_splits(place: Path, noun: str, splits: Int[np.ndarray, " n"], kind: str = "") -> None:
    for number, name in enumerate(SPLITS):
        if not (splits == number).any():
            remedy = f"Give more {noun}s{kind}, or put some there."
            raise DataError(message(place, None, None, f"no {noun} is in {name!r}", remedy))
