"""Where metrics go while a run works: metrics.csv always, TensorBoard or Weights & Biases by configuration."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from zoo.errors import ConfigError


class MetricsFile(Logger):
    """`metrics.csv`: a row for every logged step, a column for every metric; empty where it was not measured."""

    def __init__(self, *, run_dir: Path, flush_rows: int = 100) -> None:
        super().__init__()
        self.path = run_dir / "metrics.csv"
        self.flush_rows = flush_rows
        self.columns = ["step", "epoch"]
        self._rows: list[dict[str, float]] = []
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
        """The configuration stands in config.yaml."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": float(step or 0), **metrics}
        if self._rows and self._rows[-1]["step"] == row["step"]:
            self._rows[-1].update(row)  # training and validation of one step share a row
        else:
            if len(self._rows) >= self.flush_rows:
                self.save()
            self._rows.append(row)

    def save(self) -> None:
        """Appends; where a new column has come up, the rows so far are written again under the new header."""
        new = [key for row in self._rows for key in row if key not in self.columns]
        header_is_new = not self.path.exists()
        if new:
            self.columns += list(dict.fromkeys(new))
            old = self._read()
            partial = self.path.with_name(f".{self.path.name}.partial")
            with partial.open("w", newline="", encoding="utf-8") as file:
                self._writer(file, header=True).writerows(old)
            os.replace(partial, self.path)
            header_is_new = False
        with self.path.open("a", newline="", encoding="utf-8") as file:
            self._writer(file, header=header_is_new).writerows(_formatted(row) for row in self._rows)
        self._rows = []

    def finalize(self, status: str) -> None:
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


def _formatted(row: dict[str, float]) -> dict[str, str]:
    return {key: str(int(v)) if key in ("step", "epoch") else f"{v:.8g}" for key, v in row.items()}


def tensorboard(*, run_dir: Path) -> TensorBoardLogger:
    """Event files in `tensorboard/`; `tensorboard --logdir runs` shows all runs."""
    return TensorBoardLogger(save_dir=str(run_dir), name="", version="tensorboard")


def wandb(*, run_dir: Path, project: str = "attention-zoo", offline: bool = False) -> WandbLogger:
    """Weights & Biases; needs the extra `wandb`."""
    try:
        return WandbLogger(save_dir=str(run_dir), project=project, offline=offline, name=run_dir.name)
    except ModuleNotFoundError as error:
        raise ConfigError('logger=wandb needs its package: pip install "attention-zoo[wandb]"') from error
