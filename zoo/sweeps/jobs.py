"""The jobs of a sweep, each of which is a run, and the directory of the sweep.

Whether a job is done, or at work, its run directory says: by its metrics.json and by its lock. All that a sweep keeps
besides is how it was called and how its runs are named, so that the same command finds them again.
"""

from __future__ import annotations

import functools
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from zoo import locks, processes
from zoo.config import compose
from zoo.config.groups import GROUPS
from zoo.errors import ConfigError, InterruptedRunError, get_reason, quote_value
from zoo.io import (
    LARGEST_LIST,
    dump_yaml,
    make_no_alias_loader,
    make_timestamped_dir,
    read_json,
    read_text,
    remove_partial,
    write_text,
)
from zoo.training.run_config import CONFIG, RESULT
from zoo.training.run_dir import get_runs_folder, is_locked

FILE, SUMMARY = "sweep.yaml", "summary.csv"
_LOCK = ".lock"
INTERRUPTED = 130
_STOPPED = (INTERRUPTED, -2, -15)


@dataclass
class Job:
    """One run of a sweep.

    Args:
        overrides: Those with which the user would start this run alone.
        chosen: The options that differ within the sweep, with their values in this job.
        run_dir: The directory of the run, which need not exist yet.
        code: The exit code of its process, if it has ended in this sweep.
    """

    overrides: list[str]
    chosen: dict[str, str]
    run_dir: str = ""
    code: int | None = None

    @property
    def status(self) -> str:
        if self.metrics() is not None:
            return "finished"
        if self.code is None:
            return "stopped" if Path(self.run_dir).exists() else "waiting"
        return "stopped" if self.code in _STOPPED else "failed"

    def metrics(self) -> dict[str, Any] | None:
        """Returns the content of the run's metrics.json; None if it is not finished."""
        path = Path(self.run_dir) / RESULT
        if not path.exists():
            return None
        try:
            return dict(read_json(path))
        except ValueError as error:
            raise ConfigError(f"{path} is damaged ({error}); remove it, and the run is evaluated again") from error

    def select_headline(self, measured: Sequence[str]) -> list[str]:
        """Selects the metrics among `measured` that the closing table of the run shows."""
        from zoo.config.instantiate import resolve_target

        task = resolve_target(compose.compose(self.overrides)["model"]["_target_"], "model", is_root=True)
        of_test = [name for name in (f"test/{metric}" for metric in task.headline) if name in measured]
        return [*of_test, *(name for name in measured if name.startswith("truth/"))]

    def arguments(self) -> list[str]:
        """Returns the arguments of the command line that start the run, or continue it."""
        resumed = ["resume=auto"] if (Path(self.run_dir) / CONFIG).exists() else []
        return ["train", *self.overrides, *resumed, f"run_dir={quote_value(self.run_dir)}"]

    def wait(self) -> None:
        """Waits for the run, if a sweep that was killed has left it at work."""
        if Path(self.run_dir).exists():
            handle = os.open(self.run_dir, os.O_RDONLY)
            try:
                locks.acquire_aloud(handle, lambda by: f"{self.run_dir}: waiting for this run, which is at work ({by})")
            finally:
                locks.release(handle)


class Sweep:
    """A sweep: its directory and its jobs.

    Args:
        folder: The directory.
        overrides: The command.
        jobs: The jobs, in the order of the command.
        runs: How its run directories are named, before the number of the job.
        lock: The descriptor of the sweep's lock.
    """

    def __init__(self, folder: Path, overrides: list[str], jobs: list[Job], runs: str, lock: int) -> None:
        self.folder = folder
        self.overrides = overrides
        self.jobs = jobs
        self.runs = runs
        self.lock = lock
        for number, job in enumerate(jobs):
            self.name_run_dir(job, number)

    def name_run_dir(self, job: Job, number: int) -> None:
        job.run_dir = str(_get_runs_folder(job.overrides) / f"{self.runs}-{number + 1}")

    def list_pending(self) -> list[tuple[int, Job]]:
        return [(number, job) for number, job in enumerate(self.jobs) if job.metrics() is None]

    def run_job(self, number: int, job: Job, more: Mapping[str, str] | None = None, of: int | None = None) -> int:
        """Runs one job in a fresh process and returns its exit code. If the user stops the job, the sweep stops too."""
        of = of or len(self.jobs)
        print(f"sweep: job {number + 1} of {of}: {shlex.join(job.overrides)}", file=sys.stderr, flush=True)
        job.wait()
        job.code = 0
        while job.metrics() is None:
            job.code = processes.run(processes.make_command(*job.arguments()), env=more)
            if not (job.code and Path(job.run_dir).exists() and is_locked(Path(job.run_dir))):
                break
            job.wait()  # the one that was left at work had not locked the directory yet
            job.code = 0
        if job.code in _STOPPED:
            raise InterruptedRunError(
                f"the sweep was stopped in job {number + 1} of {of}.\nContinue with the same command: {self.command()}"
            )
        return job.code

    def command(self) -> str:
        return shlex.join(["python", "train.py", "-m", *self.overrides])

    def write(self) -> None:
        """Writes sweep.yaml: what continues the sweep, then what has become of its jobs, for the user."""
        keys = ("overrides", "chosen", "run_dir", "status")
        jobs = [{key: getattr(job, key) for key in keys} for job in self.jobs]
        write_text(self.folder / FILE, dump_yaml({"overrides": self.overrides, "runs": self.runs, "jobs": jobs}))


@contextmanager
def open_sweep(
    overrides: list[str],
    jobs: list[Job],
    folder: str | None,
    *,
    like: Sequence[str] | None = None,
    is_open: Callable[[Sweep], bool] = lambda sweep: bool(sweep.list_pending()),
) -> Iterator[Sweep]:
    """Opens the unfinished sweep of these overrides that no process works on, or a new one.

    Args:
        overrides: The overrides of the sweep.
        jobs: Its jobs.
        folder: The directory; one named by the time if not given.
        like: The overrides of any job; those of the first if not given.
        is_open: Whether jobs are left to do.
    """
    runs = compose.compose(jobs[0].overrides if like is None else like)["paths"]["runs"]
    parent = Path(runs).absolute() / "sweeps"
    try:
        sweep = _find_unfinished(overrides, jobs, parent, folder, is_open)
        if sweep is None:
            path = make_timestamped_dir(parent) if folder is None else Path(folder).absolute()
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
            if lock is None:
                raise ConfigError(f"{path} is being worked on by another process; give another hydra.sweep.dir")
            name = path.name if folder is None else f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{secrets.token_hex(3)}"
            sweep = Sweep(path, overrides, jobs, name, lock)
            write_text(path / FILE, dump_yaml({"overrides": overrides, "runs": name}))
    except OSError as error:
        where = error.filename or parent
        remedy = "give another hydra.sweep.dir or paths.runs"
        raise ConfigError(f"{where}: a sweep cannot be kept there ({error.strerror}); {remedy}") from error
    try:
        yield sweep
    finally:
        _close(sweep)


def _close(sweep: Sweep) -> None:
    """Ends the work on a sweep; if it could not begin, nothing is left of it."""
    try:
        if any(Path(job.run_dir).exists() or job.code is not None for job in sweep.jobs):
            sweep.write()
        else:
            with suppress(OSError):
                for name in (_LOCK, FILE):
                    (sweep.folder / name).unlink(missing_ok=True)
                for folder in (sweep.folder, sweep.folder.parent, sweep.folder.parent.parent):
                    folder.rmdir()
    finally:
        locks.release(sweep.lock)


def _find_unfinished(
    overrides: list[str], jobs: list[Job], parent: Path, folder: str | None, is_open: Callable[[Sweep], bool]
) -> Sweep | None:
    """Returns the sweep to continue, locked, if there is one."""
    for path in _list_candidates(parent, folder):
        try:
            runs = _read(path, overrides)
        except ConfigError as error:
            if folder is not None:
                raise ConfigError(f"{error}; remove it, or give another hydra.sweep.dir") from error
            print(f"zoo: {error}; it is left out", file=sys.stderr)
            continue
        lock = None if runs is None else _lock(path)
        if runs is not None and lock is not None:
            sweep = Sweep(path, overrides, jobs, runs, lock)
            if folder is not None or not (path / SUMMARY).exists() or is_open(sweep):
                return sweep
            locks.release(lock)
        elif folder is not None and (path / FILE).exists():
            why = "holds a sweep of other overrides" if runs is None else "is being worked on by another process"
            raise ConfigError(f"{path} {why}; give another hydra.sweep.dir")
        elif runs is not None:
            print(f"zoo: the same sweep is at work in {path}; this is another one", file=sys.stderr)
    return None


def _list_candidates(parent: Path, folder: str | None) -> list[Path]:
    if folder is None:
        return sorted(parent.glob("*"), reverse=True)
    path = Path(folder).absolute()
    if path.is_dir() and not (path / FILE).exists() and {member.name for member in path.iterdir()} - {_LOCK}:
        raise ConfigError(f"{path} holds other things than a sweep; give another hydra.sweep.dir")
    return [path]


def _read(folder: Path, overrides: list[str]) -> str | None:
    """Returns how the runs of a sweep of these overrides are named; None if there is none.

    Raises:
        ConfigError: Its sweep.yaml cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        head = read_text(path, LARGEST_LIST).partition("\njobs:")[0]
        config = yaml.load(head, make_no_alias_loader(yaml.SafeLoader))
        if not all(isinstance(override, str) for override in config["overrides"]):
            raise TypeError("an option that is no text")
        return str(Path(config["runs"]).name) if config["overrides"] == overrides else None
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged, or not that of a sweep ({get_reason(error)})") from error


def _lock(folder: Path) -> int | None:
    """Locks a sweep until this process ends; returns the handle, or None if another process has the lock."""
    handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    if not locks.acquire(handle, wait=False):
        locks.release(handle)
        return None
    remove_partial(folder)
    return handle


def _get_runs_folder(overrides: Sequence[str]) -> Path:
    """Returns the folder of a run with these overrides, which most jobs of a sweep share."""
    needed = [
        override for override in overrides if override.partition("=")[0] in GROUPS or override.startswith("paths.")
    ]
    has_references = any("$" in override for override in needed)
    return get_runs_folder(_compose_names(tuple(overrides if has_references else needed)))


@functools.lru_cache(maxsize=1024)
def _compose_names(overrides: tuple[str, ...]) -> dict[str, Any]:
    composed = compose.compose(overrides)
    return {part: composed[part] for part in ("paths", "names")}
