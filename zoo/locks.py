"""Locks of files and folders. A lock belongs to the process that took it, and to none that is forked from it.

A lock of flock(2) belongs to the open file, which forked processes share: it would last until the last of them has
ended, such as a data worker that outlives a killed run. Closing files on exec does not help, because a fork executes
nothing. A lock of fcntl(2) belongs to a process, but ends when the process closes any other descriptor of the file
(which `io.sync_folder` does), and cannot be had on a folder, which is not open for writing. So locks are those of
flock(2), and a process closes them first of all when it is forked.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from zoo.errors import escape_control

_WIDEST = 160
"""Characters of a command that a message shows."""
_held: set[int] = set()
"""The descriptors of this process's locks."""


def acquire(handle: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Locks an open file or folder; returns false if another process has the lock.

    Where a file system has no locks, as some network file systems, nothing is locked.

    Args:
        handle: The descriptor, to be closed by `release`.
        shared: Whether other processes may have the lock too, if they share it.
        wait: Whether to wait until the lock is free.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    _held.add(handle)
    return True


def acquire_aloud(handle: int, announce: Callable[[str], str], *, shared: bool = False) -> None:
    """Waits for the lock of an open file, and says so where that takes time.

    Args:
        handle: The descriptor, to be closed by `release`.
        announce: Makes the message from a description of the processes that have the lock.
        shared: Whether other processes may have the lock too, if they share it.
    """
    if not acquire(handle, shared=shared, wait=False):
        print(f"zoo: {announce(describe_holders(handle))}", file=sys.stderr, flush=True)
        acquire(handle, shared=shared)


def release(handle: int) -> None:
    """Closes a descriptor, and with it its lock."""
    _held.discard(handle)
    os.close(handle)


def describe_holders(file: int | Path) -> str:
    """Describes the processes that have the lock of a file or folder: `process 1234: python train.py model=gat`."""
    holders = [f"process {process}: {_command(process)}" for process in find_holders(file)]
    return "; ".join(holders) if holders else "of another user, or on another machine"


def find_holders(file: int | Path) -> list[int]:
    """Finds the processes that have the lock of a file or folder, as far as the system tells (Linux)."""
    wanted = os.stat(file)
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _holds(folder, wanted)]


def _holds(process: Path, wanted: os.stat_result) -> bool:
    try:
        for about in (process / "fdinfo").iterdir():
            if " FLOCK " in about.read_text() and os.path.samestat(os.stat(process / "fd" / about.name), wanted):
                return True
    except OSError:  # it has ended, or belongs to another user
        pass
    return False


def _command(process: int) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "it has ended since"
    command = escape_control(shlex.join(words[:-1]))
    return command if len(command) <= _WIDEST else f"{command[:_WIDEST]} ..."


def _leave_to_parent() -> None:
    """Closes, in a process that was forked just now, the locks of its parent. Their numbers stay taken."""
    if _held:
        nothing = os.open(os.devnull, os.O_RDONLY)
        for handle in _held:
            os.dup2(nothing, handle, inheritable=False)
        os.close(nothing)
        _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
