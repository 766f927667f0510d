"""Processes that end when the process that started them has ended, also by `kill -9`.

Linux would send a signal by itself (PR_SET_PDEATHSIG), but when the *thread* ends that started the process, and not to
a process whose parent ended before it asked. A thread that waits for the parent has neither fault, on any system.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_SECONDS = 0.2
"""Between two looks at whether the parent lives."""


def end_with_parent(wait: Callable[[], object], by: signal.Signals) -> None:
    """Sends this process a signal once its parent has ended.

    Args:
        wait: Returns when the parent has ended.
        by: The signal.
    """

    def watch() -> None:
        wait()
        os.kill(os.getpid(), by)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def wait_for_parent(process: int) -> None:
    """Returns once the parent of this process is no longer the one with this number."""
    while os.getppid() == process:
        time.sleep(_SECONDS)
