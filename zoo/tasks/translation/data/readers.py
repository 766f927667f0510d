"""The user's own pairs of texts: tables, aligned text files. `data/README.md` describes the formats."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from zoo.data.csv_recovery import NUL
from zoo.data.encodings import Encoding, Fault
from zoo.data.json_lines import JSONTable, is_table, open_table
from zoo.data.lazy_text import ConcatSequence, LazyColumn, LazyLines
from zoo.data.line_index import Lines, TextLines, read_lines
from zoo.data.option_hints import skip_hint
from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.data.stdin import original_path
from zoo.data.tables import Required, Row, RowError, Table, check_is_file, collect_error, message
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.pair_collector import MOST_CHARACTERS, PairCollector, ReaderOptions, problem_of


@dataclass(frozen=True)
class Aligned:
    """Text files whose lines belong together.

    Args:
        source: The file of texts.
        target: The file of their translations; None: not known.
        alignment: The file of links of words; None: not known.
    """

    source: Path
    target: Path | None = None
    alignment: Path | None = None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.source, self.target, self.alignment) if path is not None]


def read_pair_table(
    path: Path, reading: ReaderOptions, *, cache: Path | None, split_seed: int | None, needs_target: bool = True
) -> Corpus:
    """Reads a table of texts and translations: CSV, TSV or JSONL.

    Args:
        path: The table.
        reading: The names of the columns, and what is left out.
        cache: The folder for the index of a JSONL file, whose texts are then not held in memory; None: they are.
        split_seed: The seed of the split, where the table has no column of splits; None: a trained model's input.
        needs_target: Whether there must be translations.
    """
    named = [reading.source, *([reading.target] if needs_target else []), *([reading.id] if reading.id else [])]
    options = {getattr(reading, name): f"data.{name}" for name in ("source", "target", "id")}
    required: Required = {name: options[name] for name in named} if split_seed is not None else named
    table = open_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)
    lines = (
        Lines(path, cache, encoding=reading.encoding) if isinstance(table, JSONTable) and cache is not None else None
    )
    found = PairCollector(reading, path, keeps_texts=lines is None)
    numbers = array("q", table.parse(_row_reader(table, reading, found, is_input=split_seed is None)))
    if table.skipped:
        warn(table.report())
    unused = [name for name in table.columns if name not in (*named, *_columns(reading).values(), reading.split)]
    if unused:
        said = f"{path}: {join_names(unused)} not used"
        warn(f"{said}; a pair has a source and a target, perhaps an alignment and a split.")
    sources: Sequence[str] = found.sources
    targets: Sequence[str] = found.targets
    if lines is not None:
        assert isinstance(table, JSONTable)
        sources, targets = (LazyColumn(table, lines, numbers, name) for name in (reading.source, reading.target))
    has_target = reading.target in table.columns
    return found.corpus(
        sources,
        targets if has_target else None,
        has_links=has_target and reading.alignment in table.columns,
        split_seed=split_seed,
    )


def read_pair_files(
    files: Mapping[str, Aligned], reading: ReaderOptions, *, cache: Path | None, split_seed: int | None
) -> Corpus:
    """Reads text files whose lines belong together.

    Args:
        files: Split -> its files; "" if one pair of files has all pairs.
        reading: What is left out.
        cache: The folder for the indices of the files, whose texts are then not held in memory; None: they are.
        split_seed: The seed of the split of files that have all pairs; None: a trained model's input.
    """
    place = next(iter(files.values())).source
    found = PairCollector(reading, place, keeps_texts=cache is None)
    on_demand: list[tuple[LazyLines, ...]] = []
    lines = None
    for split, aligned in files.items():
        prefix = f"{split} " if split else ""
        numbers, count = _read_lines(aligned, found, SPLITS.index(split) if split else NONE, prefix)
        lines = TextLines(array("q", (number - 1 for number in numbers)), count) if split_seed is None else None
        if cache is not None:
            on_demand.append(
                tuple(LazyLines(Lines(path, cache, encoding=reading.encoding), numbers) for path in aligned.paths[:2])
            )
    sides: Sequence[Sequence[str]] = [found.sources, found.targets]
    if cache is not None:
        sides = [ConcatSequence(parts) for parts in zip(*on_demand, strict=True)]
    has_target = all(each.target is not None for each in files.values())
    has_links = all(each.alignment is not None for each in files.values())
    corpus = found.corpus(sides[0], sides[1] if has_target else None, has_links=has_links, split_seed=split_seed)
    return replace(corpus, lines=lines)


def read_pairs_at(paths: Sequence[Path], reading: ReaderOptions, references: Path | None = None) -> Corpus:
    """Texts for a trained model: tables, which may have no translations, and text files with a text on each line.

    Args:
        paths: The files.
        reading: The names of the columns, and what is left out.
        references: The file with the translations of the one text file.
    """
    if references is not None and (len(paths) > 1 or is_table(paths[0])):
        raise DataError(f"{references}: references belong to one text file; a table has them in a column.")
    parts = []
    for path in paths:
        if is_table(path):
            parts.append(read_pair_table(path, reading, cache=None, split_seed=None, needs_target=False))
        else:
            parts.append(read_pair_files({"": Aligned(path, references)}, reading, cache=None, split_seed=None))
    return parts[0] if len(parts) == 1 else _joined(parts, paths)


def with_back_translated(corpus: Corpus, path: Path, reading: ReaderOptions) -> Corpus:
    """Adds pairs for training whose source a model has written: a table of `zoo predict`, its `text` and `translation`.

    Args:
        corpus: The pairs of a data set, whose targets are known.
        path: The table.
        reading: How long a text may be, and what is left out.
    """
    reading = ReaderOptions(
        source="translation",
        target="text",
        on_bad_row=reading.on_bad_row,
        most_characters=reading.most_characters,
    )
    table = read_pair_table(path, reading, cache=None, split_seed=None)
    assert corpus.targets is not None
    assert table.targets is not None
    none = [np.zeros((0, 2), dtype=np.int32)] * len(table)
    return Corpus(
        ConcatSequence([corpus.sources, table.sources]),
        ConcatSequence([corpus.targets, table.targets]),
        [*corpus.ids, *(f"{path.name}:{id}" for id in table.ids)],
        np.concatenate([corpus.splits, np.full(len(table), TRAIN)]),
        None if corpus.links is None else ConcatSequence([corpus.links, none]),
    )


def texts_as_written(texts: Sequence[str], first: int, most_characters: int = MOST_CHARACTERS) -> Corpus:
    """Texts of the command line, or lines of standard input, which obey the limit of files."""
    for number, text in enumerate(texts, start=first):
        if not text.strip():
            raise DataError(f"text {number} is empty. Write a text.")
        if "\0" in text:
            raise DataError(f"text {number}: {NUL.what}. {NUL.remedy}")
        if (problem := problem_of(text.strip(), most_characters)) is not None:
            raise DataError(f"text {number}: {problem[0]}. Part it.")
    ids = [f"text {number}" for number in range(first, first + len(texts))]
    return Corpus([text.strip() for text in texts], None, ids, np.full(len(texts), NONE))


def _row_reader(table: Table, reading: ReaderOptions, found: PairCollector, *, is_input: bool) -> Callable[[Row], int]:
    """Returns a function that adds the pair of a row and returns its line."""
    columns = {side: name for side, name in _columns(reading).items() if name in table.columns}
    has_split, seen = reading.split in table.columns, dict[str, int]()
    first: dict[bool, int] = {}  # of the lines without a split and with one

    def read(row: Row) -> int:
        texts = {side: row.text(name, empty=side == "alignment") for side, name in columns.items()}
        id = str(row.line) if reading.id is None else row.text(reading.id)
        if reading.id is not None and id in seen:
            raise row.error(reading.id, f"{id!r} is the name of line {seen[id]} too", "Give each pair its own.")
        split = row.choice(reading.split, SPLITS, empty=is_input or True not in first) if has_split else ""
        first.setdefault(bool(split), row.line)
        if split and not is_input and False in first:
            what = f"{split!r} stands here, and nothing in line {first[False]}"
            raise row.error(reading.split, what, "Give every pair a split, or none.")
        if row.is_bad:
            raise row.error(None, "a cell is bad", "")  # listed already
        number = SPLITS.index(split) if split else NONE
        found.add(texts, id, number, lambda side, what, how: row.error(columns[side], what, how))
        seen[id] = row.line
        return row.line

    return read


def _read_lines(aligned: Aligned, found: PairCollector, split: int, prefix: str) -> tuple[Sequence[int], int]:
    """Adds the pairs of text files; returns their lines, and how many there are with blank and bad ones."""
    paths, numbers, skipped = aligned.paths, array("q"), list[str]()
    names = [name for name in ("source", "target", "alignment") if getattr(aligned, name) is not None]
    by_side = dict(zip(names, paths, strict=True))
    for path in paths:
        check_is_file(path)
    count = 0
    encoding = found.reading.encoding
    read = [read_lines(path, encoding=encoding) for path in paths]
    for count, rows in enumerate(zip_longest(*read), start=1):
        if None in rows:
            raise _uneven(paths, encoding)
        try:
            texts = {}
            for side, (_, text) in zip(names, rows, strict=True):
                if isinstance(text, Fault):
                    raise _line_error(by_side[side], count, *text)
                texts[side] = text.strip()
            if any(texts.values()):
                refuse = lambda side, what, how: _line_error(by_side[side], count, what, how)  # noqa: B023, E731
                found.add(texts, f"{prefix}{count}", split, refuse)
                numbers.append(count)
        except RowError as error:
            if found.reading.on_bad_row == "skip":
                skipped.append(str(error).removesuffix(skip_hint("lines")).rstrip())
                continue
            with collect_error():
                raise
    if skipped:
        warn(f"{paths[0]}: skipped {count_noun(len(skipped), 'bad line')}. The first: {skipped[0]}")
    if not len(numbers):
        raise DataError(f"{paths[0]}: the file has no text. Write a text on each line.")
    return numbers, count


def _line_error(path: Path, line: int, what: str, remedy: str) -> RowError:
    return RowError(message(path, line, None, what, f"{remedy} {skip_hint('lines')}"))


def _uneven(paths: Sequence[Path], encoding: Encoding) -> DataError:
    """The error of files with different numbers of lines."""
    counts = [sum(1 for _ in read_lines(path, encoding=encoding)) for path in paths]
    said = " and ".join(f"{path} has {count:,} lines" for path, count in zip(paths, counts, strict=True))
    return DataError(f"{said}. Line N of each file belongs to line N of the others: mend the file that lacks lines.")


def _joined(parts: Sequence[Corpus], paths: Sequence[Path]) -> Corpus:
    """The texts of several files as one."""
    for what, known in (
        ("translations", [each.targets is not None for each in parts]),
        ("alignments", [each.links is not None for each in parts]),
    ):
        if len(set(known)) > 1:
            having, lacking = paths[known.index(True)], paths[known.index(False)]
            raise DataError(f"{having} has {what} and {lacking} has none. Give them one after the other.")
    targets = [each.targets for each in parts if each.targets is not None]
    links = [each.links for each in parts if each.links is not None]
    return Corpus(
        ConcatSequence([each.sources for each in parts]),
        ConcatSequence(targets) if targets else None,
        [f"{original_path(path).name}:{id}" for each, path in zip(parts, paths, strict=True) for id in each.ids],
        np.concatenate([each.splits for each in parts]),
        ConcatSequence(links) if links else None,
        _joined_lines([each.lines for each in parts]),
    )


def _joined_lines(parts: Sequence[TextLines | None]) -> TextLines | None:
    """Returns the lines of several files, one after another; None if one of them is a table."""
    known, numbers, count = [part for part in parts if part is not None], list[int](), 0
    for lines in known:
        numbers += [count + number for number in lines.numbers]
        count += lines.total
    return TextLines(numbers, count) if len(known) == len(parts) else None


def _columns(reading: ReaderOptions) -> dict[str, str]:
    """Side -> the name of its column."""
    return {"source": reading.source, "target": reading.target, "alignment": reading.alignment}
