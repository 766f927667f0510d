"""Chooses, checks and locks the directory of a run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from zoo import distributed, locks
from zoo.config import legacy_names
from zoo.errors import ConfigError, ZooError
from zoo.io import dump_yaml, make_timestamped_dir, read_yaml, write_text
from zoo.processes import has_lost_launcher
from zoo.training.run_config import BEST, CONFIG, LAST, RESULT, RunConfig
from zoo.training.run_errors import Phase, translate_error
from zoo.validation import ValidationError

if TYPE_CHECKING:
    from zoo.training.resume import Origin

_MARKS = (CONFIG, RESULT, "metrics.csv", "checkpoints/*")
"""The files that make a directory that of a run."""
_WAIT_SECONDS, _POLL_SECONDS = 130.0, 0.1
"""How long workers may take to save after their launcher was killed, and between two looks at them."""
_FREE = (
    *("run_dir", "resume", "overrides", "threads", "callbacks.checkpoint.save_every_seconds"),
    *("trainer.devices", "trainer.num_nodes", "trainer.strategy"),  # the processes of a run enter their number here
)
"""Options in which two starts of the same run may differ."""


class RunDir:
    """The directory of a run that is at work.

    Args:
        path: The directory.
        lock: The descriptor of its lock; None in a worker other than the first.
    """

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self.phase = Phase.SETUP
        self._lock = lock

    @classmethod
    @contextmanager
    def open(cls, config: RunConfig, origin: Origin) -> Iterator[Self]:
        """Chooses, makes and locks the directory of a run, and translates errors where it is left.

        The directory of a run that could not begin is removed.

        Args:
            config: The run.
            origin: What it continues, if anything.
        """
        try:
            path = broadcast_run_dir(config.tree)
        except OSError as error:
            remedy = "give another run_dir or paths.runs"
            raise ConfigError(
                f"{error.filename}: a run cannot be written there ({error.strerror}); {remedy}"
            ) from error
        is_launched = distributed.is_launched()
        with lock(path, shared=is_launched) as handle:
            if not is_launched:
                distributed.run_on_rank_zero(lambda: check_free(path, config.tree, resumes=origin.is_asked))
                if origin.note is not None and distributed.is_rank_zero():
                    print(f"zoo: resume=auto: {origin.note}", file=sys.stderr)
            run_dir = cls(path, handle)
            try:
                yield run_dir
            except BaseException as error:
                if isinstance(error, ZooError) and run_dir.phase is Phase.SETUP:
                    remove_empty(config.tree, path)
                translated = translate_error(error, path, run_dir.phase)
                if translated is error:
                    raise
                raise translated from error

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def result(self) -> Path:
        return self.path / RESULT

    def write_config(self, config: RunConfig) -> None:
        """Writes config.yaml, from which workers start too."""
        if distributed.is_rank_zero():
            write_text(self.path / CONFIG, dump_yaml(config.tree))

    def share_lock(self) -> None:
        """Lets the first worker, which this process is about to start, have the lock too."""
        if self._lock is not None:
            locks.acquire(self._lock, shared=True)


def broadcast_run_dir(config: Mapping[str, Any]) -> Path:
    """Returns the directory that the first process, or the launcher, chooses; its error is raised in all."""
    if distributed.is_worker() and (distributed.is_launched() or (distributed.is_restart() and config["run_dir"])):
        return Path(config["run_dir"])
    return distributed.run_on_rank_zero(lambda: resolve_run_dir(config))


def resolve_run_dir(config: Mapping[str, Any]) -> Path:
    """Returns the directory that the options name, that of the checkpoint to continue, or a new one.

    It exists on return.
    """
    if config["run_dir"] is not None:
        path = Path(config["run_dir"]).absolute()
        path.mkdir(parents=True, exist_ok=True)
        return path
    if config["resume"] is not None:
        folder = Path(config["resume"]).absolute().parent
        if folder.name != "checkpoints":
            raise ConfigError(
                f"{config['resume']} is in no run's folder checkpoints/; say where the run goes on: run_dir=PATH"
            )
        return folder.parent
    return make_timestamped_dir(get_runs_folder(config))


def get_runs_folder(config: Mapping[str, Any]) -> Path:
    """Returns the folder of all runs of this model on this data."""
    return Path(config["paths"]["runs"]).absolute() / f"{config['names']['model']}-{config['names']['data']}"


def check_free(run_dir: Path, config: Mapping[str, Any], *, resumes: bool) -> None:
    """Refuses a directory that holds another run than the one that `config["resume"]` continues.

    Args:
        run_dir: The directory, which this process has locked.
        config: The run that is about to start there.
        resumes: Whether the command asks to continue a run. If the same run was killed before it had a last.ckpt, it
            then begins anew.
    """
    if not any(any(run_dir.glob(mark)) for mark in _MARKS):
        return
    origin = config["resume"]
    if origin is not None and _is_folder_of(origin, run_dir):
        return
    last, best = run_dir / LAST, run_dir / BEST
    never_saved = not last.exists() and not (run_dir / RESULT).exists() and is_same(config, run_dir / CONFIG)
    if never_saved and resumes:
        return
    if last.exists():
        remedy = f"continue it with resume={last}, or give another run_dir"
    elif never_saved:
        remedy = f"it was stopped before it had a last.ckpt: begin it anew with resume=auto run_dir={run_dir}"
    elif best.exists():
        remedy = f"give another run_dir; as there is no last.ckpt, only its weights can be a start: init={best}"
    else:
        remedy = "give another run_dir"
    raise ConfigError(f"{run_dir} holds a run already; {remedy}")


def remove_empty(config: Mapping[str, Any], run_dir: Path) -> None:
    """Removes the directory of a run that could not begin, and its parents, as far as they are empty."""
    folders = [run_dir]
    if config["resume"] is None and run_dir.is_relative_to(Path(config["paths"]["runs"]).absolute()):
        folders += [run_dir.parent, run_dir.parent.parent]
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


@contextmanager
def lock(run_dir: Path, *, shared: bool = False) -> Iterator[int | None]:
    """Locks the directory of a run as long as it works; the lock ends with the process, however that ends.

    Args:
        run_dir: The directory.
        shared: Whether others may hold the lock too: the process that starts workers shares it with the first one.

    Yields:
        The descriptor of the lock; None in a worker other than the first.
    """
    if not distributed.is_rank_zero():  # of several processes the first one has the lock
        yield None
        return
    handle = os.open(run_dir, os.O_RDONLY)
    try:
        if not locks.acquire(handle, shared=shared, wait=False) and not _wait_for_workers(handle, shared=shared):
            raise ConfigError(
                f"{run_dir}: another process is at work on this run ({locks.describe_holders(handle)}); wait for it, "
                "stop it with kill, or give another run_dir"
            )
        yield handle
    finally:
        locks.release(handle)


def _wait_for_workers(handle: int, *, shared: bool) -> bool:
    """Waits for workers whose launcher was killed, which save and end; returns whether the lock was then acquired."""
    deadline = time.monotonic() + _WAIT_SECONDS
    is_announced = False
    while all(map(has_lost_launcher, holders := locks.find_holders(handle))) and time.monotonic() < deadline:
        if locks.acquire(handle, shared=shared, wait=False):
            return True
        if not holders:  # of another user, or on another machine
            return False
        if not is_announced:
            message = (
                f"waits for workers whose launcher was killed ({locks.describe_holders(handle)}): they save and end"
            )
            print(f"zoo: {message}", file=sys.stderr, flush=True)
            is_announced = True
        time.sleep(_POLL_SECONDS)
    return False


def is_locked(run_dir: Path) -> bool:
    """Returns whether a run is at work in a directory."""
    handle = os.open(run_dir, os.O_RDONLY)
    try:
        return not locks.acquire(handle, wait=False)
    finally:
        locks.release(handle)


def is_same(config: Mapping[str, Any], path: Path) -> bool:
    """Returns whether a config.yaml is that of the same run, also if it was written before an option was added."""
    try:
        stored = legacy_names.upgrade_config(read_yaml(path))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError):
        return False
    if not isinstance(stored, dict) or not isinstance(stored.get("overrides"), list):
        return False
    option_names = {str(override).partition("=")[0] for run in (config, stored) for override in run["overrides"]}
    return _is_same(config, stored, "", option_names)


def _is_same(first: Any, second: Any, path: str, option_names: Collection[str]) -> bool:
    """Returns whether two configurations agree at `path`.

    An option that only one of them has counts if a command gave it.

    Args:
        first: The value at `path` in one configuration.
        second: The value at `path` in the other.
        path: The dotted name of an option; empty at the top.
        option_names: The options that the two commands gave.
    """
    if path in _FREE:
        return True
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return bool(first == second)
    below = {key: f"{path}.{key}".removeprefix(".") for key in {**first, **second}}
    return all(
        _is_same(first[key], second[key], name, option_names)
        if key in first and key in second
        else not _is_given(name, option_names)
        for key, name in below.items()
    )


def _is_given(path: str, option_names: Collection[str]) -> bool:
    """Returns whether an option, one above it or one below it was given."""
    option = f"{path.removeprefix('names.')}."
    return any(option.startswith(f"{name}.") or f"{name}.".startswith(option) for name in option_names)


def _is_folder_of(origin: str, run_dir: Path) -> bool:
    with suppress(OSError):
        return os.path.samefile(Path(origin).absolute().parent.parent, run_dir)
    return False
