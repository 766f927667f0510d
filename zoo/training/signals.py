"""Ctrl-C and SIGTERM: when they are a request, and when they are an order."""

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
"""Seconds within which a signal that comes again is the same request, of an impatient hand."""


class Request:
    """The first signal asks to stop; one that comes more than `PATIENCE` seconds after it insists."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        self._since = 0.0

    def insists(self, number: int) -> bool:
        """Takes note of a signal; whether it is to be obeyed at once."""
        if self.by is None:
            self.by, self._since = signal.Signals(number), time.monotonic()
            return False
        return time.monotonic() - self._since > PATIENCE


def stop_at_once(number: int, _: Any) -> None:
    """A handler for work by which nothing can be lost."""
    raise InterruptedRunError(f"stopped by {signal.Signals(number).name}")


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Meanwhile both signals raise an InterruptedRunError; only a main thread hears of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop_at_once) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
