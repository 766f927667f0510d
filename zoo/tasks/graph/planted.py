"""A graph that was made, so that it is known which edges decide the label of a node.

A node shows a class and a tag. Its neighbours come in crowds, whose members show one class and one tag together. One
crowd can be trusted, and what it shows is the label; the others are as large and drawn from the same distributions, so
that neither the number of neighbours that show a class nor a crowd's agreement gives the label away. Who is trusted is
marked

- `static`: by the neighbour's tag, half of the tags being trusted by everyone. A mean over neighbours cannot use this,
  also after a linear map: it adds up classes and tags apart, and what counts is their *product*, the class of those who
  have a trusted tag. Attention whose ranking of neighbours is the same for every node (GAT's) suffices.
- `dynamic`: by the tag that the *target* names in its own features. The ranking of neighbours then depends on who asks,
  which GATv2 can express in one layer and GAT cannot (Brody et al. 2022, arXiv 2105.14491, section 3).

The node's own class has nothing to do with its label.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from zoo.attention.ranges import Count, Natural, Seed, Share
from zoo.data.generated import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.graph.graph import TEST, TRAIN, VAL, Graph

Cue = Literal["static", "dynamic"]


def plant(
    *,
    nodes: Count = 3000,
    classes: Count = 5,
    tags: Count = 8,
    trusted: Count = 3,
    distractors: Natural = 6,
    width: Count = 32,
    noise: Share = 0.1,
    cue: Cue = "static",
    seed: Seed = 0,
) -> Graph:
    """Makes a graph; equal arguments give equal graphs.

    Args:
        nodes: its size.
        classes: how many labels there are.
        tags: how many tags there are; half of them are trusted when the cue is static.
        trusted: how many incoming edges of each node come from its trusted crowd; they are `gold`.
        distractors: how many come from the other crowds, of `trusted` nodes each (the last may be smaller).
        width: the number of features, into which class, tag (and named tag) are rotated at random.
        noise: the standard deviation of the Gaussian noise on each feature.
        cue: how a trusted neighbour is recognised.
        seed: the seed of everything random here.
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

    order = np.argsort(source, axis=1)  # else the first edges of a node would be the gold ones
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
    """The class and the tag that each node shows, and the tag that it names."""
    # Every pair of class and tag is shown equally often, so that the one says nothing about the other.
    shown, tag = np.divmod(random.permutation(np.arange(nodes) % (classes * tags)), tags)
    return shown, tag, random.integers(tags, size=nodes)


def _crowd_tags(
    random: np.random.Generator, named: Int[np.ndarray, " n"], tags: int, crowds: int, cue: Cue
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, "n crowds"]]:
    """The tag of the trusted crowd of each node, and of the others: different ones, as far as there are enough."""
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
    """For each node k different others, each from the cell that is wanted."""
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
    if min(classes, tags) < 2 or trusted < 1 or distractors < 0:
        raise ConfigError("A planted graph needs at least 2 classes, 2 tags, 1 trusted neighbour and 0 distractors.")
    if width < blocks:
        raise ConfigError(f"width={width} is too small: classes and tags take {blocks} features.")
    check_numbers(nodes * (width + classes + 2 * tags + 3 * (trusted + distractors)) + width * width, "these options")
    least = classes * tags * (trusted + distractors + 1)
    if nodes < least:  # a node must find enough others that show what it is to be shown
        raise ConfigError(
            f"nodes={nodes} is too few for so many classes, tags and neighbours: make it {least} or more."
        )
