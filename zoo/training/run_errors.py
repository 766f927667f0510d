"""Translates errors that end a run into one sentence, with the command that goes on from what was saved.

In a run of several processes each writes its error to a file, and the process that started them reads it.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import sys
import traceback
from enum import Enum
from pathlib import Path
from typing import Any

from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo.distributed import LAUNCHED
from zoo.errors import (
    CheckpointError,
    ConfigError,
    InterruptedRunError,
    TrainingError,
    WorkerError,
    ZooError,
    make_error,
)
from zoo.training.run_config import BEST, LAST, RESULT

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a full disk or quota, and of a file system that cannot be written."""


class Phase(Enum):
    """What a run is doing."""

    SETUP = "setup"
    TRAINING = "training"
    EVALUATION = "evaluation"


def translate_error(error: BaseException, run_dir: Path, phase: Phase) -> BaseException:
    """Returns the error for the user; the same one if there is nothing to add."""
    if phase is Phase.TRAINING:
        error = _translate_training_error(error, run_dir)
    elif phase is Phase.EVALUATION:
        error = _translate_evaluation_error(error, run_dir)
    return _translate_file_error(error, run_dir) if isinstance(error, OSError | CheckpointError) else error


def make_resume_hint(run_dir: Path) -> str:
    """Returns the command that continues a run, as the last line of a message; empty if there is no last.ckpt."""
    checkpoint = run_dir / LAST
    return f"\nContinue with: python train.py resume={shlex.quote(str(checkpoint))}" if checkpoint.exists() else ""


def make_missing_dir_error(run_dir: Path) -> CheckpointError:
    """Returns the error for a directory that was removed while its run worked."""
    return CheckpointError(
        f"{run_dir} is gone: it was removed or renamed while the run worked. If it was renamed, continue with "
        f"resume=NEW_NAME/{LAST}; else start again with the same command"
    )


def _translate_training_error(error: BaseException, run_dir: Path) -> BaseException:
    """Adds the command that continues the run. What could be saved has been saved."""
    if isinstance(error, TrainingError):  # it would recur: the weights can start a run with other options
        checkpoint = shlex.quote(str(run_dir / LAST))
        return TrainingError(f"{error}\nContinue with: python train.py init={checkpoint} optimizer.lr=...")
    if isinstance(error, InterruptedRunError | WorkerError):
        return type(error)(f"{error}{make_resume_hint(run_dir)}")
    if isinstance(error, SystemExit):  # Lightning raises it at Ctrl-C before the first step, and at a repeated one
        return InterruptedRunError(f"stopped at once, without saving{make_resume_hint(run_dir)}")
    if isinstance(error, MisconfigurationException):  # such as a monitor of the schedule that is not measured
        return ConfigError(str(error))
    return error


def _translate_evaluation_error(error: BaseException, run_dir: Path) -> BaseException:
    """Adds the commands that evaluate the weights."""
    if not isinstance(error, InterruptedRunError | KeyboardInterrupt | WorkerError):
        return error
    kind = WorkerError if isinstance(error, WorkerError) else InterruptedRunError
    reason = f"{error}. " if str(error) else ""
    best = shlex.quote(str(run_dir / BEST))
    return kind(
        f"{reason}Training is over and its weights are kept; their evaluation is not."
        f"{make_resume_hint(run_dir)}   # evaluates, and trains no more\n"
        f"or look at the weights: zoo evaluate {best}"
    )


def _translate_file_error(error: OSError | CheckpointError, run_dir: Path) -> BaseException:
    is_disk_error = isinstance(error, OSError) or error.__cause__ is not None
    if is_disk_error and not run_dir.is_dir():
        return make_missing_dir_error(run_dir)
    if isinstance(error, BrokenPipeError) and not (run_dir / RESULT).exists():
        hint = make_resume_hint(run_dir)
        return InterruptedRunError(f"stopped, because what reads {error.filename} has ended{hint}")
    if isinstance(error, OSError) and error.errno in _FULL:
        command = f"python train.py resume=auto run_dir={shlex.quote(str(run_dir))}"
        return CheckpointError(
            f"{error.filename or run_dir} cannot be written: {error.strerror}. The checkpoints that were there are "
            f"whole. Make room, then continue with: {command}"
        )
    return error


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
