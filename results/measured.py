"""Reads measured runs and formats their figures."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent


def with_runs(experiments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Returns the experiments that have a run; the others have no row in a table."""
    return ((experiment, name) for experiment, name in experiments.items() if (RESULTS / experiment).is_dir())


def read_runs(experiment: str) -> list[dict[str, Any]]:
    paths = sorted((RESULTS / experiment).glob("*.json"), key=lambda path: (len(path.name), path.name))
    if not paths:
        raise FileNotFoundError(f"results/{experiment} has no measured run")
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def spread(values: Sequence[float], digits: int = 3) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def shown_command(run: dict[str, Any]) -> str:
    return re.sub(r" seed=\d+", "", run["command"])


def clock_of(run: Mapping[str, Any]) -> str:
    """Returns what a benchmark measured."""
    return "CPU time" if run["clock"] == "processor" else "wall clock"


def on_processor(run: Mapping[str, Any]) -> str:
    """Returns the processor of a benchmark's figures; an empty string if the result does not name it."""
    found = run.get("processor")
    return f", on {found['name']} ({', '.join(found['flags'])})" if found else ""


def of_runs(experiments: Mapping[str, str], columns: Mapping[str, str], digits: int = 3) -> Iterator[str]:
    """Makes a table with a row for each experiment; a metric that it does not have is an empty cell.

    Args:
        columns: Title of a column -> metric.
        digits: Number of decimal digits of metrics.
    """
    yield f"| model | {' | '.join(columns)} | parameters | seconds (CPU) | seeds | command |"
    yield "|---" * (len(columns) + 5) + "|"
    for experiment, name in with_runs(experiments):
        runs = read_runs(experiment)
        metrics = columns.values()
        cells = [
            name,
            *(spread([run[each] for run in runs], digits) if each in runs[0] else "" for each in metrics),
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f} "
            f"({statistics.mean(run['cpu_seconds'] for run in runs):.0f})",
            ", ".join(str(run["seed"]) for run in runs),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def of_runs_with_protocol(experiments: Mapping[str, str], columns: Mapping[str, str]) -> Iterator[str]:
    """Makes the table of `of_runs` with two digits, and below it the protocols of the scores."""
    if not any(with_runs(experiments)):
        yield "Not measured yet."
        return
    yield from of_runs(experiments, columns, 2)
    yield ""
    protocols = [run["protocol"] for each, _ in with_runs(experiments) for run in read_runs(each)]
    yield "; ".join(f"`{protocol}`" for protocol in dict.fromkeys(map(str, protocols)))
