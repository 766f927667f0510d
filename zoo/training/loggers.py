"""Loggers of metrics: metrics.csv, TensorBoard, and Weights & Biases."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from zoo.errors import ConfigError
from zoo.io import open_atomic
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class MetricsFile(Logger):
    """Writes `metrics.csv`: a row for every logged step, a column for every metric, empty where it was not measured.

    Lightning saves after every entry. When more metrics of the last step arrive, its row is replaced in the file.
    """

    def __init__(self, *, run_dir: Path, flush_rows: PositiveInt = 100) -> None:
        super().__init__()
        self.path = run_dir / "metrics.csv"
        self.flush_rows = flush_rows
        self.columns = ["step", "epoch"]
        self._rows: list[dict[str, float]] = []
        self._last: tuple[dict[str, float], int] | None = None
        """The last row in the file, and the offset at which it begins."""
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                self.columns = next(csv.reader(file), self.columns)

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing: the configuration is in config.yaml."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": float(step or 0), **metrics}
        if not self._rows and self._last is not None and self._last[0]["step"] == row["step"]:
            os.truncate(self.path, self._last[1])
            self._rows = [self._last[0]]
        if self._rows and self._rows[-1]["step"] == row["step"]:
            self._rows[-1].update(row)  # training and validation of one step share a row
        else:
            if len(self._rows) >= self.flush_rows:
                self.save()
            self._rows.append(row)

    def save(self) -> None:
        """Appends the new rows. If they have a new column, the file is rewritten under the new header."""
        if not self._rows and self.path.exists():
            return
        new = [key for row in self._rows for key in row if key not in self.columns]
        header_is_new = not self.path.exists()
        if new:
            self.columns += list(dict.fromkeys(new))
            old = self._read()
            with open_atomic(self.path) as file:
                self._writer(file, header=True).writerows(old)
            header_is_new = False
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = self._writer(file, header=header_is_new)
            for row in self._rows:
                self._last = (row, file.tell())
                writer.writerow(_format_row(row))
        self._rows = []

    def finalize(self, status: str) -> None:
        with suppress(*[OSError] if status == "failed" else []):  # that the disk is full has been reported
            self.save()

    def _read(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def _writer(self, file: Any, *, header: bool) -> csv.DictWriter[str]:
        writer = csv.DictWriter(file, self.columns, lineterminator="\n")
        if header:
            writer.writeheader()
        return writer


def truncate_metrics(path: Path, step: int) -> None:
    """Removes the rows of `step` and later from a metrics.csv, and rows that are incomplete."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(line.replace("\0", "") for line in file))
    if step <= 0 or not rows or rows[0][:1] != ["step"]:
        path.unlink()
        return
    header, *body = rows
    valid = [row for row in body if len(row) == len(header) and row[0].isdecimal() and int(row[0]) < step]
    with open_atomic(path) as file:
        csv.writer(file, lineterminator="\n").writerows([header, *valid])


def _format_row(row: dict[str, float]) -> dict[str, str]:
    return {key: str(int(v)) if key in ("step", "epoch") else f"{v:.8g}" for key, v in row.items()}


def tensorboard(*, run_dir: Path) -> TensorBoardLogger:
    """Writes event files to `tensorboard/`; `tensorboard --logdir runs` shows all runs."""
    return TensorBoardLogger(save_dir=str(run_dir), name="", version="tensorboard")


def get_logged_metrics(trainer: pl.Trainer) -> dict[str, float]:
    """Returns the metrics that the module has logged so far."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


@contextmanager
def raise_writer_errors() -> Iterator[None]:
    """Raises an error of TensorBoard's thread at the end of the context, instead of printing it.

    Another error takes precedence. TensorBoard raises such an error again at its next entry, where it is explained.
    Its thread would print a traceback.
    """
    errors: list[BaseException] = []
    default_hook = threading.excepthook

    def record_error(failure: threading.ExceptHookArgs) -> None:
        if type(failure.thread).__module__.startswith("tensorboard.") and failure.exc_value is not None:
            errors.append(failure.exc_value)
        else:
            default_hook(failure)

    threading.excepthook = record_error
    try:
        yield
        if errors:
            raise errors[0]
    finally:
        threading.excepthook = default_hook


def wandb(*, run_dir: Path, project: str = "attention-zoo", offline: bool = False) -> WandbLogger:
    """Logs to Weights & Biases; needs the extra `wandb`."""
    try:
        return WandbLogger(save_dir=str(run_dir), project=project, offline=offline, name=run_dir.name)
    except ModuleNotFoundError as error:
        raise ConfigError('logger=wandb needs its package: pip install "attention-zoo[wandb]"') from error
