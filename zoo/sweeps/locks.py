"""Who works on a sweep. Two locks tell whether the sweep itself is at work, or a job that it started.

The sweep holds `.lock` for itself alone. Every job holds `.jobs` together with the others, by a handle that it
inherits: after `kill -9` of the sweep that lock lasts until its job has ended.
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
    """A lock that ends with this process, however that ends; None if another has it."""
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
    """A handle to be inherited by a job, as long as which the sweep counts as at work."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield handle
    finally:
        os.close(handle)


def wait_for_jobs(folder: Path) -> None:
    """Waits for the jobs that a killed sweep has left behind: what they find belongs to this sweep."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"zoo: {folder}: a job that this sweep began still runs; it is waited for", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)
