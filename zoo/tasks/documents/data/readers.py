"""Reads the user's own texts from tables and folders of text files. `data/README.md` describes the formats."""

from __future__ import annotations

import os
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.compressed import open_bytes
from zoo.data.csv_recovery import NUL
from zoo.data.encodings import UTF8, Encoding, find_decoding_fault
from zoo.data.folders import Walk
from zoo.data.json_lines import JSONTable, is_table, open_table
from zoo.data.lazy_text import ConcatSequence, LazyColumn
from zoo.data.line_index import Lines
from zoo.data.option_hints import format_option, skip_hint
from zoo.data.splits import NONE, SPLITS
from zoo.data.stdin import original_path
from zoo.data.tables import OnBadRow, Required, Row, RowError, Table, collect_error, message
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.documents.data.corpus import Corpus, TextCollector
from zoo.tasks.documents.label_set import Targets
from zoo.text.html import remove_markup

MOST_CHARACTERS, MOST_TOKENS = 1_000_000, 200_000


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """Options for reading the user's own texts.

    Args:
        text: Name of the column of texts.
        label: Name of the column of labels.
        id: Name of the column of ids. Default: line numbers are ids.
        split: Name of the column of splits, which a table may lack.
        targets: Kind of labels.
        on_bad_row: `error` raises an error for bad texts; `skip` leaves them out and counts them.
        encoding: Encoding of the files.
        most_characters: Maximum number of characters of a text; a longer one is bad.
        cache: Folder for indices of JSONL files, whose texts then stay on disk. Default: texts are kept in memory.
    """

    text: str = "text"
    label: str = "label"
    id: str | None = None
    split: str = "split"
    targets: Targets = "single"
    on_bad_row: OnBadRow = "error"
    encoding: Encoding = UTF8
    most_characters: int = MOST_CHARACTERS
    cache: Path | None = None


class TextError(RowError):
    """A text file that cannot be read."""


class _FileTexts(Sequence[str]):
    """The texts of files, which are read on access."""

    def __init__(self, paths: Sequence[Path], reading: ReaderOptions) -> None:
        self.paths, self.reading = paths, reading

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: Any) -> Any:
        return read_text(self.paths[number], self.reading)


def read_text_table(path: Path, reading: ReaderOptions, *, split_seed: int) -> Corpus:
    """Reads a table of texts and labels: CSV, TSV or JSONL.

    Args:
        path: The table.
        reading: Options of reading.
        split_seed: Seed of the split if the table has no column of splits.
    """
    gathered = TextCollector(path, reading.targets)
    texts = _table(path, reading, gathered, needs_label=True)
    return gathered.corpus(texts, split_seed)


def read_text_folder(folder: Path, reading: ReaderOptions, *, split_seed: int) -> Corpus:
    """Reads text files from `folder/<class>/...` or `folder/{train,val,test}/<class>/...`.

    Args:
        folder: The folder. The name of a class folder is the label; it may have folders of its own.
        reading: Options of reading.
        split_seed: Seed of the split if there are no folders of splits.
    """
    if not folder.is_dir():
        what = "this is a file, where a folder belongs" if folder.exists() else "the folder does not exist"
        raise DataError(message(folder, None, None, what, f"Check the path, which is taken from {Path.cwd()}."))
    walk, files = _walk(folder), _Files(reading)
    inside, loose = walk.content(folder)
    parts: list[tuple[Path, int]] = [(folder, NONE)]
    if inside and {each.name for each in inside} <= set(SPLITS):
        parts = [(each, SPLITS.index(each.name)) for each in inside]
        if {split for _, split in parts} != {0, 1, 2}:
            missing = next(name for name in SPLITS if not (folder / name).is_dir())
            raise DataError(
                message(folder, None, None, f"there is no folder {missing!r}", "Add it, or have classes alone.")
            )
    gathered = TextCollector(folder, reading.targets)
    for part, split in parts:
        classes, outside = (inside, loose) if part == folder else walk.content(part)
        walk.loose += [walk.relative_name(path) for path in walk.select(outside)]
        for each in classes:
            label = unicodedata.normalize("NFC", each.name)
            paths = sorted(walk.files(each, (os.path.realpath(part),)))
            if not paths:
                walk.empty.append(walk.relative_name(each))
            for path in paths:
                files.add(path, partial(gathered.add, walk.relative_name(path), label, split, None, _refusal(path)))
    walk.report()
    files.report(folder)
    if not files.good:
        raise DataError(message(folder, None, None, "no folder in it has a .txt file", "Put each class into a folder."))
    return gathered.corpus(_FileTexts(files.good, reading), split_seed)


def read_texts_at(
    paths: Sequence[Path], reading: ReaderOptions, known: Sequence[str], unknown: UnknownLabels | None = None
) -> Corpus:
    """Reads texts for a trained model: tables, which may lack labels, text files, and folders of text files.

    A file in a folder that has the name of one of the labels gets this label and belongs to the test split.

    Args:
        paths: Tables, text files and folders.
        reading: Options of reading.
        known: Labels of the model.
        unknown: Where other labels go. Default: they are errors.
    """
    gathered = TextCollector(paths[0], reading.targets, known, unknown)
    parts: list[Sequence[str]] = []
    for path in paths:
        if path.is_file() and is_table(path):
            prefix = f"{original_path(path).name}:" if len(paths) > 1 else ""
            parts.append(_table(path, reading, gathered, needs_label=False, prefix=prefix))
            continue
        walk, files = _walk(path), _Files(reading)
        found = sorted(walk.files(path)) if path.is_dir() else [path]
        if not found:
            raise DataError(message(path, None, None, "no .txt file is in this folder", "Name the tables in it."))
        walk.report()
        for file in found:
            label = unicodedata.normalize("NFC", file.parent.name)
            named = label if reading.targets != "multi" and label in known else None
            files.add(file, partial(gathered.add, str(original_path(file)), named, NONE, None, _refusal(file)))
        files.report(path)
        parts.append(_FileTexts(files.good, reading))
    if not gathered.ids:
        raise DataError(f"{paths[0]}: no text is usable.")
    return gathered.corpus(ConcatSequence(parts), 0)


def texts_as_written(
    texts: Sequence[str],
    first: int,
    targets: Targets,
    known: Sequence[str],
    most_characters: int = MOST_CHARACTERS,
) -> Corpus:
    """Collects texts given on the command line, or lines of standard input.

    Args:
        texts: The texts.
        first: Number of the first text, for its id.
        targets: Kind of the model's labels.
        known: Labels of the model.
        most_characters: Maximum number of characters of a text, as in files.
    """
    gathered = TextCollector(Path("--text"), targets, known)
    for number, text in enumerate(texts, start=first):
        if not remove_markup(text[:most_characters]).text.strip():
            raise DataError(f"text {number} is empty. Write a text.")
        if (problem := _problem(text, most_characters)) is not None:
            raise DataError(f"text {number}: {problem[0]}. Part it.")
        if "\0" in text:
            raise DataError(f"text {number}: {NUL.what}. {NUL.remedy}")
        gathered.add(f"text {number}", None, NONE, None, _refusal(Path("--text")))
    return gathered.corpus(list(texts), 0)


def read_text(path: Path, reading: ReaderOptions) -> str:
    """Reads the text of a file.

    Raises:
        TextError: The file cannot be read, is empty or too long, or is no text in its encoding.
    """
    try:
        with open_bytes(path, reading.encoding) as file:
            text = file.read().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise TextError(
            message(path, None, None, f"the file cannot be read ({error.strerror})", "Check it.")
        ) from error
    if find_decoding_fault(text, reading.encoding) is not None:
        for line, part in enumerate(text.split("\n"), start=1):
            if (fault := find_decoding_fault(part, reading.encoding)) is not None:
                raise TextError(message(path, line, None, fault.what, f"{fault.remedy} {skip_hint('files')}"))
    problem = _problem(text, reading.most_characters)
    if problem is not None:
        raise TextError(message(path, None, None, problem[0], f"{problem[1]} {skip_hint('files')}"))
    return text


def _table(
    path: Path, reading: ReaderOptions, gathered: TextCollector, *, needs_label: bool, prefix: str = ""
) -> Sequence[str]:
    """Adds the rows of a table to `gathered` and returns their texts."""
    named = [reading.text, *([reading.label] if needs_label else []), *([reading.id] if reading.id else [])]
    options = {getattr(reading, name): f"data.{name}" for name in ("text", "label", "id")}
    required: Required = {name: options[name] for name in named} if needs_label else named
    table = open_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)
    lines = (
        Lines(path, reading.cache, encoding=reading.encoding)
        if isinstance(table, JSONTable) and reading.cache is not None
        else None
    )
    texts, numbers = list[str](), array("q")
    seen: dict[str, int] = {}
    for row, text, id in table.parse(_row_reader(table, reading, gathered, seen, prefix)):
        if lines is None:
            texts.append(text)
        numbers.append(row)
        seen[id] = row
    if table.skipped:
        warn(table.report())
    unused = [name for name in table.columns if name not in (*named, reading.label, reading.split)]
    if unused:
        warn(f"{path}: {join_names(unused)} not used; a text has a label, and perhaps an id and a split.")
    if lines is not None:
        assert isinstance(table, JSONTable)
        return LazyColumn(table, lines, numbers, reading.text)
    return texts


def _row_reader(
    table: Table, reading: ReaderOptions, gathered: TextCollector, seen: dict[str, int], prefix: str
) -> Callable[[Row], tuple[int, str, str]]:
    has_label, has_split = reading.label in table.columns, reading.split in table.columns

    def read(row: Row) -> tuple[int, str, str]:
        text = row.text(reading.text)
        problem = _problem(text, reading.most_characters) if text else None
        if problem is not None:
            raise row.error(reading.text, *problem)
        id = f"{prefix}{row.line}" if reading.id is None else row.text(reading.id)
        if reading.id is not None and id in seen:
            raise row.error(reading.id, f"{id!r} is the name of line {seen[id]} too", "Give each text its own.")
        label = row.text(reading.label, empty=True) if has_label else None
        split = row.choice(reading.split, SPLITS, empty=gathered.known is not None) if has_split else ""
        if row.is_bad:
            raise row.error(None, "a cell is bad", "")  # the error of the cell itself is listed already
        gathered.add(
            id,
            label,
            SPLITS.index(split) if split else NONE,
            row.line,
            lambda what, how: row.error(reading.label, what, how),
        )
        return row.line, text, id

    return read


def _problem(text: str, most: int) -> tuple[str, str] | None:
    """Returns what is wrong with a text and how to mend it, or None."""
    if len(text) > most:
        what = f"the text has {len(text):,} characters, and {most:,} are the most"
        return what, f"Part it, or raise {format_option('most_characters')}."
    if not remove_markup(text).text.strip():
        return "the text is empty", "Fill it in."
    return None


def _refusal(path: Path) -> Callable[[str, str], DataError]:
    return lambda what, how: TextError(message(path, None, None, what, how))


def _walk(folder: Path) -> Walk:
    return Walk(folder, (".txt",), "text")


class _Files:
    """Text files one after another: those that can be read, and the number of those that are left out."""

    def __init__(self, reading: ReaderOptions) -> None:
        self.reading = reading
        self.good: list[Path] = []
        self.skipped: list[str] = []

    def add(self, path: Path, gather: Callable[[], None]) -> None:
        """Reads a file; a bad one is listed, left out or an error.

        Args:
            path: The file.
            gather: Adds its name and label to those of the others, unless it is bad.
        """
        try:
            read_text(path, self.reading)
            gather()
        except TextError as error:
            if self.reading.on_bad_row == "skip":
                self.skipped.append(str(error).removesuffix(skip_hint("files")).rstrip())
                return
            with collect_error():
                raise
        else:
            self.good.append(path)

    def report(self, place: Path) -> None:
        """Warns of files that were left out."""
        if self.skipped:
            warn(f"{place}: skipped {count_noun(len(self.skipped), 'bad text')}. The first: {self.skipped[0]}")
