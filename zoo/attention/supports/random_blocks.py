"""Random links between the blocks of a sequence, drawn for all lengths at once.

Each block keeps a uniform sample of the blocks that it could be linked to, drawn with a reservoir (Vitter 1985). A
sequence with one more block has the same sample, in which the new block may have replaced one. The links of a sequence
therefore depend on its own length only, not on its batch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

_EVER = 2**40


class Link(NamedTuple):
    """A link from one block to another."""

    to: int
    since: int
    """Smallest number of blocks of a sequence that has the link."""
    until: int = _EVER
    """Largest number of blocks of a sequence that has the link."""


NO_LINK = Link(0, since=1, until=0)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def draw_links(
    counts: Sequence[int], first: int, neighbours: int, linked: int, seed: int, causal: bool
) -> list[list[Link]]:
    """Draws the links of each block, in ascending order of the length that adds them.

    A block is linked to `linked` others, or to fewer if there are not enough. The `first` blocks and its neighbours are
    left out, and if `causal`, so are later blocks.

    Args:
        counts: Numbers of blocks of the sequences, in ascending order.
        first: Number of global blocks.
        neighbours: Number of neighbours on each side.
    """
    rows = []
    for own in range(max(counts)):
        below = max(0, own - neighbours - first)  # between the first blocks and the neighbours
        start_above = max(own + neighbours + 1, first)
        wanted = [own + 1] if causal else [count for count in counts if count > own]
        links: list[Link] = []
        in_slot: dict[int, int] = {}
        for number, slot in _draw_entries(linked, random.Random(f"{seed} {own}")):
            to = number + first if number < below else number - below + start_above
            if to >= wanted[-1]:
                break
            if slot in in_slot:
                links[in_slot[slot]] = links[in_slot[slot]]._replace(until=to)
            in_slot[slot] = len(links)
            links.append(Link(to, since=to + 1))
        rows.append([link for link in links if any(link.since <= count <= link.until for count in wanted)])
    return rows


def _draw_entries(size: int, draws: random.Random) -> Iterator[tuple[int, int]]:
    """Yields the numbers 0, 1, 2, ... that enter a sample, and the places that they take in it.

    The numbers between two entries are skipped in one draw (Li 1994, algorithm L).
    """
    if not size:
        return
    yield from ((number, number) for number in range(size))
    number, threshold = size - 1, 1.0
    while number < _EVER:
        threshold *= (1.0 - draws.random()) ** (1.0 / size)
        number += math.floor(math.log(1.0 - draws.random()) / math.log1p(-threshold)) + 1
        yield number, draws.randrange(size)
