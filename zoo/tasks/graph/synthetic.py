"""A generated graph, in which the edges that determine a node's label are known.

The features of a node show a class and a tag. The neighbours of a node come in groups (crowds) of equal size; the
members of a crowd show the same class and the same tag. One crowd is trusted, and its class is the label of the node.
The other crowds are drawn from the same distributions, so that neither the counts of classes nor the agreement within a
crowd reveals the label. The cue of trust is either

- `static`: the tag of the neighbour. Half of the tags are trusted by every node. A mean over neighbours cannot use this
  cue, even after a linear map: it sums classes and tags separately, whereas the label depends on their *product*. GAT,
  which ranks neighbours in the same order for every node, can use it.
- `dynamic`: the tag that the *target* names in its own features. The ranking of neighbours then depends on the target,
  which GATv2 can express in one layer and GAT cannot (Brody et al. 2022, arXiv 2105.14491, section 3).

The class that a node shows is independent of its own label.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Int

from zoo.data.size_limits import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.graph.graph import TEST, TRAIN, VAL, Graph
from zoo.types import Fraction, NonNegativeInt, PositiveInt, Seed, validate_ranges

Cue = Literal["static", "dynamic"]


@validate_ranges
def plant(
    *,
    nodes: PositiveInt = 3000,
    classes: Annotated[int, ">= 2"] = 5,
    tags: Annotated[int, ">= 2"] = 8,
    trusted: PositiveInt = 3,
    distractors: NonNegativeInt = 6,
    width: PositiveInt = 32,
    noise: Fraction = 0.1,
    cue: Cue = "static",
    seed: Seed = 0,
) -> Graph:
    """Generates a graph; equal arguments give equal graphs.

    Args:
        nodes: Number of nodes.
        classes: Number of labels.
        tags: Number of tags; half of them are trusted if the cue is static.
        trusted: Number of incoming edges of each node from its trusted crowd; they are `gold`.
        distractors: Number of incoming edges from other crowds, of `trusted` nodes each (the last may be smaller).
        width: Number of features; a random rotation maps class, tag (and named tag) to them.
        noise: Standard deviation of the Gaussian noise on each feature.
        cue: How a trusted neighbour is recognised.
        seed: Seed of all random numbers.
    """
    blocks = classes + tags * (2 if cue == "dynamic" else 1)
    _check(nodes, classes, tags, trusted, distractors, width, blocks, cue)
    random = np.random.default_rng(seed)

    shown, tag, named = _facts(random, nodes, classes, tags)
    label = random.integers(classes, size=nodes)

    crowds = -(-distractors // trusted)
    trusted_tag, other_tags = _crowd_tags(random, named, tags, crowds, cue)
    crowd_class = np.column_stack([label, random.integers(classes, size=(nodes, crowds))])
    crowd_tag = np.column_stack([trusted_tag, other_tags])
    crowd = np.arange(trusted + distractors) // trusted  # crowd 0 is the trusted one
    source = _draw_sources(random, shown * tags + tag, (crowd_class * tags + crowd_tag)[:, crowd])

    order = np.argsort(source, axis=1)  # otherwise the first edges of each node would be its gold ones
    gold = np.take_along_axis(np.broadcast_to(crowd == 0, source.shape), order, axis=1)
    edges = np.stack([np.take_along_axis(source, order, axis=1), np.indices(source.shape)[0]])

    facts = [np.eye(classes)[shown], np.eye(tags)[tag]] + ([np.eye(tags)[named]] if cue == "dynamic" else [])
    rotation, _ = np.linalg.qr(random.standard_normal((width, width)))
    features = np.concatenate(facts, axis=1) @ rotation[:blocks] + noise * random.standard_normal((nodes, width))
    split = np.full(nodes, TRAIN)
    held_out = round(0.2 * nodes)
    shuffled = random.permutation(nodes)
    split[shuffled[:held_out]] = VAL
    split[shuffled[held_out : 2 * held_out]] = TEST
    return Graph(
        features=torch.from_numpy(features.astype(np.float32)),
        feature_names=tuple(f"feature {i}" for i in range(width)),
        edges=torch.from_numpy(edges.reshape(2, -1)),
        labels=torch.from_numpy(label),
        label_names=tuple(f"class {i}" for i in range(classes)),
        split=torch.from_numpy(split),
        ids=tuple(str(i) for i in range(nodes)),
        gold=torch.from_numpy(gold.reshape(-1)),
    )


def _facts(random: np.random.Generator, nodes: int, classes: int, tags: int) -> tuple[np.ndarray, ...]:
    """Draws the class and the tag that each node shows, and the tag that it names."""
    # Every pair of class and tag is equally frequent, so that the two are independent.
    shown, tag = np.divmod(random.permutation(np.arange(nodes) % (classes * tags)), tags)
    return shown, tag, random.integers(tags, size=nodes)


def _crowd_tags(
    random: np.random.Generator, named: Int[np.ndarray, " n"], tags: int, crowds: int, cue: Cue
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, "n crowds"]]:
    """Draws the tag of each node's trusted crowd and those of its other crowds, without repetition if possible."""
    if cue == "dynamic":
        trusted_tag, untrusted = named, tags - 1
        first = named[:, None] + 1
    else:
        trusted_tag, untrusted = random.integers(tags // 2, size=len(named)), tags - tags // 2
        first = np.full((len(named), 1), tags // 2)
    shuffled = random.permuted(np.tile(np.arange(untrusted), (len(named), 1)), axis=1)
    return trusted_tag, (first + shuffled[:, np.arange(crowds) % untrusted]) % tags


def _draw_sources(
    random: np.random.Generator, cell: Int[np.ndarray, " n"], wanted: Int[np.ndarray, "n k"]
) -> Int[np.ndarray, "n k"]:
    """Draws k different neighbours for each node, each from the cell in `wanted`."""
    by_cell = np.argsort(cell, kind="stable")
    size = np.bincount(cell)
    start = np.cumsum(size) - size
    source = np.empty_like(wanted)
    again = np.ones(wanted.shape, dtype=bool)
    while again.any():
        chosen = wanted[again]
        source[again] = by_cell[start[chosen] + random.integers(size[chosen])]
        order = np.argsort(source, axis=1, kind="stable")
        ranked = np.take_along_axis(source, order, axis=1)
        repeated = np.zeros_like(again)
        np.put_along_axis(repeated, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
        again = repeated | (source == np.arange(len(source))[:, None])
    return source


def _check(
    nodes: int, classes: int, tags: int, trusted: int, distractors: int, width: int, blocks: int, cue: str
) -> None:
    if cue not in ("static", "dynamic"):
        raise ConfigError(f"cue={cue!r} is not known: it is 'static' or 'dynamic'.")
    if width < blocks:
        raise ConfigError(f"width={width} is too small: classes and tags take {blocks} features.")
    check_numbers(nodes * (width + classes + 2 * tags + 3 * (trusted + distractors)) + width * width, "these options")
    least = classes * tags * (trusted + distractors + 1)
    if nodes < least:  # every cell must hold enough nodes to draw from
        raise ConfigError(
            f"nodes={nodes} is too few for so many classes, tags and neighbours: make it {least} or more."
        )
