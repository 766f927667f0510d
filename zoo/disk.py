"""Files that are whole or not there, directories that nobody else has.

Every file that this project writes under a name that a user may have given goes through `whole_file` or `whole_bytes`.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, TextIO

from zoo.errors import ConfigError

PARTIAL = ".partial"
"""How the temporary names end under which files are written."""


@contextmanager
def whole_bytes(path: Path) -> Iterator[BinaryIO]:
    """A file to write: it gets its name, instead of what had it, when all is written and on the disk.

    Links are followed: the file that a link names is replaced, and the link stays. A character device, a pipe and an
    open file of this process (`/dev/stdout`) have nothing that could be replaced, and are opened and written.

    Raises:
        OSError: It cannot be written, or is none of these (a folder, a disk, a socket). The error names `path`.
    """
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:  # of a write
            error.filename = str(path)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """`whole_bytes` for text in UTF-8."""
    with whole_bytes(path) as file:
        text = io.TextIOWrapper(file, newline="", encoding="utf-8")
        yield text
        text.flush()
        text.detach()


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text)


def is_stream(path: Path) -> bool:
    """Whether there is a device, a pipe or an open file, which is written and not replaced."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        return descriptor(path) is not None or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
    return False


def descriptor(path: Path) -> int | None:
    """The number of an open file of this process, where the path names one: /dev/stdout, /dev/fd/63.

    Opened by its path a regular file would be emptied, and renamed over, what `>> file` has appended to would be lost.
    """
    here = str(path)
    for _ in range(40):
        folder, name = os.path.split(here)
        if name.isdecimal() and os.path.realpath(folder) in (f"/proc/{os.getpid()}/fd", "/dev/fd"):
            return int(name)
        if not os.path.islink(here):
            return None
        here = os.path.join(folder, os.readlink(here))
    return None


def remove_partial(folder: Path) -> None:
    """Removes what writers that were killed have left. To be called by the one process that writes there."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where the file system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # one may write in a folder that one may not list
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def new_directory(parent: Path) -> Path:
    """Named by the time, and never shared, whatever else starts in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in range(1, 10_000):
        path = parent / (stamp if attempt == 1 else f"{stamp}_{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ConfigError(f"{parent} has no free name for a run of {stamp}")


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    number = descriptor(path)
    if number is not None:
        sys.stdout.flush()
        with _named(path):
            file = os.fdopen(os.dup(number), "wb")
        with file:
            yield file
        return
    with _named(path):
        try:
            old = os.stat(path)
        except FileNotFoundError:
            old = None
        if old is not None:
            _check_kind(path, old.st_mode)
    if old is None or stat.S_ISREG(old.st_mode):
        with _replacing(path, old) as replacing:
            yield replacing
    else:
        with path.open("wb") as file:
            yield file


@contextmanager
def _replacing(path: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    target = Path(os.path.realpath(path))
    # a random name: two processes may write the same file, and the longest names leave no room for an addition
    partial = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}{PARTIAL}")
    with _named(path):
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            if old is not None:
                with suppress(OSError):  # another user's file stays theirs where we may decide that
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, old.st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(handle)
        with _named(path):
            os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    sync_folder(target.parent)


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(mode):
        if not os.access(path, os.W_OK):  # renaming would not ask for leave
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    elif not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "it is a disk or a socket")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors speak of the name that was given, not of a temporary one."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
