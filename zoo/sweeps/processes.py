"""Starting this program again as a fresh process, and stopping it so that it saves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str, module: str = "zoo") -> list[str]:
    """This interpreter on a module of this package; a folder zoo in the current directory is not taken for it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**more: str) -> dict[str, str]:
    """Ours, in which the same package is found: a checkout need not be installed, nor be the current directory."""
    found = {**os.environ, **more}
    if _ROOT.name not in ("site-packages", "dist-packages"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return found


def run(arguments: Sequence[str], *, more: Mapping[str, str] | None = None, keep_open: Sequence[int] = ()) -> int:
    """Runs it to its end and returns its exit code; a signal to us is handed on to it once, and it ends as it likes.

    It has a session of its own: Ctrl-C at a terminal goes to every process of the group, and a second one means haste.
    """
    with forwarded() as asked:
        process = subprocess.Popen(
            arguments,
            env=environment(**(more or {})),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
        asked.started(process)
        return process.wait()


class Forwarder:
    """Signals that came, and the process that they are for."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []
        self._process: subprocess.Popen[Any] | None = None

    def started(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        for number in self.signals:
            process.send_signal(number)

    def __call__(self, number: int, _: Any) -> None:
        self.signals.append(signal.Signals(number))
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def forwarded() -> Iterator[Forwarder]:
    """While it is open, SIGINT and SIGTERM go to the process that was started; only a main thread hears of signals."""
    forwarder = Forwarder()
    if threading.current_thread() is not threading.main_thread():
        yield forwarder
        return
    before = {number: signal.signal(number, forwarder) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield forwarder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
