"""The reward of hard attention that passes no gradient: the probability of the text that its draws lead to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo import distributed
from zoo.attention import AttentionMap, EntropyPenalty, log_probability
from zoo.types import NonNegativeFloat, Probability, validate_ranges


@validate_ranges
class ReinforceLoss(nn.Module):
    """sum_t lambda_r (R_t - b_t) log p(s_t) + lambda_e H(p_t), which training maximises (Xu et al. 2015, section 4.1).

    s_t is the key that step t drew from p_t, and R_t = - sum_{u >= t} loss_u its reward: a draw changes no token before
    its own. The paper rewards each draw with the whole text, which has the same mean and a greater variance.
    b_t is the moving average of the reward of a token, times the number of tokens from t on. With lambda_r = 1 and
    lambda_e = 0 the gradient is an unbiased estimate of that of the expected loss; a smaller lambda_r slows down what
    learns from the reward alone.

    Args:
        weight: lambda_r; 0.1 in the authors' code.
        entropy: lambda_e; 0.002 there.
        kept: Share of the moving average that a step keeps; 0.9 in the paper.
    """

    baseline: Tensor

    def __init__(
        self, *, weight: NonNegativeFloat = 0.1, entropy: NonNegativeFloat = 0.002, kept: Probability = 0.9
    ) -> None:
        super().__init__()
        self.weight, self.entropy, self.kept = weight, entropy, kept
        self.register_buffer("baseline", torch.zeros(()))

    def forward(
        self,
        maps: Mapping[str, AttentionMap],
        losses: Float[Tensor, "b n"],
        is_real: Bool[Tensor, "b n"],
        queries: Mapping[str, Bool[Tensor, "b q"]],
        of_source: Collection[str] = (),
    ) -> Float[Tensor, ""]:
        """Returns what is added to the sum of the losses, and moves the baseline.

        Args:
            maps: The sites that drew, recorded with their gradients.
            losses: Of each token; those of padding do not count.
            is_real: Mask of the tokens that are not padding.
            queries: Site -> mask of the queries that are not padding.
            of_source: Sites whose queries are places of the source: their draws come before the first token.
        """
        advantage = self._advantage(losses.detach() * is_real, is_real)
        total = losses.new_zeros(())
        for site, found in maps.items():
            drawn = torch.cat([log_probability(each) for each in found.steps()], 2)
            worth = advantage[:, :1] if site in of_source else advantage
            gained = drawn * (worth * queries[site]).unsqueeze(1)
            total = total - self.weight * gained.sum() - self.entropy * _entropy(found, queries[site])
        return total

    def _advantage(self, losses: Float[Tensor, "b n"], is_real: Bool[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        """Returns R_t - b_t, and moves the average behind b_t."""
        advantage = -_from_here(losses) - self.baseline * _from_here(is_real.to(losses.dtype))
        lost, count = distributed.all_reduce_sum(torch.stack([losses.sum(), is_real.sum().to(losses.dtype)])).unbind()
        self.baseline.lerp_((-lost / count.clamp(min=1)).to(self.baseline.dtype), 1 - self.kept)
        return advantage


def _from_here(x: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    """Sums each entry and those behind it."""
    return x.flip(1).cumsum(1).flip(1)


def _entropy(found: AttentionMap, queries: Bool[Tensor, "b q"]) -> Float[Tensor, ""]:
    return EntropyPenalty()(found, queries).total
