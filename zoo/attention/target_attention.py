"""Target attention: each candidate item attends to a user's history.

Goes: a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.attention import Attention
from zoo.attention.mechanism import Normalizer
from zoo.attention.normalizers.identity import Unnormalized
from zoo.attention.scores.activation_unit import ActivationUnit
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class TargetAttention(nn.Module):
    """sum_j a(e_j, v) e_j: a summary of the history e for each candidate v (Zhou et al. 2018, eq. 3).

    Cost: O(n m d h)

    Args:
        dim: Width of candidates and history.
        hidden: Widths of the hidden layers of the activation unit.
        activation: Activation of the hidden layers: `nn.PReLU` or `Dice`.
        normalizer: Normalizer of the scores. Default: `Unnormalized`, as in the paper.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        hidden: Sequence[PositiveInt] = (80, 40),
        activation: Callable[[int], nn.Module] = nn.PReLU,
        normalizer: Callable[[], Normalizer] = Unnormalized,
    ) -> None:
        super().__init__()
        self.attend = Attention(ActivationUnit(dim=dim, hidden=hidden, activation=activation), normalizer())

    def forward(
        self,
        candidates: Float[Tensor, "b q d"],
        history: Float[Tensor, "b n d"],
        support: DenseSupport | None = None,
    ) -> Float[Tensor, "b q d"]:
        support = DenseSupport() if support is None else support
        source = history.unsqueeze(1)
        context, _ = self.attend(candidates.unsqueeze(1), source, source, support)
        return context.squeeze(1)  # type: ignore[no-any-return]
