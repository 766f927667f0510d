"""Keeps the memory that one step frees for the next, instead of returning it to the system and asking for it again."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT = 2**31 - 1
_LARGEST = 32 << 20
"""The largest threshold that glibc accepts."""


def keep_freed_memory() -> bool:
    """Sets two thresholds of glibc's allocator; returns False where the C library is another one.

    By default glibc returns large blocks at once, so that every activation of a convolutional net costs page faults
    anew. The peak memory of a process does not change.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST))
