"""The user's own pairs: what is read of them, and what is said of those that cannot be read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL
from zoo.data.tables import collect_errors
from zoo.errors import ConfigError, DataError
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.readers import (
    Aligned,
    ReaderOptions,
    read_pair_files,
    read_pair_table,
    read_pairs_at,
    texts_as_written,
)
from zoo.tasks.translation.data.token_links import link_tokens
from zoo.tasks.translation.datasets import text_pairs
from zoo.text import Characters, Subwords, Tokenizer, Words
from zoo.text.tokens import tokens_of_words

NAME = "pairs.csv"
SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "translation"
Write = Callable[..., Path]


def table(path: Path, cache: Path | None = None, **options: Any) -> Corpus:
    return read_pair_table(path, ReaderOptions(**options), cache=cache, split_seed=0)


def rows(count: int = 20, more: str = "") -> str:
    return "source,target\n" + "".join(f"text {n},Text {n}\n" for n in range(count)) + more


def aligned(write: Write, *sides: str | bytes) -> Aligned:
    names = ("own.de", "own.en", "own.align")
    return Aligned(*(write(content, name) for content, name in zip(sides, names, strict=False)))


def lines(side: str, count: int = 20) -> str:
    return "".join(f"{side} {number}\n" for number in range(count))


def read(write: Write, *sides: str | bytes, cache: Path | None = None, **options: Any) -> Corpus:
    return read_pair_files({"": aligned(write, *sides)}, ReaderOptions(**options), cache=cache, split_seed=0)


def test_a_table_is_split(write: Write) -> None:
    found = table(write(rows(50)))
    assert [(found.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [30, 10, 10]
    assert (found.sources[3], found.targets[3], found.ids[3], found.links) == ("text 3", "Text 3", "5", None)


def test_columns_are_named_and_splits_kept(write: Write) -> None:
    text = "de\ten\tname\tpart\tlinks\n" + "".join(f"d {n}\te {n}\tn{n}\t{SPLITS[n % 3]}\t0-1\n" for n in range(6))
    found = table(write(text, "own.tsv"), source="de", target="en", id="name", split="part", alignment="links")
    assert found.splits.tolist() == [TRAIN, VAL, TEST] * 2
    assert found.ids == [f"n{n}" for n in range(6)]
    assert [each.tolist() for each in found.links] == [[[1, 0]]] * 6


def test_texts_of_large_files_stay_there(write: Write, tmp_path: Path) -> None:
    objects = "".join(f"{json.dumps({'source': f'text {n}', 'target': f'Text {n}'})}\n" for n in range(20))
    for content, name in ((objects.encode(), "own.jsonl"), (gzip.compress(objects.encode()), "own.jsonl.gz")):
        found = table(write(content, name), tmp_path / "cache")
        assert not isinstance(found.sources, list)
        assert [found.sources[n] for n in (7, 0)] == ["text 7", "text 0"]
        assert list(found.targets) == [f"Text {n}" for n in range(20)]
    held = read(write, lines("de"), lines("en"))
    found = read(write, lines("de"), lines("en"), cache=tmp_path / "cache")
    assert not isinstance(found.targets, list)
    assert (list(found.sources), list(found.targets), found.ids) == (held.sources, held.targets, held.ids)


def test_files_of_each_split(write: Write) -> None:
    files = {
        split: Aligned(write(f"{split} x\n" * count, f"{split}.de"), write(f"{split} y\n" * count, f"{split}.en"))
        for split, count in (("train", 3), ("val", 2), ("test", 1))
    }
    found = read_pair_files(files, ReaderOptions(), cache=None, split_seed=0)
    assert found.splits.tolist() == [TRAIN] * 3 + [VAL] * 2 + [TEST]
    assert found.ids == ["train 1", "train 2", "train 3", "val 1", "val 2", "test 1"]


def test_lines_that_are_blank_on_both_sides_are_no_pairs(write: Write) -> None:
    found = read(write, "a\n\nb\nc\nd\ne\n\n", "A\n \nB\nC\nD\nE\n\n")
    assert list(found.sources) == list("abcde")
    assert found.ids == ["1", "3", "4", "5", "6"]


BAD = [
    pytest.param(rows(more="x,\n"), "line 22, column 'target': the cell is empty. Fill it in.", id="no target"),
    pytest.param(rows(more=",x\n"), "line 22, column 'source': the cell is empty. Fill it in.", id="no source"),
    pytest.param(rows(more=f"x,{'y' * 10_001}\n"), "line 22, column 'target': the text has 10,001 ch", id="long"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_what_is_wrong_with_a_table_is_named(write: Write, content: Any, message: str) -> None:
    with pytest.raises(DataError) as raised:
        table(write(content))
    assert message in str(raised.value)
    assert "pairs.csv" in str(raised.value)


@pytest.mark.parametrize("content", [each.values[0] for each in BAD], ids=[each.id for each in BAD])
def test_bad_rows_are_left_out_and_counted_if_asked(write: Write, content: Any) -> None:
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        found = table(write(content), on_bad_row="skip")
    assert len(found) == len(found.sources) == len(found.targets) == 20


BAD_LINES = [
    pytest.param("x\n", "\n", "own.en, line 21: the text is empty. Fill it in.", id="no target"),
    pytest.param("\n", "x\n", "own.de, line 21: the text is empty. Fill it in.", id="no source"),
    pytest.param("x\0\n", "y\n", "own.de, line 21: it has NUL characters", id="NUL"),
    pytest.param("x\n", f"{'y' * 10_001}\n", "own.en, line 21: the text has 10,001 characters", id="long"),
    pytest.param(b"caf\xe9\n", "y\n", "own.de, line 21: byte 0xe9 is not UTF-8", id="encoding"),
]


@pytest.mark.parametrize(("source", "target", "message"), BAD_LINES)
def test_bad_lines_are_named_or_left_out_and_counted(
    write: Write, source: str | bytes, target: str, message: str
) -> None:
    raw = source if isinstance(source, bytes) else source.encode()
    sides = lines("de").encode() + raw + b"last\n", lines("en") + target + "last\n"
    with pytest.raises(DataError) as raised:
        read(write, *sides)
    assert message in str(raised.value)
    assert "on_bad_row=skip leaves such lines out and counts them" in str(raised.value)
    with pytest.warns(UserWarning, match="skipped 1 bad line. The first: .*line 21"):
        found = read(write, *sides, on_bad_row="skip")
    assert (len(found), found.sources[20], found.targets[20], found.ids[20]) == (21, "last", "last", "22")


def test_all_bad_lines_are_collected(write: Write) -> None:
    with collect_errors() as problems:
        read(write, lines("de") + "x\n\n", lines("en") + "\ny\n")
    assert [str(each).partition(":")[0].rpartition("/")[2] for each in problems] == [
        "own.en, line 21",
        "own.de, line 22",
    ]


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ((lines("de"), lines("en", 19)), "own.de has 20 lines and .*own.en has 19 lines. Line N of each file belongs"),
        ((lines("de"), lines("en"), "0-0\n"), "own.de has 20 .*own.en has 20 lines and .*own.align has 1 lines"),
        ((b"", b""), "own.de: the file has no text"),
    ],
)
def test_what_is_wrong_with_files_as_a_whole_is_an_error_whatever_is_skipped(
    write: Write, sides: tuple[Any, ...], message: str
) -> None:
    for on_bad_row in ("error", "skip"):
        with pytest.raises(DataError, match=message):
            read(write, *sides, on_bad_row=on_bad_row)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-0 1:1", "own.align, line 1: '1:1' is not a link"),
        ("0-2", "own.align, line 1: '0-2' names word 2 of a target of 2 words, from 0"),
        ("2-0", "own.align, line 1: '2-0' names word 2 of a source of 2 words, from 0"),
    ],
)
def test_links_that_cannot_be(write: Write, links: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write, lines("de", 9), lines("en", 9), f"{links}\n" + "0-0\n" * 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data.source_file is missing: give data.source_file and data.target_file, or data.table"),
        ({"source_file": "a"}, "data.target_file is missing"),
        ({"table": "a.csv", "alignment_file": "b"}, "data.table and data.alignment_file are both given"),
        ({"source_file": {"train": "a", "val": "b"}, "target_file": "c"}, "write one file, or {train: FILE, val: FILE"),
        (
            {"source_file": dict.fromkeys(SPLITS, "a"), "target_file": "c"},
            "data.target_file and data.source_file: write one file in both, or a file for each split",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text_pairs(max_epochs=1, **options)


def test_texts_for_a_trained_model(write: Write) -> None:
    plain = write("one\n\ntwo\n", "own.txt")
    found = read_pairs_at([plain], ReaderOptions())
    assert (list(found.sources), found.targets, found.ids) == (["one", "two"], None, ["1", "3"])
    assert found.splits.tolist() == [NONE, NONE]
    known = read_pairs_at([plain], ReaderOptions(), write("eins\n\nzwei\n", "own.de"))
    assert (list(known.targets), known.splits.tolist()) == (["eins", "zwei"], [TEST, TEST])
    both = read_pairs_at([plain, write("source\nthree\n", "more.csv")], ReaderOptions())
    assert list(zip(both.sources, both.ids, strict=True)) == [
        ("one", "own.txt:1"),
        ("two", "own.txt:3"),
        ("three", "more.csv:2"),
    ]
    with pytest.raises(DataError, match=r"pairs.csv has translations and .*own.txt has none"):
        read_pairs_at([plain, write(rows())], ReaderOptions())
    with pytest.raises(DataError, match="references belong to one text file"):
        read_pairs_at([write(rows())], ReaderOptions(), plain)
    with pytest.raises(DataError, match=r"own.txt has 3 lines and .*short.de has 1 lines"):
        read_pairs_at([plain], ReaderOptions(), write("eins\n", "short.de"))


def test_texts_of_the_command_line() -> None:
    assert texts_as_written(["a", "b"], 3).ids == ["text 3", "text 4"]
    with pytest.raises(DataError, match="text 2 is empty"):
        texts_as_written(["a", "  "], 1)


def test_the_samples() -> None:
    found = table(SAMPLES / "phrases.tsv")
    by_lines = read_pair_files(
        {"": Aligned(*(SAMPLES / f"phrases.{side}" for side in ("de", "en", "align")))},
        ReaderOptions(),
        cache=None,
        split_seed=0,
    )
    assert list(found.sources) == list(by_lines.sources)
    assert list(found.targets) == list(by_lines.targets)
    assert [each.tolist() for each in found.links] == [each.tolist() for each in by_lines.links]
    assert found.links[0].tolist() == [[0, 0], [1, 1], [2, 2], [3, 2]]
    notes = table(SAMPLES / "notes.jsonl", source="document", target="summary")
    assert len(notes) == 12


LEARNED = Subwords(size=300).fit(["a strange text, with words; öäü ß 中文 and so on"] * 3)
TOKENISERS: list[Tokenizer] = [Words(), Words(lower=True), Characters(), LEARNED]
TEXTS = st.text(st.sampled_from("aB,. \t'ö中\u0301-"), min_size=1, max_size=12)


@pytest.mark.parametrize("tokeniser", TOKENISERS, ids=lambda each: f"{each.kind if hasattr(each, 'kind') else 'bpe'}")
@given(st.data())
def test_links_of_tokens_lead_back_to_those_of_words(tokeniser: Tokenizer, data: st.DataObject) -> None:
    """Every token of every linked word is linked, and no other; so merging tokens to words gives the links again."""
    source, target = data.draw(TEXTS), data.draw(TEXTS)
    sizes = len(target.split()), len(source.split())
    links = data.draw(st.sets(st.tuples(*(st.integers(0, max(0, size - 1)) for size in sizes)), max_size=4))
    links = links if all(sizes) else set()
    of_target, of_source = tokeniser.encode(target), tokeniser.encode(source)
    flat = list(link_tokens(np.array(sorted(links)).reshape(-1, 2), target, of_target, source, of_source))
    found = set(zip(flat[::2], flat[1::2], strict=True))
    assert len(found) == len(flat) / 2
    word_of = []
    for text, tokens in ((target, of_target), (source, of_source)):
        words = tokens_of_words(text, tokens)
        assert all(words), "every word has a token"
        assert len(words) == len(text.split())
        word_of.append({token: word for word, of in enumerate(words) for token in of})
        for token, word in word_of[-1].items():
            start, end = tokens.spans[token]
            assert text[start:end].split() in ([], [text[start:end]])
            assert text[start:end] in text.split()[word]
    assert {(word_of[0][a], word_of[1][b]) for a, b in found} == links
    assert found == {(a, b) for a in word_of[0] for b in word_of[1] if (word_of[0][a], word_of[1][b]) in links}
