"""Errors in a run of several processes: each writes its own to a file, and the process that started them reads it."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from zoo.distributed import LAUNCHED
from zoo.errors import TrainingError, ZooError, make_error
from zoo.training.run_errors import make_resume_hint


def write_error(error: Exception) -> None:
    """Writes the error of this process for the one that started it."""
    if isinstance(error, ZooError):
        _get_own_file("json").write_text(
            json.dumps({"kind": type(error).__name__, "message": str(error)}), encoding="utf-8"
        )
    else:  # a process fails too when another has died; the launcher finds the one that was first
        _get_own_file("traceback").write_text(traceback.format_exc(), encoding="utf-8")


def read_error(folder: Path) -> ZooError | None:
    """Reads the ZooError of the first process that has written one, if any."""
    for path in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        error = json.loads(path.read_text(encoding="utf-8"))
        return make_error(error["kind"], error["message"])
    return None


def to_training_error(folder: Path, failed: Any, run_dir: Path) -> ZooError:
    """Makes the error that ended a run of the files of its processes and their exit codes."""
    error_of_worker = read_error(folder)
    if error_of_worker is not None:
        return error_of_worker
    # when one process is killed the others fail with errors of their own
    by_others = {
        n for n, failure in failed.failures.items() if failure.exitcode >= 0 or failure.exitcode == -signal.SIGTERM
    }
    number, failure = min(failed.failures.items(), key=lambda item: (item[0] in by_others, item[0]))
    code = failure.exitcode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    traces = {int(path.stem): path.read_text(encoding="utf-8") for path in folder.glob("*.traceback")}
    if code > 0 and traces:  # the others report a lost connection, and may do so earlier
        number = min(traces, key=lambda rank: ("Connection" in traces[rank].splitlines()[-1], rank))
        print(traces[number], file=sys.stderr)
    return TrainingError(f"process {number} of this run {how}, and the run with it{make_resume_hint(run_dir)}")


def _get_own_file(ending: str) -> Path:
    return Path(os.environ[LAUNCHED]) / f"{os.environ['RANK']}.{ending}"
