"""When each token and each word of a transcript was spoken, as the weights of a forced pass say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from zoo.tasks.generation.language import Language
from zoo.text.tokens import NO_WORD


class Timed(NamedTuple):
    """A part of a transcript.

    Attributes:
        text: A word or a token.
        start, end: In seconds from the beginning of the recording.
        probability: The geometric mean over its tokens, each given those before it.
    """

    text: str
    start: float
    end: float
    probability: float


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
    language: Language,
    hop: float,
    seconds: float,
) -> Times:
    """Names the tokens and words of a transcript, with their times.

    Args:
        tokens: Numbers of the tokens, without the end.
        spans: Where each token begins and ends, in frames: `spoken`.
        log_probability: Of each token.
        language: The language of the tokens.
        hop: Seconds from one frame to the next.
        seconds: Length of the recording.
    """
    places = (spans * hop).clamp(max=seconds).tolist()
    chances = log_probability.double()
    timed = [
        Timed(piece, start, end, float(chance.exp()))
        for piece, (start, end), chance in zip(language.pieces(tokens), places, chances, strict=True)
    ]
    words, owners = language.spelled(tokens)
    found = []
    for number, word in enumerate(words):
        own = [place for place, owner in enumerate(owners) if owner == number and owner != NO_WORD]
        found.append(Timed(word, places[own[0]][0], places[own[-1]][1], float(chances[own].mean().exp())))
    return Times(found, timed, seconds)
