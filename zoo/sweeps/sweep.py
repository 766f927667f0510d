"""Many runs from one command: `python train.py -m model=gat,gatv2 seed=0,1,2`.

Each job is a fresh process in a run directory of its own, started from its overrides. The sweep has a directory too:

    runs/sweeps/<time>/
      sweep.yaml    the overrides of the sweep; at its end also the overrides, run directory and status of every job
      summary.csv   for each combination of the values that are not seeds: mean, SD (n-1) and n of every test metric

The same command continues a sweep that did not finish: it skips finished jobs, continues a stopped or failed one from
its last.ckpt, and repeats one that has none. Hydra's parser reads the values (`0,1,2`, `range(5)`, `choice(a,b)`), and
one of its launchers runs the jobs if it is named (`hydra/launcher=joblib`). Its BasicSweeper is not used, because it
does not remember which jobs have failed or finished.
"""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from zoo import processes
from zoo.config import plugins
from zoo.errors import ConfigError, InterruptedRunError, get_reason, quote_value
from zoo.io import write_csv
from zoo.sweeps.grid import MOST_JOBS, check_values, expand_grid, read_axes
from zoo.sweeps.jobs import INTERRUPTED, SUMMARY, Job, Sweep, open_sweep

_OPTIONS = ("hydra.sweep.dir", "hydra.sweep.max_jobs")
_LAUNCHER = ("hydra/launcher", "hydra.launcher")


def run(overrides: Sequence[str]) -> int:
    """Runs or continues the sweep of these overrides; 0 if every job finished, 1 if one failed."""
    own = [override for override in overrides if not override.startswith("hydra")]
    pairs = (override.partition("=") for override in overrides if override.startswith("hydra"))
    options = {key: value.strip("'\"") for key, _, value in pairs}
    if options.get("hydra/sweeper") == "optuna":
        from zoo.sweeps import search  # Optuna and torch take seconds to import

        return search.run(list(overrides), own, options)
    unknown = [key for key in options if key not in _OPTIONS and not key.startswith(_LAUNCHER)]
    if unknown:
        known = "hydra/launcher=, hydra.launcher.*, hydra/sweeper=optuna, hydra.sweep.dir= and hydra.sweep.max_jobs="
        raise ConfigError(f"{unknown[0]}: a sweep takes {known}")
    if options.get("hydra.sweep.dir") == "":
        raise ConfigError("hydra.sweep.dir is empty (an unset shell variable?)")
    jobs = expand_grid(own, most=_most_jobs(options))
    check_values(read_axes(own))  # a mistake in the last job is found before the first one starts
    with open_sweep(list(overrides), jobs, options.get("hydra.sweep.dir")) as sweep:
        print(f"sweep {sweep.folder}: {len(sweep.jobs)} jobs, {len(sweep.list_pending())} to run", file=sys.stderr)
        if options.get("hydra/launcher", "basic") != "basic":
            _launch(sweep, [override for override in overrides if override.startswith(_LAUNCHER)])
        else:
            for number, job in sweep.list_pending():
                sweep.run_job(number, job)
        return _finish(sweep)


def _most_jobs(options: Mapping[str, str]) -> int:
    value = options.get("hydra.sweep.max_jobs", str(MOST_JOBS))
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"hydra.sweep.max_jobs={value!r}: write a whole number from 1")
    return int(value)


class _NoCallbacks:
    """The callbacks of Hydra that a launcher calls."""

    def on_job_start(self, **_: Any) -> None:
        """Does nothing."""

    def on_job_end(self, **_: Any) -> None:
        """Does nothing."""


def _launch(sweep: Sweep, options: Sequence[str]) -> None:
    """Runs the open jobs by one of Hydra's launchers. Each of its tasks starts a fresh process and waits for it."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext, RunMode
    from omegaconf.errors import OmegaConfBaseException

    for _, job in sweep.list_pending():
        job.wait()
    waiting = [job for _, job in sweep.list_pending()]
    if not waiting:
        return
    jobs = [job.arguments()[1:] for job in waiting]
    overrides = [*waiting[0].overrides, *options, *plugins.make_search_path()]
    overrides.append(f"hydra.sweep.dir={quote_value(str(sweep.folder))}")
    try:
        with initialize_config_dir(str(plugins.CONF), version_base=None):
            loader = GlobalHydra.instance().config_loader()
            composed = loader.load_configuration("train", overrides, RunMode.MULTIRUN)
            context = HydraContext(config_loader=loader, callbacks=_NoCallbacks())  # type: ignore[arg-type]
            launcher = Plugins.instance().instantiate_launcher(
                hydra_context=context, task_function=_run_job, config=composed
            )
    except (HydraException, OmegaConfBaseException) as error:
        extra = 'launchers other than basic are plugins: pip install "attention-zoo[sweep]"'
        raise ConfigError(f"{get_reason(error)} ({extra})") from error
    for job, result in zip(waiting, launcher.launch(jobs, 0), strict=True):
        job.code = _get_exit_code(result)
    if any(job.code == INTERRUPTED for job in waiting):
        raise InterruptedRunError(f"the sweep was stopped.\nContinue with the same command: {sweep.command()}")


def _run_job(_: Any) -> int:
    """Runs a job, as the task that a launcher starts in any process or on any node."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    arguments = OmegaConf.to_container(HydraConfig.get().overrides.task)
    assert isinstance(arguments, list)
    return processes.run(processes.make_command("train", *map(str, arguments)))


def _get_exit_code(result: Any) -> int:
    try:
        return int(result.return_value)
    except Exception as error:  # an error of the launcher or its cluster
        print(f"zoo: a job could not be launched: {error}", file=sys.stderr)
        return 1


def _finish(sweep: Sweep) -> int:
    """Writes the summary and names the jobs that failed; 1 if there are any."""
    rows = _summarize(sweep.jobs)
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


def _summarize(jobs: Sequence[Job]) -> list[dict[str, str | float | int]]:
    """Makes a row for every combination of values other than seeds, over its finished seeds."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for job in jobs:
        key = tuple((name, value) for name, value in job.chosen.items() if name != "seed")
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
    metrics = job.select_headline(measured)
    keys = columns[: columns.index("n") + 1]
    table = Table(title="mean ± SD over seeds", title_justify="left")
    for name in [*keys, *metrics]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(row.get(key, "")) for key in keys), *(_mean_and_sd(row, name) for name in metrics))
    console.make_console().print(table)


def _mean_and_sd(row: Mapping[str, Any], name: str) -> str:
    mean, sd = row.get(f"{name} mean"), row.get(f"{name} sd")
    return "" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")
