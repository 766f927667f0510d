"""Starts child processes, and handles the signals that stop this one.

A child is a fresh process to which signals are passed on, so that it saves before it ends. It ends with the process
that started it, also if that is killed. Linux would send a signal by itself (PR_SET_PDEATHSIG), but when the *thread*
ends that started the process, and not to one whose parent ended before it asked. A thread that waits for the parent
has neither fault, on any system.

Of Ctrl-C and SIGTERM the first is a request to stop after saving, and a later one stops at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.errors import InterruptedRunError

WORKER = "zoo.training.worker"
"""Module of a worker; the last word of its command is the number of its launcher."""
_POLL_SECONDS = 0.2
"""Between two looks at whether the parent lives."""


def end_with_parent(wait: Callable[[], object], signal_to_send: signal.Signals, patience: float = 120.0) -> None:
    """Sends this process a signal once its parent has ended, and kills it if it does not end by that.

    A process that waits for another one in a collective operation of `torch.distributed` hears no signal.

    Args:
        wait: Returns when the parent has ended.
        signal_to_send: The signal.
        patience: Seconds between the signal and the end.
    """

    def watch() -> None:
        wait()
        os.kill(os.getpid(), signal_to_send)
        time.sleep(patience)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def wait_for_parent(process: int) -> None:
    """Returns once the parent of this process is no longer the one with this number."""
    while os.getppid() == process:
        time.sleep(_POLL_SECONDS)


def has_lost_launcher(process: int) -> bool:
    """Returns whether a process is a worker of a run whose launcher has ended: it saves, and ends by itself (Linux)."""
    folder = Path(f"/proc/{process}")
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:  # it has ended meanwhile, or is of another user
        return False
    return WORKER in words and parent != words[-1]


_ROOT = Path(__file__).resolve().parents[1]


def make_command(*arguments: str, module: str = "zoo") -> list[str]:
    """Returns the command that runs a module of this package, also where the current directory has a folder `zoo`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def make_environment(**more: str) -> dict[str, str]:
    """Returns this process's environment, in which Python finds the same package, also one that is not installed."""
    environment = {**os.environ, **more}
    if _ROOT.name not in ("site-packages", "dist-packages"):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return environment


def run(arguments: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
    """Runs a command to its end and returns its exit code. A signal to this process is passed on to it once.

    The process has a session of its own: Ctrl-C at a terminal would otherwise reach it twice, which means to stop
    without saving.
    """
    with forward_signals() as forwarder:
        process = subprocess.Popen(
            arguments,
            env=make_environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        forwarder.attach(process)
        return process.wait()


STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handle_signals(
    handler: Callable[[int, Any], object], numbers: Sequence[signal.Signals] = STOPPING
) -> Iterator[None]:
    """Lets a function handle signals inside its context. Only a main thread receives signals."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class SignalForwarder:
    """Receives signals for a process, also before it has started."""

    def __init__(self) -> None:
        self.signals: list[signal.Signals] = []
        self._process: subprocess.Popen[Any] | None = None

    def attach(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        for number in self.signals:
            process.send_signal(number)

    def __call__(self, number: int, _: Any) -> None:
        self.signals.append(signal.Signals(number))
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def forward_signals() -> Iterator[SignalForwarder]:
    """Passes SIGINT and SIGTERM to the process that is started inside its context."""
    forwarder = SignalForwarder()
    with handle_signals(forwarder):
        yield forwarder


PATIENCE = 2.0
"""Seconds within which a repeated signal counts as the same request."""


class StopRequest:
    """A request to stop, made by the first signal. A later one asks to stop at once.

    One within `PATIENCE` seconds is the same request.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._since = 0.0

    def record(self, number: int) -> bool:
        """Records a signal; returns whether to stop at once."""
        if self.received is None:
            self.received, self._since = signal.Signals(number), time.monotonic()
            return False
        return time.monotonic() - self._since > PATIENCE


def raise_interrupted(number: int, _: Any) -> None:
    """Raises an InterruptedRunError: a handler for work that can be repeated."""
    raise InterruptedRunError(f"stopped by {signal.Signals(number).name}")
