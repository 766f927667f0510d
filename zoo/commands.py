"""What `zoo evaluate`, `zoo predict` and `zoo maps` do with a checkpoint."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from zoo import checkpoint, run, tables
from zoo.build import build
from zoo.data.download import confined
from zoo.disk import whole_file
from zoo.errors import DataError
from zoo.tasks.contract import Task, TaskData


def evaluate(options: argparse.Namespace) -> None:
    """The metrics of one split, and on request the examples with the highest loss and what the model looked at."""
    module, data = _opened(options)
    split = options.split
    if not len(data.loader(split)):
        given = ", ".join(map(str, options.input or ())) or "the data"
        raise DataError(f"{given} has no examples in the split {split!r}")
    metrics = run.evaluate(run.evaluation_trainer(), module, data, split)
    tables.show_metrics(metrics, f"{module.about['model']}, {split}")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        for path in run.write_tables(module, options.out.parent, f"{options.out.stem}_"):
            print(f"{path} written")
    if options.worst > 0:
        _show_worst(module, data, split, options.worst)


def predict(options: argparse.Namespace) -> None:
    """A CSV with one row an example, in the order of the input."""
    module, data = _opened(options)
    if options.out is None:
        _write_rows(sys.stdout, _predictions(module, data))
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(options.out) as file:
        count = _write_rows(file, _predictions(module, data))
    print(f"{count:,} predictions in {options.out}")


def maps(options: argparse.Namespace) -> None:
    """The folder of attention maps that docs/architecture.md describes."""
    module, data = _opened(options)
    _domain(module).export(
        module,
        data,
        options.out,
        heads=options.heads,
        layers=_numbers_or_names(options.layers),
        budget=options.budget,
        ids=None if options.ids is None else [each.strip() for each in options.ids.split(",")],
        pictures=options.pictures,
        table_format=options.format,
        overwrite=options.overwrite,
    )


def _opened(options: argparse.Namespace) -> tuple[Task, TaskData]:
    """The module of a checkpoint and its data: the user's own if given, else what it was trained on."""
    module = checkpoint.load(options.checkpoint)
    about = module.about
    node = dict(about["config"]["data"])
    root = options.root or os.environ.get("ZOO_DATA")
    if "root" in node and root is not None:
        node["root"] = str(root)
    cache = os.environ.get("ZOO_CACHE") or Path.home() / ".cache" / "attention-zoo"
    if "cache" in node:
        node["cache"] = str(cache)
    with confined(root or "data", cache):  # where files go is not for a checkpoint to say
        data = build(node, "data")
        if options.input:
            data = data.for_input(options.input, about["data"])
        else:
            data.restore(about["data"])
        data.setup()
    return module, data


def _domain(module: Task) -> ModuleType:
    """What exports the maps of the module's domain: zoo.tasks.<domain>.export."""
    return importlib.import_module(f"{type(module).__module__.rpartition('.')[0]}.export")


@torch.inference_mode()
def _predictions(module: Task, data: TaskData) -> Iterator[dict[str, list[Any]]]:
    for number, batch in enumerate(data.predict_dataloader()):
        yield module.predict_step(batch, number)


def _write_rows(file: Any, batches: Iterator[dict[str, list[Any]]]) -> int:
    writer, count = csv.writer(file, lineterminator="\n"), 0
    for columns in batches:
        if not count:
            writer.writerow(columns)
        rows = list(zip(*columns.values(), strict=True))
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
        count += len(rows)
    return count


def _show_worst(module: Task, data: TaskData, split: str, count: int) -> None:
    found: list[dict[str, Any]] = []
    for columns in _predictions(module, data):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found += [row for row in rows if row["split"] == split and row["loss"] is not None]
        found = sorted(found, key=lambda row: -row["loss"])[:count]
    said = _domain(module).describe(module, data, [row["id"] for row in found])
    columns = {key: [row[key] for row in found] for key in ("id", "label", "prediction", "probability", "loss")}
    tables.show_rows({**columns, "where it looks": said}, f"the {len(found)} worst of {split}")


def _numbers_or_names(text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if part.lstrip("-").isdigit() else part for part in parts]
