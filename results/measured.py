"""Measured runs, and how their figures are written."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent


def with_runs(experiments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Those that have a run; a row comes with its figures."""
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


def on_processor(run: Mapping[str, Any]) -> str:
    """Which processor a benchmark's figures hold for; nothing where the result does not say."""
    found = run.get("processor")
    return f", on {found['name']} ({', '.join(found['flags'])})" if found else ""
