"""The score of DIN: a small network applied to each pair of query and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.attention_state import AttentionState
from zoo.attention.mechanism import Score
from zoo.attention.supports.support import Support
from zoo.types import PositiveFloat, PositiveInt, validate_ranges


@validate_ranges
class ActivationUnit(Score):
    """MLP([q, k, q - k, q * k]) (Zhou et al. 2018, figure 2 and eq. 3).

    The inputs are those of the authors' code; the paper's figure has the outer product in place of the last two. All
    heads share the network. Its first layer is the sum of four products, of which those of q and k are computed once
    and not for every pair.

    Cost: O(n m d h)

    Args:
        dim: Width of queries and keys.
        hidden: Widths of the hidden layers.
        activation: `width -> module` on `(pairs, width)`, called with the width of a layer: `nn.PReLU`, `Dice`.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        hidden: Sequence[PositiveInt] = (80, 40),
        activation: Callable[[int], nn.Module] = nn.PReLU,
    ) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden needs the width of at least one layer")
        self.first = nn.Linear(4 * dim, hidden[0])
        layers: list[nn.Module] = [activation(hidden[0])]
        for width, following in pairwise(hidden):
            layers += [nn.Linear(width, following), activation(following)]
        self.rest = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(
        self,
        query: Float[Tensor, "..."],
        key: Float[Tensor, "..."],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        of_query, of_key, of_difference, of_product = self.first.weight.chunk(4, 1)
        from_query = F.linear(query, of_query + of_difference, self.first.bias)
        from_key = support.map_keys(lambda key: F.linear(key, of_key - of_difference), key)
        product = F.linear(support.gather_queries(query) * support.gather_keys(key), of_product)
        hidden = support.gather_queries(from_query) + from_key + product
        return self.rest(hidden.flatten(0, -2)).view(hidden.shape[:-1])  # type: ignore[no-any-return]


@validate_ranges
class Dice(nn.Module):
    """p(s) s + (1 - p(s)) alpha s, p(s) = sigmoid((s - E[s]) / sqrt(Var[s] + eps)) (Zhou et al. 2018, section 5.2).

    E and Var are taken over all pairs of the batch in training, padding included, and are running averages in
    evaluation.

    Cost: O(n m)

    Args:
        width: Width of the last axis of the input.
        eps: Value added to the variance for numerical stability.
    """

    def __init__(self, width: PositiveInt, *, eps: PositiveFloat = 1e-8) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, eps=eps, affine=False)
        self.alpha = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        p = torch.sigmoid(self.norm(x))
        return p * x + (1.0 - p) * self.alpha * x
