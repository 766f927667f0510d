"""What `zoo evaluate`, `zoo predict` and `zoo maps` do with a checkpoint."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import torch

from zoo import checkpoint, run, tables
from zoo.build import build
from zoo.data.download import confined
from zoo.data.loader import deaths_explained
from zoo.data.pipes import as_files
from zoo.disk import is_stream, whole_file
from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.forms import MalformedError, expect
from zoo.tasks.contract import Task, TaskData


def evaluate(options: argparse.Namespace) -> None:
    """The metrics of one split, and on request the examples with the highest loss and what the model looked at."""
    module, data = _opened(options)
    split = options.split
    if not len(data.loader(split)):
        given = ", ".join(map(str, options.input or ())) or "the data"
        raise DataError(f"{given} has no examples in the split {split!r}")
    with nullcontext() if options.out is None else _written(options.out) as file:
        metrics = run.evaluate(run.evaluation_trainer(), module, data.loader(split), split)
        tables.show_metrics(metrics, f"{module.about['model']}, {split}")
        if file is not None:
            file.write(json.dumps({**metrics, **run.protocol(module, data)}, indent=2) + "\n")
    if options.out is not None and not is_stream(options.out):  # nothing stands beside a device
        for path in run.write_tables(module, options.out.parent, f"{options.out.stem}_"):
            print(f"{path} written")
    if options.worst > 0:
        _show_worst(module, data, split, options.worst)


def predict(options: argparse.Namespace) -> None:
    """A CSV with one row an example, in the order of the input."""
    if options.top is not None and options.top < 1:
        raise ConfigError(f"--top={options.top}: write 1 or more")
    if options.history and options.input:
        raise ConfigError("give either files or --history, not both")
    module = checkpoint.load(options.checkpoint)
    answer = module.answering(top=options.top, explain=options.explain, seen=options.seen)
    data = _data(module, options)
    if options.out is None:
        _write_rows(sys.stdout, _answers(answer, data.predict_dataloader()))
        return
    with _written(options.out) as file:
        count = _write_rows(file, _answers(answer, data.predict_dataloader()))
    print(f"{count:,} predictions in {options.out}", file=sys.stderr if is_stream(options.out) else sys.stdout)


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


def run_command(command: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    """One of the commands above, with pipes among its inputs turned into files."""
    if options.input and options.data:
        raise ConfigError("give your data either after the checkpoint or with --data, not both")
    with deaths_explained(), as_files(options.input or options.data) as options.input:
        command(options)


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """The file of --out, opened before the work begins: what cannot be written is said at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        if Path(str(error.filename)) not in (path, *path.parents):
            raise
        raise ConfigError(f"--out={path}: {error.filename} cannot be written ({error.strerror})") from error


def _opened(options: argparse.Namespace) -> tuple[Task, TaskData]:
    """The module of a checkpoint and its data."""
    module = checkpoint.load(options.checkpoint)
    return module, _data(module, options)


def _data(module: Task, options: argparse.Namespace) -> TaskData:
    """The user's own data if given, else what the module was trained on."""
    about = module.about
    node = dict(about["config"]["data"])
    root = options.root or os.environ.get("ZOO_DATA")
    if "root" in node and root is not None:
        node["root"] = str(root)
    cache = os.environ.get("ZOO_CACHE") or Path.home() / ".cache" / "attention-zoo"
    if "cache" in node:
        node["cache"] = str(cache)
    with confined(root or "data", cache):  # where files go is not for a checkpoint to say
        data: Any = build(node, "data")
        unknown, texts = getattr(options, "unknown", None), getattr(options, "history", None)
        if unknown is not None and data.unknown is None:
            raise ConfigError("--unknown: the data of this model has no names that could be unknown; leave it out")
        if texts and data.written != "history":
            raise ConfigError("--history: the examples of this model are no histories; leave it out")
        data.unknown = unknown or data.unknown
        try:
            expect(about["data"], data.form, "zoo.data")
        except MalformedError as error:
            raise CheckpointError(f"{about['path']} is not a sound checkpoint: {error}") from error
        if texts:
            data = data.for_text(texts, about["data"])
        elif options.input:
            data = data.for_input(options.input, about["data"])
        else:
            data.restore(about["data"])
        data.setup()
    return data  # type: ignore[no-any-return]


def _domain(module: Task) -> ModuleType:
    """What exports the maps of the module's domain: zoo.tasks.<domain>.export."""
    return importlib.import_module(f"{type(module).__module__.rpartition('.')[0]}.export")


@torch.inference_mode()
def _answers(answer: Callable[[Any], dict[str, list[Any]]], batches: Iterable[Any]) -> Iterator[dict[str, list[Any]]]:
    for batch in batches:
        yield answer(batch)


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
    for columns in _answers(module.predict_step, data.loader(split)):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found += [row for row in rows if row["split"] == split and row["loss"] is not None]
        found = sorted(found, key=lambda row: -row["loss"])[:count]
    said = _domain(module).describe(module, data, [row["id"] for row in found])
    shown = [key for key in ("id", "label", "prediction", "probability", "score", "loss") if found and key in found[0]]
    columns = {key: [row[key] for row in found] for key in shown}
    tables.show_rows({**columns, "where it looks": said}, f"the {len(found)} worst of {split}")


def _numbers_or_names(text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if part.lstrip("-").isdigit() else part for part in parts]
