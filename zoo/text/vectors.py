"""Reads pretrained word vectors from the text files of GloVe, word2vec and fastText."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from zoo.data.encodings import Fault
from zoo.data.line_index import read_lines
from zoo.data.tables import check_is_file, message
from zoo.errors import DataError

_MAX_DIM = 1 << 14


@dataclass(frozen=True)
class WordVectors:
    """Vectors of words."""

    words: tuple[str, ...]
    """Words in the order of the file."""
    vectors: Float32[np.ndarray, "words dim"]


def read_vectors(path: Path | str, words: Iterable[str], *, dim: int | None = None) -> WordVectors:
    """Reads the vectors of some words. Other rows are skipped and take no memory.

    Args:
        path: File in UTF-8 (also .gz) with a word and its numbers on each line, separated by spaces. The first line may
            be a header with the numbers of rows and columns.
        words: Words to find, spelled as in the file.
        dim: Length of the vectors. Default: the file's.

    Raises:
        DataError: The file cannot be read, has none of the words, or has a bad line, which the message names.
    """
    path = Path(path)
    check_is_file(path)
    vocabulary = set(words)
    rows: dict[str, np.ndarray] = {}
    lines: dict[str, int] = {}
    row_count: int | None = None
    number = 0
    for number, text in read_lines(path):
        if isinstance(text, Fault):
            raise DataError(message(path, number, None, *text))
        text = text.rstrip()
        if number == 1 and (header := _parse_header(text)) is not None:
            row_count, columns = header
            _check_dim(path, columns, dim)
            dim = columns
            continue
        if dim is None or not rows:
            dim = _check_dim(path, text.count(" "), dim) if dim is None else dim
        word = text[: text.find(" ")] if text.count(" ") == dim else _parse_word(path, number, text, dim)
        if word not in vocabulary:
            continue
        if word in rows:
            problem = f"{word!r} has a vector in line {lines[word]} already"
            raise DataError(message(path, number, None, problem, "Remove one of the two."))
        rows[word], lines[word] = _parse_numbers(path, number, text, dim), number
    if not number:
        raise DataError(f"{path}: the file is empty.")
    if row_count is not None and number - 1 < row_count:
        raise DataError(f"{path}: it has {number - 1:,} rows, and its header says {row_count:,}. It was cut short.")
    if not rows:
        raise DataError(
            f"{path}: it has none of the {len(vocabulary):,} words, such as {min(vocabulary, default='')!r}."
        )
    return WordVectors(tuple(rows), np.stack(list(rows.values())))


def _parse_header(text: str) -> tuple[int, int] | None:
    parts = text.split(" ")
    if len(parts) == 2 and all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return int(parts[0]), int(parts[1])
    return None


def _check_dim(path: Path, columns: int, dim: int | None) -> int:
    if dim is not None and columns != dim:
        raise DataError(f"{path}, line 1: vectors of {columns:,} numbers, not of {dim:,}. Name another file.")
    if not 0 < columns <= _MAX_DIM:
        raise DataError(
            message(path, 1, None, f"the word has {columns:,} numbers", "Write a word and its numbers on each line.")
        )
    return columns


def _parse_word(path: Path, number: int, text: str, dim: int) -> str:
    """Returns the word of a line that has more spaces than expected, because some published words contain spaces."""
    parts = text.rsplit(" ", dim)
    if len(parts) <= dim or _is_number(parts[0].rpartition(" ")[2]):
        problem = f"the word has {text.count(' ')} numbers, not {dim}"
        raise DataError(message(path, number, None, problem, "Give all words as many."))
    return parts[0]


def _parse_numbers(path: Path, number: int, text: str, dim: int) -> np.ndarray:
    cells = text.rsplit(" ", dim)[1:]
    try:
        values = np.array(list(map(float, cells)), np.float64)
    except ValueError:
        bad_cell = next(cell for cell in cells if not _is_number(cell))
        raise DataError(message(path, number, None, f"{bad_cell!r} is not a number", "Write one.")) from None
    if not np.abs(values).max() <= np.finfo(np.float32).max:
        raise DataError(message(path, number, None, "a number is not finite in 32 bits", "Write another, or leave it."))
    return values.astype(np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
