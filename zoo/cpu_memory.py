"""Configures the memory of a process: freed memory is kept for the next step, and kernels of oneDNN need not be."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_MAX_TRIM_THRESHOLD = 2**31 - 1
_MAX_MMAP_THRESHOLD = 32 << 20
"""The largest threshold that glibc accepts."""


def disable_malloc_trim() -> bool:
    """Sets two thresholds of glibc's allocator; returns False where the C library is another one.

    By default glibc returns large blocks at once, so that every activation of a convolutional net costs page faults
    anew. The peak memory of a process does not change.
    """
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
