"""Memory that a step frees is kept for the next one, instead of being given back to the system and asked for again."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT = 2**31 - 1
_LARGEST = 32 << 20
"""glibc takes no more than this."""


def keep_freed_memory() -> bool:
    """Sets thresholds of glibc's allocator; False where the C library is another one, which is left as it is.

    By default it returns large blocks at once: every activation of a convolutional net then costs page faults anew.
    The peak of a process does not change.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST))
