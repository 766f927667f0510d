"""Random blocks for the blocks of a sequence, drawn so that those of every length are known at once.

Each block keeps a uniform sample of the blocks that it could be linked to, from the first on: a reservoir (Vitter
1985). A sequence of one block more has the same sample, but that the new block may have taken the place of one in it.
What a sequence looks at is thus a function of its own length, in whatever batch it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

_EVER = 2**40


class Link(NamedTuple):
    """One block looks at another."""

    to: int
    since: int
    """The least number of blocks of a sequence that has the link."""
    until: int = _EVER
    """The largest."""


NO_LINK = Link(0, since=1, until=0)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def drawn_links(
    counts: Sequence[int], first: int, neighbours: int, linked: int, seed: int, causal: bool
) -> list[list[Link]]:
    """Those of each block that sequences of so many blocks have; in ascending order.

    A block is linked to `linked` others, or as many as there are, that it does not see anyway: not to the `first`, nor
    to its neighbours; if causal, to earlier ones.
    """
    rows = []
    for own in range(max(counts)):
        below = max(0, own - neighbours - first)  # between the first blocks and the neighbours
        start_above = max(own + neighbours + 1, first)
        wanted = [own + 1] if causal else [count for count in counts if count > own]
        links: list[Link] = []
        in_slot: dict[int, int] = {}
        for number, slot in _entering(linked, random.Random(f"{seed} {own}")):
            to = number + first if number < below else number - below + start_above
            if to >= wanted[-1]:
                break
            if slot in in_slot:
                links[in_slot[slot]] = links[in_slot[slot]]._replace(until=to)
            in_slot[slot] = len(links)
            links.append(Link(to, since=to + 1))
        rows.append([link for link in links if any(link.since <= count <= link.until for count in wanted)])
    return rows


def _entering(size: int, draws: random.Random) -> Iterator[tuple[int, int]]:
    """The numbers that enter a sample of 0, 1, 2, ... one after the other, and the places that they take in it.

    How many are passed over is drawn, not whether each enters (Li 1994, algorithm L).
    """
    if not size:
        return
    yield from ((number, number) for number in range(size))
    number, threshold = size - 1, 1.0
    while number < _EVER:
        threshold *= (1.0 - draws.random()) ** (1.0 / size)
        number += math.floor(math.log(1.0 - draws.random()) / math.log1p(-threshold)) + 1
        yield number, draws.randrange(size)
