"""Compressed tables: read as plain ones are, and never without end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from zoo.data import compressed
from zoo.data.tables import read_table
from zoo.errors import DataError


def rows(path: Path) -> list[tuple[str, float]]:
    return [(row.text("id"), row.number("x")) for row in read_table(path, required=["id", "x"])]


@pytest.mark.parametrize("name", ["t.csv.gz", "T.CSV.GZ"])
def test_it_reads_as_the_plain_file_does(tmp_path: Path, name: str) -> None:
    text = "id,x\n" + "".join(f"größe {number},{number}.5\n" for number in range(5000))
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert rows(tmp_path / name) == rows(tmp_path / "t.csv")


def test_lines_are_those_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(gzip.compress(b"id\tx\na\t1\nb\tfoo\n", mtime=0))
    with pytest.raises(DataError, match=r"t\.tsv\.gz, line 3, column 'x': 'foo' is not a number"):
        rows(path)
    path.write_bytes(gzip.compress(b"id\tx\na\t1\n\xff\t2\n", mtime=0))
    with pytest.raises(DataError, match=r"t\.tsv\.gz, line 3: byte 0xff is not UTF-8"):
        rows(path)


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "FREE", 1 << 16)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"id,x\n" + b"a,1\n" * 1_000_000, mtime=0))
    with pytest.raises(DataError, match="decompresses to more than 200 times its size"):
        rows(path)


@pytest.mark.parametrize("content", [b"", b"id,x\na,1\n", gzip.compress(b"id,x\n" + b"a,1\n" * 100, mtime=0)[:-12]])
def test_what_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.csv\.gz"):
        rows(path)


def test_other_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Tables are read from"):
        read_table(tmp_path / "t.json.gz")
