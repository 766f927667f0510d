"""Ctrl-C and SIGTERM: the first is a request to stop after saving, a later one stops at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zoo.errors import InterruptedRunError

STOPPING = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0
"""Seconds within which a repeated signal counts as the same request."""


class Request:
    """A request to stop, made by the first signal. One that follows more than `PATIENCE` seconds later insists."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        self._since = 0.0

    def insists(self, number: int) -> bool:
        """Records a signal; returns whether to stop at once."""
        if self.by is None:
            self.by, self._since = signal.Signals(number), time.monotonic()
            return False
        return time.monotonic() - self._since > PATIENCE


def stop_at_once(number: int, _: Any) -> None:
    """A handler for work that can be repeated: it raises an InterruptedRunError."""
    raise InterruptedRunError(f"stopped by {signal.Signals(number).name}")


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """A context in which both signals raise an InterruptedRunError. Only a main thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop_at_once) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
