"""`zoo maps` and the maps of `zoo evaluate --worst` for graphs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from zoo.attention import record, sites
from zoo.errors import ConfigError, DataError, nearest, visible
from zoo.maps import LabelledMap, Writer, labelled, words
from zoo.maps.frames import Format
from zoo.maps.labelling import Heads
from zoo.tasks.graph.batch import Data
from zoo.tasks.graph.data import GraphData
from zoo.tasks.graph.maps import neighbourhood, write_edge_table, write_entropy_table
from zoo.tasks.graph.module import NodeClassifier

_EXAMPLE = "graph"


def export(
    module: NodeClassifier,
    data: GraphData,
    out: Path,
    *,
    heads: Heads = "each",
    layers: Sequence[int | str] | None = None,
    budget: int | None = None,
    ids: Sequence[str] | None = None,
    pictures: int = 4,
    table_format: Format = "csv",
    overwrite: bool = False,
) -> None:
    """Writes arrays, the table of edges, entropies, scores, and pictures and words for some nodes."""
    (batch,) = data.predict_dataloader()
    names = batch.ids.tolist()
    drawn = _known(ids, names) if ids is not None else _typical(batch, pictures)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.filterwarnings("ignore", "the budget of")  # what it left out is said at the end
            with record(module.net, layers=layers, budget=budget) as found:
                module(batch)
    except ValueError as error:  # a layer that the model does not have
        raise ConfigError(f"layers: {error}") from error
    if not len(found):
        raise DataError(f"a budget of {budget:,} bytes holds no layer of this graph; they take {_sized(found.cut)}")
    about = {"nodes": len(names), "data": module.about["config"]["names"]["data"]}
    with Writer(
        out,
        model=module.about["model"],
        checkpoint=module.about["path"],
        layers=list(sites(module.net)),
        heads=heads,
        about=about,
        overwrite=overwrite,
    ) as writer:
        made = writer.add(
            _EXAMPLE,
            found,
            axis_labels={"source": names, "target": names},
            gold=batch.gold if "gold" in batch else None,
            nouns={"source": "node", "target": "node"},
        )
        write_edge_table(made, writer.file(f"edges.{table_format}"), format=table_format)
        write_entropy_table(made, writer.file(f"entropy.{table_format}"), format=table_format)
        scored = _scored(module, batch, names)
        labels = [batch.label_names[y] if y >= 0 else "" for y in batch.y.tolist()]
        for name in drawn:
            picture = neighbourhood(scored, name, classes=labels)
            picture.savefig(writer.file(f"pictures/{_file_name(name)}.png"), dpi=110)
        said = [words.describe(scored, name) for name in drawn]
        writer.file("words.txt").write_text("".join(f"{sentence}\n" for sentence in said), encoding="utf-8")
        if "gold" in batch:
            (test,) = data.loader("test")
            writer.truth = {"edge_auc": module.truth(test)}
    print(f"{len(made)} layers, {len(scored.labels['target']):,} nodes, {len(drawn)} pictures in {out}")
    if found.cut:
        print(f"the budget of {budget:,} bytes left out {_sized(found.cut)}")
    for measure, value in writer.truth.items():
        print(f"truth/{measure} {value:.4f} (test nodes, {scored.site}, average of its heads)")
    for sentence in said:
        print(visible(sentence))


def describe(module: NodeClassifier, data: GraphData, ids: Sequence[str]) -> list[str]:
    """For each node, in words, where the scored map looks."""
    (batch,) = data.predict_dataloader()
    scored = _scored(module, batch, batch.ids.tolist())
    return [words.describe(scored, each).partition(" attends to ")[2] for each in ids]


def _scored(module: NodeClassifier, batch: Data, names: Sequence[str]) -> LabelledMap:
    """The map that the truth score is of."""
    gold = batch.gold if "gold" in batch else None
    return labelled(module.explain(batch), {"source": names, "target": names}, gold=gold)


def _typical(batch: Data, count: int) -> list[str]:
    """Nodes to draw when none are asked for: the first of each label, then the next, that have neighbours to weigh."""
    degrees = batch.support.degrees.tolist()
    seen: dict[int, int] = {}
    ranked = []
    for node, label in enumerate(batch.y.tolist()):
        if degrees[node] > 2:
            seen[label] = seen.get(label, 0) + 1
            ranked.append((seen[label], node))
    return [str(batch.ids[node]) for _, node in sorted(ranked)[:count]]


def _known(ids: Sequence[str], names: Sequence[str]) -> list[str]:
    known = set(names)
    for each in ids:
        if each not in known:
            raise DataError(
                f"there is no node {each!r}. {nearest(each, known) if len(known) < 10_000 else ''}".rstrip()
            )
    return list(ids)


def _sized(cut: dict[str, int]) -> str:
    return ", ".join(f"{site} {size:,}" for site, size in cut.items())


def _file_name(name: str) -> str:
    """A node's id as the name of a file."""
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02x}" for c in name)[:100]
