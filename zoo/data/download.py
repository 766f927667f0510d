"""Downloads files: continues partial ones, checks hashes, and puts complete files in place in one step."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedRandom
from os.path import samestat
from pathlib import Path

import numpy as np

from zoo import locks
from zoo.errors import DataError, OfflineError
from zoo.io import sync_folder

_CHUNK = 1 << 16
_ATTEMPTS = 3
_DATA_ROOT = "$ZOO_DATA or paths.data to the folder that holds your data sets"

_folders: ContextVar[tuple[Path, ...] | None] = ContextVar("folders", default=None)

log = logging.getLogger(__name__)


def fetch(
    url: str, destination: Path | str, *, sha256: str | None, timeout: float = 30.0, root: str = _DATA_ROOT
) -> Path:
    """Downloads a file unless it exists; an existing file is left alone, whatever its hash.

    The download is written to `<destination>.part`, from which a later call continues. The file gets its own name only
    when it is complete, matches its hash and is on the disk. If two processes fetch it, one waits for the other.

    Args:
        url: The address of the file.
        destination: The path of the file.
        sha256: The expected hash in hexadecimal digits, or its first digits; None if unknown.
        timeout: Seconds without an answer after which the server counts as unavailable.
        root: The setting that names the folder of such files, for messages.

    Raises:
        OfflineError: The file cannot be downloaded; the message says where to place it without a network.
        DataError: The file cannot be written, or does not match its hash.
    """
    destination = Path(destination)
    if destination.is_file():
        return destination
    if os.path.lexists(destination):
        problem = "is a link to nothing" if destination.is_symlink() and not destination.exists() else "is no file"
        raise DataError(f"{destination}: {problem}, and is left alone. Remove it, and the file will be downloaded.")
    folders = _folders.get()
    if folders is not None and not any(destination.resolve().is_relative_to(folder) for folder in folders):
        raise OfflineError(
            f"{destination} is not there, and a checkpoint does not decide where downloads go. "
            "Give the folder of your data sets with --root or $ZOO_DATA."
        )
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _open_part(destination) as part:
            if destination.is_file():  # another process has downloaded it while this one waited
                _get_part_path(destination).unlink(missing_ok=True)
            else:
                _complete(url, part, destination, sha256, timeout, root)
    except (OfflineError, DataError):
        raise
    except OSError as error:
        raise DataError(
            f"{destination}: a download cannot be written there ({error.strerror or error}). "
            f"Make room or make the folder writable, or fetch {url} and place it there yourself."
        ) from error
    return destination


def search_folders(root: str, cache: str | None) -> list[Path]:
    """Returns the folders of `find_published`: that of data sets, and that of derived files if there is one."""
    return [Path(root)] if cache is None else [Path(root), Path(cache)]


def find_published(
    names: Iterable[str], folders: Sequence[Path], *, source: str, sha256: Mapping[str, str] | None = None
) -> tuple[dict[str, Path], list[Path]]:
    """Finds the files of a published set, and downloads missing ones; returns all paths, and those that are new.

    Args:
        names: The names of the files.
        folders: The folders to search; missing files are downloaded to the first that can be written.
        source: The address of the folder in which they are published.
        sha256: Name -> hash, where known.

    Raises:
        OfflineError: Files are missing and cannot be downloaded.
        DataError: Files are missing and no folder can be written.
    """
    paths, missing = {}, []
    for name in names:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            missing.append(name)
        else:
            paths[name] = path
    if not missing:
        return paths, []
    files = ", ".join(missing)
    target = next((folder for folder in folders if _is_writable(folder)), None)
    if target is None:
        raise DataError(
            f"{folders[0]}: there is no {files}, and the folder cannot be written to download them. "
            f"Place them there (they are published at {source}), or set $ZOO_DATA or paths.data to another folder."
        )
    for name in missing:
        paths[name] = target / name
        try:
            fetch(f"{source}/{name}", paths[name], sha256=(sha256 or {}).get(name))
        except OfflineError as error:
            raise OfflineError(f"{error} These files are wanted there: {files}.") from error
    return paths, [paths[name] for name in missing]


def verify_published(holds: bool | np.bool_, path: Path, problem: str) -> None:
    """Raises a DataError unless a property of a published file holds."""
    if not holds:
        raise DataError(
            f"{path}: this is not the published file: {problem}. Remove it, and it will be downloaded again."
        )


@contextmanager
def restrict_downloads(*folders: Path | str) -> Iterator[None]:
    """Lets files be downloaded to these folders alone inside its context."""
    token = _folders.set(tuple(Path(folder).resolve() for folder in folders))
    try:
        yield
    finally:
        _folders.reset(token)


def _is_writable(folder: Path) -> bool:
    """Returns whether files can be made in a folder, which need not exist yet."""
    ancestor = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    return ancestor.is_dir() and os.access(ancestor, os.W_OK | os.X_OK)


@contextmanager
def _open_part(destination: Path) -> Iterator[BufferedRandom]:
    """Yields the partial file, open at its end and locked against other processes."""
    path = _get_part_path(destination)
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        try:
            locks.acquire_aloud(
                handle, lambda holders: f"{destination}: waiting for the download of another process ({holders})"
            )
            # The process that held the lock may have removed the file that was opened here.
            if not destination.is_file() and not (path.exists() and samestat(path.stat(), os.fstat(handle))):
                continue
            with open(handle, "ab+", closefd=False) as part:
                yield part
            return
        finally:
            locks.release(handle)


def _get_part_path(destination: Path) -> Path:
    return destination.with_name(f"{destination.name}.part")


def _complete(url: str, part: BufferedRandom, destination: Path, sha256: str | None, timeout: float, root: str) -> None:
    """Fills the partial file, verifies it, and gives it its name."""
    log.info("downloading %s to %s", url, destination)
    is_resumed = part.seek(0, os.SEEK_END) > 0
    _fill(url, part, destination, timeout, root)
    if sha256 is not None and is_resumed and not _compute_digest(part).startswith(sha256.lower()):
        part.truncate(0)  # the file has changed since the first part was fetched, or that part is damaged
        _fill(url, part, destination, timeout, root)
    if sha256 is not None and not (digest := _compute_digest(part)).startswith(sha256.lower()):
        _get_part_path(destination).unlink()
        raise DataError(
            f"{url}: the download is not the expected file (its sha256 is {digest}, not {sha256.lower()}), and was not "
            f"kept. Try again later, or place the right file at {destination}."
        )
    part.flush()
    os.fsync(part.fileno())
    os.replace(_get_part_path(destination), destination)
    sync_folder(destination.parent)  # the new name, too, must survive a crash


def _fill(url: str, part: BufferedRandom, destination: Path, timeout: float, root: str) -> None:
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            if _receive(url, part, timeout):
                return
            reason = "the connection was cut before the end"
        except urllib.error.HTTPError as error:
            reason = f"the server answered {error.code} {error.reason}"
            if error.code == 416:  # there are no more bytes, and it is not known whether these are complete: start over
                part.truncate(0)
            elif error.code < 500:
                break
        except urllib.error.URLError as error:
            reason = str(error.reason)
            break
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = str(error) or type(error).__name__
    raise OfflineError(
        f"{destination.name} is needed and cannot be downloaded from {url} ({reason}). It belongs at {destination}. "
        f"Without a network, place it there, or set {root}."
    )


def _receive(url: str, part: BufferedRandom, timeout: float) -> bool:
    """Appends the rest of the file; returns whether it is complete."""
    offset = part.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        is_partial = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if not is_partial:  # the server sends the whole file, whatever was asked
            part.truncate(0)
        length = response.headers.get("Content-Length")
        written = 0
        while chunk := response.read(_CHUNK):
            written += part.write(chunk)
        part.flush()
        return length is None or written == int(length)


def _compute_digest(part: BufferedRandom) -> str:
    part.seek(0)
    return hashlib.file_digest(part, "sha256").hexdigest()
