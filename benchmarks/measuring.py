"""Times of several sides that take turns, peaks of memory, and how figures grow."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from math import log
from pathlib import Path
from typing import Any, TypeVar

Built = TypeVar("Built")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


def timing_options(about: str | None, *, repeats: int, peak: int) -> argparse.ArgumentParser:
    """Returns the options of a benchmark of training and decoding.

    Args:
        about: Its docstring.
        repeats: Default of `--repeats`.
        peak: Number of values of `--peak`, with which `peak_of_process` starts the benchmark again.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="turns of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="what is measured")
    parser.add_argument("--quick", action="store_true", help="three turns on small networks")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    parser.add_argument("--peak", nargs=peak, help=argparse.SUPPRESS)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the options of the command line."""
    options = parser.parse_args()
    if options.quick:
        options.repeats = 3
    return options


def build_available(makers: Mapping[str, Callable[[], Built]]) -> dict[str, Built]:
    """Calls makers by the names of their sides; those of peers that cannot be imported are reported and left out."""
    built = {}
    for name, make in makers.items():
        try:
            built[name] = make()
        except ImportError as error:
            print(f"{name} is not measured, it cannot be imported ({error}); see benchmarks/peers.sh", file=sys.stderr)
    return built


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


def peak_of_process(*asked: str | int) -> float:
    """Returns the MiB that this command prints in a process of its own, with `--peak` and what is asked."""
    command = [sys.executable, *sys.argv, "--peak", *map(str, asked)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[-1])


def memory(what: str) -> int:
    """Returns a memory figure of this process in KiB, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))
