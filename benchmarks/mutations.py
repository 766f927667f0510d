"""Mutations of files, each of which fits some kinds of files, and the rows that a table has after them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TABLES = frozenset({".csv", ".tsv"})
LINES = frozenset({".jsonl", ".de", ".en", ".txt"})
TEXTS = TABLES | LINES
ODD_CELLS = [
    *("nan", "NaN", "inf", "-inf", "1e300", "1e39", "-1e38", "1_000", "0x1F", "9" * 400, "-0", "1e-400", "٣"),
    *(
        "x" * 20_000,
        "\u202e",
        "\ud7ff",
        "a\u0000b",
        " ",
        "\t",
        "'",
        '"',
        '""',
        '"a',
        "a;b",
        "[1, 2]",
        "{}",
        "<b>",
        "&amp;",
    ),
    *("../../etc/passwd", "/", ".", "con", "a" * 5000, "é" * 200, "=1+1", "null", "None", "true", "-", "2003-02-30"),
]


@dataclass(frozen=True)
class Mutation:
    """A change of a file.

    Args:
        name: What it does.
        endings: Endings of the files that it fits; an empty set: all.
        apply: Changes a file, with a generator of random numbers.
    """

    name: str
    endings: Collection[str]
    apply: Callable[[Path, random.Random], None]

    def fits(self, path: Path) -> bool:
        return not self.endings or path.suffix.lower() in self.endings


MUTATIONS: list[Mutation] = []


def mutation(*endings: str) -> Callable[[Callable[[bytes, random.Random], bytes]], None]:
    """Adds a function of the content of a file to the mutations of some kinds of files."""

    def add(change: Callable[[bytes, random.Random], bytes]) -> None:
        def apply(path: Path, draw: random.Random) -> None:
            path.write_bytes(change(path.read_bytes(), draw))

        MUTATIONS.append(Mutation(change.__name__, frozenset(endings), apply))

    return add


@mutation()
def flip_bytes(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


@mutation()
def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw) + 1)]


@mutation()
def empty(raw: bytes, draw: random.Random) -> bytes:
    return b""


@mutation()
def insert_bytes(raw: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + bytes(draw.randrange(256) for _ in range(draw.choice([1, 3, 50]))) + raw[at:]


@mutation(*TEXTS)
def change_ends_of_lines(raw: bytes, draw: random.Random) -> bytes:
    return raw.replace(b"\n", draw.choice([b"\r\n", b"\n\n", b"\r\n\r\n"]))


@mutation(*TABLES)
def end_lines_by_carriage_returns(raw: bytes, draw: random.Random) -> bytes:
    return raw.replace(b"\n", b"\r")


@mutation(*TEXTS)
def add_byte_order_mark(raw: bytes, draw: random.Random) -> bytes:
    return b"\xef\xbb\xbf" + raw


@mutation(*TEXTS)
def insert_nul(raw: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + b"\0" + raw[at:]


@mutation(*TEXTS)
def change_encoding(raw: bytes, draw: random.Random) -> bytes:
    text = raw.decode("utf-8", "replace").replace("e", "é", draw.choice([1, 2, 50]))
    return text.encode(draw.choice(["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-7"]), "replace")


@mutation(*TEXTS)
def open_quote(raw: bytes, draw: random.Random) -> bytes:
    places = [found.start() for found in re.finditer(rb"[\n,\t ]", raw)] or [0]
    at = draw.choice(places) + 1
    return raw[:at] + b'"' + raw[at:]


@mutation(*TEXTS)
def repeat_lines(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    for _ in range(draw.choice([1, 3])):
        if lines:
            lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))
    return b"".join(lines)


@mutation(*TEXTS)
def remove_line(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    if lines:
        del lines[draw.randrange(len(lines))]
    return b"".join(lines)


@mutation(*TEXTS)
def lengthen_line(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    if lines:
        at = draw.randrange(len(lines))
        middle = len(lines[at]) // 2
        lines[at] = lines[at][:middle] + b" word" * draw.choice([500, 5000]) + lines[at][middle:]
    return b"".join(lines)


@mutation(*TEXTS)
def misspell(raw: bytes, draw: random.Random) -> bytes:
    """Swaps two letters of some word, which may be a label, a split, a name of a file or of a column."""
    places = [found.start() for found in re.finditer(rb"[a-z]{3}", raw)]
    for _ in range(draw.choice([1, 3])):
        if places:
            at = draw.choice(places)
            raw = raw[:at] + raw[at : at + 2][::-1] + raw[at + 2 :]
    return raw


@mutation(*TABLES)
def change_delimiter(raw: bytes, draw: random.Random) -> bytes:
    return raw.replace(b",", b";") if b"," in raw else raw.replace(b"\t", b",")


def cells_of(raw: bytes) -> tuple[list[list[str]], str]:
    text = raw.decode("utf-8", "replace").replace("\0", "")
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    csv.field_size_limit(1 << 24)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)), delimiter


def bytes_of(rows: list[list[str]], delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def cell_mutation(change: Callable[[list[list[str]], random.Random], None]) -> None:
    """Adds a function of the cells of a table."""

    def apply(path: Path, draw: random.Random) -> None:
        rows, delimiter = cells_of(path.read_bytes())
        if len(rows) > 1 and rows[0]:
            change(rows, draw)
        path.write_bytes(bytes_of(rows, delimiter))

    MUTATIONS.append(Mutation(change.__name__, TABLES, apply))


@cell_mutation
def remove_column(rows: list[list[str]], draw: random.Random) -> None:
    at = draw.randrange(len(rows[0]))
    for row in rows:
        del row[at : at + 1]


@cell_mutation
def rename_column(rows: list[list[str]], draw: random.Random) -> None:
    at = draw.randrange(len(rows[0]))
    rows[0][at] = draw.choice(
        ["", rows[0][0], rows[0][at].upper(), rows[0][at][::-1], "split", "label", "id", "features"]
    )


@cell_mutation
def empty_cells(rows: list[list[str]], draw: random.Random) -> None:
    for _ in range(draw.choice([1, 2, 10])):
        row = draw.choice(rows[1:])
        if row:
            row[draw.randrange(len(row))] = ""


@cell_mutation
def fill_cells(rows: list[list[str]], draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 3])):
        row = draw.choice(rows[1:])
        if row:
            row[draw.randrange(len(row))] = draw.choice(ODD_CELLS)


@cell_mutation
def fill_column(rows: list[list[str]], draw: random.Random) -> None:
    at, cell = draw.randrange(len(rows[0])), draw.choice([*ODD_CELLS, "", rows[1][0] if rows[1] else ""])
    for row in rows[1:]:
        row[at : at + 1] = [cell]


@cell_mutation
def swap_cells(rows: list[list[str]], draw: random.Random) -> None:
    one, other = draw.choice(rows[1:]), draw.choice(rows[1:])
    if one and other:
        a, b = draw.randrange(len(one)), draw.randrange(len(other))
        one[a], other[b] = other[b], one[a]


@cell_mutation
def add_column(rows: list[list[str]], draw: random.Random) -> None:
    name = draw.choice(["new", "split", "start", "end", "alignment", "id", "kind", "timestamp"])
    for number, row in enumerate(rows):
        row.append(name if not number else draw.choice([*ODD_CELLS, "train", "0", "0.1", "1"]))


@mutation(".jsonl")
def change_values(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines()
    odd = [None, [], {}, 3, 1e300, True, "", "\ud800", {"a": [1]}, ["a"], "a\u0000", 10**400, *ODD_CELLS]
    for _ in range(draw.choice([1, 3])):
        at = draw.randrange(len(lines)) if lines else 0
        try:
            found = json.loads(lines[at])
            found[draw.choice(list(found))] = draw.choice(odd)
            lines[at] = json.dumps(found).encode("utf-8", "replace")
        except (ValueError, IndexError, TypeError):
            continue
    return b"\n".join(lines) + b"\n"


@mutation(".jsonl")
def change_keys(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.splitlines()
    at = draw.randrange(len(lines)) if lines else 0
    try:
        found = json.loads(lines[at])
        key = draw.choice(list(found))
        found = {
            draw.choice(["", "split", key.upper(), "start"]) if name == key else name: v for name, v in found.items()
        }
        lines[at] = json.dumps(found).encode()
    except (ValueError, IndexError, TypeError):
        pass
    return b"\n".join(lines) + b"\n"


@mutation(".gz")
def change_compressed(raw: bytes, draw: random.Random) -> bytes:
    try:
        return gzip.compress(flip(gzip.decompress(raw), draw))
    except (OSError, EOFError, zlib.error):
        return raw


def flip(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    if changed:
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


@mutation(".png", ".jpg", ".wav", ".flac", ".ogg", ".mp3", ".npy")
def replace_by_text(raw: bytes, draw: random.Random) -> bytes:
    return draw.choice([b"text", b"<html></html>", b"%!PS", b"\0" * 2000, b"version https://git-lfs"])


@mutation(".wav")
def spoil_samples(raw: bytes, draw: random.Random) -> bytes:
    import soundfile

    try:
        x, rate = soundfile.read(io.BytesIO(raw), dtype="float32")
    except soundfile.LibsndfileError:
        return raw
    x = np.array(x)
    x[: draw.choice([1, 100])] = draw.choice([1e30, 1e37, -1e20, np.nan, np.inf, 1e5])
    out = io.BytesIO()
    soundfile.write(out, x, rate, format="WAV", subtype="FLOAT")
    return out.getvalue()


@mutation(".npy")
def spoil_features(raw: bytes, draw: random.Random) -> bytes:
    x = np.random.default_rng(draw.randrange(99)).standard_normal((20, draw.choice([5, 6])))
    x[draw.randrange(20)] = draw.choice([np.nan, np.inf, 1e30, 1e300, 0.0])
    out = io.BytesIO()
    np.save(out, x.astype(draw.choice([np.float32, np.float64, np.float16, np.complex64])))
    return out.getvalue()


def _rename(path: Path, draw: random.Random) -> None:
    ending = draw.choice(["", ".m4a", ".bak", ".PNG", path.suffix.upper(), ".html"])
    path.rename(path.with_name(f"{path.stem}{ending}"))


def _link(path: Path, draw: random.Random) -> None:
    target = draw.choice([path.name, "nowhere", "..", "."])
    path.unlink()
    path.symlink_to(target)


def _remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def _copy(path: Path, draw: random.Random) -> None:
    path.with_name(f"copy of {path.name}").write_bytes(path.read_bytes())


_FILES = frozenset({".png", ".jpg", ".wav", ".flac", ".ogg", ".mp3", ".txt", ".npy"})
MUTATIONS += [
    Mutation("rename", _FILES, _rename),
    Mutation("link", _FILES, _link),
    Mutation("remove", _FILES, _remove),
    Mutation("copy", _FILES, _copy),
]


def rows_written(path: Path, encoding: str) -> tuple[int, int]:
    """Counts the rows of a table in two ways that agree unless cells have ends of lines: the fewest and the most."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as found:
            return found.metadata.num_rows, found.metadata.num_rows
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    text = raw.decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace")
    if path.suffix in LINES:
        count = sum(bool(line.strip()) for line in text.split("\n"))
        return count, count
    lines = [line for line in re.split("\r\n|\r|\n", text) if line]
    csv.field_size_limit(1 << 24)
    delimiter = "\t" if path.suffix == ".tsv" else ","
    records = [row for row in csv.reader(io.StringIO(text.replace("\0", "?"), newline=""), delimiter=delimiter) if row]
    counts = (len(lines) - 1, len(records) - 1)
    return min(counts), max(counts)
