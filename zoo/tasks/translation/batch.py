"""A batch of texts and their translations, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from zoo.tasks.seq2seq.batch import Seq2SeqBatch, all_known
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
class Written:
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
    written: Written | None = None

    def shortened(self, length: int) -> Pair:
        """Returns the first tokens of both texts, for the net."""
        target = None if self.target is None else self.target[: length - 1]  # an end is added
        return Pair(self.source[:length], target, self.id, self.split)


@dataclass(frozen=True, eq=False)
class TranslationBatch(Seq2SeqBatch[Source, Written]):
    """A batch of texts and their translations.

    `gold` is a mask (b,n,k) of the source tokens that each target token, without the end, was made of.

    Args:
        languages: The languages, by which numbers become texts.
    """

    gold: Bool[Tensor, "b n k"] | None = None
    languages: Languages | None = None

    @classmethod
    def of(cls, pairs: Sequence[Pair], languages: Languages | None = None) -> TranslationBatch:
        """Collates pairs, in their order."""
        targets, written = all_known([pair.target for pair in pairs]), all_known([pair.written for pair in pairs])
        made = cls(
            source=Source.of([pair.source for pair in pairs]),
            targets=None if targets is None else Targets.of(targets),
            ids=tuple(pair.id for pair in pairs),
            splits=tuple(pair.split for pair in pairs),
            languages=languages,
            written=None if written is None else tuple(written),
        )
        links = all_known([pair.links for pair in pairs])
        return made if links is None else made._with_gold(links)

    @property
    def language(self) -> TextCodec | None:
        return None if self.languages is None else self.languages.target

    def gold_of(self, chosen: Int[Tensor, " s"], source: Source, targets: Targets) -> Bool[Tensor, "s n k"]:
        assert self.gold is not None
        return self.gold[chosen, : targets.tokens.shape[1], : source.tokens.shape[1]]

    def _with_gold(self, links: Sequence[Sequence[Link]]) -> TranslationBatch:
        if self.targets is None:
            return self
        gold = torch.zeros(*self.targets.tokens.shape, self.source.tokens.shape[1], dtype=torch.bool)
        at = [(number, target, source) for number, each in enumerate(links) for target, source in each]
        if at:
            gold[tuple(torch.tensor(at).T)] = True
        return replace(self, gold=gold)
