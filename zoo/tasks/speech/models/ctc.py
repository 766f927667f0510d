"""A CTC branch beside a speller, which is trained with it and may decide with it (Watanabe et al. 2017)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torchaudio.functional import forced_align

from zoo.decoding.decoder import get_coverage
from zoo.decoding.ensemble import Ensemble, WeightedSum
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.nn.seq2seq.state import Encoded
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import END, PAD
from zoo.tasks.speech.models.ctc_prefixes import CTCOutput, CTCPrefixes, PrefixState
from zoo.types import PositiveInt, validate_ranges

BLANK = PAD
"""The blank takes the row of the padding, which is never written."""


@validate_ranges
class CTC(nn.Module):
    """Connectionist temporal classification of a listener's states (Graves et al. 2006).

    Args:
        width: Width of a state.
        tokens: Size of the vocabulary.
    """

    def __init__(self, *, width: PositiveInt, tokens: PositiveInt) -> None:
        super().__init__()
        self.head = nn.Linear(width, tokens)

    def forward(self, encoded: Encoded) -> CTCOutput:
        """Returns the log-probability of each symbol at each place, in at least fp32."""
        logits = self.head(encoded.states)
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        return CTCOutput(logits.log_softmax(-1), places_of(encoded))

    def loss(self, heard: CTCOutput, targets: Targets) -> Float[Tensor, " b"]:
        """Returns -log p(text | X) of each text without its end; infinite where `count_needed` exceeds the places."""
        return F.ctc_loss(
            heard.log_probability.transpose(0, 1),
            targets.tokens,
            heard.lengths,
            targets.lengths - 1,
            blank=BLANK,
            reduction="none",
        )

    @torch.no_grad()
    def stops(self, heard: CTCOutput, targets: Targets) -> Float[Tensor, "b n k"]:
        """Returns the probability of each token at its last place on the most probable path of its text, else zero.

        Ends and padding have no place.
        """
        found = torch.zeros(*targets.tokens.shape, heard.log_probability.shape[1])
        rows = zip(heard.log_probability.float().cpu(), heard.lengths.tolist(), targets.texts(), strict=True)
        for number, (log_probability, places, text) in enumerate(rows):
            if text:
                tokens = torch.tensor([text], dtype=torch.int32)
                (path,), (scores,) = forced_align(log_probability[None, :places].contiguous(), tokens, blank=BLANK)
                later = F.pad(path[1:], (0, 1), value=BLANK)
                last = ((path != BLANK) & (path != later)).nonzero().flatten()
                found[number, torch.arange(len(text)), last] = scores[last].exp()
        return found.to(heard.log_probability.device)


def places_of(encoded: Encoded) -> Int[Tensor, " b"]:
    """Returns the number of places of each recording."""
    permitted = encoded.support.permitted
    if permitted is None:
        return torch.full((len(encoded.states),), encoded.states.shape[1], device=encoded.states.device)
    return permitted[:, 0, 0].sum(-1)


def count_needed(targets: Targets) -> Int[Tensor, " b"]:
    """Returns the least number of places of each text: one for a token, and one between equal neighbours."""
    count = targets.lengths - 1
    same = targets.tokens[:, 1:] == targets.tokens[:, :-1]
    inside = torch.arange(1, targets.tokens.shape[1], device=count.device) < count.unsqueeze(1)
    return count + (same & inside).sum(1)


class JointDecoder:
    """(1 - w) log p_attention + w log p_CTC of each token: a `Decoder` (Watanabe et al. 2017, section III-B).

    CTC reads from left to right, and so prevents the early ends and loops of attention.

    Args:
        net: A net with `encode` and a CTC branch `ctc`.
        weight: w, above 0 and below 1 (0.3 in the paper's search in one pass).
    """

    is_scored = True

    def __init__(self, net: Seq2SeqModel, weight: float) -> None:
        self.net: Any = net
        self.both = Ensemble([net, _Branch(net.ctc)], WeightedSum((1.0 - weight, weight)))

    def start(self, source: Any) -> tuple[Any, ...]:
        return self.both.start(self.net.encode(source))

    def step(
        self, tokens: Int[Tensor, "b w"], state: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "b w v"], tuple[Any, ...]]:
        return self.both.step(tokens, state)

    def reorder(self, state: tuple[Any, ...], beams: Int[Tensor, "b w2"]) -> tuple[Any, ...]:
        return self.both.reorder(state, beams)

    def select(self, state: tuple[Any, ...], sentences: Int[Tensor, " s"]) -> tuple[Any, ...]:
        return self.both.select(state, sentences)

    def may_end(self, state: tuple[Any, ...]) -> Bool[Tensor, "b w"] | None:
        return self.both.may_end(state)

    def must_end(self, state: tuple[Any, ...]) -> Bool[Tensor, "b w"] | None:
        return self.both.must_end(state)

    def coverage(self, state: tuple[Any, ...]) -> Float[Tensor, "b w k"]:
        """Returns what the attention of the speller has covered."""
        return get_coverage(self.net, state[0])


class _Branch(CTCPrefixes):
    """The prefixes of what a branch has heard of a listener's states."""

    def __init__(self, ctc: Any) -> None:
        super().__init__(blank=BLANK, end=END)
        self.ctc = ctc

    def start(self, source: Any) -> PrefixState:
        return super().start(self.ctc(source))
