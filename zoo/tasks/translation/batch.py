"""A batch of texts and their translations, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from zoo.tasks.seq2seq.batch import Seq2SeqBatch, W, all_known, collate_written
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import TextCodec

Link = tuple[int, int]
"""A target token and the source token that it was made of, each by its place in its text."""


@dataclass(frozen=True, eq=False)
class Languages:
    """The language that is read and the one that is written."""

    source: TextCodec
    target: TextCodec


@dataclass(frozen=True)
class WrittenPair:
    """A pair as people read it, which training does not need.

    Args:
        source: The text.
        references: Its translations, as written; none if they are not known.
        pieces: The tokens of the source as they stand in the text.
        words: The number of each source token's word, or `zoo.text.tokens.NO_WORD`.
    """

    source: str
    references: Sequence[str]
    pieces: Sequence[str]
    words: Sequence[int]


@dataclass(frozen=True, eq=False)
class Pair:
    """A text and its translation.

    Args:
        source: Numbers of the tokens, at least one.
        target: Numbers of the translation's tokens, without the end; None if it is not known.
        id: Name of the pair.
        split: train, val or test, or "" if it is in none.
        links: Gold alignment of tokens; None if it is not known.
        written: The pair as people read it; None in training.
    """

    source: Sequence[int]
    target: Sequence[int] | None
    id: str
    split: str = ""
    links: Sequence[Link] | None = None
    written: WrittenPair | None = None

    def shorten(self, length: int) -> Pair:
        """Returns the first tokens of both texts, for the net."""
        target = None if self.target is None else self.target[: length - 1]  # an end is added
        return Pair(self.source[:length], target, self.id, self.split)


@dataclass(frozen=True, eq=False, kw_only=True)
class TranslationBatch(Seq2SeqBatch[Source, W]):
    """A batch of texts and their translations.

    `gold` is a mask (b,n,k) of the source tokens that each target token, without the end, was made of.
    """

    gold: Bool[Tensor, "b n k"] | None = None

    @classmethod
    def collate(cls, pairs: Sequence[Pair], language: TextCodec) -> TranslationBatch[Any]:
        """Collates pairs, in their order."""
        targets, links = all_known([pair.target for pair in pairs]), all_known([pair.links for pair in pairs])
        source, tokens = Source.pad([pair.source for pair in pairs]), None if targets is None else Targets.pad(targets)
        return cls(
            source=source,
            targets=tokens,
            ids=tuple(pair.id for pair in pairs),
            splits=tuple(pair.split for pair in pairs),
            gold=None if links is None or tokens is None else _mask_links(links, source, tokens),
            language=language,
            written=collate_written([pair.written for pair in pairs]),
        )

    def select_gold(
        self, gold: Bool[Tensor, "b n k"], numbers: Int[Tensor, " s"], source: Source, targets: Targets
    ) -> Bool[Tensor, "s m l"]:
        return gold[numbers, : targets.tokens.shape[1], : source.tokens.shape[1]]


ReadableTranslationBatch: TypeAlias = TranslationBatch[tuple[WrittenPair, ...]]


def _mask_links(links: Sequence[Sequence[Link]], source: Source, targets: Targets) -> Bool[Tensor, "b n k"]:
    gold = torch.zeros(*targets.tokens.shape, source.tokens.shape[1], dtype=torch.bool)
    places = [(number, *link) for number, pairs in enumerate(links) for link in pairs]
    if places:
        gold[tuple(torch.tensor(places).T)] = True
    return gold
