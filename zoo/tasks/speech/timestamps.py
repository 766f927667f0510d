"""When each token and each word of a transcript was spoken, as the weights of a forced pass say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.text.tokens import NO_WORD

TOLERANCE = 0.1
"""Seconds by which attention may miss the time of a word."""
_FOCUSED = 0.5
"""The least share of the attention of a word in its time."""
Focus = Callable[[Float[Tensor, "n 2"]], Float[Tensor, " n"]]
"""Returns the share of the attention of each token that lies in a span, in frames."""


class Timed(NamedTuple):
    """A part of a transcript.

    Attributes:
        text: A word or a token.
        start, end: In seconds from the beginning of the recording.
        probability: The geometric mean over its tokens, each given those before it.
        focus: Share of the attention of its tokens that lies in this time, or less than `TOLERANCE` from it.
    """

    text: str
    start: float
    end: float
    probability: float
    focus: float = 1.0

    @property
    def is_poor(self) -> bool:
        """Whether the time is no more than a guess: it has no length, or attention was elsewhere more than there."""
        return self.end <= self.start or self.focus < _FOCUSED


class Times(NamedTuple):
    """A transcript in time.

    Attributes:
        words, tokens: Its parts, in their order.
        seconds: Length of the recording.
    """

    words: Sequence[Timed]
    tokens: Sequence[Timed]
    seconds: float


def times_of(
    tokens: Sequence[int],
    spans: Float[Tensor, "n 2"],
    log_probability: Float[Tensor, " n"],
    language: TextCodec,
    hop: float,
    seconds: float,
    focus: Focus | None = None,
) -> Times:
    """Names the tokens and words of a transcript, with their times.

    Args:
        tokens: Numbers of the tokens, without the end.
        spans: Where each token begins and ends, in frames: `spoken`.
        log_probability: Of each token.
        language: The language of the tokens.
        hop: Seconds from one frame to the next.
        seconds: Length of the recording.
        focus: Measures how well times are known. Default: they are exact.
    """
    places = (spans * hop).clamp(max=seconds).tolist()
    chances = log_probability.double()
    shares = torch.ones(len(tokens)) if focus is None else focus(spans)
    timed = [
        Timed(piece, start, end, float(chance.exp()), float(share))
        for piece, (start, end), chance, share in zip(language.pieces(tokens), places, chances, shares, strict=True)
    ]
    words, owners = language.segment(tokens)
    of_words, found = spans.clone(), []
    belonging = [
        [place for place, owner in enumerate(owners) if owner == number and owner != NO_WORD]
        for number in range(len(words))
    ]
    for own in belonging:
        of_words[own] = torch.stack([spans[own[0], 0], spans[own[-1], 1]])
    shares = torch.ones(len(tokens)) if focus is None else focus(of_words)
    for word, own in zip(words, belonging, strict=True):
        chance, share = float(chances[own].mean().exp()), float(shares[own].mean())
        found.append(Timed(word, places[own[0]][0], places[own[-1]][1], chance, share))
    return Times(found, timed, seconds)
