"""Tables of a graph's attention: the weight of each edge, and the entropy of each node's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Int
from torch import Tensor

from zoo.attention.recording.attention_map import AttentionMap
from zoo.errors import count_noun
from zoo.maps import dataframes, diagnose
from zoo.maps.build_labelled_map import Heads, label_map, mean_of_heads
from zoo.maps.labelled_map import LabelledMap

if TYPE_CHECKING:
    import pandas as pd

Found = Mapping[str, AttentionMap] | Mapping[str, LabelledMap]
"""A recording, or an example that was read from a folder of maps, by site."""


def edges(
    found: Found,
    ids: Sequence[str] | None = None,
    *,
    layers: Sequence[str] | None = None,
    heads: Heads = "each",
    rows: int = dataframes.ROWS,
    most_neighbours: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Yields tables of the edges in every layer and head: layer, head, source, target, weight, is_self_loop.

    Args:
        found: The maps of each site.
        ids: Name of each node, for a recording; maps that were read have names.
        layers: All sites of the model in order, which numbers them. Default: the sites of `found`.
        heads: Whether rows are of each head or of their average.
        rows: Maximum number of rows of a table.
        most_neighbours: Maximum number of edges of a node in a head, which are its heaviest ones. Default: all.
    """
    for each in _maps(found, ids, layers, heads):
        yield from dataframes.frames(each, rows=rows, most_keys=most_neighbours)


def entropies(
    found: Found,
    ids: Sequence[str] | None = None,
    *,
    layers: Sequence[str] | None = None,
    heads: Heads = "each",
    first: int | None = None,
    most_nodes: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Yields a table for each layer and head with the entropy of each node's weights: see `zoo.maps.diagnose.table`.

    Args:
        found, ids, layers, heads: See `edges`.
        first: Number of nodes, from the first on, that have rows. Default: all.
        most_nodes: Maximum number of rows of a head, which are those of the nodes with most neighbours. Default: all.
    """
    for each in _maps(found, ids, layers, heads):
        for number, head in enumerate(each.heads):
            of_head = replace(each, weights=each.weights[..., number : number + 1], heads=(head,))
            rows = diagnose.table(of_head)[:first].rename(columns={"target": "node", "keys": "neighbours"})
            if most_nodes is not None:
                rows = rows[rows["neighbours"].rank(method="first", ascending=False) <= most_nodes]
            yield rows


_ROWS = 2_000_000
"""Maximum number of rows of a table of a whole graph by default."""


class Limits(NamedTuple):
    """What tables leave out so that none has more than so many rows.

    Attributes:
        neighbours: Maximum number of edges of a node in a head; None: all.
        nodes: Maximum number of nodes of a head in the table of entropies; None: all.
        lines: Sentences on what is left out.
    """

    neighbours: int | None
    nodes: int | None
    lines: list[str]


def limits(found: Mapping[str, LabelledMap], degrees: Int[Tensor, " n"], rows: int = _ROWS) -> Limits:
    """Returns the limits of tables of these maps.

    Args:
        found: The maps.
        degrees: Number of edges of each node.
        rows: Maximum number of rows of a table.
    """
    tables, lines = sum(len(each.heads) for each in found.values()), list[str]()
    most = max(1, rows // max(1, tables))
    neighbours = nodes = None
    total = int(degrees.sum())
    if total > most:
        low, high = 1, int(degrees.max())
        while low < high:  # the largest number with which the rows are few enough
            middle = (low + high + 1) // 2
            low, high = (middle, high) if int(degrees.clamp(max=middle).sum()) <= most else (low, middle - 1)
        neighbours = low
        which = count_noun(neighbours, "heaviest neighbour", "heaviest neighbours")
        said = f"{int(degrees.clamp(max=low).sum()):,} of {total:,} edges"
        lines.append(f"the table of edges has the {which} of each node in each head, {said}: raise --rows for more")
    if len(degrees) > most:
        nodes = most
        lines.append(f"the table of entropies has the {most:,} nodes with most neighbours, of {len(degrees):,}")
    return Limits(neighbours, nodes, lines)


def _maps(found: Found, ids: Sequence[str] | None, layers: Sequence[str] | None, heads: Heads) -> Iterator[LabelledMap]:
    names = {} if ids is None else {"source": ids, "target": ids}
    order = list(found) if layers is None else list(layers)
    if not order:
        raise ValueError("nothing was recorded")
    for site, each in found.items():
        if isinstance(each, AttentionMap):
            yield label_map(each, names, heads=heads, layer=order.index(site))
        else:
            yield mean_of_heads(each) if heads == "mean" else each
