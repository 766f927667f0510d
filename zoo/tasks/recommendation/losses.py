"""Losses of the next item: sums over targets, of hidden states whose products with the items' vectors are scores.

All are called as `loss(hidden, targets, items, users, batch)`, with only the positions that have a target: `items` are
the vectors of the catalogue, `users` says of which user of the batch each position is.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.attention.ranges import Count, Share
from zoo.errors import ConfigError
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.sampling import Distribution, Shape, Unseen

_PRODUCT = 64
"""Scores of the whole catalogue are cheaper than gathered vectors up to so many items a negative."""
_LOGITS = 2**22
"""Bytes of logits at once: they stay in a cache."""
_ROWS = 256
"""Fewer rows at once make the product with a large catalogue slow, up to `_MOST` bytes of logits."""
_MOST = 2**30


class Loss(Protocol):
    """What the tasks expect of a loss."""

    def __call__(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        items: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: Histories,
    ) -> Float[Tensor, ""]: ...


class BCE(nn.Module):
    """Binary cross-entropy of the target and of sampled negatives (Kang & McAuley 2018, eq. 6).

    -log s(x_t) - sum_j log(1 - s(x_j)), over negatives j that the user has not chosen, anew for each position.

    Args:
        negatives: For each target; the paper has one.
        shared: Draw them once for the whole batch, of the whole catalogue. What a user has chosen does not count for
            that user, and the rest counts for as much more; who has chosen all of them has no negatives in this step.
    """

    def __init__(self, *, negatives: Count = 1, shared: bool = False) -> None:
        super().__init__()
        _refuse_negatives(negatives)
        self.negatives = negatives
        self.shared = shared

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        items: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: Histories,
    ) -> Float[Tensor, ""]:
        losses = _with_shared if self.shared else _with_own
        positive, negative = losses(hidden, targets, items, users, Unseen.of(batch), self.negatives)
        return positive + negative


class GeneralisedBCE(nn.Module):
    """gBCE: binary cross-entropy, the target's probability to the power of beta (Petrov & Macdonald 2023, eq. 12-15).

    (-beta log s(x_t) - sum_j log(1 - s(x_j))) / (k + 1), with beta = a (t (1 - 1/a) + 1/a), where a = k / (items - 1)
    is the share of negatives that are drawn. t = 0 is BCE; t = 1 makes up for all the overconfidence of sampling.
    Departs from the authors' code, which draws from the whole catalogue: what the user has chosen is not drawn.

    Args:
        negatives: k, for each target.
        t: How far beta is calibrated, 0 to 1.
        shared: As in `BCE`.
    """

    def __init__(self, *, negatives: Count = 256, t: Share = 0.75, shared: bool = False) -> None:
        super().__init__()
        _refuse_negatives(negatives)
        if not 0 <= t <= 1:
            raise ConfigError(f"model.loss.t={t}: write a number from 0 to 1")
        self.negatives = negatives
        self.t = t
        self.shared = shared

    def beta(self, items: int) -> float:
        """The power, for a catalogue of so many items; 1 where all negatives or more are drawn."""
        drawn = min(1.0, self.negatives / max(1, items - 1))
        return drawn * (self.t * (1 - 1 / drawn) + 1 / drawn)

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        items: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: Histories,
    ) -> Float[Tensor, ""]:
        losses = _with_shared if self.shared else _with_own
        positive, negative = losses(hidden, targets, items, users, Unseen.of(batch), self.negatives)
        return (self.beta(len(items)) * positive + negative) / (self.negatives + 1)


class FullSoftmax(nn.Module):
    """Cross-entropy over the whole catalogue, exact.

    Logits exist for some rows at a time, and their gradient is taken while they do: memory does not grow with
    targets x items.
    """

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        items: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: Histories,
    ) -> Float[Tensor, ""]:
        with torch.autocast(hidden.device.type, enabled=False):
            total: Tensor = _CrossEntropy.apply(hidden.to(items.dtype), items, targets, torch.is_grad_enabled())
        return total


class SampledSoftmax(nn.Module):
    """Cross-entropy of the target against items drawn once for the batch (Bengio & Senecal 2008).

    -x_t + log(exp x_t + sum_j exp(x_j - log(k q_j))), over the k drawn items j that are not the target (accidental
    hits), of probability q_j. The sum in the logarithm is an unbiased estimate of the softmax's denominator: the
    target's own score is in it for certain, and needs no correction. What the user has chosen counts, as in the
    softmax.

    Args:
        negatives: k.
        distribution: "uniform", "log_uniform" in the order of popularity, or "popularity".
    """

    def __init__(self, *, negatives: Count = 1024, distribution: Shape = "log_uniform") -> None:
        super().__init__()
        _refuse_negatives(negatives)
        if distribution not in ("uniform", "log_uniform", "popularity"):
            raise ConfigError(f"model.loss.distribution={distribution}: write uniform, log_uniform or popularity")
        self.negatives = negatives
        self.shape: Shape = distribution
        self._last: tuple[Tensor, Distribution] | None = None

    def forward(
        self,
        hidden: Float[Tensor, "n d"],
        targets: Int[Tensor, " n"],
        items: Float[Tensor, "i d"],
        users: Int[Tensor, " n"],
        batch: Histories,
    ) -> Float[Tensor, ""]:
        distribution = self._distribution(batch.catalogue.counts, hidden.device)
        drawn = distribution.draw(self.negatives)
        vectors = F.embedding(torch.cat([targets, drawn]), items)
        positive = (hidden * vectors[: len(targets)]).sum(-1)
        negative = hidden @ vectors[len(targets) :].mT - distribution.log_expected(drawn)
        negative.masked_fill_(drawn == targets[:, None], -torch.inf)
        logits = torch.cat([positive[:, None], negative], 1)
        return F.cross_entropy(logits.float(), torch.zeros_like(targets), reduction="sum")

    def _distribution(self, counts: Int[Tensor, " i"], device: torch.device) -> Distribution:
        """That of these counts, made once: all batches of a run have the same."""
        if self._last is not None:
            known, made = self._last
            if made.log_p.device == device and (known is counts or torch.equal(known, counts)):
                return made
        made = Distribution(counts.to(device), self.shape)
        self._last = counts, made
        return made


def _refuse_negatives(negatives: int) -> None:
    if negatives < 1:
        raise ConfigError(f"model.loss.negatives={negatives}: write a whole number from 1")


def _with_own(
    hidden: Float[Tensor, "n d"],
    targets: Int[Tensor, " n"],
    items: Float[Tensor, "i d"],
    users: Int[Tensor, " n"],
    unseen: Unseen,
    negatives: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sums of -log s(x_t) over targets, and of -log(1 - s(x_j)) over negatives that each target has for itself."""
    wanted = torch.cat([targets[:, None], unseen.draw(users, negatives)], 1)
    if len(items) <= _PRODUCT * negatives:
        scores = (hidden @ items.mT).gather(1, wanted)
    else:
        scores = (hidden[:, None] * F.embedding(wanted, items)).sum(-1)
    return F.softplus(-scores[:, 0].float()).sum(), F.softplus(scores[:, 1:].float()).sum()


def _with_shared(
    hidden: Float[Tensor, "n d"],
    targets: Int[Tensor, " n"],
    items: Float[Tensor, "i d"],
    users: Int[Tensor, " n"],
    unseen: Unseen,
    negatives: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The same with one draw for all: one product of matrices, and one look for each user and negative."""
    drawn = torch.randint(unseen.items, (negatives,), device=hidden.device)
    kept = ~unseen.has_seen(torch.arange(len(unseen.left), device=hidden.device)[:, None], drawn)
    weights = kept * (negatives / kept.sum(1, keepdim=True).clamp(min=1))
    vectors = F.embedding(torch.cat([targets, drawn]), items)
    positive = (hidden * vectors[: len(targets)]).sum(-1)
    negative = hidden @ vectors[len(targets) :].mT
    return F.softplus(-positive.float()).sum(), (F.softplus(negative.float()) * weights[users]).sum()


class _CrossEntropy(torch.autograd.Function):
    """Summed over rows, a block at a time; the gradient of a block is (p - one-hot) times the other factor."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, items: Tensor, targets: Tensor, learning: bool) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.float64)
        of_hidden = torch.empty_like(hidden) if learning else None
        of_items = torch.zeros_like(items) if learning else None
        start, rows = 0, _rows(len(items))
        for x, y in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
            log_p = F.log_softmax(x @ items.mT, 1)
            total -= log_p.gather(1, y[:, None]).sum()
            if of_hidden is not None and of_items is not None:
                p = log_p.exp_()
                p.scatter_add_(1, y[:, None], p.new_full((len(y), 1), -1.0))
                torch.mm(p, items, out=of_hidden[start : start + len(y)])
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
    """Of logits at once."""
    return max(1, _LOGITS // (4 * items), min(_ROWS, _MOST // (4 * items)))
