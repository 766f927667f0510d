"""Ensembles of decoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.decoding.decoder import Decoder, covered

Combine = Callable[[Float[Tensor, "m b w v"]], Float[Tensor, "b w v"]]


def mean_probability(log_probabilities: Float[Tensor, "m b w v"]) -> Float[Tensor, "b w v"]:
    """Returns the logarithm of the mean of the members' probabilities."""
    return log_probabilities.logsumexp(0) - math.log(len(log_probabilities))


def mean_log_probability(log_probabilities: Float[Tensor, "m b w v"]) -> Float[Tensor, "b w v"]:
    """Returns the mean of the members' log-probabilities, normalised: their geometric mean."""
    return log_probabilities.mean(0).log_softmax(-1)


class Ensemble:
    """A decoder that combines the predictions of several decoders with one vocabulary.

    Args:
        members: Decoders, which all read the same source.
        combine: Combination of predictions: `mean_probability` or `mean_log_probability`.
    """

    def __init__(self, members: Sequence[Decoder[Any, Any]], combine: Combine = mean_probability) -> None:
        if not members:
            raise ValueError("an ensemble needs a member")
        self.members = tuple(members)
        self.combine = combine

    def start(self, source: Any) -> tuple[Any, ...]:
        return tuple(member.start(source) for member in self.members)

    def step(
        self, tokens: Int[Tensor, "b w"], state: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "b w v"], tuple[Any, ...]]:
        steps = [member.step(tokens, own) for member, own in zip(self.members, state, strict=True)]
        sizes = {logits.shape[-1] for logits, _ in steps}
        if len(sizes) > 1:
            raise ValueError(f"the members of an ensemble share a vocabulary; theirs have {sorted(sizes)} tokens")
        log_probabilities = torch.stack([logits.log_softmax(-1) for logits, _ in steps])
        return self.combine(log_probabilities), tuple(after for _, after in steps)

    def reorder(self, state: tuple[Any, ...], beams: Int[Tensor, "b w2"]) -> tuple[Any, ...]:
        return tuple(member.reorder(own, beams) for member, own in zip(self.members, state, strict=True))

    def select(self, state: tuple[Any, ...], sentences: Int[Tensor, " s"]) -> tuple[Any, ...]:
        return tuple(member.select(own, sentences) for member, own in zip(self.members, state, strict=True))

    def covered(self, state: tuple[Any, ...]) -> Float[Tensor, "b w k"]:
        """Returns the mean of the members' coverage."""
        weights = [covered(member, own) for member, own in zip(self.members, state, strict=True)]
        return torch.stack(weights).mean(0)
