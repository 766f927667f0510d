"""The directory of a sweep: an unfinished one of the same command, or a new one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from zoo.config import compose
from zoo.errors import ConfigError
from zoo.io.atomic import make_timestamped_dir
from zoo.io.config_files import read_yaml
from zoo.sweeps.jobs import FILE, JOURNAL, Job, Sweep
from zoo.sweeps.sweep_lock import JOBS, LOCK, lock_sweep, wait_for_jobs


@contextmanager
def open_sweep(
    overrides: list[str],
    jobs: list[Job],
    folder: str | None,
    *,
    like: Sequence[str] | None = None,
    is_open: Callable[[list[Job]], bool] = lambda jobs: any(job.metrics() is None for job in jobs),
) -> Iterator[Sweep]:
    """Opens the unfinished sweep of these overrides that no process works on, or a new one.

    Args:
        overrides: The overrides of the sweep.
        jobs: The jobs of a new sweep.
        folder: The directory; one named by the time if not given.
        like: The overrides of any job; those of the first if not given.
        is_open: Whether jobs are left to do.
    """
    runs = compose.compose(jobs[0].overrides if like is None else like)["paths"]["runs"]
    parent = Path(runs).absolute() / "sweeps"
    try:
        found = _find_unfinished(overrides, parent, folder, is_open)
        if found is None:
            path = make_timestamped_dir(parent) if folder is None else Path(folder).absolute()
            path.mkdir(parents=True, exist_ok=True)
            lock = lock_sweep(path)
            if lock is None:
                raise ConfigError(f"{path} is being worked on by another process; give another hydra.sweep.dir")
            found = Sweep(path, overrides, jobs, lock)
            found.write()
    except OSError as error:
        where = error.filename or parent
        remedy = "give another hydra.sweep.dir or paths.runs"
        raise ConfigError(f"{where}: a sweep cannot be kept there ({error.strerror}); {remedy}") from error
    yield from _hold(found)


def _find_unfinished(
    overrides: list[str], parent: Path, folder: str | None, is_open: Callable[[list[Job]], bool]
) -> Sweep | None:
    """The sweep to continue, locked, once none of its jobs is at work any more."""
    for path in _list_candidates(parent, folder):
        try:
            before = read(path)
        except ConfigError as error:
            if folder is not None:
                raise ConfigError(f"{error}; remove it, or give another hydra.sweep.dir") from error
            print(f"zoo: {error}; it is left out", file=sys.stderr)
            continue
        if before is None:
            continue
        same = before[0] == overrides
        lock = lock_sweep(path) if same else None
        if lock is not None and (folder is not None or is_open(before[1])):
            wait_for_jobs(path)
            overrides, jobs = read(path) or before  # jobs may have changed it until now
            for job in jobs:
                job.status = job.status if job.metrics() is None else "finished"
            sweep = Sweep(path, overrides, jobs, lock)
            sweep.write()
            return sweep
        if lock is not None:
            os.close(lock)
        if folder is not None:
            why = "is being worked on by another process" if same else "holds a sweep of other overrides"
            raise ConfigError(f"{path} {why}; give another hydra.sweep.dir")
        if lock is None and same:
            print(f"zoo: the same sweep is at work in {path}; this is another one", file=sys.stderr)
    return None


def _list_candidates(parent: Path, folder: str | None) -> list[Path]:
    if folder is None:
        return sorted(parent.glob("*"), reverse=True)
    path = Path(folder).absolute()
    if path.is_dir() and not (path / FILE).exists() and {each.name for each in path.iterdir()} - {LOCK, JOBS}:
        raise ConfigError(f"{path} holds other things than a sweep; give another hydra.sweep.dir")
    return [path]


def _hold(sweep: Sweep) -> Iterator[Sweep]:
    try:
        yield sweep
    finally:
        sweep.write()
        if all(job.run_dir is None for job in sweep.jobs):  # the sweep could not begin
            with suppress(OSError):
                for name in (LOCK, JOBS, FILE, JOURNAL):
                    (sweep.folder / name).unlink(missing_ok=True)
                for folder in (sweep.folder, sweep.folder.parent, sweep.folder.parent.parent):
                    folder.rmdir()
        os.close(sweep.lock)


def read(folder: Path) -> tuple[list[str], list[Job]] | None:
    """The overrides and the jobs of a sweep; None where there is none.

    Raises:
        ConfigError: Its sweep.yaml cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        found = read_yaml(path)
        overrides, jobs = found["overrides"], [Job(**each) for each in found["jobs"]]
        for texts in (overrides, *(job.overrides for job in jobs), *(job.chosen.values() for job in jobs)):
            if not all(isinstance(each, str) for each in texts):
                raise TypeError("an option that is no text")
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{path} is damaged, or not that of a sweep ({reason})") from error
    _replay(folder / JOURNAL, jobs)
    return overrides, jobs


def _replay(journal: Path, jobs: list[Job]) -> None:
    """Brings jobs up to date. The last line of the journal may be cut short, if the sweep was killed while writing."""
    if not journal.exists():
        return
    lines = journal.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        try:
            state = json.loads(line)
            place = state.pop("number")
            jobs[place : place + 1] = [Job(**state)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{journal}, line {number}: this is not the state of a job of a sweep") from error
