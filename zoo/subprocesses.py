"""Starts this program again as a fresh process, and passes signals on so that it saves before it ends."""

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

from zoo.io import locks

_ROOT = Path(__file__).resolve().parents[1]


def command(*arguments: str, module: str = "zoo") -> list[str]:
    """The command that runs a module of this package, also where the current directory has a folder `zoo`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, in which Python finds the same package, also a checkout that is not installed."""
    found = {**os.environ, **more}
    if _ROOT.name not in ("site-packages", "dist-packages"):
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return found


def run(arguments: Sequence[str], *, more: Mapping[str, str] | None = None, keep_open: Sequence[int] = ()) -> int:
    """Runs a command to its end and returns its exit code. A signal to this process is passed on to it once.

    The command inherits the locks `keep_open`, and knows of them, so that processes that it forks do not.

    The process has a session of its own: Ctrl-C at a terminal would otherwise reach it twice, which means to stop
    without saving.
    """
    with forwarded() as asked:
        process = subprocess.Popen(
            arguments,
            env=environment(**(more or {}), **locks.inherit_environment(keep_open)),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
        asked.started(process)
        return process.wait()


class Forwarder:
    """Receives signals for a process, also before it has started."""

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
    """A context in which SIGINT and SIGTERM go to the process that was started. Only a main thread receives signals."""
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
