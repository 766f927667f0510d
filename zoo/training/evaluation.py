"""Evaluates splits, and at the end of a run its best weights on all of them: metrics.json, tables, what is printed."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytorch_lightning as pl
import torch

from zoo import distributed
from zoo.attention.cpu import PROCESSOR
from zoo.checkpoints import checkpoint
from zoo.data.loader import Loader
from zoo.io import write_csv, write_text
from zoo.tasks.base import Task, TaskData
from zoo.training import baselines, summary
from zoo.training.callbacks.checkpointing import CheckpointAndStop
from zoo.training.callbacks.progress import DataWaitTimer
from zoo.training.environment import find_commit, get_versions
from zoo.training.run_config import RunConfig
from zoo.training.run_dir import RunDir
from zoo.training.run_errors import make_missing_dir_error
from zoo.training.setup import build_task, make_evaluation_trainer


def evaluate_and_report(
    config: RunConfig, run_dir: RunDir, trainer: pl.Trainer, module: Task, data: TaskData
) -> dict[str, Any]:
    """Returns the content of metrics.json. The first process writes it, with tables of the test split."""
    seconds, wait_seconds = (
        next(callback for callback in trainer.callbacks if isinstance(callback, kind)).seconds  # type: ignore[attr-defined]
        for kind in (CheckpointAndStop, DataWaitTimer)
    )
    content = checkpoint.read(run_dir.best)
    epochs = trainer.current_epoch
    if config.trainer.get("strategy") == "fsdp":  # each process has but a part of the module
        trainer, module = make_evaluation_trainer(config, trainer), build_task(config, data)
    checkpoint.load_weights(module, content["state_dict"], run_dir.best)
    trainer.loggers = []  # metrics.csv is for training alone
    metrics: dict[str, Any] = {}
    sample, sample_protocol = data.train_evaluation()
    for split in summary.SPLITS:  # test comes last: `module.tables()` are those of the last evaluation
        metrics |= evaluate(trainer, module, sample if split == "train" else data.loader(split), split)
    result = {
        **metrics,
        **make_protocol(module, data, sample_protocol),
        "parameters": sum(p.numel() for p in module.parameters()),
        "seconds": round(seconds, 3),
        "data_wait": round(wait_seconds / seconds, 4),
        "epochs": epochs,
        "best_epoch": content["epoch"],
        "samples_per_second": round(epochs * data.train_size() / seconds, 1),
        "seed": config.seed,
        "command": shlex.join(["python", "train.py", *config.overrides]),
        "versions": get_versions(),
        "processor": {"name": PROCESSOR.name, "flags": PROCESSOR.flags, "threads": torch.get_num_threads()},
        "commit": find_commit(),
    }
    if not distributed.is_rank_zero():
        return result
    if not run_dir.path.is_dir():  # writing would make a new one with a part of the run
        raise make_missing_dir_error(run_dir.path)
    baseline_results = list(baselines.measure(module, data, only_cheap=True))
    if baseline_results:
        result["baselines"] = {baseline["name"]: baseline["metrics"] for baseline in baseline_results}
    checkpoint.write(run_dir.best, {**content, "zoo": {**content["zoo"], "metrics": metrics}})
    write_text(run_dir.result, json.dumps(result, indent=2) + "\n")
    for name, rows in module.tables().items() if has_examples(data, "test") else ():
        write_csv(run_dir.path / f"test_{name}.csv", rows)
    verdicts = module.verdicts({**content["zoo"]["metrics"], **metrics}, data.train_size())
    verdicts = [*verdicts, *baselines.describe(module, result, baseline_results)]
    summary.show_result(config.tree, result, run_dir.path, module.headline, verdicts)
    return result


def evaluate(trainer: pl.Trainer, module: Task, loader: Loader, split: str) -> dict[str, float]:
    """Returns the metrics of one split; none if it is empty. The truth score is that of the test split alone."""
    if not len(loader.examples):
        return {}
    try:
        (metrics,) = trainer.test(module, dataloaders=loader, verbose=False)
    except SystemExit as error:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from error
    finally:
        loader.close()
    split_metrics = {key.replace("test/", f"{split}/"): value for key, value in metrics.items()}
    return {key: value for key, value in split_metrics.items() if split == "test" or not key.startswith("truth/")}


def has_examples(data: TaskData, split: str) -> bool:
    """Returns whether a split has any examples, in any process."""
    return len(data.loader(split).examples) > 0


def describe_empty_splits(data: TaskData) -> list[str]:
    """Returns a sentence for each held-out split without examples, which says what the run then lacks."""
    consequences = {
        "val": "the weights of the last epoch are kept, and nothing stops the training early",
        "test": "there will be no figures of it",
    }
    return [
        f"the split {split!r} has no example, so that {consequence}. {data.empty_hint(split)}."
        for split, consequence in consequences.items()
        if not has_examples(data, split)
    ]


def make_protocol(module: Task, data: Any, sample_protocol: str | None = None) -> dict[str, str]:
    """Returns the protocol of the metrics, where their names leave it open."""
    parts = [part for part in (data.protocol(), module.protocol(), sample_protocol) if part is not None]
    return {"protocol": ", ".join(parts)} if parts else {}
