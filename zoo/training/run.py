"""Trains one resolved configuration, evaluates the best weights, and writes the results to the run directory."""

from __future__ import annotations

import errno
import json
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import distributed
from zoo.attention.kernels.cpu_features import PROCESSOR
from zoo.checkpoints import checkpoint
from zoo.checkpoints.finetune import reuse_data_state
from zoo.config import compatibility, option_types
from zoo.config.instantiate import build
from zoo.cpu_memory import disable_malloc_trim
from zoo.data.loader import explain_worker_death
from zoo.errors import CheckpointError, ConfigError, InterruptedRunError, TrainingError, WorkerError, ZooError
from zoo.io.atomic import write_text
from zoo.io.config_files import dump_yaml
from zoo.processes import raise_on_signals
from zoo.tasks.contract import Task
from zoo.training import baselines, launch, loggers, preflight, resume, summary
from zoo.training import run_dir as run_directory
from zoo.training.attention_penalties import add_attention_penalties
from zoo.training.callbacks.checkpointing import CheckpointAndStop
from zoo.training.callbacks.data_wait import DataWaitTimer
from zoo.training.callbacks.guards import GracefulShutdown
from zoo.training.evaluation import (
    check_trainable,
    describe_empty_splits,
    evaluate,
    has_examples,
    make_protocol,
    write_rows,
)
from zoo.training.initial_weights import initialize_weights
from zoo.training.provenance import commit_of_checkout, versions
from zoo.training.trainer import replace_sharded, run_trainer, silence_lightning

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a full disk or quota, and of a file system that cannot be written."""


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Trains, evaluates and reports; returns the content of metrics.json."""
    silence_lightning()
    disable_malloc_trim()
    option_types.check(config)
    for problem in compatibility.iter_errors(config):
        raise problem
    config = launch.connect(config)
    starts_others = launch.should_launch(config)
    is_auto, said = config["resume"] == "auto", None
    resumes = config["resume"] is not None or distributed.is_restart()
    if is_auto:
        found, said = distributed.run_on_rank_zero(lambda: resume.find_latest(config))
        config = {**config, "resume": found}
    resumed = resume.load_resume_state(config, may_have_origin=is_auto)
    if resumed is not None:  # a run that was fine-tuned keeps its origin
        config = {**config, "init": resumed["zoo"]["config"]["init"]}
    try:
        run_dir = launch.broadcast_run_dir(config, lambda: run_directory.resolve_run_dir(config))
    except OSError as error:
        remedy = "give another run_dir or paths.runs"
        raise ConfigError(f"{error.filename}: a run cannot be written there ({error.strerror}); {remedy}") from error
    config = {**config, "run_dir": str(run_dir)}
    if starts_others:
        with run_directory.lock(run_dir):
            run_directory.check_free(run_dir, config, resumes=resumes)
            _announce(said)
            _write_config(config, run_dir)
        with run_directory.lock(run_dir, shared=True):
            return _run_workers(config, run_dir)
    with run_directory.lock(run_dir, shared=distributed.is_launched()):
        if not distributed.is_launched():
            distributed.run_on_rank_zero(lambda: run_directory.check_free(run_dir, config, resumes=resumes))
            _announce(said)
        try:
            return _train(config, run_dir, resumed)
        except (OSError, CheckpointError) as error:
            by_disk = isinstance(error, OSError) or error.__cause__ is not None
            if by_disk and not run_dir.is_dir():  # a run that cannot begin removes its directory itself
                raise run_directory.make_missing_dir_error(run_dir) from error
            if isinstance(error, BrokenPipeError) and not (run_dir / run_directory.RESULT).exists():
                how = run_directory.make_resume_hint(run_dir)
                raise InterruptedRunError(f"stopped, because what reads {error.filename} has ended{how}") from error
            if not isinstance(error, OSError) or error.errno not in _FULL:
                raise
            again = f"python train.py resume=auto run_dir={shlex.quote(str(run_dir))}"
            raise CheckpointError(
                f"{error.filename or run_dir} cannot be written: {error.strerror}. The checkpoints that were there are "
                f"whole. Make room, then continue with: {again}"
            ) from error


def _announce(said: str | None) -> None:
    """Says what `resume=auto` has found, once it is sure that the run can begin."""
    if said is not None and distributed.is_rank_zero():
        print(f"zoo: resume=auto: {said}", file=sys.stderr)


def _run_workers(config: dict[str, Any], run_dir: Path) -> dict[str, Any]:
    """Starts processes that each call `train` with this configuration."""
    try:
        return launch.launch_workers(config, run_dir)
    except ZooError:
        if not any(path.name != "config.yaml" for path in run_dir.iterdir()):  # the run did not begin
            (run_dir / "config.yaml").unlink()
            run_directory.remove_empty(config, run_dir)
        raise


def _train(config: dict[str, Any], run_dir: Path, resumed: dict[str, Any] | None) -> dict[str, Any]:
    try:
        trainer, module, data = _setup_run(config, run_dir, resumed)
    except ZooError:
        run_directory.remove_empty(config, run_dir)
        raise
    if resumed is None and not data.is_generated and not distributed.is_launched():
        try:
            preflight.check_memory(config, module, data)
        except ConfigError:
            run_directory.remove_empty(config, run_dir)
            raise
    _write_config(config, run_dir)
    for lack in describe_empty_splits(data) if distributed.is_rank_zero() else ():
        warnings.warn(lack, UserWarning, stacklevel=2)

    with loggers.raise_writer_errors(), _saying_how_to_continue(run_dir):
        try:
            trainer.fit(module, data, ckpt_path=config["resume"], weights_only=True)
        finally:
            for loader in (trainer.train_dataloader, trainer.val_dataloaders):
                if loader is not None:
                    loader.close()
    with _saying_that_all_is_kept(run_dir):
        if any(isinstance(each, GracefulShutdown) and each.request.received for each in trainer.callbacks):  # type: ignore[attr-defined]
            raise InterruptedRunError
        return _conclude(config, run_dir, trainer, module, data)


def _conclude(config: dict[str, Any], run_dir: Path, trainer: pl.Trainer, module: Task, data: Any) -> dict[str, Any]:
    """Evaluates the best weights, writes metrics.json, and prints the result."""
    seconds, waited = (
        next(each for each in trainer.callbacks if isinstance(each, kind)).seconds  # type: ignore[attr-defined]
        for kind in (CheckpointAndStop, DataWaitTimer)
    )
    best = run_dir / "checkpoints" / "best.ckpt"
    content = checkpoint.read(best)
    epochs = trainer.current_epoch
    trainer, module = replace_sharded(trainer, config, module, lambda: _module(config, data))
    checkpoint.load_weights(module, content["state_dict"], best)
    trainer.loggers = []  # metrics.csv is for training alone
    metrics: dict[str, Any] = {}
    sample, sampled = data.train_evaluation()
    for split in summary.SPLITS:  # test comes last: `module.tables()` are those of the last evaluation
        metrics |= evaluate(trainer, module, sample if split == "train" else data.loader(split), split)
    result = {
        **metrics,
        **make_protocol(module, data, sampled),
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": round(seconds, 3),
        "data_wait": round(waited / seconds, 4),
        "epochs": epochs,
        "best_epoch": content["epoch"],
        "samples_per_second": round(epochs * data.train_size() / seconds, 1),
        "seed": config["seed"],
        "command": shlex.join(["python", "train.py", *config["overrides"]]),
        "versions": versions(),
        "processor": {"name": PROCESSOR.name, "flags": PROCESSOR.flags, "threads": torch.get_num_threads()},
        "commit": commit_of_checkout(),
    }
    if not distributed.is_rank_zero():
        return result
    if not run_dir.is_dir():  # writing would make a new one with a part of the run
        raise run_directory.make_missing_dir_error(run_dir)
    compared = list(baselines.measure(module, data, only_cheap=True))
    if compared:
        result["baselines"] = {each["name"]: each["metrics"] for each in compared}
    checkpoint.write(best, {**content, "zoo": {**content["zoo"], "metrics": metrics}})
    write_text(run_dir / "metrics.json", json.dumps(result, indent=2) + "\n")
    for name, rows in module.tables().items() if has_examples(data, "test") else ():
        write_rows(run_dir / f"test_{name}.csv", rows)
    verdicts = module.verdicts({**content["zoo"]["metrics"], **metrics}, data.train_size())
    verdicts = [*verdicts, *baselines.describe(module, result, compared)]
    summary.show_result(config, result, run_dir, module.headline, verdicts)
    return result


@contextmanager
def _saying_how_to_continue(run_dir: Path) -> Iterator[None]:
    """Adds the command that continues the run to an error that ends training. What can be saved has been saved."""
    try:
        with explain_worker_death():
            yield
    except TrainingError as error:  # it would recur: the weights can start a run with other options
        last = shlex.quote(str(run_dir / run_directory.LAST))
        raise TrainingError(f"{error}\nContinue with: python train.py init={last} optimizer.lr=...") from error
    except (InterruptedRunError, WorkerError) as error:
        raise type(error)(f"{error}{run_directory.make_resume_hint(run_dir)}") from error
    except SystemExit as error:  # Lightning raises it at Ctrl-C before the first step, and at a repeated one
        how = run_directory.make_resume_hint(run_dir)
        raise InterruptedRunError(f"stopped at once, without saving{how}") from error
    except MisconfigurationException as error:  # such as a monitor of the schedule that is not measured
        raise ConfigError(str(error)) from error


@contextmanager
def _saying_that_all_is_kept(run_dir: Path) -> Iterator[None]:
    """Adds the commands that evaluate the weights to an error that ends the evaluation."""
    try:
        with explain_worker_death(), raise_on_signals():
            yield
    except (InterruptedRunError, KeyboardInterrupt, WorkerError) as error:
        kind = WorkerError if isinstance(error, WorkerError) else InterruptedRunError
        said = f"{error}. " if str(error) else ""
        best = shlex.quote(str(run_dir / run_directory.BEST))
        raise kind(
            f"{said}Training is over and its weights are kept; their evaluation is not."
            f"{run_directory.make_resume_hint(run_dir)}   # evaluates, and trains no more\n"
            f"or look at the weights: zoo evaluate {best}"
        ) from error


def _setup_run(
    config: dict[str, Any], run_dir: Path, resumed: Mapping[str, Any] | None
) -> tuple[pl.Trainer, Task, Any]:
    """The trainer, module and data of a run. Errors in the configuration or the data are raised here.

    The number of threads, which may depend on the data, is entered into the configuration.
    """
    seed, threads = config["seed"], config["threads"]
    pl.seed_everything(seed, workers=True, verbose=False)
    data = build(config["data"], "data")
    data.order_seed = seed
    reuse_data_state(data, config["init"], resumed)
    distributed.run_on_rank_zero(data.prepare_data)  # one process downloads and writes derived files
    data.setup()
    check_trainable(data)
    config["threads"] = threads or data.threads() or torch.get_num_threads()
    torch.set_num_threads(config["threads"])
    module = _module(config, data)
    if resumed is not None:
        checkpoint.check_state_dict(module, resumed["state_dict"], config["resume"])
    if resumed is None:
        report = initialize_weights(module, data, config["init"])
        if report is not None and distributed.is_rank_zero():
            summary.show_fine_tuning(report, config["init"])
    if not distributed.is_rank_zero():  # ranks have the same weights, and other dropout
        torch.manual_seed(seed + 1_000_003 * distributed.rank())
    metadata = checkpoint.make_metadata(config, data.state(), data.sizes())
    resume.restore_run_files(config, run_dir, resumed)
    return run_trainer(config, run_dir, data.max_epochs, metadata), module, data


def _module(config: Mapping[str, Any], data: Any) -> Task:
    module: Task = build(config["model"], "model", **data.sizes())
    module.check_rewards()
    add_attention_penalties(module, config.get("penalty", {}))
    return module


def _write_config(config: Mapping[str, Any], run_dir: Path) -> None:
    if distributed.is_rank_zero():
        write_text(run_dir / "config.yaml", dump_yaml(config))
