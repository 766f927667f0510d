"""Continuing a run: finds it for `resume=auto`, checks its checkpoint, and restores the files of its directory.

The state of training itself is restored by `zoo.training.resume_state`.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo import distributed
from zoo.checkpoints import checkpoint, untrusted
from zoo.errors import CheckpointError, ConfigError
from zoo.io import remove_partial
from zoo.training import loggers, resume_state
from zoo.training import run_dir as run_directory
from zoo.training.run_config import CONFIG, LAST, RESULT, RunConfig, get_active_penalties


@dataclass(frozen=True)
class Origin:
    """What a run continues.

    Args:
        content: The content of the checkpoint; None for a new run.
        note: What `resume=auto` has found, for the user.
        is_asked: Whether the command asks to continue a run.
    """

    content: dict[str, Any] | None = None
    note: str | None = None
    is_asked: bool = False


def load(config: RunConfig) -> tuple[RunConfig, Origin]:
    """Reads the checkpoint that a run continues; returns the configuration with its path, and with its `init`."""
    is_auto, note = config.resume == "auto", None
    is_asked = config.resume is not None or distributed.is_restart()
    if is_auto:
        path, note = distributed.run_on_rank_zero(lambda: find_latest(config.tree))
        config = config.replace(resume=path)
    content = load_resume_state(config.tree, may_have_origin=is_auto)
    if content is not None:  # a run that was fine-tuned keeps its origin
        config = config.replace(init=content["zoo"]["config"]["init"])
    return config, Origin(content, note, is_asked)


def find_latest(config: Mapping[str, Any]) -> tuple[str | None, str]:
    """Finds the checkpoint that `resume=auto` continues, if any; returns it with a sentence for the user."""
    if config["run_dir"] is not None:
        last = Path(config["run_dir"]).absolute() / LAST
        if last.exists():
            return str(last), f"continuing {last}"
        return None, f"nothing to continue in {config['run_dir']}: a new run"
    parent = run_directory.get_runs_folder(config)
    for run_dir in sorted(parent.glob("*"), key=_get_age):
        if (run_dir / RESULT).exists() or not (run_dir / LAST).exists() or run_directory.is_locked(run_dir):
            continue
        if run_directory.is_same(config, run_dir / CONFIG):
            return str(run_dir / LAST), f"continuing {run_dir / LAST}"
    return None, f"no unfinished run of this configuration under {parent}: a new run"


def load_resume_state(config: Mapping[str, Any], *, may_have_origin: bool = False) -> dict[str, Any] | None:
    """Reads the checkpoint to continue, and checks that this configuration can continue it; None for a new run."""
    if config["resume"] is None:
        return None
    path = config["resume"]
    if config["init"] is not None and not may_have_origin:
        raise ConfigError("give either init= (a new run from trained weights) or resume= (the same run, continued)")
    content = checkpoint.read(path)
    if "loops" not in content:
        raise CheckpointError(f"{path} holds weights alone and cannot be continued; resume from last.ckpt beside it")
    if "exactly" not in content:
        raise CheckpointError(
            f"{path} was written by a version that did not keep all; start from its weights with init="
        )
    with resume_state.translate_validation_errors(path):
        untrusted.check_resumable(content)
    _check_epochs(content, config, path)
    stored = content["zoo"]["config"]
    differing = _list_differences(stored["model"], config["model"], "model")
    penalties, own_penalties = (get_active_penalties(options.get("penalty", {})) for options in (stored, config))
    differing += _list_differences(penalties, own_penalties, "penalty")
    if differing:
        raise CheckpointError(
            f"{path} is of another model or recipe; not equal: {', '.join(differing[:5])}. "
            "Leave these options out to continue it, or start a new run from its weights with init="
        )
    return content


def restore_run_files(config: Mapping[str, Any], run_dir: Path, content: Mapping[str, Any] | None) -> None:
    """Restores the files of the run directory as they were when the checkpoint was written; a new run has none."""
    if not distributed.is_rank_zero():
        return
    best_step, logged_steps = None, 0
    if content is not None:
        _copy_run_files(Path(config["resume"]), run_dir)
        best_step = content["callbacks"]["CheckpointAndStop"]["best_step"]
        logged_steps = content["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"]
    _reconcile_checkpoints(run_dir / "checkpoints", best_step)
    loggers.truncate_metrics(run_dir / "metrics.csv", logged_steps)  # later rows are out of date


def _copy_run_files(source: Path, run_dir: Path) -> None:
    """Copies the files that belong to a checkpoint when its run goes on in another directory."""
    origin = source.absolute().parent.parent
    for name in ("metrics.csv", "checkpoints/best.ckpt", "checkpoints/best.previous.ckpt"):
        if (origin / name).exists() and not (run_dir / name).exists():
            (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin / name, run_dir / name)


def _check_epochs(content: Mapping[str, Any], config: Mapping[str, Any], path: Any) -> None:
    """Refuses fewer epochs than the run has had."""
    epochs: int = content["loops"]["fit_loop"]["epoch_progress"]["current"]["completed"]
    most = config["data"].get("max_epochs")
    if type(most) is int and most < epochs:
        best = Path(path).with_name("best.ckpt")
        raise ConfigError(
            f"{path} has trained for {epochs} epochs already, and data.max_epochs is {most}: give at least "
            f"data.max_epochs={epochs} to continue it, or look at its weights: zoo evaluate {shlex.quote(str(best))}"
        )


def _reconcile_checkpoints(checkpoints: Path, best_step: int | None) -> None:
    """Restores the best.ckpt that belongs to last.ckpt, if a kill came between the writing of the two.

    Args:
        checkpoints: The folder of both.
        best_step: The step of the best weights when `last.ckpt` was written; None if there were none.
    """
    remove_partial(checkpoints.parent)
    for partial in checkpoints.glob(".*.ckpt.*"):
        partial.unlink(missing_ok=True)
    best, previous = checkpoints / "best.ckpt", checkpoints / "best.previous.ckpt"
    if _read_step(best) != best_step:
        if best_step is not None and _read_step(previous) == best_step:
            os.replace(previous, best)
        elif best_step is None:
            best.unlink(missing_ok=True)  # its steps were lost
        else:
            raise CheckpointError(
                f"{best} is not the one that belongs to last.ckpt beside it, which is of step {best_step}. "
                "Put that one there, or start a new run from the weights with init="
            )
    previous.unlink(missing_ok=True)


def _get_age(run_dir: Path) -> float:
    with suppress(OSError):
        return -(run_dir / LAST).stat().st_mtime
    return 0.0


def _list_differences(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [d for key in {**old, **new} for d in _list_differences(old.get(key), new.get(key), f"{path}.{key}")]
    return [] if old == new else [f"{path} ({old} there, {new} here)"]


def _read_step(path: Path) -> int | None:
    if not path.exists():
        return None
    content = checkpoint.read(path)
    return content.get("global_step") if "epoch" in content else None
