"""The summary of a sweep, as summary.csv and as a table: mean, standard deviation and n of every test metric."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.config import compose
from zoo.io import write_csv
from zoo.sweeps.jobs import SUMMARY, Job, Sweep

SEED = "seed"


def finish(sweep: Sweep) -> int:
    """Writes the summary and names the jobs that failed; 1 if there are any."""
    rows = summary(sweep.jobs)
    write_csv(sweep.folder / SUMMARY, rows)
    _show(rows, sweep.jobs[0])
    failed = [job for job in sweep.jobs if job.status == "failed"]
    for job in failed:
        print(f"zoo: this job failed: {shlex.join(['zoo', *job.arguments()])}", file=sys.stderr)
    if failed:
        again = f"the same command tries again: {sweep.command()}"
        print(f"zoo: {len(failed)} of {len(sweep.jobs)} jobs failed; {again}", file=sys.stderr)
    print(f"{sweep.folder}: sweep.yaml, summary.csv")
    return 1 if failed else 0


def summary(jobs: Sequence[Job]) -> list[dict[str, str | float | int]]:
    """Makes a row for every combination of values other than seeds, over its finished seeds."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for job in jobs:
        key = tuple((name, value) for name, value in job.chosen.items() if name != SEED)
        metrics = job.metrics()
        groups.setdefault(key, []).extend([metrics] if metrics is not None else [])
    rows = []
    for key, members in groups.items():
        row: dict[str, str | float | int] = {**dict(key), "n": len(members)}
        names = dict.fromkeys(n for member in members for n in member if n.startswith(("test/", "truth/")))
        for name in names:
            values = [member[name] for member in members if member.get(name) is not None]
            row[f"{name} mean"] = statistics.fmean(values)
            if len(values) > 1:
                row[f"{name} sd"] = statistics.stdev(values)
            row[f"{name} n"] = len(values)
        rows.append(row)
    return rows


def _show(rows: Sequence[Mapping[str, Any]], job: Job) -> None:
    """Prints mean and SD of the model's headline metrics on the test set."""
    from rich.table import Table

    from zoo import console

    columns = list(dict.fromkeys(name for row in rows for name in row))
    measured = [name.removesuffix(" mean") for name in columns if name.endswith(" mean")]
    metrics = select_headline(job.overrides, measured)
    keys = columns[: columns.index("n") + 1]
    table = Table(title="mean ± SD over seeds", title_justify="left")
    for name in [*keys, *metrics]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(row.get(key, "")) for key in keys), *(_mean_and_sd(row, name) for name in metrics))
    console.make_console().print(table)


def select_headline(overrides: Sequence[str], measured: Sequence[str]) -> list[str]:
    """Selects the metrics among `measured` that the closing table of a run shows."""
    from zoo.config.instantiate import resolve_target

    task = resolve_target(compose.compose(overrides)["model"]["_target_"], "model", is_root=True)
    of_test = [name for name in (f"test/{metric}" for metric in task.headline) if name in measured]
    return [*of_test, *(name for name in measured if name.startswith("truth/"))]


def _mean_and_sd(row: Mapping[str, Any], name: str) -> str:
    mean, sd = row.get(f"{name} mean"), row.get(f"{name} sd")
    return "" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")
