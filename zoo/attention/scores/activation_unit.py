"""DIN's score of a pair: a small network of query and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.ranges import Count, Positive
from zoo.attention.state import AttentionState
from zoo.attention.supports.support import Support


class ActivationUnit(nn.Module):
    """MLP([q, k, q - k, q * k]) (Zhou et al. 2018, figure 2 and eq. 3).

    The inputs are those of the authors' code; the paper's figure has the outer product for the last two. One network
    serves all heads. Its first layer is computed from its four parts, those of q and k once and not for every pair.

    Cost: O(n m d h)

    Args:
        dim: Width of queries and keys.
        hidden: Widths of the hidden layers.
        activation: Called with a layer's width, gives a module on `(pairs, width)`: `nn.PReLU`, `Dice`.
    """

    def __init__(
        self,
        *,
        dim: Count,
        hidden: Sequence[Count] = (80, 40),
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
        from_key = support.of_key(lambda key: F.linear(key, of_key - of_difference), key)
        product = F.linear(support.at_query(query) * support.at_key(key), of_product)
        hidden = support.at_query(from_query) + from_key + product
        return self.rest(hidden.flatten(0, -2)).view(hidden.shape[:-1])  # type: ignore[no-any-return]


class Dice(nn.Module):
    """p(s) s + (1 - p(s)) alpha s, p(s) = sigmoid((s - E[s]) / sqrt(Var[s] + eps)) (Zhou et al. 2018, section 5.2).

    Mean and variance are the batch's in training, running averages in evaluation; of all pairs, padding included.

    Cost: O(n m)

    Args:
        width: Of the last axis.
        eps: As in the formula.
    """

    def __init__(self, width: Count, *, eps: Positive = 1e-8) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, eps=eps, affine=False)
        self.alpha = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        p = torch.sigmoid(self.norm(x))
        return p * x + (1.0 - p) * self.alpha * x
