"""The memory of a process: configures how it is kept, and explains to the user when it does not suffice."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import OutOfMemoryError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_MAX_TRIM_THRESHOLD = 2**31 - 1
_MAX_MMAP_THRESHOLD = 32 << 20
"""The largest threshold that glibc accepts."""
_OPTIONS = (
    *("batch_size", "max_tokens", "max_length", "max_source", "max_target", "max_words", "max_sentences"),
    *("max_frames", "max_seconds", "most_characters", "most_pixels", "height", "width", "resize"),
)
"""Options of data on which the memory of a batch depends, those that help most first."""
_SIGNS = re.compile(
    r"can't allocate memory|not enough memory|out of memory|Unable to allocate|size calculation overflow"
)
_AMOUNT = re.compile(r"(?:tried to allocate|Unable to allocate) (?P<number>[\d.]+) (?P<unit>bytes|[KMGTPE]?i?B)", re.I)
_PLACE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>\w+)')
_PACKAGE = Path(__file__).resolve().parent


def disable_malloc_trim() -> bool:
    """Sets two thresholds of glibc's allocator; returns False where the C library is another one.

    By default glibc returns large blocks at once, so that every activation of a convolutional net costs page faults
    anew. The peak memory of a process does not change.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _MAX_TRIM_THRESHOLD)) and bool(mallopt(_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD))


def disable_onednn_cache() -> None:
    """Makes oneDNN forget the kernels that it compiles for the shapes of a batch; before it has computed anything.

    It keeps the last 1,024. Where every batch has another shape none of them is used again, and their memory, which
    lies between that of the batches, takes more than a gigabyte after some hundred steps. A value of the environment
    variable that the user has set stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that memory could not be had: of Python, NumPy, torch or the system."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_SIGNS.search(str(error))))


def explain(error: BaseException, remedy: str) -> OutOfMemoryError:
    """Returns the error for the user.

    Args:
        error: One of which `is_out_of_memory` is true.
        remedy: What to lower.
    """
    text = str(error)
    amount = _AMOUNT.search(text)
    request = f"asked for {_format_amount(amount)}" if amount else "asked for more than there is"
    owner = "of the GPU " if "CUDA" in text or "HIP" in text else ""
    return OutOfMemoryError(f"the memory {owner}does not suffice: {_find_place(error)} {request}; {remedy}")


def advise(options: Iterable[str]) -> str:
    """Returns what to lower in training.

    Args:
        options: The names of the options of its data.
    """
    names = set(options)
    relevant = [f"data.{name}" for name in _OPTIONS if name in names]
    return f"lower {' or '.join(relevant or ['data.batch_size'])}, or the sizes of the model"


def _find_place(error: BaseException) -> str:
    """Returns the innermost line of this package on the way to the error, also if that was in a worker process."""
    text = "".join([*traceback.format_tb(error.__traceback__), str(error)])
    matches = [match for match in _PLACE.finditer(text) if Path(match["file"]).is_relative_to(_PACKAGE)]
    if not matches:
        return "the program"
    file = Path(matches[-1]["file"]).relative_to(_PACKAGE.parent)
    return f"{file}, line {matches[-1]['line']} ({matches[-1]['name']}),"


def _format_amount(amount: re.Match[str]) -> str:
    if amount["unit"].lower() != "bytes":
        return f"{amount['number']} {amount['unit']}"
    size = float(amount["number"])
    power = next((power for power in range(4) if size < 1024 ** (power + 1)), 4)
    return f"{size / 1024**power:,.1f} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
