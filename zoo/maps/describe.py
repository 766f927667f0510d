"""Describes a map in words: "node 17 attends to 4 (.62) and, less, to 9 (.21)"."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from zoo.errors import count_noun, pluralize
from zoo.maps.labelled_map import LabelledMap

_NAMED = 3
"""Maximum number of keys that a sentence names."""
_AMONG = {"node": "neighbour"}


def describe(
    found: LabelledMap, query: str | int, *, head: int | None = None, noun: str | None = None, among: str | None = None
) -> str:
    """Returns a sentence about the keys to which one query of a map attends.

    Args:
        found: The map.
        query: Label or index of the query.
        head: Number of a head. Default: the mean of all heads.
        noun: Noun for the query: "node", "word", "item". Default: the noun of the map.
        among: Noun for a key. Default: the noun of the map, "neighbour" for a node, or the noun of the query.
    """
    if found.is_gate:
        raise ValueError(f"{found.site} is a gate, which has no queries")
    axis = found.query_axes[-1]
    position = found.position(axis, query) if isinstance(query, str) else query
    if not 0 <= position < len(found.labels[axis]):
        raise KeyError(f"there is no {noun or axis} at position {position}")
    pairs = found.pairs(head)
    chosen = pairs.query == position
    keys = pairs.key[chosen].tolist()
    itself = keys.index(position) if found.attends_to_itself and position in keys else None
    noun = noun or found.nouns.get(axis) or ("node" if found.has_edges else axis)
    key_names = _names(found.labels[found.key_axis])
    return sentence(
        _names(found.labels[axis])[position],
        [key_names[key] for key in keys],
        pairs.weights[chosen].tolist(),
        itself=itself,
        noun=noun,
        among=among or found.nouns.get(found.key_axis),
    )


def sentence(
    query: str,
    keys: Sequence[str],
    weights: Sequence[float],
    *,
    itself: int | None = None,
    noun: str = "node",
    among: str | None = None,
) -> str:
    """Returns a sentence about the keys to which a query attends.

    It names the keys whose weight is a large part of the greatest one. If the greatest weight is less than a third
    above an equal share, or below .05, the query attends to nothing in particular.

    Args:
        query: Label of the query.
        keys: Labels of the keys.
        weights: Weight of each key.
        itself: Index of the key that is the query itself, if there is one.
        noun, among: Nouns for the query and for a key.
    """
    among = among or _AMONG.get(noun, noun)
    who = f"{noun} {_quote(query)} attends to"
    count = len(keys)
    if not count:
        return f"{who} nothing: it has no {pluralize(among)}"
    if not sum(weights) > 0:
        return f"{who} nothing: {_crowd(count, itself, among)}, all with weight 0"

    def name_key(i: int) -> str:
        return f"{'itself' if i == itself else _quote(keys[i])} ({number(weights[i])})"

    if count == 1:
        return f"{who} {name_key(0)}: it has no choice"
    order = sorted(range(count), key=lambda i: -weights[i])
    greatest = weights[order[0]]
    if count > 2 and greatest < max(4 / (3 * count), 0.05):
        return f"{who} nothing in particular: {_crowd(count, itself, among)}, none above {_round_up(greatest)}"
    most = [i for i in order if weights[i] >= greatest / 1.5][:_NAMED]
    less = [i for i in order[len(most) :] if weights[i] >= max(greatest / 4, 0.05)][: _NAMED - len(most)]
    said = f"{who} {_and([name_key(i) for i in most])}"
    if less:
        said += f" and, less, to {_and([name_key(i) for i in less])}"
    rest = sum(weights[i] for i in order[len(most) + len(less) :])
    if rest >= 0.25:
        others = count - len(most) - len(less)
        said += f"; {'another has' if others == 1 else f'{others} others share'} {number(rest)}"
    return said


def _crowd(count: int, itself: int | None, among: str) -> str:
    if itself is None:
        return f"{count_noun(count, among)}"
    return f"{count_noun(count - 1, among)} and itself"


def _names(labels: Sequence[str]) -> list[str]:
    """Returns distinct labels: a label that occurs several times gets a number."""
    times, seen, names = Counter(labels), Counter[str](), []
    for label in labels:
        seen[label] += 1
        names.append(label if times[label] == 1 else f"{_quote(label)} #{seen[label]}")
    return names


def _quote(label: str) -> str:
    is_plain = any(c.isalnum() for c in label) and label == label.strip() and label.isprintable()
    return label if is_plain else f'"{label}"' if label.isprintable() else repr(label)


def number(weight: float) -> str:
    """Formats a weight with two decimals and no leading zero."""
    if 0 < weight < 0.005:
        return "<.01"
    return f"{weight:.2f}".removeprefix("0")


def _round_up(weight: float) -> str:
    """Formats a weight rounded up, so that "none above" is true; the margin allows for floating-point error."""
    return number(math.ceil(weight * 100 - 1e-4) / 100)


def _and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
