"""Lines of text files: those that a plain reading gives, by their number, in little memory, in any process."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data import line_index as module
from zoo.data.encodings import Encoding, Fault
from zoo.data.line_index import Lines, read_lines
from zoo.data.loader import Loader
from zoo.errors import DataError

Write = Callable[..., Path]
NAME = "t.txt"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


_TEXT = st.text(st.sampled_from("ab é\u2028\x85\x0c\U0001f600\r\n"), max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_TEXT.filter(bool), block=st.integers(1, 5), mark=st.booleans())
def test_they_are_those_of_the_text(tmp_path: Path, text: str, block: int, mark: bool) -> None:
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    expected = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if not text.endswith("\n") and text.endswith("\r"):
        expected[-1] = text.split("\n")[-1]  # no end of a line
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        lines = Lines(tmp_path / "t.txt", tmp_path / "cache")
        assert [lines[number] for number in range(len(lines))] == expected
        assert list(lines) == expected
        assert [found for _, found in read_lines(tmp_path / "t.txt")] == expected


def test_numbers_from_the_end_and_beyond(write: Write, cache: Path) -> None:
    lines = Lines(write("a\n\nb"), cache)
    assert (len(lines), lines[-1], lines[1]) == (3, "b", "")
    with pytest.raises(IndexError):
        lines[3]


def test_the_index_is_kept_and_made_anew_for_another_content(
    write: Write, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a\nb\n")
    Lines(path, cache)
    (kept,) = (cache / "lines").iterdir()
    stamp = kept.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "_write_index", None)
        assert list(Lines(path, cache)) == ["a", "b"]
    assert kept.stat().st_mtime_ns == stamp
    old = path.stat()
    path.write_text("abc\n")
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))  # even where size and time are those of before
    assert list(Lines(path, cache)) == ["abc"]
    assert Lines(path, cache)[0] == "abc"


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\0" * 16], ids=["empty", "cut", "of another file"])
def test_a_damaged_index_is_made_anew(write: Write, cache: Path, content: bytes) -> None:
    path = write("a\nb\n")
    Lines(path, cache)
    (kept,) = (cache / "lines").iterdir()
    kept.write_bytes(content)
    assert Lines(path, cache)[1] == "b"


def test_a_false_index_is_noticed(write: Write, cache: Path) -> None:
    path = write("a\nbc\nd\n")
    Lines(path, cache)
    (kept,) = (cache / "lines").iterdir()
    kept.write_bytes(np.array([0, 3, 5, 7], "<u8").tobytes())
    lines = Lines(path, cache)
    for number in range(2):
        with pytest.raises(DataError, match="has changed"):
            lines[number]


@pytest.mark.parametrize("change", ["a\nb\nc\n", "abcd", "ab\n\n"])
def test_a_file_that_changes_is_noticed(write: Write, cache: Path, change: str) -> None:
    path = write("a\nb\n")
    lines = Lines(path, cache)
    assert lines[0] == "a"
    path.write_text(change)
    os.utime(path, ns=(0, 10**9))
    with pytest.raises(DataError, match=r"t\.txt: the file has changed since it was indexed. Start again"):
        lines[1]


def test_a_file_that_changes_meanwhile_is_noticed(write: Write, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a\nb\n")

    found = np.flatnonzero

    def append(values: np.ndarray) -> np.ndarray:
        if path.stat().st_size == 4:
            path.write_bytes(b"a\nb\nmore\n")
        return found(values)

    monkeypatch.setattr(np, "flatnonzero", append)
    with pytest.raises(DataError, match="has changed"):
        Lines(path, cache)
    assert not list((cache / "lines").iterdir())  # nothing of it is kept


def test_a_file_that_is_replaced_stays_readable(write: Write, cache: Path, tmp_path: Path) -> None:
    lines = Lines(write("a\nb\n"), cache)
    assert lines[0] == "a"
    write("other\n", "new.txt").rename(tmp_path / "t.txt")
    assert lines[1] == "b"  # of the file that is open
    with pytest.raises(DataError, match="has changed"):
        pickle.loads(pickle.dumps(lines))[1]  # elsewhere it is opened anew


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"good\n" * 300_000 + b"caf\xe9\n", 300_001, "byte 0xe9 is not UTF-8 text. Save the file as UTF-8"),
        (b"good\n\xc3", 2, "byte 0xc3 is not UTF-8"),
        ("a\nb\n".encode("utf-16"), 1, "byte 0xff is not UTF-8"),
        (b"a\n\xc3\nb", 2, "byte 0xc3 is not UTF-8"),
    ],
)
def test_what_is_not_utf8_spoils_its_line_alone(
    write: Write, cache: Path, content: bytes, line: int, words: str
) -> None:
    path = write(content)
    with pytest.raises(DataError, match=rf"t\.txt, line {line}: .*{words}"):
        Lines(path, cache)[line - 1]
    found = dict(read_lines(path))
    assert next(number for number, text in found.items() if isinstance(text, Fault)) == line
    assert words in found[line].what + ". " + found[line].remedy


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "shift_jis", "gb18030"])
def test_other_encodings(write: Write, cache: Path, encoding: Encoding) -> None:
    texts = ["first", "", "日本" if encoding in ("shift_jis", "gb18030", "utf-16") else "grün", "last"]
    for end in ("\n", "\r\n"):
        path = write(end.join([*texts, ""]).encode(encoding), f"{end!r}.txt"[1:])
        assert [text for _, text in read_lines(path, encoding=encoding)] == texts
        assert list(Lines(path, cache, encoding=encoding)) == texts
        again = Lines(path, cache, encoding=encoding)
        assert [again[number] for number in (3, 0, 2)] == [texts[number] for number in (3, 0, 2)]


def test_a_file_without_a_byte_order_mark_is_no_utf16(write: Write, cache: Path) -> None:
    path = write("grün\n".encode("utf-16-le"))
    assert list(Lines(path, cache, encoding="utf-16-le")) == ["grün"]
    with pytest.raises(
        DataError, match=r"t\.txt: the file is no utf-16 text \(.*BOM\)\. Name its encoding by data\.enc"
    ):
        list(read_lines(path, encoding="utf-16"))


def test_a_byte_that_an_encoding_does_not_have(write: Write, cache: Path) -> None:
    path = write(b"a\nb\x81c\nd\n")
    found = dict(read_lines(path, encoding="cp1252"))
    assert (found[1], found[3]) == ("a", "d")
    assert found[2] == (
        "a byte is not cp1252 text",
        "Mend it, or name the encoding that the file has by data.encoding.",
    )
    assert Lines(path, cache, encoding="cp1252")[2] == "d"
    with pytest.raises(DataError, match="line 2: a byte is not cp1252 text"):
        Lines(path, cache, encoding="cp1252")[1]


def test_bad_lines_are_errors_of_their_own(write: Write, cache: Path) -> None:
    path = write("a\nb\0c\n" + "d" * 11 + "\nten bytes!\r\n")
    lines = Lines(path, cache, longest=10)
    assert (lines[0], lines[3]) == ("a", "ten bytes!")
    with pytest.raises(DataError, match=r"t\.txt, line 2: it has NUL characters.*UTF-16"):
        lines[1]
    with pytest.raises(DataError, match=r"t\.txt, line 3: the line has 1[12] bytes, and 10 are the most. Shorten it"):
        lines[2]
    found = dict(read_lines(path, longest=10))
    assert [line for line, text in found.items() if isinstance(text, Fault)] == [2, 3]
    with pytest.raises(DataError, match="line 2"):
        list(lines)


@pytest.mark.parametrize("size", [10, 11, 12, 13, 14, 4000])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_at_the_limit(write: Write, size: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 3)
    found = [text for _, text in read_lines(write("x" * size + end + "next"), longest=10)]
    if size == 10 and end:
        assert found == ["x" * 10, "next"]
    else:
        size += 4 * (not end)
        assert isinstance(found[0], Fault)
        assert f"{size:,} bytes" in found[0].what
        assert found[1:] == (["next"] if end else [])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: os.mkfifo(path), "is a device or a pipe"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(b"\xef\xbb\xbf"), "the file is empty"),
    ],
)
def test_what_is_no_file_of_lines(tmp_path: Path, cache: Path, make: Callable[[Path], None], words: str) -> None:
    make(tmp_path / "t.txt")
    with pytest.raises(DataError, match=rf"t\.txt: .*{words}"):
        Lines(tmp_path / "t.txt", cache)


def test_a_folder_that_cannot_be_written(write: Write, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"t\.txt: its lines cannot be indexed .*cache"):
        Lines(write("a\n"), tmp_path / "cache")


def test_a_compressed_file_is_decompressed_once(write: Write, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(gzip.compress("ä\nb\n".encode()), "t.txt.gz")
    assert list(Lines(path, cache)) == ["ä", "b"]
    with monkeypatch.context() as patch:
        patch.setattr(module, "open_bytes", None)
        assert Lines(path, cache)[0] == "ä"
    with pytest.raises(DataError, match=r"t\.txt\.gz, line 2: byte 0xff"):
        Lines(write(gzip.compress(b"a\n\xff\n"), "t.txt.gz"), cache)[1]
    with pytest.raises(DataError, match=r"t\.txt\.gz: the file is empty"):
        Lines(write(gzip.compress(b""), "t.txt.gz"), cache)
    with pytest.raises(DataError, match="damaged or cut short"):
        Lines(write(gzip.compress(b"a\nb\n")[:-3], "u.txt.gz"), cache)


def _read(lines: Lines, numbers: list[int]) -> list[str]:
    return [lines[number] for number in numbers]


def _open(path: Path, cache: Path) -> list[str]:
    return list(Lines(path, cache))


def test_several_processes_read_and_index_it(write: Write, cache: Path) -> None:
    text = [f"line {number}" for number in range(2000)]
    path = write("\n".join(text))
    lines = Lines(path, cache)
    assert lines[5] == text[5]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        orders = [np.random.default_rng(seed).permutation(2000).tolist() for seed in range(4)]
        for order, found in zip(orders, pool.starmap(_read, [(lines, order) for order in orders]), strict=True):
            assert found == [text[number] for number in order]
        assert pool.starmap(_open, [(path, cache / "other")] * 4) == [text] * 4
    assert len(list((cache / "other" / "lines").iterdir())) == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_loader_reads_them(write: Write, cache: Path, num_workers: int) -> None:
    lines = Lines(write("".join(f"{number}\n" for number in range(100))), cache)
    loader = Loader(lines, collate=list, batch_size=8, shuffle=True, num_workers=num_workers)
    for _ in range(2):
        assert sorted(int(line) for batch in loader for line in batch) == list(range(100))


def test_a_large_file_needs_little_memory(write: Write, cache: Path) -> None:
    path = write(b"".join(b"%08d %s\n" % (number, b"x" * (number % 200)) for number in range(200_000)))
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        lines = Lines(path, cache)
        assert [lines[number][:8] for number in (0, 199_999, 77_777)] == ["00000000", "00199999", "00077777"]
        assert sum(1 for _ in lines) == 200_000
        assert tracemalloc.get_traced_memory()[1] < 12 * (1 << 20)
    finally:
        tracemalloc.stop()
    assert sum(each.stat().st_size for each in (cache / "lines").iterdir()) == 8 * 200_001
