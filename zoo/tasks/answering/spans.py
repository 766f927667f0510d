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

    Of equal ones the first counts.

    Args:
        start, end: Logits of the first and of the last token; minus infinity at padding.
        longest: The most tokens of a span. Default: no limit.
    """
    first, last = start.double().log_softmax(-1), end.double().log_softmax(-1)
    places = torch.arange(start.shape[1], device=start.device)
    length = places.unsqueeze(0) - places.unsqueeze(1) + 1
    permitted = length >= 1 if longest is None else (length >= 1) & (length <= longest)
    pairs = (first.unsqueeze(2) + last.unsqueeze(1)).masked_fill(~permitted, -math.inf)
    value, at = pairs.flatten(1).max(1)
    return torch.stack([at.div(len(places), rounding_mode="floor"), at % len(places)], 1), value.exp()
