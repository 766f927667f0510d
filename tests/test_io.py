"""What a file is written over: replaced as a whole, followed, written through or refused."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from zoo.checkpoints import checkpoint
from zoo.data.stdin import materialize_pipes
from zoo.errors import DataError
from zoo.io import is_stream, open_atomic, remove_partial, write_text
from zoo.maps import dataframes

ROOT = Path(__file__).resolve().parents[1]


def from_pipe(path: Path, most: int = 1 << 20) -> tuple[threading.Thread, list[bytes]]:
    """Reads a pipe until it is closed, while another thread writes."""
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(path.read_bytes()[:most]), daemon=True)
    thread.start()
    return thread, found


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A device on which there is never room: one of the test's own."""
    path = tmp_path / "full"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            file.write(b"x")
    except OSError:
        pytest.skip("devices cannot be made here")
    yield path
    assert stat.S_ISCHR(path.lstat().st_mode)


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)  # the longest names are 255 long
    path.write_text("old")
    path.chmod(0o640)
    with open_atomic(path) as file:
        file.write("new\n")
        assert path.read_text() == "old"
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "second", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "second").stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, "second"])


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")

    def fails() -> None:
        with open_atomic(path) as file:
            file.write("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text("old")
    if not (child := os.fork()):
        with open_atomic(path) as file:
            file.write("half")
            os._exit(0)  # nothing is closed
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2
    remove_partial(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "table.csv"
    target.write_text("old")
    chain = tmp_path / "chain.csv"
    chain.symlink_to("link.csv")
    (tmp_path / "link.csv").symlink_to(target)
    write_text(chain, "new")
    assert target.read_text() == "new"
    assert chain.is_symlink()
    assert (tmp_path / "link.csv").is_symlink()
    dangling = tmp_path / "dangling.csv"
    dangling.symlink_to(tmp_path / "there" / "to come.csv")
    write_text(dangling, "came")
    assert dangling.is_symlink()
    assert (tmp_path / "there" / "to come.csv").read_text() == "came"
    assert {each.name for each in (tmp_path / "there").iterdir()} == {"table.csv", "to come.csv"}


def test_what_cannot_be_a_file_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "x")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        for name, kind in (
            ("folder", errno.EISDIR),
            ("nowhere", errno.ENOENT),
            ("loop", errno.ELOOP),
            ("socket", errno.EINVAL),
            ("folder/x/y", errno.ENOENT),
        ):
            with pytest.raises(OSError, match=str(tmp_path / name)) as caught:
                write_text(tmp_path / name, "new")
            assert (caught.value.errno, caught.value.filename) == (kind, str(tmp_path / name))
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "loop", "nowhere", "socket"]


def test_pipes_and_devices_are_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        thread, found = from_pipe(pipe)
        write_text(path, "through\n")
        thread.join(10)
        assert found == [b"through\n"]
        assert is_stream(path)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    (tmp_path / "null").symlink_to("/dev/null")
    write_text(tmp_path / "null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not is_stream(tmp_path)
    assert not is_stream(tmp_path / "none")


def test_the_writers_of_each_kind_of_file(tmp_path: Path) -> None:
    """Checkpoints, tables and Parquet: a link stays a link, and a mode a mode."""
    for name, write in (
        ("best.ckpt", lambda path: checkpoint.write(path, {"a": 1})),
        ("table.csv", lambda path: dataframes.write([pd.DataFrame({"a": [1, 2]})], path)),
        ("table.parquet", lambda path: dataframes.write([pd.DataFrame({"a": [1, 2]})], path)),
    ):
        target, link = tmp_path / f"real {name}", tmp_path / name
        target.write_text("old")
        target.chmod(0o600)
        link.symlink_to(target)
        write(link)
        assert link.is_symlink()
        assert target.read_bytes() != b"old"
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert pd.read_csv(tmp_path / "table.csv").a.tolist() == [1, 2]
    assert pd.read_parquet(tmp_path / "table.parquet").a.tolist() == [1, 2]


def test_a_device_without_room(cli: Any, tiny_run: Path, full: Path) -> None:
    best = tiny_run / "checkpoints" / "best.ckpt"
    for command in ("predict", "evaluate"):
        done = cli(command, best, "--out", full)
        assert done.code == 2
        assert done.err == f"zoo: --out={full}: {full} cannot be written (No space left on device)\n"
        assert stat.S_ISCHR(full.lstat().st_mode)


def test_out_of_every_command(cli: Any, tiny_run: Path, tmp_path: Path) -> None:
    best = tiny_run / "checkpoints" / "best.ckpt"
    pipe, link = tmp_path / "pipe", tmp_path / "link.json"
    os.mkfifo(pipe)
    thread, found = from_pipe(pipe)
    assert cli("evaluate", best, "--out", pipe).code == 0
    thread.join(10)
    assert "test/accuracy" in json.loads(found[0])
    (tmp_path / "real.json").write_text("{}")
    link.symlink_to("real.json")
    assert cli("evaluate", best, "--out", link).code == 0
    assert json.loads((tmp_path / "real.json").read_text()) == json.loads(found[0])
    assert link.is_symlink()
    for command in ("predict", "evaluate", "maps"):
        for place in ("/proc/none/x", tmp_path / "real.json" / "x", "/dev/null/x"):
            done = cli(command, best, "--out", place)
            assert done.code == 2
            assert done.err.count("\n") == 1
            assert str(Path(place).parent) in done.err
    assert "is a directory" in cli("predict", best, "--out", tmp_path).err.lower()
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link.json", "real.json"}


def test_the_standard_output_by_name(tmp_path: Path) -> None:
    """What is appended to a file by `>>` stands behind what was there."""
    (tmp_path / "log").write_text("before\n")
    code = "from pathlib import Path; from zoo.io import write_text; write_text(Path('/dev/stdout'), 'through\\n')"
    with (tmp_path / "log").open("a") as log:
        subprocess.run([sys.executable, "-c", f"print('first'); {code}"], stdout=log, check=True, cwd=ROOT)
    assert (tmp_path / "log").read_text() == "before\nfirst\nthrough\n"


def test_pipes_as_input(tmp_path: Path) -> None:
    """Each is a file for as long as it is needed; what is said of it names the pipe."""
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    plain = tmp_path / "plain.csv"
    for content, ending in (
        (b"a,b\n1,2\n", ".csv"),
        (b"a\tb\n1\t2\n", ".tsv"),
        (b"PAR1\0", ".parquet"),
        (b"\0", ""),
        (b'{"a": 1}\n', ".jsonl"),
        (b"text\nA line.\n", ".csv"),
        (b"\xef\xbb\xbfReview text,Stars\ngood,5\n", ".csv"),
        (b'"id","text"\n1,"a, b"\n', ".csv"),
        (b"A dog runs.\nA cat, too.\n", ".txt"),
        (b"Hello, dog!\n", ".txt"),
        (b"In the morning of that day, nobody came\n", ".txt"),
        (b"Hello\n", ".txt"),
        (b"\n", ".txt"),
    ):
        thread = threading.Thread(target=lambda text=content: pipe.write_bytes(text), daemon=True)
        thread.start()
        with materialize_pipes([plain, pipe]) as (same, kept):
            thread.join(10)
            assert same == plain
            assert kept.name == f"63{ending}"
            assert kept.read_bytes() == kept.read_bytes() == content
        assert not kept.exists()

    def refused() -> None:
        with materialize_pipes([pipe]) as (kept,):
            raise DataError(f"{kept}, line 3: no")

    threading.Thread(target=lambda: pipe.write_bytes(b"a,b"), daemon=True).start()
    with pytest.raises(DataError, match=f"^{pipe}, line 3: no$"):
        refused()
