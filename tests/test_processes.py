"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.data.loader import Loader
from zoo.processes import WORKER, end_with_parent, has_lost_launcher, wait_for_parent


def busy(numbers: list[int]) -> list[int]:
    time.sleep(60)
    return numbers


def iterate() -> None:
    """Waits for a worker that is busy."""
    next(iter(Loader(range(4), collate=busy, num_workers=2)))


def start_program() -> None:
    """Starts a process that stands for a rank, and waits for it."""
    parent = os.getpid()
    if os.fork():
        os.wait()
    end_with_parent(lambda: wait_for_parent(parent), signal.SIGTERM)
    time.sleep(60)


@pytest.mark.parametrize(("work", "children"), [(iterate, 2), (start_program, 1)])
def test_a_killed_parent_takes_its_children_along(work: Callable[[], None], children: int) -> None:
    """Also if they are at work just then."""
    parent = os.fork()
    if not parent:
        os.setpgid(0, 0)
        try:
            work()
        finally:
            os._exit(70)
    wait_until(lambda: count_processes(parent) == 1 + children)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_until(lambda: count_processes(parent) == 0)


def count_processes(group: int) -> int:
    """How many processes of a group live."""
    found = 0
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat") as file:
                state, _, its_group = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        found += state != "Z" and int(its_group) == group
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_does_not_hear_the_signal_is_killed() -> None:
    """As a process does not that waits for another one in a collective operation."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_with_parent(lambda: None, signal.SIGTERM, patience=0.2)
        time.sleep(60)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_worker_that_has_lost_its_launcher() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)", WORKER, "config.yaml"]
    for launcher, is_lost in ((1 << 22, True), (os.getpid(), False)):
        with subprocess.Popen([*command, str(launcher)]) as worker:
            while not Path(f"/proc/{worker.pid}/cmdline").read_bytes().endswith(b"%d\0" % launcher):
                time.sleep(0.01)
            assert has_lost_launcher(worker.pid) == is_lost
            worker.kill()
    assert not has_lost_launcher(os.getpid())
