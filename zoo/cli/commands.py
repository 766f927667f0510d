"""The commands that use a checkpoint: `zoo evaluate`, `zoo predict` and `zoo maps`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zoo.checkpoints import checkpoint
from zoo.checkpoints.untrusted import cap_data_config
from zoo.cli.output import EvaluationBar, Form, bar, choose_form, open_output, write_examples
from zoo.config.instantiate import build, resolve_class
from zoo.console import sanitize
from zoo.data.download import restrict_downloads
from zoo.data.json_lines import is_table
from zoo.data.line_index import TextLines
from zoo.data.loader import explain_worker_death
from zoo.data.option_hints import set_offered_options
from zoo.data.stdin import iter_arriving_lines, materialize_pipes
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import ConfigError, DataError, count_noun, warn
from zoo.io import is_stream, write_csv
from zoo.maps.explainer import MapOptions
from zoo.maps.export import export
from zoo.tasks.base import Task, TaskData
from zoo.tasks.command_options import BATCH_OPTIONS, FOLDER, collect_given
from zoo.tasks.prediction_order import iter_examples
from zoo.training import evaluation, summary
from zoo.training.setup import make_command_trainer

_STANDARD_INPUT = Path("-")
Answer = Callable[[Any], dict[str, list[Any]]]
"""Returns the columns of `zoo predict` for a batch."""


def evaluate(options: argparse.Namespace) -> None:
    """Prints the metrics of one split, and on request the examples with the highest loss and where the model looks."""
    module, data = _load(options)
    split = options.split
    if not evaluation.has_examples(data, split):
        raise DataError(f"{_name_source(options)} has no examples in the split {split!r}")
    if options.worst > 0:
        module.maps(data, MapOptions(ids=()))  # refuses a model without maps before the work begins
    with nullcontext() if options.out is None else open_output(options.out) as file:
        loader = data.loader(split)
        with bar("evaluating", len(loader)) as tick:
            metrics = evaluation.evaluate(make_command_trainer(EvaluationBar(tick)), module, loader, split)
        summary.show_metrics(metrics, f"{module.about['model']}, {split}", module.headline, options.out)
        if file is not None:
            file.write(json.dumps({**metrics, **evaluation.make_protocol(module, data)}, indent=2) + "\n")
    tables = dict(module.tables())
    if options.worst > 0:
        tables["worst"] = _find_worst(module, data, split, options.worst)
        summary.show_rows(tables["worst"], f"the {len(tables['worst'])} worst of {split}")
    if options.out is not None and not is_stream(options.out):  # no files are written beside a device
        for name, rows in tables.items():
            path = options.out.with_name(f"{options.out.stem}_{name}.csv")
            write_csv(path, rows)
            print(f"{path} written")


def predict(options: argparse.Namespace) -> None:
    """Writes the predictions, in the order of the input, as a table, as JSONL or as lines of text."""
    form = choose_form(options.out, options.format)
    module = _build_module(options)
    keywords = collect_given(options, module.predict_options)
    arriving_rows = module.stream_predictions(**keywords)
    if arriving_rows is not None:
        _predict_arriving(arriving_rows, options, form)
        return
    with nullcontext(sanitize(sys.stdout)) if options.out is None else open_output(options.out) as file:
        examples = module.write_sidecars(_iter_examples(module, options, module.predictor(**keywords)), **keywords)
        count = write_examples(file, examples, form, module.answer_column)
    if options.out is not None:
        stream = sys.stderr if is_stream(options.out) else sys.stdout
        print(f"{count_noun(count, 'prediction')} in {options.out}", file=stream)


def maps(options: argparse.Namespace) -> None:
    """Writes the folder of attention maps that docs/architecture.md describes."""
    if options.faithfulness is not None and options.faithfulness < 1:
        raise ConfigError(f"--faithfulness={options.faithfulness}: write how many examples, 1 or more")
    module, data = _load(options)
    map_options = MapOptions(
        heads=options.heads,
        layers=_parse_layers(options.layers),
        budget=options.budget,
        ids=None if options.ids is None else list(dict.fromkeys(part.strip() for part in options.ids.split(","))),
        pictures=options.pictures,
        table_format=options.format,
        rows=options.rows,
        overwrite=options.overwrite,
        faithfulness=options.faithfulness,
    )
    export(module, data, options.out, map_options)


def run_command(command: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    """Runs one of the commands above, with the pipes among its inputs copied to files."""
    if options.input and options.data:
        raise ConfigError("give your data either after the checkpoint or with --data, not both")
    for name, value in (("on-bad-row", options.on_bad_row), ("encoding", options.encoding)):
        if value is not None and not (options.input or options.data):
            raise ConfigError(f"--{name} is for files of yours, and none is given; leave it out")
    inputs = options.input or options.data
    with set_offered_options(options.known), explain_worker_death(), materialize_pipes(inputs) as options.input:
        command(options)


def _predict_arriving(rows: Iterator[dict[str, Any]], options: argparse.Namespace, form: Form) -> None:
    """Writes each row as soon as it is known."""
    if options.input:
        raise ConfigError("an option names the input already: leave out the files")
    if form == "text":
        raise ConfigError("text that arrives has a row for each token; write --format csv, tsv or jsonl")
    with nullcontext(sanitize(sys.stdout)) if options.out is None else open_output(options.out) as file:
        write_examples(file, ([row] for row in rows), form, "token", at_once=True)


def _load(options: argparse.Namespace) -> tuple[Task, TaskData]:
    """Returns the module of a checkpoint and its data."""
    module = _build_module(options)
    module.set_decoding(**collect_given(options, module.decoding_options))
    return module, _setup_data(module, options)


def _name_source(options: argparse.Namespace) -> str:
    """Returns the names of the user's own files, for messages."""
    return ", ".join(map(str, options.input or ())) or "the data"


def _build_module(options: argparse.Namespace) -> Task:
    """Returns the module of the checkpoint that was read to know its options."""
    module = checkpoint.build_module(options.content, options.checkpoint).eval()
    del options.content
    return module


def _iter_examples(module: Task, options: argparse.Namespace, answer: Answer) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each example that is to be predicted."""
    if options.input == [_STANDARD_INPUT]:
        yield from _iter_stdin_examples(answer, module, options)
        return
    labels, split = UnknownLabels(), options.split
    data = _setup_data(module, options, labels=labels)
    if report := labels.report():
        warn(report)
    loader = data.prediction_loader(split)
    if split != "all" and not len(loader.examples):
        raise DataError(f"{_name_source(options)} has no examples in the split {split!r}")
    is_shown = options.out is not None or not sys.stdout.isatty()
    with bar("predicting", len(loader.examples), is_shown=is_shown) as tick:
        examples = iter_examples(answer, loader, tick)
        if split != "all":  # one entry of a loader may have examples of several splits, as a graph has nodes
            examples = ([row for row in rows if row.get("split", split) == split] for rows in examples)
            examples = (rows for rows in examples if rows)
        lines = data.text_lines() if split == "all" else None
        for rows in examples if lines is None else _insert_blank_lines(examples, lines):
            yield labels.restore(rows, module.reference_column)


def _insert_blank_lines(examples: Iterator[list[dict[str, Any]]], lines: TextLines) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each line of a text, none for blank lines and for those that were left out."""
    next_number = 0
    for number, rows in zip(lines.numbers, examples, strict=True):
        yield from ([] for _ in range(next_number, number))
        yield rows
        next_number = number + 1
    yield from ([] for _ in range(next_number, lines.total))


def _iter_stdin_examples(answer: Answer, module: Task, options: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each line of standard input, as soon as lines have arrived; none for a blank line."""
    kind = resolve_class(module.about["config"]["data"]["_target_"], "data")
    if kind.written is None:
        raise ConfigError(f"-: {kind.__name__} has no examples that are lines of text; give files")
    if options.split != "all":
        raise ConfigError(f"--split={options.split}: lines of standard input are in no split; leave it out")
    first_number = 1
    for lines in iter_arriving_lines(sys.stdin.buffer):
        texts = [line for line in lines if line.strip()]
        if texts:
            data = _setup_data(module, options, texts, first_number)
            examples = iter_examples(answer, data.predict_dataloader())
        for line in lines:
            yield next(examples) if line.strip() else []
        sys.stdout.flush()
        first_number += len(texts)
    if first_number == 1:
        raise DataError("standard input has no line. Write an example on each line.")


def _setup_data(
    module: Task,
    options: argparse.Namespace,
    lines: Sequence[str] = (),
    first_number: int = 1,
    labels: UnknownLabels | None = None,
) -> TaskData:
    """Returns the user's own data if given, else the data that the module was trained on.

    Args:
        lines: Examples that were read from standard input.
        first_number: Number of the first of them.
        labels: Where labels go that the model does not know. Default: they are errors.
    """
    metadata = module.about
    node = cap_data_config(metadata)
    root = options.root or os.environ.get("ZOO_DATA")
    if "root" in node and root is not None:
        node["root"] = str(root)
    cache = os.environ.get("ZOO_CACHE") or Path.home() / ".cache" / "attention-zoo"
    if "cache" in node:
        node["cache"] = str(cache)
    _check_folder(options)
    with restrict_downloads(root or "data", cache):  # a checkpoint does not decide where files are written
        data: Any = build(node, "data")
        for name, value in collect_given(options, data.input_options).items():
            setattr(data, name, value)
        sizes = collect_given(options, BATCH_OPTIONS)
        if "batch_size" in sizes:
            sizes["eval_batch_size"] = sizes["batch_size"]
        data.batching = replace(data.batching, **sizes)
        data.on_bad_row = options.on_bad_row or data.on_bad_row
        data.encoding = options.encoding or data.encoding
        data.unknown_labels = labels
        texts = None if data.written is None else getattr(options, data.written.key, None)
        if texts and options.input:
            raise ConfigError(f"give either files or --{data.written.name}, not both")
        data.check_input_sizes(metadata["data"])
        if lines:
            data.first_text = first_number
            data = data.from_texts(lines, metadata["data"])
        elif texts:
            data = data.from_texts(texts, metadata["data"])
        elif options.input:
            data = data.from_files(options.input, metadata["data"])
        else:
            data.restore(metadata["data"])
        data.setup()
    return data  # type: ignore[no-any-return]


def _check_folder(options: argparse.Namespace) -> None:
    """Refuses --folder where no path begins in it."""
    folder = getattr(options, FOLDER.key, None)
    if folder is None:
        return
    if not folder.is_dir():
        raise ConfigError(f"--{FOLDER.name}={folder}: there is no such folder")
    if not any(map(is_table, options.input or ())):
        raise ConfigError(f"--{FOLDER.name}={folder} is where the paths of a table begin, and no table is given")


@torch.inference_mode()
def _iter_answers(answer: Answer, batches: Iterable[Any]) -> Iterator[dict[str, list[Any]]]:
    for batch in batches:
        yield answer(batch)


def _find_worst(module: Task, data: TaskData, split: str, count: int) -> list[dict[str, Any]]:
    """Returns the examples with the highest loss, and where the model looks in them."""
    examples: list[dict[str, Any]] = []
    for columns in _iter_answers(module.predict_step, data.loader(split)):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        examples += [row for row in rows if row["split"] == split and row["loss"] is not None]
        examples = sorted(examples, key=lambda row: -row["loss"])[:count]
    descriptions = module.maps(data, MapOptions(ids=[row["id"] for row in examples])).describe_chosen()
    names = ("id", *module.input_columns, "label", "prediction", "probability", "score", "loss")
    return [
        {**{key: row[key] for key in names if key in row}, "where it looks": description}
        for row, description in zip(examples, descriptions, strict=True)
    ]


def _parse_layers(text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if part.lstrip("-").isdigit() else part for part in parts]
