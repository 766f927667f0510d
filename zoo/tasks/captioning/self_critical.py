"""Self-critical training (Rennie et al. 2017): a second stage that raises the CIDEr-D of what the model writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.sampling import Sampling
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.captioning.batch import ReadableCaptionBatch
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.targets import Targets, pad_sequences
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.text import CIDEr


class SelfCritical(nn.Module):
    """The loss -(r(w) - r(w')) log p(w) of a text w that is drawn, where w' is that of greedy search (eq. 8).

    r is CIDEr-D against all captions of a picture. Dropout is off while a text is drawn and while its probability is
    computed, so that both are of one distribution and the gradient is an unbiased estimate of that of -E r(w).

    Args:
        writing: How the model writes; its limits and constraints are those of the draws.
    """

    def __init__(self, writing: DecodingConfig) -> None:
        super().__init__()
        self.greedy = writing.greedy()
        self.constraints = writing.search.constraints
        self.longest = writing.longest

    def forward(
        self, net: Seq2SeqModel, batch: ReadableCaptionBatch, seed: int
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " b"]]:
        """Returns the sum of the losses, and the rewards of the drawn texts."""
        was_training = net.training
        net.eval()
        try:
            drawing = DecodingConfig(Sampling(constraints=self.constraints), self.longest, seed)
            with torch.no_grad():
                drawn = _first(drawing(net, batch.source, _apart(batch.ids)))
                greedy = _first(self.greedy(net, batch.source, batch.ids))
            rewards = self.rewards(batch, drawn)
            advantage = rewards - self.rewards(batch, greedy)
            return -(advantage * log_probability(net, batch.source, drawn)).sum(), rewards
        finally:
            net.train(was_training)

    def rewards(self, batch: ReadableCaptionBatch, written: Sequence[Hypothesis]) -> Float[Tensor, " b"]:
        """Returns the CIDEr-D of a text of each picture."""
        texts = [batch.language.text(each.tokens) for each in written]
        found = CIDEr(batch.known_frequencies).each(texts, batch.comparable_references)
        return torch.tensor(found, device=batch.source.lengths.device)


def log_probability(net: Seq2SeqModel, source: Any, written: Sequence[Hypothesis]) -> Float[Tensor, " b"]:
    """Returns the logarithm of the probability that each text is drawn with; padding and the begin never are."""
    tokens, lengths = (each.to(source.lengths.device) for each in pad_sequences([each.target(END) for each in written]))
    targets = Targets(tokens, lengths)
    logits = net.whole(source, targets.read).clone()
    logits[..., [PAD, BEGIN]] = -torch.inf
    found = logits.log_softmax(-1).gather(-1, tokens.masked_fill(~targets.is_real, END).unsqueeze(-1)).squeeze(-1)
    return found.masked_fill(~targets.is_real, 0.0).sum(1)


def _first(written: Sequence[Sequence[Hypothesis]]) -> list[Hypothesis]:
    return [each[0] for each in written]


def _apart(ids: Sequence[str]) -> list[str]:
    """Returns names that differ, so that a picture that is in a batch twice has two draws."""
    return [f"{number} {id}" for number, id in enumerate(ids)]
