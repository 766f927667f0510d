"""Forbids tokens in the continuation of a hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
@dataclass(frozen=True)
class Constraints:
    """Forbids tokens. The probabilities of the others stay as they are.

    Args:
        shortest: Smallest number of tokens before the end.
        unrepeated: Length n of the n-grams that may not occur twice in a hypothesis. Default: all n-grams may.
        never: Tokens that are never generated, such as padding.
    """

    shortest: NonNegativeInt = 0
    unrepeated: PositiveInt | None = None
    never: Sequence[int] = ()

    def apply(self, logits: Float[Tensor, "b w v"], history: Int[Tensor, "b w t"], end: int) -> Float[Tensor, "b w v"]:
        """Returns the logits of the next tokens with minus infinity at those that are forbidden.

        Args:
            logits: Logits, or log-probabilities, of the next tokens.
            history: Tokens of each hypothesis so far.
            end: Token that ends a hypothesis.
        """
        never = [*self.never, *([end] if history.shape[2] < self.shortest else [])]
        if never:
            indices = torch.tensor(never, device=logits.device)
            logits = logits.index_fill(2, indices, -torch.inf)
        if self.unrepeated is not None and history.shape[2] >= self.unrepeated:
            logits = logits.masked_fill(_mask_repetitions(history, self.unrepeated, logits.shape[2]), -torch.inf)
        return logits


ANYTHING = Constraints()


def _mask_repetitions(history: Int[Tensor, "b w t"], count: int, vocabulary: int) -> Bool[Tensor, "b w v"]:
    """Returns a mask of the tokens that would complete a run of `count` tokens which the history has already."""
    runs = history.unfold(2, count, 1)
    suffix = history[..., history.shape[2] - count + 1 :].unsqueeze(2)
    same = (runs[..., :-1] == suffix).all(-1)
    counts = torch.zeros(*history.shape[:2], vocabulary, dtype=torch.long, device=history.device)
    return counts.scatter_add(2, runs[..., -1], same.long()) > 0
