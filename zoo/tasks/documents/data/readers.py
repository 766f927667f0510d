"""Reads the user's own texts from tables and folders of text files. `data/README.md` describes the formats."""

from __future__ import annotations

import os
import unicodedata
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.compressed import open_bytes
from zoo.data.encodings import Fault, find_decoding_fault
from zoo.data.folders import Walk, check_is_folder
from zoo.data.json_lines import is_table
from zoo.data.lazy_text import ConcatSequence
from zoo.data.records import Column, Record, Records, Schema, find_length_fault, name_given_texts
from zoo.data.splits import NONE, SPLITS
from zoo.data.stdin import original_path
from zoo.data.tables import BadRows, RowError, TableOptions, message
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError
from zoo.tasks.documents.data.corpus import Corpus, TextCollector
from zoo.tasks.documents.label_set import Targets
from zoo.text.html import remove_markup

MOST_CHARACTERS, MOST_TOKENS = 1_000_000, 200_000


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(TableOptions):
    """Options for reading the user's own texts.

    Args:
        text: Name of the column of texts.
        label: Name of the column of labels.
        id: Name of the column of ids. Default: line numbers are ids.
        split: Name of the column of splits, which a table may lack.
        targets: Kind of labels.
        most_characters: Maximum number of characters of a text; a longer one is bad.
        cache: Folder for indices of JSONL files, whose texts then stay on disk. Default: texts are kept in memory.
    """

    text: str = "text"
    label: str = "label"
    id: str | None = None
    split: str = "split"
    targets: Targets = "single"
    most_characters: int = MOST_CHARACTERS
    cache: Path | None = None


class _FileTexts(Sequence[str]):
    """The texts of files, which are read on access."""

    def __init__(self, paths: Sequence[Path], options: ReaderOptions) -> None:
        self.paths, self.options = paths, options

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: Any) -> Any:
        return read_text(self.paths[number], self.options)


def read_text_table(path: Path, options: ReaderOptions, *, split_seed: int) -> Corpus:
    """Reads a table of texts and labels: CSV, TSV or JSONL.

    Args:
        path: The table.
        options: Options of reading.
        split_seed: Seed of the split if no row has a split.
    """
    collector = TextCollector(path, options.targets, column=options.label)
    return collector.corpus(_read_table(path, options, collector), split_seed)


def read_text_folder(folder: Path, options: ReaderOptions, *, split_seed: int) -> Corpus:
    """Reads text files from `folder/<class>/...` or `folder/{train,val,test}/<class>/...`.

    Args:
        folder: The folder. The name of a class folder is the label; it may have folders of its own.
        options: Options of reading.
        split_seed: Seed of the split if there are no folders of splits.
    """
    check_is_folder(folder)
    walk, files = _walk(folder), list[_File]()
    inside, loose = walk.content(folder)
    parts: list[tuple[Path, int]] = [(folder, NONE)]
    if inside and {each.name for each in inside} <= set(SPLITS):
        parts = [(each, SPLITS.index(each.name)) for each in inside]
        if {split for _, split in parts} != {0, 1, 2}:
            missing = next(name for name in SPLITS if not (folder / name).is_dir())
            raise DataError(
                message(folder, None, None, f"there is no folder {missing!r}", "Add it, or have classes alone.")
            )
    for part, split in parts:
        classes, outside = (inside, loose) if part == folder else walk.content(part)
        walk.loose += [walk.relative_name(path) for path in walk.select(outside)]
        for class_folder in classes:
            label = unicodedata.normalize("NFC", class_folder.name)
            paths = sorted(walk.files(class_folder, (os.path.realpath(part),)))
            if not paths:
                walk.empty.append(walk.relative_name(class_folder))
            files += [(path, walk.relative_name(path), label, split) for path in paths]
    walk.report()
    collector = TextCollector(folder, options.targets)
    texts = _read_files(folder, files, options, collector)
    if not len(texts):
        raise DataError(message(folder, None, None, "no folder in it has a .txt file", "Put each class into a folder."))
    return collector.corpus(texts, split_seed)


def read_texts_at(
    paths: Sequence[Path], options: ReaderOptions, known: Sequence[str], unknown: UnknownLabels | None = None
) -> Corpus:
    """Reads texts for a trained model: tables, which may lack labels, text files, and folders of text files.

    A file in a folder that has the name of one of the labels gets this label and belongs to the test split.

    Args:
        paths: Tables, text files and folders.
        options: Options of reading.
        known: Labels of the model.
        unknown: Where other labels go. Default: they are errors.
    """
    collector = TextCollector(paths[0], options.targets, known, unknown)
    parts: list[Sequence[str]] = []
    for path in paths:
        if path.is_file() and is_table(path):
            prefix = f"{original_path(path).name}:" if len(paths) > 1 else ""
            parts.append(_read_table(path, options, collector, prefix))
            continue
        walk = _walk(path)
        files = sorted(walk.files(path)) if path.is_dir() else [path]
        if not files:
            raise DataError(message(path, None, None, "no .txt file is in this folder", "Name the tables in it."))
        walk.report()
        labels = [unicodedata.normalize("NFC", file.parent.name) for file in files]
        named = [label if options.targets != "multi" and label in known else None for label in labels]
        files_read = [(file, str(original_path(file)), label, NONE) for file, label in zip(files, named, strict=True)]
        parts.append(_read_files(path, files_read, options, collector))
    if not collector.ids:
        raise DataError(f"{paths[0]}: no text is usable.")
    return collector.corpus(ConcatSequence(parts))


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
    collector = TextCollector(Path("--text"), targets, known)
    for id in name_given_texts(texts, first, most_characters, lambda text: remove_markup(text).text):
        collector.add(id, None, NONE)
    return collector.corpus(list(texts))


def read_text(path: Path, options: ReaderOptions) -> str:
    """Reads the text of a file.

    Raises:
        RowError: The file cannot be read, is empty or too long, or is no text in its encoding.
    """
    try:
        with open_bytes(path, options.encoding) as file:
            text = file.read().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        raise RowError(message(path, None, None, problem, "Check it.")) from error
    if find_decoding_fault(text, options.encoding) is not None:
        for line, part in enumerate(text.split("\n"), start=1):
            if (fault := find_decoding_fault(part, options.encoding)) is not None:
                raise RowError(message(path, line, None, *fault))
    if (fault := _find_fault(text, options.most_characters)) is not None:
        raise RowError(message(path, None, None, *fault))
    return text


def _read_table(path: Path, options: ReaderOptions, collector: TextCollector, prefix: str = "") -> Sequence[str]:
    """Adds the rows of a table to `collector` and returns their texts; `prefix` stands before ids that are lines."""
    is_input = collector.known is not None
    schema = Schema(
        noun="text",
        columns={
            "text": Column(options.text, required=True),
            "id": Column(options.id, "id", required=options.id is not None),
            "label": Column(options.label, required=not is_input, empty=True),
            "split": Column(options.split, "split"),
        },
        usage="a text has a label, and perhaps an id and a split",
        has_options=True,
        splits_all=True,
    )
    records = Records(path, schema, options, is_input=is_input)
    index = records.index_texts(options.cache)

    def make(record: Record) -> tuple[int, str]:
        if (fault := _find_fault(record["text"], options.most_characters)) is not None:
            raise record.error("text", *fault)
        id, label = record.id if "id" in records else f"{prefix}{record.id}", record["label"]
        refuse = partial(record.error, "label")
        collector.add(id, label if "label" in records else None, record.split, record.line, refuse)
        return record.line, "" if index is not None else record["text"]

    lines, texts = array("q"), list[str]()
    for line, text in records.parse(make):
        lines.append(line)
        texts.append(text)
    collector.is_complete &= records.is_complete
    return texts if index is None else index("text", lines)


_File = tuple[Path, str, str | None, int]
"""A text file: its path, name, label and split."""


def _read_files(place: Path, files: Sequence[_File], options: ReaderOptions, collector: TextCollector) -> _FileTexts:
    """Adds text files to `collector` and returns their texts; a bad one is listed, left out or an error."""
    bad, good = BadRows(place, options.on_bad_row, "text", "files"), list[Path]()
    for path, id, label, split in files:
        try:
            read_text(path, options)
            collector.add(id, label, split, None, partial(_make_error, path))
            good.append(path)
        except RowError as error:
            bad.add(error)
    bad.warn()
    collector.is_complete &= not bad.listed
    return _FileTexts(good, options)


def _make_error(path: Path, problem: str, remedy: str) -> RowError:
    return RowError(message(path, None, None, problem, remedy))


def _find_fault(text: str, most: int) -> Fault | None:
    """Returns what is wrong with a text and how to mend it, or None."""
    if (fault := find_length_fault(text, most, "most_characters")) is not None:
        return fault
    return None if remove_markup(text).text.strip() else Fault("the text is empty", "Fill it in.")


def _walk(folder: Path) -> Walk:
    return Walk(folder, (".txt",), "text")
