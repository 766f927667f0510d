"""Two locks that show whether a sweep is at work, or a job that it started.

The sweep holds `.lock` for itself alone. Its jobs share `.jobs`, by a handle that each inherits: after `kill -9` of the
sweep that lock lasts until its job has ended.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.disk import remove_partial

LOCK, JOBS = ".lock", ".jobs"


def locked(folder: Path) -> int | None:
    """Locks a sweep until this process ends; returns the handle, or None if another process has the lock."""
    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    remove_partial(folder)
    return handle


@contextmanager
def job_lock(folder: Path) -> Iterator[int]:
    """The handle of the shared lock, for a job to inherit."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield handle
    finally:
        os.close(handle)


def wait_for_jobs(folder: Path) -> None:
    """Waits for the jobs of a killed sweep, whose results belong to the sweep that continues it."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"zoo: {folder}: waiting for a job of this sweep that still runs", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)
