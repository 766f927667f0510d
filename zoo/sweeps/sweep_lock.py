"""Two locks that show whether a sweep is at work, or a job that it started.

The sweep holds `.lock` for itself alone. Its jobs share `.jobs`, by a handle that each inherits: after `kill -9` of the
sweep that lock lasts until its job has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.io import locks
from zoo.io.atomic import remove_partial

LOCK, JOBS = ".lock", ".jobs"


def lock_sweep(folder: Path) -> int | None:
    """Locks a sweep until this process ends; returns the handle, or None if another process has the lock."""
    handle = _open(folder / LOCK)
    if not locks.acquire(handle, wait=False):
        locks.release(handle)
        return None
    remove_partial(folder)
    return handle


@contextmanager
def job_lock(folder: Path) -> Iterator[int]:
    """The handle of the shared lock, for a job to inherit."""
    handle = _open(folder / JOBS)
    try:
        locks.acquire(handle, shared=True)
        yield handle
    finally:
        locks.release(handle)


def wait_for_jobs(folder: Path) -> None:
    """Waits for the jobs of a killed sweep, whose results belong to the sweep that continues it."""
    handle = _open(folder / JOBS)
    try:
        locks.acquire_aloud(handle, lambda by: f"{folder}: waiting for a job of this sweep that still runs ({by})")
    finally:
        locks.release(handle)


def _open(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
