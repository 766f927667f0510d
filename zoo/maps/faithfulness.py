"""Measures of how well a ranking of inputs tells on which of them an answer depends.

m(x) is the probability of the answer, r the first inputs of the ranking, and x \\ r the example without them.

| measure           | definition                                    | best |
|-------------------|-----------------------------------------------|------|
| kendall_tau       | agreement of two rankings                     | 1    |
| comprehensiveness | m(x) - m(x \\ r) (DeYoung et al. 2020, eq. 1) | 1    |
| sufficiency       | m(x) - m(r) (DeYoung et al. 2020, eq. 2)      | 0    |

Comprehensiveness and sufficiency are means over several shares of the inputs, without the empty share, which the paper
includes in its AOPC. Both depend on the certainty of a model: they compare rankings of one model, not models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the inputs in ERASER (DeYoung et al. 2020)."""


def kendall_tau(first: Float[Tensor, " n"], second: Float[Tensor, " n"]) -> float | None:
    """Computes Kendall's tau-b: sum_ij s(a_i - a_j) s(b_i - b_j) / sqrt(sum_ij s(a_i - a_j)^2 sum_ij s(b_i - b_j)^2).

    s is the sign, which is 0 for ties (Kendall 1945). Returns None if all values of one ranking are equal.

    Cost: O(n log n).
    """
    (a, tied_a), (b, tied_b) = (_dense_ranks(x.detach().cpu().double()) for x in (first, second))
    both, tied_both = _dense_ranks(a * (len(b) + 1) + b)
    pairs = len(a) * (len(a) - 1) // 2
    if pairs in (tied_a, tied_b):
        return None
    discordant = _inversions(b[both.argsort(stable=True)])
    agreed = pairs - tied_a - tied_b + tied_both - 2 * discordant
    return agreed / math.sqrt((pairs - tied_a) * (pairs - tied_b))


def _dense_ranks(values: Shaped[Tensor, " n"]) -> tuple[Int[Tensor, " n"], int]:
    """Returns the rank of each value, the same for equal ones, and the number of pairs of equal values."""
    _, rank, counts = torch.unique(values, return_inverse=True, return_counts=True)
    return rank, int((counts * (counts - 1)).sum()) // 2


def _inversions(values: Int[Tensor, " n"]) -> int:
    """Counts the pairs of which the first is greater, one binary digit after another, from the highest.

    A pair is counted at the first digit in which its numbers differ. Numbers with equal digits before it stand
    together, in their order.
    """
    found = 0
    for digit in reversed(range(int(values.max()).bit_length())):
        group, one = values >> (digit + 1), (values >> digit) & 1
        before = one.cumsum(0) - one
        start = torch.searchsorted(group, group)
        found += int(((before - before[start]) * (1 - one)).sum())
        values = values[(values >> digit).argsort(stable=True)]
    return found


def rank(values: Float[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """Returns the inputs from the greatest value to the least; inputs with equal values are in random order."""
    shuffled = torch.randperm(len(values), generator=generator)
    return shuffled[values.detach().cpu()[shuffled].argsort(descending=True, stable=True)]


def first_inputs(order: Int[Tensor, " n"], shares: Sequence[float] = SHARES) -> Bool[Tensor, "s n"]:
    """Returns a mask of the first inputs of a ranking for each share of the inputs, which is rounded up."""
    chosen = torch.zeros(len(shares), len(order), dtype=torch.bool)
    for row, share in zip(chosen, shares, strict=True):
        row[order[: math.ceil(share * len(order) - 1e-9)]] = True
    return chosen


def comprehensiveness(whole: Float[Tensor, ""], without: Float[Tensor, " s"]) -> float:
    """Returns the mean decrease of the answer's probability without the first inputs of a ranking.

    Args:
        whole: m(x).
        without: m(x \\ r) for each share.
    """
    return float((whole - without).double().mean())


def sufficiency(whole: Float[Tensor, ""], alone: Float[Tensor, " s"]) -> float:
    """Returns the mean decrease of the answer's probability with only the first inputs of a ranking.

    Args:
        whole: m(x).
        alone: m(r) for each share.
    """
    return float((whole - alone).double().mean())
