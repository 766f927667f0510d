"""Writes files at once or not at all, and reads small ones from a user or a stranger, such as configurations.

Files under names that a user may have given are written through `open_atomic` or `open_atomic_bytes`.

Small files are read in one piece, and refused where that would never end or take all memory: pipes, devices such as
/dev/zero, files that are too long, and YAML with aliases, of which a few lines can stand for billions of values.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import yaml

from zoo.errors import ConfigError

PARTIAL = ".partial"
"""The ending of the temporary names under which files are written."""
LARGEST = 1 << 18
"""The most bytes of a file that is written by hand."""
LARGEST_LIST = 1 << 30
"""The most bytes of a file that this program writes, such as one with a line for each example."""


@contextmanager
def open_atomic_bytes(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to write, which replaces the one at `path` once everything is written and on the disk.

    A link stays, and the file that it names is replaced. Character devices, pipes and open files of this process
    (`/dev/stdout`) cannot be replaced; they are opened and written directly.

    Raises:
        OSError: The file cannot be written, or is a folder, a disk or a socket. The error names `path`.
    """
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:  # of a write
            error.filename = str(path)
        raise


@contextmanager
def open_atomic(path: Path) -> Iterator[TextIO]:
    """Opens a text file in UTF-8 as `open_atomic_bytes` does."""
    with open_atomic_bytes(path) as file:
        text = io.TextIOWrapper(file, newline="", encoding="utf-8")
        yield text
        text.flush()
        text.detach()


def write_text(path: Path, text: str) -> None:
    """Writes a text file as `open_atomic_bytes` does."""
    with open_atomic(path) as file:
        file.write(text)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows as a CSV file, which has the columns of all of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with open_atomic(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def is_stream(path: Path) -> bool:
    """Returns whether a path names a device, a pipe or an open file, which are written and not replaced."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        return find_descriptor(path) is not None or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
    return False


def find_descriptor(path: Path) -> int | None:
    """Finds the number of the open file of this process that a path names, such as /dev/stdout; else None.

    Opening the path instead would empty a regular file, and replacing it would lose what `>> file` appends to.
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
    """Removes files that killed writers have left. No other process may be writing in the folder."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, if the file system supports that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder may be writable and not readable
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def make_timestamped_dir(parent: Path) -> Path:
    """Makes a new directory that is named by the time, and numbered if others start in the same second."""
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
    number = find_descriptor(path)
    if number is not None:
        sys.stdout.flush()
        with _name_errors(path):
            file = os.fdopen(os.dup(number), "wb")
        with file:
            yield file
        return
    with _name_errors(path):
        try:
            old = os.stat(path)
        except FileNotFoundError:
            old = None
        if old is not None:
            _check_kind(path, old.st_mode)
    if old is None or stat.S_ISREG(old.st_mode):
        with _replace(path, old) as replacing:
            yield replacing
    else:
        with path.open("wb") as file:
            yield file


@contextmanager
def _replace(path: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    target = Path(os.path.realpath(path))
    # a random name, because two processes may write the same file, and short, because the name may be of full length
    partial = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}{PARTIAL}")
    with _name_errors(path):
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            if old is not None:
                with suppress(OSError):  # the owner is kept where the system allows that
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, old.st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(handle)
        with _name_errors(path):
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
        if not os.access(path, os.W_OK):  # replacing it would not need that permission
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    elif not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "it is a disk or a socket")


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Names the given path instead of a temporary one in errors, within the context."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def read_text(path: Path, largest: int = LARGEST, *, begins: bytes | None = None) -> str:
    """Reads the text of a regular file.

    Args:
        path: The file.
        largest: The most bytes that it may have.
        begins: The bytes with one of which the text has to begin, after white space; any if not given.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is longer than `largest` bytes.
        ValueError: It is not UTF-8, or begins with something else.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait for its writer
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", str(path))
        if status.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and {largest:,} are the most", str(path))
        start = file.read(1 << 12)
        if begins is not None and (not start.strip() or start.lstrip()[0] not in begins):
            raise ValueError("it begins with something else")
        return (start + file.read(largest)).decode("utf-8")


def read_json(path: Path, largest: int = LARGEST_LIST) -> Any:
    """Reads a JSON file.

    Raises:
        OSError: As for `read_text`.
        ValueError: It is not JSON.
    """
    text = read_text(path, largest, begins=b"{[")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path, largest: int = LARGEST_LIST) -> Any:
    """Reads a YAML file that this program wrote, in plain values.

    Raises:
        OSError: As for `read_text`.
        UnicodeDecodeError: It is not UTF-8.
        yaml.YAMLError: It is not YAML, or has aliases.
    """
    text = read_text(path, largest)
    try:
        return yaml.load(text, make_no_alias_loader(yaml.SafeLoader))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def make_no_alias_loader(loader: type[Any]) -> type[Any]:
    """Makes a subclass of a YAML loader (one written in Python) that refuses aliases, `*name`."""

    class WithoutAliases(loader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(
                    None, None, "aliases (*name) are not taken; write the value out", mark
                )
            return super().compose_node(parent, index)

    return WithoutAliases


def dump_yaml(content: Any) -> str:
    """Plain values as YAML, without aliases for values that occur twice."""

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True))
