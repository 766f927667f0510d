"""Beam search and greedy search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.decoding.constraints import ANYTHING, Constraints
from zoo.decoding.decoder import Decoder
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.ranking import BY_PROBABILITY, Ranking
from zoo.decoding.search import Candidates, search
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
@dataclass(frozen=True)
class BeamSearch:
    """Keeps the `width` most probable hypotheses of each sentence at each length, and ranks those that have ended.

    A hypothesis that ends keeps its place in the beam, so that a beam of one place is greedy search, whatever the
    ranking. The search for a sentence stops when ended hypotheses take all places, when the largest length is reached,
    or when no hypothesis that goes on can be ranked among the `best` (`Ranking.bound`). This last rule does not change
    the result. A sentence that has stopped leaves the batch. If no hypothesis has ended, the result has the best
    unfinished ones.

    The result does not depend on the other sentences of a batch.

    Args:
        width: Number of hypotheses that are kept.
        best: Number of hypotheses that are returned for each sentence, if there are as many.
        ranking: Rule that ranks hypotheses that have ended.
        constraints: Tokens that are forbidden.
    """

    width: Annotated[int, ">= 1", "<= 1000"] = 5
    best: PositiveInt = 1
    ranking: Ranking = BY_PROBABILITY
    constraints: Constraints = ANYTHING

    def __post_init__(self) -> None:
        if not self.best <= self.width:
            raise ValueError(f"best must be from 1 to width={self.width}, got {self.best}")

    def __call__(
        self,
        decoder: Decoder[Any, Any],
        source: Any,
        begin: Int[Tensor, " b"],
        *,
        end: int,
        longest: int | Sequence[int] | Int[Tensor, " b"],
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each sentence, best first.

        Args:
            decoder: Decoder in evaluation mode.
            source: Argument of `decoder.start`.
            begin: First token that the decoder reads for each sentence.
            end: Token that ends a hypothesis.
            longest: Largest number of tokens, including the end; one for all sentences, or one for each.
        """
        return search(
            decoder,
            decoder.start(source),
            begin,
            self._choose,
            end=end,
            longest=longest,
            width=self.width,
            best=self.best,
            ranking=self.ranking,
            constraints=self.constraints,
        )

    def _choose(
        self,
        total: Float[Tensor, "b w"],
        following: Float[Tensor, "b w v"],
        sentences: Int[Tensor, " b"],
    ) -> Candidates:
        # the best continuations overall are among the best ones of each hypothesis
        highest, token = _find_highest(following, min(self.width, following.shape[2]))
        log_probability = (total.unsqueeze(2) + highest).flatten(1)
        log_probability, index = log_probability.topk(min(self.width, log_probability.shape[1]), 1)
        origin = index.div(token.shape[2], rounding_mode="floor")
        return Candidates(log_probability, origin, token.flatten(1).gather(1, index))


def greedy(
    decoder: Decoder[Any, Any],
    source: Any,
    begin: Int[Tensor, " b"],
    *,
    end: int,
    longest: int | Sequence[int] | Int[Tensor, " b"],
    constraints: Constraints = ANYTHING,
) -> list[Hypothesis]:
    """Takes the most probable token at every step: `BeamSearch` with one place.

    Args:
        decoder, source, begin, end, longest: See `BeamSearch.__call__`.
        constraints: Tokens that are forbidden.
    """
    beam_search = BeamSearch(width=1, constraints=constraints)
    return [hypothesis for [hypothesis] in beam_search(decoder, source, begin, end=end, longest=longest)]


_GROUP_SIZE = 128


def _find_highest(x: Float[Tensor, "b w v"], count: int) -> tuple[Float[Tensor, "b w c"], Int[Tensor, "b w c"]]:
    """Computes `x.topk(count)`: of many numbers the highest are in the groups of the highest maxima."""
    groups, remainder = divmod(x.shape[2], _GROUP_SIZE)
    if groups < 4 * count:
        return x.topk(count, -1)
    parts = x[..., : groups * _GROUP_SIZE].view(*x.shape[:2], groups, _GROUP_SIZE)
    group = parts.amax(-1).topk(count, -1).indices
    numbers = (group.unsqueeze(3) * _GROUP_SIZE + torch.arange(_GROUP_SIZE, device=x.device)).flatten(2)
    remaining_numbers = torch.arange(x.shape[2] - remainder, x.shape[2], device=x.device).expand(
        *x.shape[:2], remainder
    )
    numbers = torch.cat([numbers, remaining_numbers], 2)
    highest, place = x.gather(2, numbers).topk(count, -1)
    return highest, numbers.gather(2, place)
