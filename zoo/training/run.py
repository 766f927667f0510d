"""One resolved configuration: train or fine-tune it, evaluate the best weights, leave all in its run directory."""

from __future__ import annotations

import csv
import errno
import json
import logging
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import __version__
from zoo import printing as tables
from zoo.attention.kernels.processor import PROCESSOR
from zoo.checkpoints import checkpoint, formats
from zoo.checkpoints.finetune import origin, transplant
from zoo.composing import schema
from zoo.composing.build import build
from zoo.data.loader import Loader, deaths_explained
from zoo.disk import whole_file, write_text
from zoo.errors import CheckpointError, ConfigError, InterruptedRunError, TrainingError, WorkerError, ZooError
from zoo.small_files import written_yaml
from zoo.tasks.contract import Task, TaskData
from zoo.training import launch, loggers, ranks, resume, run_directory
from zoo.training.allocator import keep_freed_memory
from zoo.training.callbacks import Interruption, Keeper, NanGuard, Progress, Thaw
from zoo.training.callbacks.reporting import reporters
from zoo.training.penalising import in_use, penalise
from zoo.training.signals import stopping_at_once

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""A disk or a quota that is full, or lets nothing be written."""


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Trains, evaluates and reports; returns what stands in metrics.json."""
    _quiet()
    keep_freed_memory()
    schema.check(config)
    config = launch.join(config)
    starts_others = launch.wanted(config)
    is_auto = config["resume"] == "auto"
    resumes = config["resume"] is not None or launch.is_restart()
    if is_auto:
        found, said = launch.first(lambda: resume.locate(config))
        print(f"zoo: resume=auto: {said}", file=sys.stderr)
        config = {**config, "resume": found}
    resumed = _resumed(config, may_have_origin=is_auto)
    if resumed is not None:  # where its weights once came from stays known
        config = {**config, "init": resumed["zoo"]["config"]["init"]}
    try:
        run_dir = launch.agreed_run_dir(config, lambda: run_directory.chosen(config))
    except OSError as error:
        remedy = "give another run_dir or paths.runs"
        raise ConfigError(f"{error.filename}: a run cannot be written there ({error.strerror}); {remedy}") from error
    config = {**config, "run_dir": str(run_dir)}
    if starts_others:
        with run_directory.held(run_dir):
            run_directory.check_free(run_dir, config, resumes=resumes)
            _write_config(config, run_dir)
        with run_directory.held(run_dir, shared=True):
            return _by_several_processes(config, run_dir)
    with run_directory.held(run_dir, shared=launch.by_us()):
        if not launch.by_us():
            launch.first(lambda: run_directory.check_free(run_dir, config, resumes=resumes))
        try:
            return _train(config, run_dir, resumed)
        except (OSError, CheckpointError) as error:
            by_disk = isinstance(error, OSError) or error.__cause__ is not None
            if by_disk and not run_dir.is_dir():  # else the run could not begin, and has removed it itself
                raise run_directory.gone(run_dir) from error
            if not isinstance(error, OSError) or error.errno not in _FULL:
                raise
            again = f"python train.py resume=auto run_dir={shlex.quote(str(run_dir))}"
            raise CheckpointError(
                f"{error.filename or run_dir} cannot be written: {error.strerror}. The checkpoints that were there are "
                f"whole. Make room, then continue with: {again}"
            ) from error


def _by_several_processes(config: dict[str, Any], run_dir: Path) -> dict[str, Any]:
    """Hands the configuration to processes that each do what `train` does with it."""
    try:
        return launch.start(config, run_dir)
    except ZooError:
        if not any(path.name != "config.yaml" for path in run_dir.iterdir()):  # it did not begin
            (run_dir / "config.yaml").unlink()
            run_directory.remove_empty(config, run_dir)
        raise


def _train(config: dict[str, Any], run_dir: Path, resumed: dict[str, Any] | None) -> dict[str, Any]:
    try:
        trainer, module, data = _prepared(config, run_dir, resumed)
    except ZooError:
        run_directory.remove_empty(config, run_dir)
        raise
    _write_config(config, run_dir)
    for lack in empty_splits(data) if ranks.is_first() else ():
        warnings.warn(lack, UserWarning, stacklevel=2)

    with _saying_how_to_continue(run_dir):
        trainer.fit(module, data, ckpt_path=config["resume"], weights_only=True)
    with _saying_that_all_is_kept(run_dir):
        if any(isinstance(each, Interruption) and each.request.by for each in trainer.callbacks):  # type: ignore[attr-defined]
            raise InterruptedRunError
        return _conclude(config, run_dir, trainer, module, data)


def _conclude(config: dict[str, Any], run_dir: Path, trainer: pl.Trainer, module: Task, data: Any) -> dict[str, Any]:
    """Evaluates the best weights and leaves the last word."""
    seconds = next(each for each in trainer.callbacks if isinstance(each, Keeper)).seconds  # type: ignore[attr-defined]
    best = run_dir / "checkpoints" / "best.ckpt"
    content = checkpoint.read(best)
    epochs = trainer.current_epoch
    trainer, module = launch.for_evaluation(trainer, config, module, lambda: _module(config, data))
    checkpoint.load_weights(module, content["state_dict"], best)
    trainer.loggers = []  # metrics.csv is of the training; the figures of the best weights are in metrics.json
    metrics: dict[str, Any] = {}
    sample, sampled = data.train_evaluation()
    for split in tables.SPLITS:  # test is the last of them: its tables are written
        metrics |= evaluate(trainer, module, sample if split == "train" else data.loader(split), split)
    result = {
        **metrics,
        **protocol(module, data, sampled),
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": round(seconds, 3),
        "epochs": epochs,
        "best_epoch": content["epoch"],
        "samples_per_second": round(epochs * data.train_size() / seconds, 1),
        "seed": config["seed"],
        "command": shlex.join(["python", "train.py", *config["overrides"]]),
        "versions": _versions(),
        "processor": {"name": PROCESSOR.name, "flags": PROCESSOR.flags, "threads": torch.get_num_threads()},
        "commit": commit_of_checkout(),
    }
    if not ranks.is_first():
        return result
    if not run_dir.is_dir():  # it is not made anew with but a part of the run in it
        raise run_directory.gone(run_dir)
    checkpoint.write(best, {**content, "zoo": {**content["zoo"], "metrics": metrics}})
    write_text(run_dir / "metrics.json", json.dumps(result, indent=2) + "\n")
    for name, rows in module.tables().items() if has_examples(data, "test") else ():
        write_rows(run_dir / f"test_{name}.csv", rows)
    tables.show_result(config, result, run_dir, module.headline)
    return result


@contextmanager
def _saying_how_to_continue(run_dir: Path) -> Iterator[None]:
    """Of training that ended early. Only a stop between two steps and a NaN are saved, by Keeper."""
    try:
        with deaths_explained():
            yield
    except TrainingError as error:  # it would come again: the weights are a start for a run with other options
        last = shlex.quote(str(run_dir / run_directory.LAST))
        raise TrainingError(f"{error}\nContinue with: python train.py init={last} optimizer.lr=...") from error
    except (InterruptedRunError, WorkerError) as error:
        raise type(error)(f"{error}{run_directory.how_to_continue(run_dir)}") from error
    except SystemExit as error:  # Lightning's answer to Ctrl-C before the first step and to one that insists
        how = run_directory.how_to_continue(run_dir)
        raise InterruptedRunError(f"stopped at once, without saving{how}") from error
    except MisconfigurationException as error:  # such as a monitor of the schedule that is not measured
        raise ConfigError(str(error)) from error


@contextmanager
def _saying_that_all_is_kept(run_dir: Path) -> Iterator[None]:
    """Of an evaluation that ended early, which can be done again."""
    try:
        with deaths_explained(), stopping_at_once():
            yield
    except (InterruptedRunError, KeyboardInterrupt, WorkerError) as error:
        kind = WorkerError if isinstance(error, WorkerError) else InterruptedRunError
        said = f"{error}. " if str(error) else ""
        best = shlex.quote(str(run_dir / run_directory.BEST))
        raise kind(
            f"{said}Training is over and its weights are kept; their evaluation is not."
            f"{run_directory.how_to_continue(run_dir)}   # evaluates, and trains no more\n"
            f"or look at the weights: zoo evaluate {best}"
        ) from error


def evaluate(trainer: pl.Trainer, module: Task, loader: Loader, split: str) -> dict[str, float]:
    """The metrics of one split, of an empty one none; the truth score is that of the test split."""
    if not len(loader.examples):
        return {}
    try:
        (found,) = trainer.test(module, dataloaders=loader, verbose=False)
    except SystemExit as error:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from error
    named = {key.replace("test/", f"{split}/"): value for key, value in found.items()}
    return {key: value for key, value in named.items() if split == "test" or not key.startswith("truth/")}


def has_examples(data: TaskData, split: str) -> bool:
    """Whether a split has any, for whichever process."""
    return len(data.loader(split).examples) > 0


def empty_splits(data: TaskData) -> list[str]:
    """What a run does without, where nothing is held out for validation or for the test."""
    lost = {
        "val": "the weights of the last epoch are kept, and nothing stops the training early",
        "test": "there will be no figures of it",
    }
    return [
        f"the split {split!r} has no example, so that {what}. {data.emptiness(split)}."
        for split, what in lost.items()
        if not has_examples(data, split)
    ]


def protocol(module: Task, data: Any, sampled: str | None = None) -> dict[str, str]:
    """How the metrics were measured, where their names do not say it."""
    said = [each for each in (data.protocol(), module.protocol(), sampled) if each is not None]
    return {"protocol": ", ".join(said)} if said else {}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV file of rows with the same keys."""
    with whole_file(path) as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def evaluation_trainer() -> pl.Trainer:
    """A trainer that only evaluates, on a GPU where there is one."""
    _quiet()
    keep_freed_memory()
    return pl.Trainer(
        accelerator="auto",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )


def _prepared(config: dict[str, Any], run_dir: Path, resumed: Mapping[str, Any] | None) -> tuple[pl.Trainer, Task, Any]:
    """Everything that training needs; what is wrong with the configuration or the data comes to light here.

    What the data decides (threads) is entered into the configuration.
    """
    seed, threads = config["seed"], config["threads"]
    pl.seed_everything(seed, workers=True, verbose=False)
    data = build(config["data"], "data")
    data.order_seed = seed
    launch.first(data.prepare_data)  # downloads and derived files: by one process
    data.setup()
    config["threads"] = threads or data.threads() or torch.get_num_threads()
    torch.set_num_threads(config["threads"])
    module = _module(config, data)
    if resumed is not None:
        checkpoint.compare(module, resumed["state_dict"], config["resume"])
    if config["init"] is not None and resumed is None:
        report = transplant(module, data.state(), origin(module, config["init"]), config["init"])
        if ranks.is_first():
            tables.show_fine_tuning(report, config["init"])
    if not ranks.is_first():  # the same weights, but not the same dropout
        torch.manual_seed(seed + 1_000_003 * ranks.rank())
    about = checkpoint.describe(config, data.state(), data.sizes())
    _put_back(config, run_dir, resumed)
    return _trainer(config, run_dir, data.max_epochs, about), module, data


def _module(config: Mapping[str, Any], data: Any) -> Task:
    module: Task = build(config["model"], "model", **data.sizes())
    penalise(module, config.get("penalty", {}))
    return module


def _trainer(config: Mapping[str, Any], run_dir: Path, max_epochs: int, about: Mapping[str, Any]) -> pl.Trainer:
    callbacks = [
        build(node, f"callbacks.{name}", **({"run_dir": run_dir, "about": about} if _keeps(node) else {}))
        for name, node in config["callbacks"].items()
    ]
    logged = config["logger"].items() if ranks.is_first() else ()
    loggers = [build(node, f"logger.{name}", run_dir=run_dir) for name, node in logged]
    shown = [Progress()] if ranks.is_first() else []
    try:
        return pl.Trainer(
            **launch.trainer_options(config),
            max_epochs=max_epochs,
            # Keeper is the last to be told of an exception: the others have then done their part
            callbacks=[NanGuard(), Interruption(), Thaw(), launch.Unused(), *shown, *reporters(), *callbacks],
            logger=loggers,
            plugins=[checkpoint.AtomicCheckpointIO(), *launch.plugins()],
            default_root_dir=run_dir,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error


def _keeps(node: Mapping[str, Any]) -> bool:
    return bool(node["_target_"] == "zoo.training.Keeper")


def _put_back(config: Mapping[str, Any], run_dir: Path, resumed: Mapping[str, Any] | None) -> None:
    """The files of the directory as they were when the checkpoint was written; none, for a new run."""
    if os.environ.get("RANK", "0") != "0":
        return
    if resumed is not None:
        resume.adopt(Path(config["resume"]), run_dir)
    resume.settle_files(run_dir / "checkpoints", None if resumed is None else resume.best_step(resumed))
    loggers.cut(run_dir / "metrics.csv", 0 if resumed is None else resume.steps(resumed))


def _resumed(config: Mapping[str, Any], *, may_have_origin: bool = False) -> dict[str, Any] | None:
    """The checkpoint to continue, after a check that it can be."""
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
    with resume.sound(path):
        formats.check_continued(content)
    stored = content["zoo"]["config"]
    differing = _differences(stored["model"], config["model"], "model")
    differing += _differences(in_use(stored.get("penalty", {})), in_use(config.get("penalty", {})), "penalty")
    if differing:
        raise CheckpointError(
            f"{path} is of another model or recipe; not equal: {', '.join(differing[:5])}. "
            "Leave these options out to continue it, or start a new run from its weights with init="
        )
    return content


def _differences(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [d for key in {**old, **new} for d in _differences(old.get(key), new.get(key), f"{path}.{key}")]
    return [] if old == new else [f"{path} ({old} there, {new} here)"]


def _write_config(config: Mapping[str, Any], run_dir: Path) -> None:
    if ranks.is_first():
        write_text(run_dir / "config.yaml", written_yaml(config))


def _versions() -> dict[str, str]:
    packages = ("torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "hydra-core", "numpy")
    return {"attention-zoo": __version__} | {name: version(name) for name in packages}


def commit_of_checkout() -> str | None:
    """The commit of the checkout that runs; None for an installed package."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    git = ["git", "-C", str(here)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changed.strip() else "")


def _quiet() -> None:
    """Lightning's remarks about hardware and about what it takes to be a slip here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    torch.set_float32_matmul_precision("high")
    remarks = ("does not have many workers", "GPU available but not used", "LeafSpec", "than the logging interval")
    by_all = r"self\.log\(.truth/"  # of the whole graph in every process
    for remark in (*remarks, by_all):
        warnings.filterwarnings("ignore", f".*{remark}.*")
