"""Prints the results of runs and evaluations as tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from zoo import console as terminal
from zoo.errors import count_noun, escape_cell, quote_value

if TYPE_CHECKING:
    from zoo.checkpoints.finetune import TransferReport

SPLITS = ("train", "val", "test")
CONTROLS = {"attention": "uniform", "gate": "none"}
"""Kind of mechanism -> its control."""


def show_result(
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    run_dir: Path,
    headline: Sequence[str],
    verdicts: Sequence[str] = (),
) -> None:
    """Prints metrics by split, the gap between training and validation, truth scores, verdicts, files and commands."""
    console = terminal.make_console()
    console.print()
    console.print(make_table(config["names"], result, headline))
    timing = (
        f"{count_noun(result['epochs'], 'epoch')} in {result['seconds']:.1f} s, best epoch {result['best_epoch'] + 1}"
    )
    console.print(f"{result['parameters']:,} parameters, {timing}, seed {result['seed']}")
    for verdict in verdicts:
        console.print(f"\n{verdict}.", soft_wrap=True, markup=False, highlight=False)
    _show_next(console, config, run_dir)


def make_table(names: Mapping[str, Any], result: Mapping[str, Any], headline: Sequence[str]) -> Table:
    """Makes the table of a run: metrics by split, the gap between training and validation, and truth scores.

    Args:
        names: The choices of the run: its model, data and mechanisms.
        result: The content of metrics.json.
        headline: Metrics that are shown, without the split.
    """
    mechanisms = [f"{group}={names[group]}" for group in CONTROLS if names.get(group)]
    title = ", ".join([f"{names['model']} on {names['data']}", *mechanisms])
    table = Table(title=title, title_justify="left")
    for column in ("", *SPLITS, "train - val"):
        table.add_column(column, justify="left" if not column else "right")
    for metric in headline:
        values = [result.get(f"{split}/{metric}") for split in SPLITS]  # an empty split has none
        if values == [None] * len(SPLITS):
            continue
        gap = "" if values[0] is None or values[1] is None else f"{values[0] - values[1]:+.4f}"
        table.add_row(metric, *("" if value is None else f"{value:.4f}" for value in values), gap)
    for key in filter(_is_truth, result):
        table.add_row(key, "", "", f"{result[key]:.4f}", "")
    return table


def show_metrics(metrics: Mapping[str, float], title: str, headline: Sequence[str], out: Path | None) -> None:
    """Prints the metrics of a split that the table of a run has, and truth scores, one a line; counts the others.

    Args:
        metrics: The metrics, such as test/accuracy.
        title: Title of the table.
        headline: Names of those that are shown, without the split.
        out: File that has all; None: there is none.
    """
    names = {name.partition("/")[2]: name for name in metrics if not _is_truth(name)}
    rows = [*(names[name] for name in headline if name in names), *filter(_is_truth, metrics)]
    table = Table(title=title, title_justify="left", show_header=False)
    for name in rows:
        table.add_row(name, f"{metrics[name]:.4f}")
    console = terminal.make_console()
    console.print(table)
    hidden_count = len(metrics) - len(rows)
    if hidden_count:
        hint = f"all are in {out}" if out is not None else "--out FILE.json writes all"
        console.print(f"and {count_noun(hidden_count, 'other metric')}: {hint}", soft_wrap=True)


def _is_truth(metric: str) -> bool:
    """Returns whether a metric compares the map with gold attention."""
    return metric.startswith("truth/")


def show_rows(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Prints a table with a column for each key; long cells are wrapped, not cut."""
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else escape_cell(cell) for cell in row.values()))
    terminal.make_console().print(table)


def show_fine_tuning(report: TransferReport, origin: str) -> None:
    """Prints which names were kept, are new, and were dropped, and how many weights were copied."""
    table = Table(title=f"fine-tuning {origin}", title_justify="left")
    for column in ("", "kept", "new", "dropped"):
        table.add_column(column)
    for match in report.vocabularies:
        table.add_row(match.vocabulary, *(_format_names(names) for names in (match.kept, match.new, match.dropped)))
    for name, is_kept in report.tokenizers.items():
        table.add_row(name, *(("yes", "", "") if is_kept else ("", "yes", "")))
    console = terminal.make_console()
    console.print(table)
    message = f"{report.copied} weights copied"
    console.print(f"{message}, newly initialised: {', '.join(report.initialized) or 'none'}")


def _show_next(console: Console, config: Mapping[str, Any], run_dir: Path) -> None:
    best = shlex.quote(str(_shorten(run_dir / "checkpoints" / "best.ckpt")))
    maps = shlex.quote(str(_shorten(run_dir / "maps")))
    tables = "".join(f", {path.name}" for path in sorted(run_dir.glob("test_*.csv")))
    console.print(f"\nIn {_shorten(run_dir)}: config.yaml, metrics.json, metrics.csv{tables}, checkpoints/")
    console.print("Next:")
    console.print(f"  zoo evaluate {best} --worst 20", soft_wrap=True)
    console.print(f"  zoo maps {best} --out {maps}", soft_wrap=True)
    console.print(f"  zoo predict {best} --out predictions.csv", soft_wrap=True)
    overrides = list(config["overrides"])
    names_init = any(override.startswith("init=") for override in overrides)
    if config["init"] is not None and not names_init:  # the run was continued
        overrides.append(f"init={quote_value(config['init'])}")
    for group, control in CONTROLS.items():
        if config["names"].get(group) not in (None, control):
            shared = [option for option in overrides if not _is_left_out(option.partition("=")[0], group)]
            command = shlex.join(["python", "train.py", *shared, f"{group}={control}"])
            console.print(f"  {command}   # the control without {group}", soft_wrap=True)


def _is_left_out(key: str, group: str) -> bool:
    """Returns whether the command of a control leaves an option out: the place of the run, or one of the mechanism."""
    is_mechanism_option = key.startswith(f"{group}.") and key != f"{group}.dropout"
    return key in ("run_dir", "resume", group) or is_mechanism_option


def _shorten(path: Path) -> Path:
    """Returns the path, relative if it is below the current directory."""
    current_dir = Path.cwd()
    return path.relative_to(current_dir) if path.is_relative_to(current_dir) else path


def _format_names(names: tuple[str, ...]) -> str:
    first_names = ", ".join(map(escape_cell, names[:6])) + (", ..." if len(names) > 6 else "")
    return f"{len(names)}" + (f" ({first_names})" if names else "")
