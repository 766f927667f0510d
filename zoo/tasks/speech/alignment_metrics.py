"""Numbers that describe how a text was aligned to a recording, with and without gold spans."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.tasks.seq2seq.word_alignment import heaviest_links

DIAGONAL = 0.2
"""The tolerated distance from the diagonal, as a share of the length (Tachibana et al. 2018, section 4)."""
ATTENDED = 0.5
"""A place whose weights add up to more than this is covered (Chorowski & Jaitly 2017, section 3.3)."""


def centres(weights: Float[Tensor, "n k"], stride: int, frames: int) -> Float[Tensor, " n"]:
    """Returns the centre of each row of weights, in frames from the beginning: sum_j a_j (j + 1/2) stride / sum_j a_j.

    A row without weights is that of a monotonic mechanism that has passed the last place; it is at the end.

    Args:
        weights: Weights of the places.
        stride: Number of frames of a place; the last one may have fewer.
        frames: Number of frames.
    """
    weights = weights.double()
    first = torch.arange(weights.shape[1], dtype=torch.float64, device=weights.device) * stride
    middle = (first + (first + stride).clamp(max=frames)) / 2
    total = weights.sum(1)
    return torch.where(total > 0, weights @ middle / total.clamp(min=torch.finfo(torch.float64).tiny), float(frames))


def onsets(weights: Float[Tensor, "n k"], stride: int, frames: int) -> Float[Tensor, " n"]:
    """Returns the frame at which half of each row's weight has been given, and no earlier one than of the row before.

    Listeners that read both ways attend to a sound where it begins. A row without weights is at the end.

    Args:
        weights, stride, frames: See `centres`.
    """
    if not weights.numel():
        return torch.full((len(weights),), float(frames), dtype=torch.float64)
    given = weights.double().cumsum(1)
    total = given[:, -1:]
    place = (given < total / 2).sum(1, keepdim=True).clamp(max=weights.shape[1] - 1)
    inside = weights.double().gather(1, place)
    share = (total / 2 - given.gather(1, place) + inside) / inside.clamp(min=torch.finfo(torch.float64).tiny)
    first = place * float(stride)
    found = first + share * ((first + stride).clamp(max=frames) - first)
    return torch.where(total > 0, found, float(frames)).squeeze(1).cummax(0).values


def find_spans(weights: Float[Tensor, "n k"], tokens: int, stride: int, frames: int) -> Float[Tensor, "{tokens} 2"]:
    """Returns where each token begins and ends, in frames: at its onset, and at that of the step after it.

    Args:
        weights: Weights at the steps of the tokens, and at the end if there is one.
        tokens: Number of tokens.
        stride, frames: See `centres`.
    """
    begins = onsets(weights, stride, frames)
    ends = torch.cat([begins[1:], begins.new_full((1,), float(frames))])
    return torch.stack([begins, ends], 1)[:tokens]


def focus(
    spans: Float[Tensor, "n 2"], weights: Float[Tensor, "n k"], stride: int, frames: int, tolerance: float
) -> Float[Tensor, " n"]:
    """Returns the share of each row's weight that lies in its span, or near it; 0 for a row without weights.

    Args:
        spans: Begin and end of each row, in frames.
        weights, stride, frames: See `centres`; the weight of a place is spread evenly over its frames.
        tolerance: Number of frames before and behind a span that count as it.
    """
    weights, spans = weights.double(), spans.to(weights.device).double()
    first = torch.arange(weights.shape[1], dtype=torch.float64, device=weights.device) * stride
    last = (first + stride).clamp(max=frames)
    begin, end = (spans[:, :1] - tolerance), (spans[:, 1:] + tolerance)
    inside = (torch.minimum(last, end) - torch.maximum(first, begin)).clamp(min=0) / (last - first).clamp(min=1e-9)
    total = weights.sum(1)
    return (weights * inside).sum(1) / total.clamp(min=torch.finfo(torch.float64).tiny)


def runs(spans: Int[Tensor, "n 2"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Returns the first and the last token of each run of neighbours with the same span: what the truth tells apart."""
    changes = (spans[1:] != spans[:-1]).any(1)
    known = changes.new_ones(min(1, len(spans)))
    return torch.cat([known, changes]).nonzero().squeeze(1), torch.cat([changes, known]).nonzero().squeeze(1)


def distances(at: Float[Tensor, " n"], spans: Int[Tensor, "n 2"]) -> Float[Tensor, " n"]:
    """Returns how many frames each position lies before its span or behind it; 0 inside."""
    return torch.maximum(spans[:, 0] - at, at - spans[:, 1]).clamp(min=0)


def monotonic_steps(weights: Float[Tensor, "n k"]) -> tuple[int, int]:
    """Counts the steps whose heaviest place is not before that of the step before them, and all steps but the first."""
    places = [place for _, place in heaviest_links(weights)]
    return sum(before <= place for before, place in pairwise(places)), max(0, len(places) - 1)


def diagonality(weights: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Returns sum_j a_ij exp(-(i/n - j/k)^2 / 2 g^2) of each row (Tachibana et al. 2018, section 4): 1 on the diagonal.

    Steps and places are at their middles: (i + 1/2) / n and (j + 1/2) / k.
    """
    steps, places = (
        (torch.arange(size, dtype=torch.float64, device=weights.device) + 0.5) / size for size in weights.shape
    )
    near = (-(steps.unsqueeze(1) - places).square() / (2 * DIAGONAL**2)).exp()
    return (weights.double() * near).sum(1)


def count_covered(weights: Float[Tensor, "n k"]) -> tuple[int, int]:
    """Counts the places whose weights add up to more than 1/2, and all places."""
    return int((weights.sum(0) > ATTENDED).sum()), weights.shape[1]


def find_voiced(spans: Int[Tensor, "n 2"], stride: int, places: int) -> Bool[Tensor, " k"]:
    """Returns the mask of the places that have a frame of any token."""
    first = torch.arange(places, device=spans.device).unsqueeze(1) * stride
    start, end = spans[spans[:, 1] > spans[:, 0]].unbind(1)
    return ((first < end) & (first + stride > start)).any(1)
