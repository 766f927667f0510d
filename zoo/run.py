"""One resolved configuration: train or fine-tune it, evaluate the best weights, leave all in its run directory."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import __version__, checkpoint, tables
from zoo.build import build
from zoo.callbacks import Interruption, Keeper, NanGuard, Progress, Thaw
from zoo.errors import CheckpointError, ConfigError, InterruptedRunError, TrainingError, ZooError
from zoo.finetune import transplant
from zoo.tasks.contract import Task

SPLITS = ("train", "val", "test")


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Trains, evaluates and reports; returns what stands in metrics.json."""
    _quiet()
    resumed = _resumed(config)
    try:
        run_dir = _run_dir(config, resumed is not None)
    except OSError as error:
        remedy = "give another run_dir or paths.runs"
        raise ConfigError(f"{error.filename}: a run cannot be written there ({error.strerror}); {remedy}") from error
    config = {**config, "run_dir": str(run_dir)}
    try:
        trainer, module, data = _prepared(config, run_dir)
    except ZooError:
        _remove_empty(config, run_dir)
        raise
    _write_text(run_dir / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    started = time.monotonic()
    try:
        trainer.fit(module, data, ckpt_path=config["resume"], weights_only=True)
    except (InterruptedRunError, TrainingError) as error:
        last = shlex.quote(str(run_dir / "checkpoints" / "last.ckpt"))
        # a run that met a NaN would meet it again: its weights are a start for a run with other options
        how = f"resume={last}" if isinstance(error, InterruptedRunError) else f"init={last} optimizer.lr=..."
        raise type(error)(f"{error}\nContinue with: python train.py {how}") from error
    except MisconfigurationException as error:  # such as a monitor of the schedule that is not measured
        raise ConfigError(str(error)) from error
    seconds = time.monotonic() - started

    best = run_dir / "checkpoints" / "best.ckpt"
    content = checkpoint.read(best)
    checkpoint.load_weights(module, content["state_dict"], best)
    trainer.loggers = []  # metrics.csv is of the training; the figures of the best weights are in metrics.json
    metrics: dict[str, Any] = {}
    for split in SPLITS:
        metrics |= evaluate(trainer, module, data, split)
    checkpoint.write(best, {**content, "zoo": {**content["zoo"], "metrics": metrics}})
    result = {
        **metrics,
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": round(seconds, 3),
        "epochs": trainer.current_epoch,
        "best_epoch": content["epoch"],
        "samples_per_second": round(trainer.current_epoch * data.train_size() / seconds, 1),
        "seed": config["seed"],
        "command": shlex.join(["python", "train.py", *config["overrides"]]),
        "versions": _versions(),
        "commit": commit_of_checkout(),
    }
    _write_text(run_dir / "metrics.json", json.dumps(result, indent=2) + "\n")
    tables.show_result(config, result, run_dir)
    return result


def evaluate(trainer: pl.Trainer, module: Task, data: Any, split: str) -> dict[str, float]:
    """The metrics of one split; the truth score is that of the test split."""
    (found,) = trainer.test(module, dataloaders=data.loader(split), verbose=False)
    named = {key.replace("test/", f"{split}/"): value for key, value in found.items()}
    return {key: value for key, value in named.items() if split == "test" or not key.startswith("truth/")}


def evaluation_trainer() -> pl.Trainer:
    """A trainer that only evaluates, on a GPU where there is one."""
    _quiet()
    return pl.Trainer(
        accelerator="auto",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )


def _prepared(config: dict[str, Any], run_dir: Path) -> tuple[pl.Trainer, Task, Any]:
    """Everything that training needs; what is wrong with the configuration or the data comes to light here.

    What the data decides (threads) is entered into the configuration.
    """
    seed = config["seed"]
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ConfigError(f"seed={seed!r}: write a whole number from 0 to {2**32 - 1}")
    threads = config["threads"]
    if threads is not None and (type(threads) is not int or threads < 1):
        raise ConfigError(f"threads={threads!r}: write a whole number from 1, or null")
    pl.seed_everything(seed, workers=True, verbose=False)
    data = build(config["data"], "data")
    data.prepare_data()
    data.setup()
    config["threads"] = threads or data.threads() or torch.get_num_threads()
    torch.set_num_threads(config["threads"])
    module: Task = build(config["model"], "model", **data.sizes())
    if config["init"] is not None:
        report = transplant(module, data.state(), checkpoint.read(config["init"]), config["init"])
        tables.show_fine_tuning(report, config["init"])
    about = checkpoint.describe(config, data.state(), data.sizes())
    return _trainer(config, run_dir, data.max_epochs, about), module, data


def _trainer(config: Mapping[str, Any], run_dir: Path, max_epochs: int, about: Mapping[str, Any]) -> pl.Trainer:
    callbacks = [
        build(node, f"callbacks.{name}", **({"run_dir": run_dir, "about": about} if _keeps(node) else {}))
        for name, node in config["callbacks"].items()
    ]
    loggers = [build(node, f"logger.{name}", run_dir=run_dir) for name, node in config["logger"].items()]
    try:
        return pl.Trainer(
            **config["trainer"],
            max_epochs=max_epochs,
            # Keeper is the last to be told of an exception: the others have then done their part
            callbacks=[NanGuard(), Interruption(), Thaw(), Progress(), *callbacks],
            logger=loggers,
            plugins=[checkpoint.AtomicCheckpointIO()],
            default_root_dir=run_dir,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error


def _keeps(node: Mapping[str, Any]) -> bool:
    return bool(node["_target_"] == f"{Keeper.__module__}.{Keeper.__name__}")


def _resumed(config: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint to continue, after a check that it can be."""
    if config["resume"] is None:
        return None
    path = config["resume"]
    if config["init"] is not None:
        raise ConfigError("give either init= (a new run from trained weights) or resume= (the same run, continued)")
    content = checkpoint.read(path)
    if "loops" not in content:
        raise CheckpointError(f"{path} holds weights alone and cannot be continued; resume from last.ckpt beside it")
    differing = _differences(content["zoo"]["config"]["model"], config["model"], "model")
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


def _run_dir(config: Mapping[str, Any], resumes: bool) -> Path:
    """A directory of this run's own, whatever else starts in the same second."""
    if config["run_dir"] is not None:
        path = Path(config["run_dir"]).absolute()
        if not resumes and (path / "checkpoints").exists():
            last = path / "checkpoints" / "last.ckpt"
            raise ConfigError(f"{path} holds a run already; continue it with resume={last}, or give another run_dir")
        path.mkdir(parents=True, exist_ok=True)
        return path
    if resumes:
        return Path(config["resume"]).absolute().parent.parent
    names = config["names"]
    parent = Path(config["paths"]["runs"]).absolute() / f"{names['model']}-{names['data']}"
    parent.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in range(1, 10_000):
        path = parent / (stamp if attempt == 1 else f"{stamp}_{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ConfigError(f"{parent} has no free name for a run of {stamp}")


def _remove_empty(config: Mapping[str, Any], run_dir: Path) -> None:
    """The directory of a run that could not begin; one that holds anything stays."""
    folders = [run_dir]
    if config["resume"] is None and run_dir.is_relative_to(Path(config["paths"]["runs"]).absolute()):
        folders += [run_dir.parent, run_dir.parent.parent]
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _versions() -> dict[str, str]:
    packages = ("torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "hydra-core", "numpy")
    return {"attention-zoo": __version__} | {name: version(name) for name in packages}


def commit_of_checkout() -> str | None:
    """The commit of the checkout that runs; None for an installed package."""
    here = Path(__file__).resolve().parent.parent
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
    for remark in remarks:
        warnings.filterwarnings("ignore", f".*{remark}.*")
