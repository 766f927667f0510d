"""What the commands put out: the rows of `zoo predict` as CSV, TSV, JSONL or plain text, and a bar on a terminal."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from zoo.errors import ConfigError
from zoo.io import is_stream, open_atomic

Form = Literal["text", "csv", "tsv", "jsonl"]
_ENDINGS: Mapping[str, Form] = {".txt": "text", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
Row = Mapping[str, Any]
_REFRESHES_PER_SECOND = 4
"""Drawings of the bar a second."""


def choose_form(path: Path | None, option: Form | None) -> Form:
    """Returns the form of the output: that of --format, else that of the ending of --out, and CSV where it has none.

    Raises:
        ConfigError: The ending is that of no form.
    """
    if option is not None:
        return option
    if path is None or not path.suffix or is_stream(path):
        return "csv"
    if path.suffix.lower() not in _ENDINGS:
        endings = ", ".join(_ENDINGS)
        raise ConfigError(
            f"--out={path}: no form has the ending {path.suffix!r}; end it in {endings}, or give --format"
        )
    return _ENDINGS[path.suffix.lower()]


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Opens the file of --out. It is opened before the work begins, so that an error is reported at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        if Path(str(error.filename)) not in (path, *path.parents):
            raise
        raise ConfigError(f"--out={path}: {error.filename} cannot be written ({error.strerror})") from error


def write_examples(
    file: TextIO, examples: Iterable[Sequence[Row]], form: Form, column: str, *, at_once: bool = False
) -> int:
    """Writes the rows of each example; returns the number of rows.

    Args:
        file: Where to write.
        examples: The rows of each example, in order. An example without rows is a blank line of text.
        form: Tables and JSONL have a line for each row; text has one for each example, with a tab between the answers
            of several rows.
        column: The column that text has.
        at_once: Whether each example is written out before the next is computed.
    """
    write, count = _make_writer(file, form, column), 0
    for rows in examples:
        write(rows)
        if at_once:
            file.flush()
        count += len(rows)
    return count


def _make_writer(file: TextIO, form: Form, column: str) -> Callable[[Sequence[Row]], None]:
    if form == "text":
        return lambda rows: file.writelines(["\t".join(_to_plain(row[column]) for row in rows), "\n"])
    if form == "jsonl":
        return lambda rows: file.writelines(f"{_to_json(row)}\n" for row in rows)
    table, has_header = csv.writer(file, delimiter=_DELIMITERS[form], lineterminator="\n"), False

    def write(rows: Sequence[Row]) -> None:
        nonlocal has_header
        if rows and not has_header:
            table.writerow(rows[0])
            has_header = True
        table.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)

    return write


def _to_json(row: Row) -> str:
    cells = {key: float(f"{cell:.6g}") if isinstance(cell, float) else cell for key, cell in row.items()}
    return json.dumps(cells, ensure_ascii=False)


def _to_plain(text: Any) -> str:
    """Returns an answer as a part of a line: line breaks and tabs become spaces."""
    return " ".join(str(text).replace("\t", " ").splitlines())


@contextmanager
def bar(description: str, total: int | None, *, is_shown: bool = True) -> Iterator[Callable[[int], object]]:
    """Shows a bar on standard error if this is a terminal, and removes it at the end of the context.

    Args:
        description: A word for what is done.
        total: Number of all parts; None: it is not known.
        is_shown: Whether there is a bar at all.

    Yields:
        A function that is told how many parts more are done.
    """
    console = Console(stderr=True)
    if not is_shown or not sys.stderr.isatty() or console.is_dumb_terminal:
        yield lambda count: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES_PER_SECOND) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


class EvaluationBar(pl.Callback):
    """Tells a bar of the batches of an evaluation.

    Args:
        tick: Called with the number of batches after each.
    """

    def __init__(self, tick: Callable[[int], object]) -> None:
        self.tick = tick

    def on_test_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.tick(1)
