"""Hard attention: each query attends to one key, sampled in training and the most probable one in evaluation.

Sampling has no derivative. `HardStraightThrough` uses the gradient of the probabilities instead; `HardReinforce` passes
no gradient, and the loss uses the log-probability of the sampled key (`log_probability`).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.mechanism import Normalizer, Traits
from zoo.attention.recording.attention_map import AttentionMap
from zoo.attention.supports.support import Support
from zoo.types import Fraction, validate_ranges


@validate_ranges
class HardReinforce(Normalizer):
    """One key, drawn with probability softmax(s)_j (Mnih et al. 2014; Xu et al. 2015, section 4.1, stochastic hard).

    No gradient passes through the draw. With the advantage A = reward - baseline, the loss of a training step is

        with record(model, grad=True) as maps:
            ...
        loss = loss - (A.detach() * log_probability(maps[site])).mean()

    Its gradient is an unbiased estimate of the gradient of the expected reward. The moving average of the baseline and
    the entropy term of the paper belong to the loss and are not part of this class: models that write texts have them
    (`zoo.tasks.seq2seq.ReinforceLoss`), and other models refuse this class.

    Cost: O(pairs)
    Weights: the drawn key, and the probabilities that it was drawn from

    Args:
        mixing: Probability that a query, in training, has the probabilities themselves as its weights, with their
            gradient (section 4.1, where one choice holds for all queries of an example).
    """

    traits = Traits(hard=True, needs_reward=True)

    def __init__(self, *, mixing: Fraction = 0.0) -> None:
        super().__init__()
        self.mixing = mixing

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        """Returns the probabilities of the draw."""
        return support.softmax(scores)

    def draw(self, probabilities: Float[Tensor, "..."], support: Support) -> Float[Tensor, "..."]:
        drawn = _one_key(probabilities, support, self.training)
        if not (self.training and self.mixing):
            return drawn
        return torch.where(_some_rows(self.mixing, probabilities, support), probabilities, drawn)


class HardStraightThrough(Normalizer):
    """One key, drawn with probability softmax(s)_j; the gradient is that of the probabilities (Bengio et al. 2013).

    The gradient is a biased estimate of low variance (section 4 of the paper).

    Cost: O(pairs)
    Weights: the drawn key, and the probabilities that it was drawn from
    """

    traits = Traits(hard=True)

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        """Returns the probabilities of the draw."""
        return support.softmax(scores)

    def draw(self, probabilities: Float[Tensor, "..."], support: Support) -> Float[Tensor, "..."]:
        drawn = _one_key(probabilities, support, self.training)
        return drawn + (probabilities - probabilities.detach())


def log_probability(drawn: AttentionMap) -> Float[Tensor, "..."]:
    """Returns the log-probability of the key that each query drew: (b,h,q), or (q,h) over edges.

    It is 0, without a gradient, where nothing was drawn: without a key, and with the probabilities as weights.
    """
    if drawn.probabilities is None:
        raise ValueError(f"{drawn.site} draws nothing: its normalizer is not one of hard attention")
    chosen = drawn.probabilities.masked_fill(drawn.weights.detach() == 0, 0.0)
    if drawn.axes[-2] == "query":
        total = chosen.sum(-1)
    elif isinstance(drawn.support, Support):
        total = drawn.support.sum_per_query(chosen)
    else:
        raise ValueError(f"{drawn.site} was called several times with different pairs: record each call on its own")
    return total.masked_fill(total == 0, 1.0).log()


@torch.no_grad()
def _one_key(probabilities: Tensor, support: Support, sampled: bool) -> Tensor:
    return support.apply_per_query(_sample if sampled else _likeliest, probabilities)


@torch.no_grad()
def _some_rows(share: float, weights: Float[Tensor, "..."], support: Support) -> Bool[Tensor, "..."]:
    """Draws rows, each with this probability; True at all their pairs."""

    def draw_row(row: Tensor, _: Tensor | None) -> Tensor:
        return (torch.rand_like(row[..., :1]) < share).to(row.dtype).expand(row.shape)

    return support.apply_per_query(draw_row, weights) > 0


def _sample(weights: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    """Samples the first key whose cumulative probability exceeds a uniform number, with one random number per row."""
    weights = weights if permitted is None else weights.masked_fill(~permitted, 0.0)
    if not weights.shape[-1]:
        return weights
    up_to = weights.cumsum(-1)
    total = up_to[..., -1:]
    # The second condition: if the random number is rounded up to the total, the last key with a probability is drawn.
    before = (up_to <= torch.rand_like(total) * total) & (up_to < total)
    return _one_hot(before.sum(-1, keepdim=True), weights, total)


def _likeliest(weights: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    weights = weights if permitted is None else weights.masked_fill(~permitted, 0.0)
    if not weights.shape[-1]:
        return weights
    return _one_hot(weights.argmax(-1, keepdim=True), weights, weights.sum(-1, keepdim=True))


def _one_hot(index: Tensor, weights: Tensor, total: Tensor) -> Tensor:
    """Returns 1 at the index; zeros in a row without probability, and NaN in a row whose probabilities are NaN."""
    return torch.zeros_like(weights).scatter(-1, index, torch.where(total > 0, torch.ones_like(total), total))
