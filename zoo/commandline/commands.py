"""The commands that use a checkpoint: `zoo evaluate`, `zoo predict` and `zoo maps`."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import torch

from zoo import printing
from zoo.checkpoints import checkpoint
from zoo.checkpoints.strangers import modest_data
from zoo.composing.build import build, made_by
from zoo.data.download import confined
from zoo.data.loader import deaths_explained
from zoo.data.pipes import arriving, as_files
from zoo.data.tables import advising
from zoo.disk import is_stream, whole_file
from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.forms import MalformedError, expect
from zoo.maps.export import export
from zoo.maps.source import MapOptions
from zoo.plurals import count_noun
from zoo.tasks.command_options import given
from zoo.tasks.contract import Task, TaskData
from zoo.tasks.rows import in_order
from zoo.terminal import shown
from zoo.training import evaluation
from zoo.training.trainer import evaluation_trainer

_STANDARD_INPUT = Path("-")


def evaluate(options: argparse.Namespace) -> None:
    """Prints the metrics of one split, and on request the examples with the highest loss and where the model looks."""
    module, data = _opened(options)
    split = options.split
    if not evaluation.has_examples(data, split):
        given = ", ".join(map(str, options.input or ())) or "the data"
        raise DataError(f"{given} has no examples in the split {split!r}")
    if options.worst > 0:
        module.maps(data, MapOptions(ids=()))  # refuses a model without maps before the work begins
    with nullcontext() if options.out is None else _written(options.out) as file:
        metrics = evaluation.evaluate(evaluation_trainer(), module, data.loader(split), split)
        printing.show_metrics(metrics, f"{module.about['model']}, {split}")
        if file is not None:
            file.write(json.dumps({**metrics, **evaluation.protocol(module, data)}, indent=2) + "\n")
    found = dict(module.tables())
    if options.worst > 0:
        found["worst"] = _worst(module, data, split, options.worst)
        printing.show_rows(found["worst"], f"the {len(found['worst'])} worst of {split}")
    if options.out is not None and not is_stream(options.out):  # no files are written beside a device
        for name, rows in found.items():
            print(f"{evaluation.write_rows(options.out.with_name(f'{options.out.stem}_{name}.csv'), rows)} written")


def predict(options: argparse.Namespace) -> None:
    """Writes the predictions as CSV or JSONL, in the order of the input."""
    module = _module(options)
    how = given(options, module.predict_options)
    arriving = module.arriving(**how)
    if arriving is not None:
        _predict_arriving(arriving, options)
        return
    answer = module.predictor(**how)
    if options.input == [_STANDARD_INPUT]:
        rows = _rows_of_lines(answer, module, options)
    else:
        rows = in_order(answer, _data(module, options).predict_dataloader())
    rows = module.beside(rows, **how)
    if options.out is None:
        _write_rows(shown(sys.stdout), rows)
        return
    with _written(options.out) as file:
        count = _write_rows(file, rows, as_json=options.out.suffix == ".jsonl")
    print(
        f"{count_noun(count, 'prediction')} in {options.out}", file=sys.stderr if is_stream(options.out) else sys.stdout
    )


def maps(options: argparse.Namespace) -> None:
    """Writes the folder of attention maps that docs/architecture.md describes."""
    if options.faithfulness is not None and options.faithfulness < 1:
        raise ConfigError(f"--faithfulness={options.faithfulness}: write how many examples, 1 or more")
    module, data = _opened(options)
    asked = MapOptions(
        heads=options.heads,
        layers=_numbers_or_names(options.layers),
        budget=options.budget,
        ids=None if options.ids is None else list(dict.fromkeys(each.strip() for each in options.ids.split(","))),
        pictures=options.pictures,
        table_format=options.format,
        overwrite=options.overwrite,
        faithfulness=options.faithfulness,
    )
    export(module, data, options.out, asked)


def run_command(command: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    """Runs one of the commands above, with the pipes among its inputs copied to files."""
    if options.input and options.data:
        raise ConfigError("give your data either after the checkpoint or with --data, not both")
    for name, value in (("on-bad-row", options.on_bad_row), ("encoding", options.encoding)):
        if value is not None and not (options.input or options.data):
            raise ConfigError(f"--{name} is for files of yours, and none is given; leave it out")
    given = options.input or options.data
    with deaths_explained(), advising("--on-bad-row=skip", "--encoding"), as_files(given) as options.input:
        command(options)


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """Opens the file of --out. It is opened before the work begins, so that an error is reported at once."""
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


def _predict_arriving(rows: Iterator[dict[str, Any]], options: argparse.Namespace) -> None:
    """Writes each row as soon as it is known."""
    if options.input:
        raise ConfigError("an option names the input already: leave out the files")
    as_json = options.out is not None and options.out.suffix == ".jsonl"
    with nullcontext(shown(sys.stdout)) if options.out is None else _written(options.out) as file:
        _write_rows(file, rows, as_json=as_json, at_once=True)


def _opened(options: argparse.Namespace) -> tuple[Task, TaskData]:
    """The module of a checkpoint and its data."""
    module = _module(options)
    return module, _data(module, options)


def _module(options: argparse.Namespace) -> Task:
    """The module of the checkpoint that was read to know its options."""
    module = checkpoint.module_of(options.content, options.checkpoint).eval()
    del options.content
    return module


def _rows_of_lines(
    answer: Callable[[Any], dict[str, list[Any]]], module: Task, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the lines of standard input, an example a line, as soon as lines have arrived."""
    kind = made_by(module.about["config"]["data"]["_target_"], "data")
    if kind.written is None:
        raise ConfigError(f"-: {kind.__name__} has no examples that are lines of text; give files")
    first = 1
    for texts in arriving(sys.stdin.buffer):
        data = _data(module, options, texts, first)
        yield from in_order(answer, data.predict_dataloader())
        sys.stdout.flush()
        first += len(texts)
    if first == 1:
        raise DataError("standard input has no line. Write an example on each line.")


def _data(module: Task, options: argparse.Namespace, lines: Sequence[str] = (), first: int = 1) -> TaskData:
    """The user's own data if given, else the data that the module was trained on.

    Args:
        lines: Examples that were read from standard input.
        first: Number of the first of them.
    """
    about = module.about
    node = modest_data(about["config"]["data"])
    root = options.root or os.environ.get("ZOO_DATA")
    if "root" in node and root is not None:
        node["root"] = str(root)
    cache = os.environ.get("ZOO_CACHE") or Path.home() / ".cache" / "attention-zoo"
    if "cache" in node:
        node["cache"] = str(cache)
    with confined(root or "data", cache):  # a checkpoint does not decide where files are written
        data: Any = build(node, "data")
        for name, value in given(options, data.input_options).items():
            setattr(data, name, value)
        data.on_bad_row = options.on_bad_row or data.on_bad_row
        data.encoding = options.encoding or data.encoding
        texts = None if data.written is None else getattr(options, data.written.key, None)
        if texts and options.input:
            raise ConfigError(f"give either files or --{data.written.name}, not both")
        try:
            expect(about["data"], data.form, "zoo.data")
        except MalformedError as error:
            raise CheckpointError(f"{about['path']} is not a sound checkpoint: {error}") from error
        if lines:
            data.first_text = first
            data = data.for_text(lines, about["data"])
        elif texts:
            data = data.for_text(texts, about["data"])
        elif options.input:
            data = data.for_input(options.input, about["data"])
        else:
            data.restore(about["data"])
        data.setup()
    return data  # type: ignore[no-any-return]


@torch.inference_mode()
def _answers(answer: Callable[[Any], dict[str, list[Any]]], batches: Iterable[Any]) -> Iterator[dict[str, list[Any]]]:
    for batch in batches:
        yield answer(batch)


def _write_rows(file: TextIO, rows: Iterator[dict[str, Any]], *, as_json: bool = False, at_once: bool = False) -> int:
    """Writes rows as CSV, or as JSON, a line each; returns their number."""
    writer, count = csv.writer(file, lineterminator="\n"), 0
    for row in rows:
        if as_json:
            cells = {key: float(f"{cell:.6g}") if isinstance(cell, float) else cell for key, cell in row.items()}
            file.write(json.dumps(cells, ensure_ascii=False) + "\n")
        else:
            if not count:
                writer.writerow(row)
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values())
        if at_once:
            file.flush()
        count += 1
    return count


def _worst(module: Task, data: TaskData, split: str, count: int) -> list[dict[str, Any]]:
    """The examples with the highest loss, and where the model looks in them."""
    found: list[dict[str, Any]] = []
    for columns in _answers(module.predict_step, data.loader(split)):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found += [row for row in rows if row["split"] == split and row["loss"] is not None]
        found = sorted(found, key=lambda row: -row["loss"])[:count]
    said = module.maps(data, MapOptions(ids=[row["id"] for row in found])).looks()
    shown = ("id", "label", "prediction", "probability", "score", "loss")
    return [
        {**{key: row[key] for key in shown if key in row}, "where it looks": looks}
        for row, looks in zip(found, said, strict=True)
    ]


def _numbers_or_names(text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if part.lstrip("-").isdigit() else part for part in parts]
