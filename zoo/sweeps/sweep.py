"""Many runs from one command: `python train.py -m model=gat,gatv2 seed=0,1,2`.

Each job is a fresh process in a run directory of its own, started from its overrides. The sweep has a directory too:

    runs/sweeps/<time>/
      sweep.yaml    the overrides, and of every job its overrides, run directory and status
      summary.csv   for each combination of the values that are not seeds: mean, SD (n-1) and n of every test metric

The same command continues a sweep that did not finish: finished jobs are skipped, a stopped one goes on from its
last.ckpt, a failed one is tried again. Hydra's parser reads the values (`0,1,2`, `range(5)`, `choice(a,b)`) and its
launchers are used if one is named (`hydra/launcher=joblib`); its BasicSweeper is not, because it knows nothing of
failed and finished jobs.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from zoo.composing import config
from zoo.disk import new_directory, whole_file, write_text
from zoo.errors import ConfigError, InterruptedRunError
from zoo.sweeps import processes
from zoo.sweeps.sweep_directory import FILE, JOBS, LOCK, SUMMARY, Job, job_lock, locked, read, wait_for_jobs
from zoo.training import run_directory

SEED = "seed"
INTERRUPTED = 130


def run(overrides: Sequence[str]) -> int:
    """Runs or continues the sweep of these overrides; 0 if every job finished, 1 if one failed."""
    own, options = hydra_options(overrides)
    if options.get("hydra/sweeper") == "optuna":
        from zoo.sweeps import search

        code: int = search.run(list(overrides), own, options)
        return code
    unknown = [key for key in options if not key.startswith(("hydra/launcher", "hydra.launcher", "hydra.sweep."))]
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: a sweep takes hydra/launcher=, hydra.launcher.*, hydra.sweep.dir= and hydra/sweeper=optuna"
        )
    if options.get("hydra.sweep.dir") == "":
        raise ConfigError("hydra.sweep.dir is empty (an unset shell variable?)")
    jobs = expanded(own)
    for job in jobs:
        config.compose(job.overrides)  # what is wrong with the last job is said before the first one starts
    launched = options.get("hydra/launcher", "basic") != "basic"
    with opened(list(overrides), jobs, options.get("hydra.sweep.dir")) as sweep:
        print(f"sweep {sweep.folder}: {len(sweep.jobs)} jobs, {len(sweep.open_jobs())} to run", file=sys.stderr)
        if launched:
            _launch(sweep, [each for each in overrides if each.startswith("hydra") and not _is_dir(each)])
        else:
            for number, job in sweep.open_jobs():
                sweep.run_job(number, job)
        return sweep.finish()


class Sweep:
    """The directory of a sweep and what stands in its sweep.yaml."""

    def __init__(self, folder: Path, overrides: list[str], jobs: list[Job], lock: int) -> None:
        self.folder = folder
        self.overrides = overrides
        self.jobs = jobs
        self.lock = lock

    def open_jobs(self) -> list[tuple[int, Job]]:
        return [(number, job) for number, job in enumerate(self.jobs) if job.metrics() is None]

    def run_job(self, number: int, job: Job, more: Mapping[str, str] | None = None, of: int | None = None) -> int:
        """One job in a fresh process; a stop by the user stops the sweep."""
        self.prepare(job)
        of = of or len(self.jobs)
        print(f"sweep: job {number + 1} of {of}: {shlex.join(job.overrides)}", file=sys.stderr, flush=True)
        with job_lock(self.folder) as handle:
            code = processes.run(processes.command(*job.arguments()), more=more, keep_open=[handle])
        self.ended(job, code)
        if code in (INTERRUPTED, -2, -15):
            raise InterruptedRunError(
                f"the sweep was stopped in job {number + 1} of {of}.\nContinue with the same command: {self.command()}"
            )
        return code

    def prepare(self, job: Job) -> None:
        """A run directory, a new one unless there is a checkpoint to continue from."""
        if job.run_dir is None or not (Path(job.run_dir) / run_directory.LAST).exists():
            given = config.value_of(job.overrides, "run_dir")
            if given is not None:
                raise ConfigError("a sweep gives each of its runs a run_dir; choose paths.runs=PATH instead")
            job.run_dir = str(_new_run_dir(job.overrides))
        job.status = "started"
        self.write()

    def ended(self, job: Job, code: int) -> None:
        stopped = code in (INTERRUPTED, -2, -15)
        job.status = "finished" if job.metrics() is not None else "stopped" if stopped else "failed"
        self.write()

    def finish(self) -> int:
        """Writes the summary and says what failed."""
        rows = summary(self.jobs)
        write_csv(self.folder / SUMMARY, rows)
        _show(rows, self.jobs[0])
        failed = [job for job in self.jobs if job.status == "failed"]
        for job in failed:
            print(f"zoo: this job failed: {shlex.join(['zoo', *job.arguments()])}", file=sys.stderr)
        if failed:
            again = f"the same command tries again: {self.command()}"
            print(f"zoo: {len(failed)} of {len(self.jobs)} jobs failed; {again}", file=sys.stderr)
        print(f"{self.folder}: sweep.yaml, summary.csv")
        return 1 if failed else 0

    def command(self) -> str:
        return shlex.join(["python", "train.py", "-m", *self.overrides])

    def write(self) -> None:
        content = {"overrides": self.overrides, "jobs": [asdict(job) for job in self.jobs]}
        write_text(self.folder / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


@contextmanager
def opened(
    overrides: list[str],
    jobs: list[Job],
    folder: str | None,
    *,
    like: Sequence[str] | None = None,
    is_open: Callable[[list[Job]], bool] = lambda jobs: any(job.metrics() is None for job in jobs),
) -> Iterator[Sweep]:
    """The unfinished sweep of the same overrides that nobody works on, or a new one.

    Args:
        overrides: Of the sweep.
        jobs: Of a new one.
        folder: Its directory; one named by the time if not given.
        like: The overrides of any job; the first one's if not given.
        is_open: Whether there is something left to do.
    """
    runs = config.compose(jobs[0].overrides if like is None else like)["paths"]["runs"]
    parent = Path(runs).absolute() / "sweeps"
    try:
        found = _unfinished(overrides, parent, folder, is_open)
        if found is None:
            path = new_directory(parent) if folder is None else Path(folder).absolute()
            path.mkdir(parents=True, exist_ok=True)
            lock = locked(path)
            if lock is None:
                raise ConfigError(f"{path} is being worked on by another process; give another hydra.sweep.dir")
            found = Sweep(path, overrides, jobs, lock)
            found.write()
    except OSError as error:
        where = error.filename or parent
        remedy = "give another hydra.sweep.dir or paths.runs"
        raise ConfigError(f"{where}: a sweep cannot be kept there ({error.strerror}); {remedy}") from error
    yield from _held(found)


def _unfinished(
    overrides: list[str], parent: Path, folder: str | None, is_open: Callable[[list[Job]], bool]
) -> Sweep | None:
    """The sweep to continue, with its lock, once no job of it works any more."""
    for path in _candidates(parent, folder):
        try:
            before = read(path)
        except ConfigError as error:
            if folder is not None:
                raise ConfigError(f"{error}; remove it, or give another hydra.sweep.dir") from error
            print(f"zoo: {error}; it is passed over", file=sys.stderr)
            continue
        if before is None:
            continue
        same = before[0] == overrides
        lock = locked(path) if same else None
        if lock is not None and (folder is not None or is_open(before[1])):
            wait_for_jobs(path)
            overrides, jobs = read(path) or before  # as it stands, now that nobody works on it
            for job in jobs:
                job.status = job.status if job.metrics() is None else "finished"
            return Sweep(path, overrides, jobs, lock)
        if lock is not None:
            os.close(lock)
        if folder is not None:
            why = "is being worked on by another process" if same else "holds a sweep of other overrides"
            raise ConfigError(f"{path} {why}; give another hydra.sweep.dir")
        if lock is None and same:
            print(f"zoo: the same sweep is at work in {path}; this is another one", file=sys.stderr)
    return None


def _candidates(parent: Path, folder: str | None) -> list[Path]:
    if folder is None:
        return sorted(parent.glob("*"), reverse=True)
    path = Path(folder).absolute()
    if path.is_dir() and not (path / FILE).exists() and {each.name for each in path.iterdir()} - {LOCK, JOBS}:
        raise ConfigError(f"{path} holds other things than a sweep; give another hydra.sweep.dir")
    return [path]


def _held(sweep: Sweep) -> Iterator[Sweep]:
    try:
        yield sweep
    finally:
        if all(job.run_dir is None for job in sweep.jobs):  # it could not begin
            with suppress(OSError):
                for name in (LOCK, JOBS, FILE):
                    (sweep.folder / name).unlink(missing_ok=True)
                for folder in (sweep.folder, sweep.folder.parent, sweep.folder.parent.parent):
                    folder.rmdir()
        os.close(sweep.lock)


def expanded(overrides: Sequence[str]) -> list[Job]:
    """Every combination, the last option changing fastest."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        choices = [
            [f"{each.get_key_element()}={value}" for value in each.sweep_string_iterator()]
            if each.is_sweep_override()
            else [str(each.input_line)]
            for each in parsed
        ]
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    swept = [each.get_key_element() for each in parsed if each.is_sweep_override()]
    for key in ("init", "resume", "run_dir"):
        if key in swept:
            raise ConfigError(f"{key} cannot be swept over")
    return [
        Job(list(found), {key: config.value_of(found, key) or "" for key in swept})
        for found in itertools.product(*choices)
    ]


def hydra_options(overrides: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The overrides of the runs, and those of the sweep itself (`hydra...`)."""
    options = [each for each in overrides if each.startswith("hydra")]
    return [each for each in overrides if each not in options], dict(_pair(each) for each in options)


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value.strip("'\"")


def _is_dir(override: str) -> bool:
    return override.startswith("hydra.sweep.")


def summary(jobs: Sequence[Job]) -> list[dict[str, str | float | int]]:
    """A row for every combination of values that are not seeds, with its finished seeds."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for job in jobs:
        key = tuple((name, value) for name, value in job.chosen.items() if name != SEED)
        found = job.metrics()
        groups.setdefault(key, []).extend([found] if found is not None else [])
    rows = []
    for key, members in groups.items():
        row: dict[str, str | float | int] = {**dict(key), "n": len(members)}
        names = dict.fromkeys(n for each in members for n in each if n.startswith(("test/", "truth/")))
        for name in names:
            values = [each[name] for each in members if each.get(name) is not None]
            row[f"{name} mean"] = statistics.fmean(values)
            if len(values) > 1:
                row[f"{name} sd"] = statistics.stdev(values)
            row[f"{name} n"] = len(values)
        rows.append(row)
    return rows


def _launch(sweep: Sweep, options: Sequence[str]) -> None:
    """The open jobs by one of Hydra's launchers. What it starts starts a fresh process and waits for it."""
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext, RunMode
    from omegaconf.errors import OmegaConfBaseException

    waiting = [job for _, job in sweep.open_jobs()]
    if not waiting:
        return
    for job in waiting:
        sweep.prepare(job)
    GlobalHydra.instance().clear()
    try:
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(config.CONF)))
        composed = hydra.compose_config(
            config_name="train",
            overrides=[*waiting[0].overrides, *options, f"hydra.sweep.dir={config.quoted(str(sweep.folder))}"],
            run_mode=RunMode.MULTIRUN,
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(composed))
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_launched, config=composed
        )
    except (HydraException, OmegaConfBaseException) as error:
        for job in waiting:
            with suppress(OSError):
                Path(job.run_dir or "").rmdir()
                Path(job.run_dir or "").parent.rmdir()
            job.run_dir, job.status = None, "waiting"
        sweep.write()
        extra = 'launchers other than basic are plugins: pip install "attention-zoo[sweep]"'
        raise ConfigError(f"{str(error).strip().splitlines()[0]} ({extra})") from error
    finally:
        GlobalHydra.instance().clear()
    _tell(sweep, waiting)
    jobs = [[each for each in job.arguments()[1:] if not each.startswith("resume=")] for job in waiting]
    codes = [_code(result) for result in launcher.launch(jobs, 0)]
    for job, code in zip(waiting, codes, strict=True):
        sweep.ended(job, code)
    if INTERRUPTED in codes:
        raise InterruptedRunError(f"the sweep was stopped.\nContinue with the same command: {sweep.command()}")


def _tell(sweep: Sweep, waiting: Sequence[Job]) -> None:
    """Hydra hands a job its composed configuration; the arguments are read from a file beside it."""
    folder = sweep.folder / "jobs"
    folder.mkdir(exist_ok=True)
    for number, job in enumerate(waiting):
        write_text(folder / f"{number}.json", json.dumps(job.arguments()))


def _launched(_: Any) -> int:
    """What a launcher runs, in a process or on a node of its choice."""
    from hydra.core.hydra_config import HydraConfig

    found = HydraConfig.get()
    folder = Path(found.sweep.dir)
    arguments = json.loads((folder / "jobs" / f"{found.job.num}.json").read_text(encoding="utf-8"))
    with job_lock(folder) as handle:
        return processes.run(processes.command(*arguments), keep_open=[handle])


def _code(result: Any) -> int:
    try:
        return int(result.return_value)
    except Exception as error:  # whatever the launcher or its cluster met
        print(f"zoo: a job could not be launched: {error}", file=sys.stderr)
        return 1


def _new_run_dir(overrides: Sequence[str]) -> Path:
    composed = config.compose(overrides)
    names = composed["names"]
    return new_directory(Path(composed["paths"]["runs"]).absolute() / f"{names['model']}-{names['data']}")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with whole_file(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _show(rows: Sequence[Mapping[str, Any]], job: Job) -> None:
    """Mean and SD of the test metrics by which the model of this job is judged."""
    from rich.table import Table

    from zoo import terminal

    columns = list(dict.fromkeys(name for row in rows for name in row))
    measured = [name.removesuffix(" mean") for name in columns if name.endswith(" mean")]
    metrics = headlined(job.overrides, measured)
    keys = columns[: columns.index("n") + 1]
    table = Table(title="mean ± SD over seeds", title_justify="left")
    for name in [*keys, *metrics]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(row.get(key, "")) for key in keys), *(_mean_and_sd(row, name) for name in metrics))
    terminal.console().print(table)


def headlined(overrides: Sequence[str], measured: Sequence[str]) -> list[str]:
    """Of the metrics of a run, those that its closing table shows."""
    from zoo.composing.build import resolve

    task = resolve(config.compose(overrides)["model"]["_target_"], "model", is_root=True)
    of_test = [name for name in (f"test/{each}" for each in task.headline) if name in measured]
    return [*of_test, *(name for name in measured if name.startswith("truth/"))]


def _mean_and_sd(row: Mapping[str, Any], name: str) -> str:
    mean, sd = row.get(f"{name} mean"), row.get(f"{name} sd")
    return "" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")
