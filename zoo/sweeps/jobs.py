"""The jobs of a sweep: the run of each, its status, and how it is started."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from zoo import processes
from zoo.config import compose
from zoo.config.groups import GROUPS
from zoo.errors import ConfigError, InterruptedRunError, quote_value
from zoo.io.atomic import make_timestamped_dir, write_text
from zoo.io.config_files import read_json
from zoo.sweeps.sweep_lock import job_lock
from zoo.training.run_config import LAST, RESULT
from zoo.training.run_dir import get_runs_folder

FILE, JOURNAL = "sweep.yaml", "sweep.jsonl"
INTERRUPTED = 130
Status = Literal["waiting", "started", "finished", "stopped", "failed"]


@dataclass
class Job:
    """One run of a sweep.

    Args:
        overrides: Those with which the user would start this run alone.
        chosen: The options that differ within the sweep, with their values in this job.
        run_dir: The directory of the run, once it has started.
        status: The last known one; `finished` if the run has written its metrics.json.
    """

    overrides: list[str]
    chosen: dict[str, str]
    run_dir: str | None = None
    status: Status = "waiting"

    def metrics(self) -> dict[str, Any] | None:
        """The content of the run's metrics.json; None if it is not finished."""
        path = None if self.run_dir is None else Path(self.run_dir) / RESULT
        if path is None or not path.exists():
            return None
        try:
            found = read_json(path)
        except ValueError as error:
            raise ConfigError(f"{path} is damaged ({error}); remove it, and the run is evaluated again") from error
        return dict(found)

    def arguments(self) -> list[str]:
        """The arguments of the command line that start the run, or continue it from its last checkpoint."""
        assert self.run_dir is not None
        last = Path(self.run_dir) / LAST
        started = [f"resume={quote_value(str(last))}"] if last.exists() else []
        # a continued run is not initialised again
        given = [each for each in self.overrides if not (started and each.startswith("init="))]
        return ["train", *given, *started, f"run_dir={quote_value(self.run_dir)}"]


class Sweep:
    """A sweep: its directory and its jobs.

    sweep.yaml has all jobs, as they were when the sweep began or was continued, or as it left them. What becomes of a
    job meanwhile is appended to the journal, a line each time, so that the work does not grow with the number of jobs.
    """

    def __init__(self, folder: Path, overrides: list[str], jobs: list[Job], lock: int) -> None:
        self.folder = folder
        self.overrides = overrides
        self.jobs = jobs
        self.lock = lock

    def list_pending(self) -> list[tuple[int, Job]]:
        return [(number, job) for number, job in enumerate(self.jobs) if job.metrics() is None]

    def run_job(self, number: int, job: Job, more: Mapping[str, str] | None = None, of: int | None = None) -> int:
        """Runs one job in a fresh process and returns its exit code. If the user stops the job, the sweep stops too."""
        self.prepare(number)
        of = of or len(self.jobs)
        print(f"sweep: job {number + 1} of {of}: {shlex.join(job.overrides)}", file=sys.stderr, flush=True)
        with job_lock(self.folder) as handle:
            code = processes.run(processes.make_command(*job.arguments()), env=more, pass_fds=[handle])
        self.mark_done(number, code)
        if code in (INTERRUPTED, -2, -15):
            raise InterruptedRunError(
                f"the sweep was stopped in job {number + 1} of {of}.\nContinue with the same command: {self.command()}"
            )
        return code

    def prepare(self, number: int) -> None:
        """Gives a job a new run directory, unless there is a checkpoint to continue."""
        job = self.jobs[number]
        if job.run_dir is None or not (Path(job.run_dir) / LAST).exists():
            given = compose.get_value(job.overrides, "run_dir")
            if given is not None:
                raise ConfigError("a sweep gives each of its runs a run_dir; choose paths.runs=PATH instead")
            job.run_dir = str(_new_run_dir(job.overrides))
        job.status = "started"
        self._note(number)

    def mark_done(self, number: int, code: int) -> None:
        job = self.jobs[number]
        stopped = code in (INTERRUPTED, -2, -15)
        job.status = "finished" if job.metrics() is not None else "stopped" if stopped else "failed"
        self._note(number)

    def command(self) -> str:
        return shlex.join(["python", "train.py", "-m", *self.overrides])

    def _note(self, number: int) -> None:
        """Appends the state of a job to the journal."""
        with open(self.folder / JOURNAL, "a", encoding="utf-8") as file:
            file.write(json.dumps({"number": number, **asdict(self.jobs[number])}, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def write(self) -> None:
        """Writes the states of all jobs; the journal has nothing to add then."""
        content = {"overrides": self.overrides, "jobs": [asdict(job) for job in self.jobs]}
        write_text(self.folder / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        (self.folder / JOURNAL).unlink(missing_ok=True)


def _new_run_dir(overrides: Sequence[str]) -> Path:
    needed = [each for each in overrides if each.partition("=")[0] in GROUPS or each.startswith("paths.")]
    whole = any("$" in each for each in needed)
    return make_timestamped_dir(get_runs_folder(_kind_of_run(tuple(overrides if whole else needed))))


@functools.lru_cache(maxsize=1024)
def _kind_of_run(overrides: tuple[str, ...]) -> dict[str, Any]:
    """What decides in which folder a run goes, which most jobs of a sweep share."""
    composed = compose.compose(overrides)
    return {part: composed[part] for part in ("paths", "names")}
