"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from zoo.data.loader import Loader
from zoo.processes import end_with_parent, wait_for_parent


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
