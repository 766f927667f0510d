"""The user's own pairs of texts: tables, aligned text files. `data/README.md` describes the formats."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

import numpy as np

from zoo.data.encodings import Encoding, Fault
from zoo.data.json_lines import is_table
from zoo.data.lazy_text import ConcatSequence, LazyLines
from zoo.data.line_index import Lines, TextLines, read_lines
from zoo.data.ragged import RaggedBuilder
from zoo.data.records import Column, Record, Records, Schema, assign_splits, find_length_fault, name_given_texts
from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.data.stdin import original_path
from zoo.data.tables import BadRows, RowError, TableOptions, check_is_file, message
from zoo.errors import DataError
from zoo.tasks.translation.data.corpus import Corpus

MOST_CHARACTERS, MOST_TOKENS = 10_000, 1_000
_LINK = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(TableOptions):
    """How the user's own pairs are read.

    Args:
        source: The name of the column of texts.
        target: Likewise of their translations.
        alignment: Likewise of links of words, where there is such a column.
        id: Likewise of names; None: the numbers of lines.
        split: Likewise of splits, where there is such a column.
        most_characters: A longer text is a bad one.
        max_length: A text with more tokens is a bad one; None: none is.
    """

    source: str = "source"
    target: str = "target"
    alignment: str = "alignment"
    id: str | None = None
    split: str = "split"
    most_characters: int = MOST_CHARACTERS
    max_length: int | None = MOST_TOKENS


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


Refuse = Callable[[str, str, str], RowError]
"""Makes the error of a bad pair, from the side (source, target, alignment), what is wrong and how to mend it."""


@dataclass
class PairCollector:
    """Pairs as readers find them, one after another.

    Args:
        place: The file, for messages.
        keeps_texts: Whether texts are kept in memory.
    """

    place: Path
    keeps_texts: bool = True
    is_complete: bool = True
    """Whether no pair is missing because its problems were listed."""
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    links: RaggedBuilder = field(default_factory=lambda: RaggedBuilder(width=2))

    def add(self, texts: Mapping[str, str], id: str, split: int, refuse: Refuse) -> None:
        """Adds a pair.

        Args:
            texts: Side -> text.
            id: A name.
            split: A number of `zoo.data.splits`.
            refuse: Makes the error of a bad pair.
        """
        self.links.append(_read_links(texts, refuse) if {"target", "alignment"} <= set(texts) else [])
        self.ids.append(id)
        self.splits.append(split)
        if self.keeps_texts:
            self.sources.append(texts["source"])
            self.targets.append(texts.get("target", ""))

    def corpus(
        self, sources: Sequence[str], targets: Sequence[str] | None, *, has_links: bool, split_seed: int | None
    ) -> Corpus:
        """Checks the rules for the whole set, and returns the pairs.

        Args:
            sources: The texts.
            targets: Their translations; None: not known.
            has_links: Whether links of words are known.
            split_seed: The seed of the 60/20/20 split of pairs that all are in no split. None: these are pairs for a
                trained model, and those in no split are for its test.
        """
        known = targets is not None
        splits = assign_splits(self.place, "pair", self.splits, seed=split_seed, known=known, checks=self.is_complete)
        return Corpus(sources, targets, self.ids, splits, self.links.build() if has_links else None)


def read_pair_table(
    path: Path, options: ReaderOptions, *, cache: Path | None, split_seed: int | None, needs_target: bool = True
) -> Corpus:
    """Reads a table of texts and translations: CSV, TSV or JSONL.

    Args:
        path: The table.
        options: The names of the columns, and what is left out.
        cache: The folder for the index of a JSONL file, whose texts are then not held in memory; None: they are.
        split_seed: The seed of the split, where no row has a split; None: a trained model's input.
        needs_target: Whether there must be translations.
    """
    text = partial(Column, empty=False, most=options.most_characters, most_option="most_characters")
    sides = {
        "source": text(options.source, required=True),
        "target": text(options.target, required=needs_target),
        "alignment": Column(options.alignment),
    }
    schema = Schema(
        noun="pair",
        columns={
            **sides,
            "id": Column(options.id, "id", required=options.id is not None),
            "split": Column(options.split, "split"),
        },
        usage="a pair has a source and a target, perhaps an alignment and a split",
        has_options=True,
        splits_all=True,
    )
    records = Records(path, schema, options, is_input=split_seed is None)
    index = records.index_texts(cache)
    collector = PairCollector(path, keeps_texts=index is None)

    def make(record: Record) -> int:
        texts = {side: record[side] for side in sides if side in records}
        collector.add(texts, record.id, record.split, record.error)
        return record.line

    lines = array("q", records.parse(make))
    collector.is_complete = records.is_complete
    sources: Sequence[str] = collector.sources
    targets: Sequence[str] = collector.targets
    if index is not None:
        sources, targets = index("source", lines), index("target", lines)
    has_target = "target" in records
    has_links = has_target and "alignment" in records
    return collector.corpus(sources, targets if has_target else None, has_links=has_links, split_seed=split_seed)


def read_pair_files(
    files: Mapping[str, Aligned], options: ReaderOptions, *, cache: Path | None, split_seed: int | None
) -> Corpus:
    """Reads text files whose lines belong together.

    Args:
        files: Split -> its files; "" if one pair of files has all pairs.
        options: What is left out.
        cache: The folder for the indices of the files, whose texts are then not held in memory; None: they are.
        split_seed: The seed of the split of files that have all pairs; None: a trained model's input.
    """
    place = next(iter(files.values())).source
    collector = PairCollector(place, keeps_texts=cache is None)
    on_demand: list[tuple[LazyLines, ...]] = []
    lines = None
    for split, aligned in files.items():
        prefix = f"{split} " if split else ""
        numbers, count = _read_lines(aligned, collector, options, SPLITS.index(split) if split else NONE, prefix)
        lines = TextLines(array("q", (number - 1 for number in numbers)), count) if split_seed is None else None
        if cache is not None:
            on_demand.append(
                tuple(LazyLines(Lines(path, cache, encoding=options.encoding), numbers) for path in aligned.paths[:2])
            )
    sides: Sequence[Sequence[str]] = [collector.sources, collector.targets]
    if cache is not None:
        sides = [ConcatSequence(parts) for parts in zip(*on_demand, strict=True)]
    has_target = all(aligned.target is not None for aligned in files.values())
    has_links = all(aligned.alignment is not None for aligned in files.values())
    corpus = collector.corpus(sides[0], sides[1] if has_target else None, has_links=has_links, split_seed=split_seed)
    return replace(corpus, lines=lines)


def read_pairs_at(paths: Sequence[Path], options: ReaderOptions, references: Path | None = None) -> Corpus:
    """Texts for a trained model: tables, which may have no translations, and text files with a text on each line.

    Args:
        paths: The files.
        options: The names of the columns, and what is left out.
        references: The file with the translations of the one text file.
    """
    if references is not None and (len(paths) > 1 or is_table(paths[0])):
        raise DataError(f"{references}: references belong to one text file; a table has them in a column.")
    parts = []
    for path in paths:
        if is_table(path):
            parts.append(read_pair_table(path, options, cache=None, split_seed=None, needs_target=False))
        else:
            parts.append(read_pair_files({"": Aligned(path, references)}, options, cache=None, split_seed=None))
    return parts[0] if len(parts) == 1 else _join(parts, paths)


def add_back_translated(corpus: Corpus, path: Path, options: ReaderOptions) -> Corpus:
    """Adds pairs for training whose source a model has written: a table of `zoo predict`, its `text` and `translation`.

    Args:
        corpus: The pairs of a data set, whose targets are known.
        path: The table.
        options: How long a text may be, and what is left out.
    """
    options = ReaderOptions(
        source="translation", target="text", on_bad_row=options.on_bad_row, most_characters=options.most_characters
    )
    table = read_pair_table(path, options, cache=None, split_seed=None)
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
    ids = name_given_texts(texts, first, most_characters)
    return Corpus([text.strip() for text in texts], None, ids, np.full(len(texts), NONE))


def _read_lines(
    aligned: Aligned, collector: PairCollector, options: ReaderOptions, split: int, prefix: str
) -> tuple[Sequence[int], int]:
    """Adds the pairs of text files; returns their lines, and how many there are with blank and bad ones."""
    paths, numbers, count = aligned.paths, array("q"), 0
    sides = [side for side in ("source", "target", "alignment") if getattr(aligned, side) is not None]
    by_side = dict(zip(sides, paths, strict=True))
    for path in paths:
        check_is_file(path)
    bad = BadRows(paths[0], options.on_bad_row, "line", "lines")
    files = [read_lines(path, encoding=options.encoding) for path in paths]
    for count, rows in enumerate(zip_longest(*files), start=1):
        if None in rows:
            raise _make_count_error(paths, options.encoding)
        refuse = partial(_make_line_error, by_side, count)
        try:
            texts = {}
            for side, (_, text) in zip(sides, rows, strict=True):
                if isinstance(text, Fault):
                    raise refuse(side, *text)
                texts[side] = text.strip()
            if any(texts.values()):
                for side in sides[:2]:
                    fault = find_length_fault(texts[side], options.most_characters, "most_characters")
                    if fault is not None or not texts[side]:
                        raise refuse(side, *(fault or ("the text is empty", "Fill it in.")))
                collector.add(texts, f"{prefix}{count}", split, refuse)
                numbers.append(count)
        except RowError as error:
            bad.add(error)
    bad.warn()
    collector.is_complete &= not bad.listed
    if not len(numbers):
        raise DataError(f"{paths[0]}: the file has no text. Write a text on each line.")
    return numbers, count


def _make_line_error(paths: Mapping[str, Path], line: int, side: str, problem: str, remedy: str) -> RowError:
    return RowError(message(paths[side], line, None, problem, remedy))


def _read_links(texts: Mapping[str, str], refuse: Refuse) -> list[int]:
    """Returns links, written as source-target, as words of the target and of the source, one after another."""
    links = []
    counts = {side: len(texts[side].split()) for side in ("source", "target")}
    for link in texts["alignment"].split():
        parts = _LINK.fullmatch(link)
        if parts is None:
            remedy = "Write words by their numbers from 0, source-target, such as 0-0 1-2."
            raise refuse("alignment", f"{link!r} is not a link", remedy)
        source, target = int(parts[1]), int(parts[2])
        for side, number in (("source", source), ("target", target)):
            if number >= counts[side]:
                problem = f"{link!r} names word {number} of a {side} of {counts[side]} words, from 0"
                raise refuse("alignment", problem, "Words are what stands between white space. Mend the link.")
        links += [target, source]
    return links


def _make_count_error(paths: Sequence[Path], encoding: Encoding) -> DataError:
    """Returns the error of files with different numbers of lines."""
    counts = [sum(1 for _ in read_lines(path, encoding=encoding)) for path in paths]
    said = " and ".join(f"{path} has {count:,} lines" for path, count in zip(paths, counts, strict=True))
    return DataError(f"{said}. Line N of each file belongs to line N of the others: mend the file that lacks lines.")


def _join(parts: Sequence[Corpus], paths: Sequence[Path]) -> Corpus:
    """Returns the texts of several files as one."""
    for noun, known in (
        ("translations", [part.targets is not None for part in parts]),
        ("alignments", [part.links is not None for part in parts]),
    ):
        if len(set(known)) > 1:
            having, lacking = paths[known.index(True)], paths[known.index(False)]
            raise DataError(f"{having} has {noun} and {lacking} has none. Give them one after the other.")
    targets = [part.targets for part in parts if part.targets is not None]
    links = [part.links for part in parts if part.links is not None]
    return Corpus(
        ConcatSequence([part.sources for part in parts]),
        ConcatSequence(targets) if targets else None,
        [f"{original_path(path).name}:{id}" for part, path in zip(parts, paths, strict=True) for id in part.ids],
        np.concatenate([part.splits for part in parts]),
        ConcatSequence(links) if links else None,
        _join_lines([part.lines for part in parts]),
    )


def _join_lines(parts: Sequence[TextLines | None]) -> TextLines | None:
    """Returns the lines of several files, one after another; None if one of them is a table."""
    known, numbers, count = [part for part in parts if part is not None], list[int](), 0
    for lines in known:
        numbers += [count + number for number in lines.numbers]
        count += lines.total
    return TextLines(numbers, count) if len(known) == len(parts) else None
