"""Tables of a graph's attention: the weight of each edge, and the entropy of each node's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from zoo.attention.observing.attention_map import AttentionMap
from zoo.maps import diagnose, frames
from zoo.maps.labelled import LabelledMap
from zoo.maps.labelling import Heads, labelled, mean_of_heads

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
    rows: int = frames.ROWS,
) -> Iterator[pd.DataFrame]:
    """Yields tables of every edge in every layer and head: layer, head, source, target, weight, is_self_loop.

    Args:
        found: The maps of each site.
        ids: Name of each node, for a recording; maps that were read have names.
        layers: All sites of the model in order, which numbers them. Default: the sites of `found`.
        heads: Whether rows are of each head or of their average.
        rows: Maximum number of rows of a table.
    """
    for each in _maps(found, ids, layers, heads):
        yield from frames.frames(each, rows=rows)


def entropies(
    found: Found, ids: Sequence[str] | None = None, *, layers: Sequence[str] | None = None, heads: Heads = "each"
) -> Iterator[pd.DataFrame]:
    """Yields a table for each layer with the entropy of each node's weights: see `zoo.maps.diagnose.table`."""
    for each in _maps(found, ids, layers, heads):
        yield diagnose.table(each).rename(columns={"target": "node", "keys": "neighbours"})


def _maps(found: Found, ids: Sequence[str] | None, layers: Sequence[str] | None, heads: Heads) -> Iterator[LabelledMap]:
    names = {} if ids is None else {"source": ids, "target": ids}
    order = list(found) if layers is None else list(layers)
    if not order:
        raise ValueError("nothing was recorded")
    for site, each in found.items():
        if isinstance(each, AttentionMap):
            yield labelled(each, names, heads=heads, layer=order.index(site))
        else:
            yield mean_of_heads(each) if heads == "mean" else each
