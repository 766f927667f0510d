"""Word vectors: what is read of the files that others publish, and what is said of bad ones."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import DataError
from zoo.text import read_vectors

Write = Callable[..., Path]
NAME = "v.txt"


ROWS = "the 0.5 -1 2e-3\n, 1 2 3\nläuft 4 5 6\nof 7 8 9\n"


@pytest.mark.parametrize("content", [ROWS, f"4 3\n{ROWS}", ROWS.replace("\n", " \n"), ROWS.replace("\n", "\r\n")])
@pytest.mark.parametrize("packed", [False, True])
def test_the_wanted_rows_in_the_order_of_the_file(write: Write, content: str, packed: bool) -> None:
    path = write(gzip.compress(content.encode()), "v.txt.gz") if packed else write(content)
    found = read_vectors(path, ["läuft", "nowhere", "the"])
    assert found.words == ("the", "läuft")
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, np.array([[0.5, -1, 2e-3], [4, 5, 6]], np.float32))


def test_words_with_spaces_as_in_published_files(write: Write) -> None:
    found = read_vectors(write(f"{ROWS}. . . 1 2 3\nat me@x.org 1 2 3\nlast 3 2 1\n"), ["last", "at"])
    assert found.words == ("last",)
    assert read_vectors(write("1 2 3\n4 5 6\n"), ["4"]).words == ("4",)  # three columns are no header
    assert read_vectors(write("2 2\nthe 1 2\n7 5 6\n"), ["7"]).vectors.tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ": the file is empty"),
        ("the\n", "line 1: the word has 0 numbers"),
        ("the 1 2 3\nof 1 2\n", "line 2: the word has 2 numbers, not 3"),
        ("the 1 2 3\nof 1 2 3 4\n", "line 2: the word has 4 numbers, not 3"),
        ("the 1 2 3\n\nof 1 2 3\n", "line 2: the word has 0 numbers, not 3"),
        ("the 1 2 3\nof 1 two 3\n", "line 2: 'two' is not a number"),
        ("the 1 2 3\nof 1 nan 3\n", "line 2: a number is not finite"),
        ("the 1 2 3\nof 1 1e39 3\n", "line 2: a number is not finite"),
        ("the 1 2 3\nof 1 2 3\nthe 1 2 3\n", "line 3: 'the' has a vector in line 1 already. Remove one of the two"),
        ("the 1 2 3\nof 1 2\0 3\n", "line 2: it has NUL characters"),
        (b"the 1 2 3\ncaf\xe9 1 2 3\n", "line 2: byte 0xe9 is not UTF-8 text"),
        ("3 3\nthe 1 2 3\nof 1 2 3\n", ": it has 2 rows, and its header says 3. It was cut short"),
        ("a 1 2 3\n", ": it has none of the 2 words, such as 'of'"),
    ],
)
def test_a_bad_file(write: Write, content: str | bytes, words: str) -> None:
    path = write(content)
    with pytest.raises(DataError, match=re.escape(str(path)) + f".*{words}"):
        read_vectors(path, ["the", "of"])


def test_the_dimension_may_be_demanded(write: Write) -> None:
    assert read_vectors(write(ROWS), ["the"], dim=3).vectors.shape == (1, 3)
    for content in (ROWS, f"4 3\n{ROWS}"):
        with pytest.raises(DataError, match="3 numbers"):
            read_vectors(write(content), ["the"], dim=50)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_vectors(tmp_path / "v.txt", ["the"])
    with pytest.raises(DataError, match="is a folder"):
        read_vectors(tmp_path, ["the"])


def test_only_the_wanted_rows_are_in_memory(write: Write) -> None:
    row = " ".join(["0.125"] * 50)
    path = write("".join(f"word{number} {row}\n" for number in range(20_000)))
    tracemalloc.start()
    try:
        found = read_vectors(path, {f"word{number}" for number in range(0, 20_000, 200)})
        assert found.vectors.shape == (100, 50)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
