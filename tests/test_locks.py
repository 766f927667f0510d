"""Locks that processes of their own have, and what is said of the process that has one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo import locks


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path, os.O_RDONLY)
    yield handle
    locks.release(handle)


def is_free(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY)
    try:
        return locks.acquire(handle, wait=False)
    finally:
        locks.release(handle)


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """As a data worker that outlives its run. The number of the closed file is not given to another in it."""
    handle = os.open(tmp_path, os.O_RDONLY)
    assert locks.acquire(handle, wait=False)
    begun, told = os.pipe()
    child = os.fork()
    if not child:
        other = os.open(os.devnull, os.O_RDONLY)
        os.write(told, b"other" if other == handle else b"taken")
        signal.pause()
    try:
        assert os.read(begun, 5) == b"taken"
        assert not is_free(tmp_path)
        assert locks.find_holders(tmp_path) == [os.getpid()]
        locks.release(handle)
        assert is_free(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(told)


def test_who_has_a_lock_is_said(tmp_path: Path, folder: int) -> None:
    assert locks.describe_holders(tmp_path) == "of another user, or on another machine"
    locks.acquire(folder)
    assert locks.describe_holders(tmp_path).startswith(f"process {os.getpid()}: ")
    program = Path(f"/proc/{os.getpid()}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert program in locks.describe_holders(folder)


def test_a_wait_is_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    first, second = (os.open(path, os.O_CREAT | os.O_RDWR) for _ in range(2))
    locks.acquire(first)
    threading.Timer(0.1, locks.release, [first]).start()
    locks.acquire_aloud(second, lambda by: f"waiting ({by})")
    locks.release(second)
    assert capsys.readouterr().err.startswith(f"zoo: waiting (process {os.getpid()}: ")
