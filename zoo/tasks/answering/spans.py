"""Answers that are spans of a passage: their loss, and the most probable one."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def span_losses(
    start: Float[Tensor, "b n"], end: Float[Tensor, "b n"], spans: Int[Tensor, "b 2"]
) -> Float[Tensor, " b"]:
    """Returns -log p_1(first) - log p_2(last) of each answer (Seo et al. 2017, eq. 5)."""
    return sum(F.cross_entropy(x, at, reduction="none") for x, at in zip((start, end), spans.T, strict=True))  # type: ignore[return-value]


def best_spans(
    start: Float[Tensor, "b n"], end: Float[Tensor, "b n"], *, longest: int | None = None
) -> tuple[Int[Tensor, "b 2"], Float[Tensor, " b"]]:
    """Returns, of each passage, the span (i, j), i <= j, with the largest p_1(i) p_2(j), and this probability.

    Of equal ones the first counts. The best last token of each first one is looked for among the `longest` that follow,
    or for all at once by running maxima from the end, so that no tensor has n x n entries.

    Cost: O(n longest), or O(n) without a limit.

    Args:
        start, end: Logits of the first and of the last token; minus infinity at padding.
        longest: The most tokens of a span. Default: no limit.
    """
    first, last = start.double().log_softmax(-1), end.double().log_softmax(-1)
    tokens = start.shape[1]
    if longest is None:
        best, place = last.flip(1).cummax(1)  # of equal ones the later, which is the earlier from the front
        best, place = best.flip(1), tokens - 1 - place.flip(1)
    else:
        width = min(longest, tokens)
        following = F.pad(last, (0, width - 1), value=-math.inf).unfold(1, width, 1)
        best, offset = following.max(2)
        place = offset + torch.arange(tokens, device=start.device)
    value, at = (first + best).max(1, keepdim=True)
    return torch.cat([at, place.gather(1, at)], 1), value.squeeze(1).exp()
