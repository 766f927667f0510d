"""Losses of the next item, summed over targets. The score of an item is its vector's dot product with the hidden state.

All are called as `loss(hidden, targets, table, users, batch)`, with only the positions that have a target: `table` has
the vectors of all items, and `users` the index in the batch of each position's user.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.errors import ConfigError
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.sampling import Distribution, NegativeSampler, Shape
from zoo.types import Fraction, PositiveInt, validate_ranges

_PRODUCT = 64
"""Number of items for each negative up to which scoring the whole catalogue is cheaper than gathering vectors."""
_LOGITS = 2**22
"""Bytes of logits of one block, so that they stay in a cache."""
_ROWS = 256
"""Minimum number of rows of a block, as long as its logits have at most `_MOST` bytes: fewer make the product slow."""
_MOST = 2**30


class Loss(Protocol):
    """The interface of a loss."""

    def __call__(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        table: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: SequenceBatch,
    ) -> Float[Tensor, ""]: ...


@validate_ranges
class BCE(nn.Module):
    """Binary cross-entropy of the target and of sampled negatives (Kang & McAuley 2018, eq. 6).

    -log s(x_t) - sum_j log(1 - s(x_j)), over negatives j that the user has not chosen, drawn for each position.

    Args:
        negatives: Number of negatives for each target; the paper has one.
        shared: If True, negatives are drawn from the whole catalogue, once for the whole batch. Negatives that a user
            has chosen are ignored for that user, and the weight of the others is increased to make up for them.
    """

    def __init__(self, *, negatives: PositiveInt = 1, shared: bool = False) -> None:
        super().__init__()
        self.negatives = negatives
        self.shared = shared

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        table: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: SequenceBatch,
    ) -> Float[Tensor, ""]:
        losses = _sum_shared_negatives if self.shared else _sum_own_negatives
        positive, negative = losses(hidden, targets, table, users, NegativeSampler.from_batch(batch), self.negatives)
        return positive + negative


@validate_ranges
class GeneralisedBCE(nn.Module):
    """gBCE: binary cross-entropy, the target's probability to the power of beta (Petrov & Macdonald 2023, eq. 12-15).

    (-beta log s(x_t) - sum_j log(1 - s(x_j))) / (k + 1), with beta = a (t (1 - 1/a) + 1/a), where a = k / (items - 1)
    is the share of negatives that are drawn. t = 0 is BCE; t = 1 corrects all of the overconfidence due to sampling.
    Unlike the authors' code, which draws from the whole catalogue, this does not draw items that the user has chosen.

    Args:
        negatives: Number k of negatives for each target.
        t: Degree of calibration, from 0 to 1.
        shared: See `BCE`.
    """

    def __init__(self, *, negatives: PositiveInt = 256, t: Fraction = 0.75, shared: bool = False) -> None:
        super().__init__()
        self.negatives = negatives
        self.t = t
        self.shared = shared

    def beta(self, items: int) -> float:
        """Computes the exponent for a catalogue of `items` items; 1 if at least as many negatives are drawn."""
        drawn = min(1.0, self.negatives / max(1, items - 1))
        return drawn * (self.t * (1 - 1 / drawn) + 1 / drawn)

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        table: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: SequenceBatch,
    ) -> Float[Tensor, ""]:
        losses = _sum_shared_negatives if self.shared else _sum_own_negatives
        positive, negative = losses(hidden, targets, table, users, NegativeSampler.from_batch(batch), self.negatives)
        return (self.beta(len(table)) * positive + negative) / (self.negatives + 1)


class FullSoftmax(nn.Module):
    """Exact cross-entropy over the whole catalogue.

    Logits and their gradients are computed for a block of rows at a time, so that memory does not grow with
    targets x items.
    """

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        table: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: SequenceBatch,
    ) -> Float[Tensor, ""]:
        with torch.autocast(hidden.device.type, enabled=False):
            total: Tensor = _CrossEntropy.apply(hidden.to(table.dtype), table, targets, torch.is_grad_enabled())
        return total


@validate_ranges
class SampledSoftmax(nn.Module):
    """Cross-entropy of the target against items drawn once for the batch (Bengio & Senecal 2008).

    -x_t + log(exp x_t + sum_j exp(x_j - log(k q_j))), over those of the k drawn items j, of probability q_j, that are
    not the target. The sum in the logarithm is an unbiased estimate of the softmax's denominator; the target is always
    part of it, so its score needs no correction. As in the softmax, items that the user has chosen are included.

    Args:
        negatives: Number k of drawn items.
        distribution: Distribution of drawn items: "uniform", "log_uniform" in the order of popularity, or
            "popularity".
    """

    def __init__(self, *, negatives: PositiveInt = 1024, distribution: Shape = "log_uniform") -> None:
        super().__init__()
        if distribution not in ("uniform", "log_uniform", "popularity"):
            raise ConfigError(f"model.loss.distribution={distribution}: write uniform, log_uniform or popularity")
        self.negatives = negatives
        self.shape: Shape = distribution
        self._last: tuple[Tensor, Distribution] | None = None

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        table: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: SequenceBatch,
    ) -> Float[Tensor, ""]:
        distribution = self._distribution(batch.catalogue.counts, hidden.device)
        drawn = distribution.draw(self.negatives)
        vectors = F.embedding(torch.cat([targets, drawn]), table)
        positive = (hidden * vectors[: len(targets)]).sum(-1)
        negative = hidden @ vectors[len(targets) :].mT - distribution.log_expected(drawn)
        negative.masked_fill_(drawn == targets[:, None], -torch.inf)
        logits = torch.cat([positive[:, None], negative], 1)
        return F.cross_entropy(logits.float(), torch.zeros_like(targets), reduction="sum")

    def _distribution(self, counts: Int[Tensor, " i"], device: torch.device) -> Distribution:
        """Returns the distribution for these counts. The last one is kept, since all batches of a run share it."""
        if self._last is not None:
            known, made = self._last
            if made.log_p.device == device and (known is counts or torch.equal(known, counts)):
                return made
        made = Distribution(counts.to(device), self.shape)
        self._last = counts, made
        return made


def _sum_own_negatives(
    hidden: Float[Tensor, "n d"],
    targets: Int[Tensor, " n"],
    table: Float[Tensor, "i d"],
    users: Int[Tensor, " n"],
    unseen: NegativeSampler,
    negatives: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Computes the sums of -log s(x_t) over targets and of -log(1 - s(x_j)) over each target's own negatives."""
    wanted = torch.cat([targets[:, None], unseen.draw(users, negatives)], 1)
    if len(table) <= _PRODUCT * negatives:
        scores = (hidden @ table.mT).gather(1, wanted)
    else:
        scores = (hidden[:, None] * F.embedding(wanted, table)).sum(-1)
    return F.softplus(-scores[:, 0].float()).sum(), F.softplus(scores[:, 1:].float()).sum()


def _sum_shared_negatives(
    hidden: Float[Tensor, "n d"],
    targets: Int[Tensor, " n"],
    table: Float[Tensor, "i d"],
    users: Int[Tensor, " n"],
    unseen: NegativeSampler,
    negatives: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Computes the same sums with one draw of negatives for all targets, by one product of matrices."""
    drawn = torch.randint(unseen.items, (negatives,), device=hidden.device)
    kept = ~unseen.has_seen(torch.arange(len(unseen.left), device=hidden.device)[:, None], drawn)
    weights = kept * (negatives / kept.sum(1, keepdim=True).clamp(min=1))
    vectors = F.embedding(torch.cat([targets, drawn]), table)
    positive = (hidden * vectors[: len(targets)]).sum(-1)
    negative = hidden @ vectors[len(targets) :].mT
    return F.softplus(-positive.float()).sum(), (F.softplus(negative.float()) * weights[users]).sum()


class _CrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies over rows, in blocks. The gradient of the logits is p - one-hot(target)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, targets: Tensor, learning: bool) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.float64)
        of_hidden = torch.empty_like(hidden) if learning else None
        of_items = torch.zeros_like(table) if learning else None
        start, rows = 0, _rows(len(table))
        for x, y in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
            log_p = F.log_softmax(x @ table.mT, 1)
            total -= log_p.gather(1, y[:, None]).sum()
            if of_hidden is not None and of_items is not None:
                p = log_p.exp_()
                p.scatter_add_(1, y[:, None], p.new_full((len(y), 1), -1.0))
                torch.mm(p, table, out=of_hidden[start : start + len(y)])
                of_items.addmm_(p.mT, x)
            start += len(y)
        if of_hidden is not None and of_items is not None:
            ctx.save_for_backward(of_hidden, of_items)
        return total.to(hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_hidden, of_items = ctx.saved_tensors
        return of_hidden * gradient, of_items * gradient, None, None


def _rows(items: int) -> int:
    """Returns the number of rows of a block."""
    return max(1, _LOGITS // (4 * items), min(_ROWS, _MOST // (4 * items)))
