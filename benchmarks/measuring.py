"""Times of several sides that take turns, peaks of memory, and how figures grow."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from math import log
from pathlib import Path
from typing import Any


def interleaved(runs: Mapping[Any, Callable[[], Any]], repeats: int, clock: Callable[[], float]) -> dict[Any, float]:
    """Returns median milliseconds; the sides take turns, so that other load on the machine affects them alike."""
    times: dict[Any, list[float]] = {name: [] for name in runs}
    for turn in range(-1, repeats):
        for name, run in runs.items():
            started = clock()
            run()
            if turn >= 0:
                times[name].append((clock() - started) * 1e3)
    return {name: round(statistics.median(each), 1) for name, each in times.items()}


def ratios(milliseconds: Mapping[str, float], ours: str) -> dict[str, float]:
    """Returns the times of the others as multiples of ours."""
    return {name: round(each / milliseconds[ours], 2) for name, each in milliseconds.items() if name != ours}


def exponent(by: Mapping[Any, float]) -> float:
    """Fits c n^x by least squares of the logarithms, and returns x."""
    x, y = ([log(each) for each in values] for values in (by.keys(), by.values()))
    return round(statistics.linear_regression(x, y).slope, 2)


def peak_of(run: Callable[[], Any]) -> float:
    """Returns the MiB that three calls add to the memory of this process, which already holds what they need."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak (Linux)
    before = memory("VmRSS")
    for _ in range(3):
        run()
    return round((memory("VmHWM") - before) / 1024, 1)


def memory(what: str) -> int:
    """Returns a memory figure of this process in KiB, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))
