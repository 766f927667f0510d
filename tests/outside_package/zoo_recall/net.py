"""One look at the facts, for the question; and a score of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.extend import DenseSupport, MultiheadAttention, PositiveInt, Score


class Distance(Score):
    """-sum_i w_i^2 (q_i - k_i)^2, w of each head its own.

    Cost: O(pairs d)
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((heads, dim), dim**-0.25))

    def forward(self, query: Tensor, key: Tensor, support: Any, state: Any = None) -> Tensor:
        between = support.gather_queries(query) - support.gather_keys(key)
        return -support.dot_parameter(between.square(), self.weight.square())


class RecallNet(nn.Module):
    """Words -> logits of words: the question attends to the facts, each a key beside its value."""

    def __init__(
        self, *, words: PositiveInt, attend: Callable[..., Any], dim: PositiveInt = 32, heads: PositiveInt = 1
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.look = MultiheadAttention(dim=dim, heads=heads, attend=attend, source_dim=2 * dim)
        self.out = nn.Linear(dim, words)

    def forward(self, facts: Tensor, question: Tensor, is_fact: Tensor) -> Tensor:
        found, _ = self.look(self.words(question), self.words(facts).flatten(2), DenseSupport.from_key_mask(is_fact))
        logits: Tensor = self.out(found[:, 0])
        return logits
