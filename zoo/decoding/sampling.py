"""Samples texts from the distribution of a decoder."""

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
from zoo.decoding.ranking import BY_PROBABILITY
from zoo.decoding.search import Candidates, search
from zoo.types import PositiveFloat, PositiveFraction, PositiveInt, validate_ranges


@validate_ranges
@dataclass(frozen=True)
class Sampling:
    """Draws tokens from softmax(logits / temperature), optionally from the most probable ones only.

    Every draw has a generator of its own, so that it depends on the seed of its sentence and on its number, but not on
    the rest of the batch or on the number of draws.

    Args:
        draws: Number of hypotheses for each sentence.
        temperature: Divisor of the logits. Below 1 probable tokens are drawn more often, above 1 improbable ones.
        top_k: Number of tokens, the most probable ones, that may be drawn. Default: all.
        top_p: Probability p: only the smallest set of tokens with a total probability of at least p may be drawn
            (Holtzman et al. 2020, eq. 2-3). It is applied after `top_k`. Default: all tokens.
        constraints: Tokens that are forbidden.
    """

    draws: Annotated[int, ">= 1", "<= 1000"] = 1
    temperature: PositiveFloat = 1.0
    top_k: PositiveInt | None = None
    top_p: PositiveFraction = 1.0
    constraints: Constraints = ANYTHING

    def __call__(
        self,
        decoder: Decoder[Any, Any],
        source: Any,
        begin: Int[Tensor, " b"],
        *,
        end: int,
        longest: int | Sequence[int] | Int[Tensor, " b"],
        seeds: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each sentence in the order of their draws; scores are log-probabilities.

        Args:
            decoder, source, begin, end, longest: See `BeamSearch.__call__`.
            seeds: Seed of each sentence.
        """
        if len(seeds) != len(begin):
            raise ValueError(f"there are {len(begin)} sentences and {len(seeds)} seeds: give one for each sentence")
        copies = torch.arange(len(begin), device=begin.device).repeat_interleave(self.draws)
        limits = torch.as_tensor(longest, device=begin.device).expand(len(begin))
        generators = [
            torch.Generator().manual_seed(_mix_seed(seed, draw)) for seed in seeds for draw in range(self.draws)
        ]

        def choose(total: Tensor, following: Tensor, sentences: Tensor) -> Candidates:
            numbers = [
                torch.rand((), dtype=torch.float64, generator=generators[sentence]) for sentence in sentences.tolist()
            ]
            token = self._draw(following[:, 0], torch.stack(numbers).to(following.device)).unsqueeze(1)
            return Candidates(total + following[:, 0].gather(1, token), torch.zeros_like(token), token)

        results = search(
            decoder,
            decoder.select(decoder.start(source), copies),
            begin[copies],
            choose,
            end=end,
            longest=limits[copies],
            width=1,
            best=1,
            ranking=BY_PROBABILITY,
            constraints=self.constraints,
        )
        hypotheses = [hypothesis for [hypothesis] in results]
        return [hypotheses[start : start + self.draws] for start in range(0, len(hypotheses), self.draws)]

    def _draw(self, following: Float[Tensor, "b v"], numbers: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
        """Returns the first token at which the cumulative probability exceeds each of the numbers.

        Probabilities are added in the order of the vocabulary, because sorting could exchange equal ones.
        """
        probabilities = (following.double() / self.temperature).softmax(-1).nan_to_num()
        if self.top_k is not None and self.top_k < probabilities.shape[1]:
            threshold = probabilities.topk(self.top_k, -1).values[:, -1:]
            probabilities = probabilities.where(probabilities >= threshold, 0.0)
        if self.top_p < 1.0:
            ordered = probabilities.sort(-1, descending=True).values
            preceding = ordered.cumsum(-1) - ordered
            is_kept = preceding < self.top_p * ordered.sum(-1, keepdim=True)
            threshold = ordered.gather(1, is_kept.sum(-1, keepdim=True).clamp(min=1) - 1)
            probabilities = probabilities.where(probabilities >= threshold, 0.0)
        cumulative = probabilities.cumsum(-1)
        token = torch.searchsorted(cumulative, numbers.unsqueeze(1) * cumulative[:, -1:], right=True)
        return token.squeeze(1).clamp(max=following.shape[1] - 1)


def _mix_seed(seed: int, draw: int) -> int:
    """Returns the seed of a draw: that of the sentence, plus a multiple of an odd number near 2^63 / golden ratio."""
    return (seed + draw * 0x4F1BBCDCBFA53E0B) % 2**63
