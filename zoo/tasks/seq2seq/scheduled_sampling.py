"""Scheduled sampling (Bengio et al. 2015): in training, some of the tokens that a decoder reads are its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.types import Fraction, PositiveInt, validate_ranges


@validate_ranges
@dataclass(frozen=True)
class ScheduledSampling:
    """The probability 1 - epsilon_i that a decoder reads a token of its own, which grows linearly (section 2.4).

    Args:
        share: The greatest probability.
        steps: Number of steps of the optimizer until it is reached.
    """

    share: Fraction = 0.25
    steps: PositiveInt = 10_000

    def __call__(self, step: int) -> float:
        return self.share * min(1.0, step / self.steps)


def mix_predictions(
    net: Seq2SeqModel, source: Any, read: Int[Tensor, "b n"], share: float
) -> Float[Tensor, "b n vocabulary"]:
    """Returns the logits of a decoder that reads, with probability `share`, a token drawn from its own prediction.

    Each step needs the one before it. No gradient passes through the draws, as in the paper.
    """
    state, tokens, steps = net.start(source), read[:, :1], []
    for number in range(read.shape[1]):
        logits, state = net.step(tokens, state)
        steps.append(logits)
        if number + 1 < read.shape[1]:
            drawn = torch.multinomial(logits[:, 0].detach().float().softmax(-1), 1)
            is_own = torch.rand(drawn.shape, device=drawn.device) < share
            tokens = torch.where(is_own, drawn, read[:, number + 1 : number + 2])
    return torch.cat(steps, 1)
