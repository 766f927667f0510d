"""`zoo maps`: writes a folder of maps, tables, pictures and words from a `Explainer`, and prints a report."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.attention import sites
from zoo.errors import escape_control
from zoo.maps import dataframes
from zoo.maps.explainer import ExplainedExample, Explainer, MapOptions, Table, check_layers
from zoo.maps.faithfulness_table import Faithfulness
from zoo.maps.labelled_map import LabelledMap
from zoo.maps.store_writer import Writer

if TYPE_CHECKING:
    import pandas as pd

    from zoo.tasks.base import Task, TaskData

_DPI = 110


def export(module: Task, data: TaskData, out: Path, options: MapOptions) -> None:
    """Writes the folder and prints a report of its contents.

    Tables and the truth score are computed from every example. Only the chosen examples have maps, pictures and words,
    since those of ten thousand examples would fill a disk. If faithfulness is measured without any of these, nothing
    else is computed.
    """
    source, about = module.maps(data, options), module.about
    names = list(sites(source.net))
    check_layers(source.net, options.layers)
    _ = source.positions  # raises an error for an unknown id before anything is written
    count = options.faithfulness
    measured = None if count is None else Faithfulness(source, count)
    if measured is not None and measured.announcement:
        print(measured.announcement, file=sys.stderr)
    nothing_else = measured is not None and options.ids is None and options.pictures == 0
    words: list[str] = []
    notes = _Notes()
    with Writer(
        out,
        model=about["model"],
        checkpoint=about["path"],
        layers=[*names, *source.scored],
        heads=options.heads,
        about={**source.about, "data": about["config"]["names"]["data"]},
        overwrite=options.overwrite,
    ) as writer:
        if measured is not None:
            _write_table(writer, Table("faithfulness", measured.frames()), options.table_format)
            writer.faithfulness = measured.means()
        for table in () if nothing_else else source.tables():
            _write_table(writer, table, options.table_format)
        rows: dict[str, list[Iterable[pd.DataFrame]]] = {}
        count = 0
        for count, example in enumerate(() if nothing_else else source.examples(), start=1):
            made = _write(writer, example)
            notes.add(example)
            words += example.words
            for name, figure in example.figures(made, count):
                figure.savefig(writer.file(f"pictures/{name}.png"), dpi=_DPI)
            for table in example.tables(made):
                rows.setdefault(table.name, []).append(table.frames)
        for name, parts in rows.items():
            _write_table(writer, Table(name, chain.from_iterable(parts)), options.table_format)
        if count:
            writer.file("words.txt").write_text("".join(f"{line}\n" for line in words), encoding="utf-8")
        writer.truth = {} if nothing_else else dict(source.truth())
    for line in () if nothing_else else (*source.summary(str(out)), *notes.lines(source)):
        print(line)
    for measure, value in writer.truth.items():
        if value is not None:
            print(f"truth/{measure} {value:.4f} ({source.truth_label})")
    for line in () if measured is None else measured.lines():
        print(line)
    for line in words:
        print(escape_control(line))


class _Notes:
    """The sites that have no map in the folder, with the reasons."""

    def __init__(self) -> None:
        self.cut: dict[str, int] = {}
        self.silent: dict[str, str] = {}

    def add(self, example: ExplainedExample) -> None:
        self.cut |= example.found.cut
        self.silent |= {site: why for site, why in example.found.silent.items() if site not in example.found}

    def lines(self, source: Explainer) -> Iterable[str]:
        if self.cut:
            of = "" if source.is_one_example else f" a {source.noun}"
            remedy = "raise --budget, or name fewer with --layers"
            yield f"the budget of {source.options.budget:,} bytes{of} left out {list_sizes(self.cut)}: {remedy}"
        for site, reason in self.silent.items():
            yield f"{site} has no map: {reason}"


def list_sizes(cut: dict[str, int]) -> str:
    """Returns a list of sites with the sizes of their maps in bytes, as text."""
    return ", ".join(f"{site} {size:,}" for site, size in cut.items())


def _write(writer: Writer, example: ExplainedExample) -> dict[str, LabelledMap]:
    made: dict[str, LabelledMap] = {}
    writer.note(example.found)
    for each in example.maps():
        made |= writer.add(
            example.id,
            each.found,
            axis_labels=each.axis_labels,
            gold=each.gold,
            nouns=each.nouns,
            about=example.about,
        )
    return made


def _write_table(writer: Writer, table: Table, format: dataframes.Format) -> None:
    dataframes.write(table.frames, writer.file(f"{table.name}.{format}"), format=format)
    if table.figure is not None:
        table.figure.savefig(writer.file(f"pictures/{table.name}.png"), dpi=_DPI)
