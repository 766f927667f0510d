"""The directory of a sweep: what stands in its sweep.yaml, who works on it, and whether a job of it works still.

Two locks tell that apart. The sweep holds `.lock` for itself alone. Every job holds `.jobs` together with the others,
by a handle that it inherits: after `kill -9` of the sweep that lock lasts until its job has ended.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from zoo.composing.config import quoted
from zoo.disk import remove_partial
from zoo.errors import ConfigError
from zoo.small_files import read_json, read_yaml
from zoo.training import run_directory

FILE, SUMMARY, LOCK, JOBS = "sweep.yaml", "summary.csv", ".lock", ".jobs"
Status = Literal["waiting", "started", "finished", "stopped", "failed"]


@dataclass
class Job:
    """One run of a sweep.

    Args:
        overrides: What the user would have given for this run alone.
        chosen: The options that differ within the sweep, with their values here.
        run_dir: Set when it starts.
        status: As it was last heard of; `finished` means that the run has left its metrics.json.
    """

    overrides: list[str]
    chosen: dict[str, str]
    run_dir: str | None = None
    status: Status = "waiting"

    def metrics(self) -> dict[str, Any] | None:
        """What the run has found; None if it is not finished."""
        path = None if self.run_dir is None else Path(self.run_dir) / run_directory.RESULT
        if path is None or not path.exists():
            return None
        try:
            found = read_json(path)
        except ValueError as error:
            raise ConfigError(f"{path} is damaged ({error}); remove it, and the run is evaluated again") from error
        return dict(found)

    def arguments(self) -> list[str]:
        """Of the command line: from the beginning, or from the last checkpoint if there is one."""
        assert self.run_dir is not None
        last = Path(self.run_dir) / run_directory.LAST
        started = [f"resume={quoted(str(last))}"] if last.exists() else []
        # what a run started from is in its checkpoint: a continued run is not initialised again
        given = [each for each in self.overrides if not (started and each.startswith("init="))]
        return ["train", *given, *started, f"run_dir={quoted(self.run_dir)}"]


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
    return overrides, jobs


def locked(folder: Path) -> int | None:
    """A lock that ends with this process, however that ends; None if another has it."""
    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    remove_partial(folder)
    return handle


@contextmanager
def job_lock(folder: Path) -> Iterator[int]:
    """A handle to be inherited by a job, as long as which the sweep counts as at work."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield handle
    finally:
        os.close(handle)


def wait_for_jobs(folder: Path) -> None:
    """Waits for the jobs that a killed sweep has left behind: what they find belongs to this sweep."""
    handle = os.open(folder / JOBS, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"zoo: {folder}: a job that this sweep began still runs; it is waited for", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)
