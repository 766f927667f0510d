"""Ensembles of decoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.decoding.decoder import Decoder, get_coverage, may_end, must_end, to_scores
from zoo.types import PositiveFloat, validate_ranges

Combine = Callable[[Float[Tensor, "m b w v"]], Float[Tensor, "b w v"]]


def mean_probability(log_probabilities: Float[Tensor, "m b w v"]) -> Float[Tensor, "b w v"]:
    """Returns the logarithm of the mean of the members' probabilities."""
    return log_probabilities.logsumexp(0) - math.log(len(log_probabilities))


def mean_log_probability(log_probabilities: Float[Tensor, "m b w v"]) -> Float[Tensor, "b w v"]:
    """Returns the mean of the members' log-probabilities, normalized: their geometric mean."""
    return log_probabilities.mean(0).log_softmax(-1)


@validate_ranges
@dataclass(frozen=True)
class WeightedSum:
    """sum_m w_m log p_m, not normalized, so that a text has the same sum of its members' scores (log-linear model).

    Args:
        weights: w_m of each member, above 0.
    """

    weights: Sequence[PositiveFloat]
    is_scored: ClassVar[bool] = True

    def __call__(self, log_probabilities: Float[Tensor, "m b w v"]) -> Float[Tensor, "b w v"]:
        weighted: Tensor = torch.tensordot(log_probabilities.new_tensor(self.weights), log_probabilities, 1)
        return weighted


class Ensemble:
    """A decoder that combines the predictions of several decoders with one vocabulary.

    Args:
        members: Decoders, which all read the same source.
        combine: Combination of predictions: `mean_probability`, `mean_log_probability` or a `WeightedSum`.
    """

    def __init__(self, members: Sequence[Decoder[Any, Any]], combine: Combine = mean_probability) -> None:
        if not members:
            raise ValueError("an ensemble needs a member")
        self.members = tuple(members)
        self.combine = combine
        self.is_scored: bool = getattr(combine, "is_scored", False)

    def start(self, source: Any) -> tuple[Any, ...]:
        return tuple(member.start(source) for member in self.members)

    def step(
        self, tokens: Int[Tensor, "b w"], state: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "b w v"], tuple[Any, ...]]:
        steps = [member.step(tokens, member_state) for member, member_state in zip(self.members, state, strict=True)]
        sizes = {logits.shape[-1] for logits, _ in steps}
        if len(sizes) > 1:
            raise ValueError(f"the members of an ensemble share a vocabulary; theirs have {sorted(sizes)} tokens")
        scores = [to_scores(member, logits) for member, (logits, _) in zip(self.members, steps, strict=True)]
        dtype = reduce(torch.promote_types, (score.dtype for score in scores))
        log_probabilities = torch.stack([score.to(dtype) for score in scores])
        return self.combine(log_probabilities), tuple(new_state for _, new_state in steps)

    def reorder(self, state: tuple[Any, ...], beams: Int[Tensor, "b w2"]) -> tuple[Any, ...]:
        return tuple(
            member.reorder(member_state, beams) for member, member_state in zip(self.members, state, strict=True)
        )

    def select(self, state: tuple[Any, ...], sentences: Int[Tensor, " s"]) -> tuple[Any, ...]:
        return tuple(
            member.select(member_state, sentences) for member, member_state in zip(self.members, state, strict=True)
        )

    def may_end(self, state: tuple[Any, ...]) -> Bool[Tensor, "b w"] | None:
        """Returns True where all members let a text end."""
        masks = [may_end(member, member_state) for member, member_state in zip(self.members, state, strict=True)]
        return _reduce_masks(torch.logical_and, masks)

    def must_end(self, state: tuple[Any, ...]) -> Bool[Tensor, "b w"] | None:
        """Returns True where a member lets a text not go on."""
        masks = [must_end(member, member_state) for member, member_state in zip(self.members, state, strict=True)]
        return _reduce_masks(torch.logical_or, masks)

    def coverage(self, state: tuple[Any, ...]) -> Float[Tensor, "b w k"]:
        """Returns the mean of the members' coverage."""
        weights = [get_coverage(member, member_state) for member, member_state in zip(self.members, state, strict=True)]
        return torch.stack(weights).mean(0)


def _reduce_masks(
    function: Callable[[Tensor, Tensor], Tensor], masks: Sequence[Bool[Tensor, "b w"] | None]
) -> Bool[Tensor, "b w"] | None:
    """Combines the masks of those members that have one."""
    present = [mask for mask in masks if mask is not None]
    return reduce(function, present) if present else None
