"""Names the cells and tokens of recorded maps, and converts maps to the cells of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention import AttentionMap, EdgeSupport, sites
from zoo.maps import label_map
from zoo.maps.explainer import LabelledAttention
from zoo.nn.images.classifier import GridNet, ImageClassifierNet, TokenNet
from zoo.nn.images.windows import Windows
from zoo.tasks.vision.maps.heatmaps import gold_cells


def label_maps(
    net: ImageClassifierNet,
    found: Mapping[str, AttentionMap],
    size: tuple[int, int],
    gold: Bool[Tensor, "1 h w"] | None = None,
) -> Iterator[LabelledAttention]:
    """Yields the maps of a recording of one picture, with names.

    The names of patches are r2c5, with rows and columns counted from 1; those of tokens in front of them are `class`,
    `register 1` and so on. The windows of a Swin become one map with edges between the cells of the picture. The class
    token, sequence pooling and spatial gates have gold; other queries have none.

    Args:
        net: The net.
        found: The recording.
        size: Height and width of the net's input.
        gold: True at its pixels that determine the label.
    """
    for site, each in found.items():
        yield _label(net, site, each, size, gold)


def scored_map(
    found: AttentionMap, grid: tuple[int, int], gold: Bool[Tensor, "1 h w"] | None = None
) -> LabelledAttention:
    """Names the scored map, whose only query is the picture."""
    labels = {"query": ["picture"], "key": cell_names(grid)}
    marks = None if gold is None else gold_cells(gold, grid)
    return LabelledAttention(found, labels, {"query": "picture", "key": "place"}, marks)


def cell_names(grid: tuple[int, int]) -> list[str]:
    """Returns the names of the cells of a grid, row by row."""
    rows, columns = grid
    return [f"r{row}c{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]


def heads_over_picture(
    net: ImageClassifierNet, found: AttentionMap, size: tuple[int, int]
) -> Float[Tensor, "n r c"] | None:
    """Returns one site's weights over the cells of one picture, with a map for each head.

    The query is the class token or that of sequence pooling; without either, the map is the mean over all queries. For
    a spatial gate it is the gate. Channel gates have no cells, for which the result is None.
    """
    if found.axes == ("batch", "height", "width"):
        return found.weights.float().cpu()
    if "head" not in found.axes:
        return None
    one = label_map(_label(net, found.site, found, size, None).found, {})
    windows = _windows(net, found.site, size)
    if one.source is not None and windows is not None:
        grid = windows.rows, windows.columns
        weights = one.weights.float()
        received = weights.new_zeros(grid[0] * grid[1], weights.shape[1]).index_add(0, one.source.long(), weights)
        return received.T.reshape(-1, *grid) / (grid[0] * grid[1])
    if not isinstance(net, TokenNet):
        return None
    weights = one.weights.float()
    if found.site == net.pool_site:
        rows = weights[:, 0]
    elif net.class_site is not None:
        rows = weights[:, 0, net.extra :]
    else:
        rows = weights[:, net.extra :, net.extra :].mean(1)
    return rows.reshape(len(rows), *net.grid(*size))


def join_windows(found: AttentionMap, windows: Windows, index: int = 0) -> AttentionMap:
    """Joins the maps of a picture's windows to one map with edges between its cells, without those of padding.

    Args:
        found: The map of all windows, with weights (b * windows, heads, cells, cells).
        windows: The windows of a picture.
        index: Index of the picture in the batch.
    """
    if found.axes != ("batch", "head", "query", "key"):
        raise ValueError(f"{found.site} has the axes {', '.join(found.axes)}, and not one map a window")
    at = windows.cells()
    part = slice(index * len(at), (index + 1) * len(at))
    weights = found.weights.detach()[part].cpu()
    query, key = at.unsqueeze(2).expand(-1, -1, at.shape[1]), at.unsqueeze(1).expand(-1, at.shape[1], -1)
    exists = (query >= 0) & (key >= 0)
    permitted = found.pair_mask().any(1).cpu()
    exists &= permitted[part] if len(permitted) > 1 else permitted[0]
    support = EdgeSupport.from_edges(torch.stack([key[exists], query[exists]]), windows.rows * windows.columns)
    return AttentionMap(found.site, weights.movedim(1, -1)[exists][support.order], support.axes, support, found.heads)


def _label(
    net: ImageClassifierNet, site: str, found: AttentionMap, size: tuple[int, int], gold: Tensor | None
) -> LabelledAttention:
    if found.axes == ("batch", "channel"):
        return LabelledAttention(found)
    if found.axes == ("batch", "height", "width"):
        grid = (found.weights.shape[1], found.weights.shape[2])
        labels = {axis: [str(n) for n in range(1, n + 1)] for axis, n in zip(found.axes[1:], grid, strict=True)}
        marks = None if gold is None else gold_cells(gold, grid).reshape(grid)
        return LabelledAttention(found, labels, gold=marks)
    windows = _windows(net, site, size)
    if windows is not None:
        names = cell_names((windows.rows, windows.columns))
        over_picture = join_windows(found, windows)
        return LabelledAttention(
            over_picture, {"source": names, "target": names}, {"source": "place", "target": "place"}
        )
    if not isinstance(net, TokenNet):
        return LabelledAttention(found)
    tokens, grid = _tokens(net, size), net.grid(*size)
    marks = None if gold is None else gold_cells(gold, grid)[0].cpu()
    if site == net.pool_site:
        labels = {"query": ["picture"], "key": tokens}
        return LabelledAttention(
            found, labels, {"query": "picture", "key": "token"}, None if marks is None else marks[None]
        )
    if marks is not None and net.class_site is not None:
        rows = marks.new_zeros(len(tokens), len(tokens))
        rows[0, net.extra :] = marks
        marks = rows
    else:
        marks = None
    return LabelledAttention(found, {"query": tokens, "key": tokens}, {"query": "token", "key": "token"}, marks)


def _tokens(net: TokenNet, size: tuple[int, int]) -> list[str]:
    front = ["class"] if net.class_site is not None else []
    front += [f"register {number}" for number in range(1, net.extra - len(front) + 1)]
    return [*front, *cell_names(net.grid(*size))]


def _windows(net: ImageClassifierNet, site: str, size: tuple[int, int]) -> Windows | None:
    """Returns the windows of a site, or None if it has none."""
    return net.windows(list(sites(net)).index(site), *size) if isinstance(net, GridNet) else None
