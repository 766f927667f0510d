"""A batch of texts and their translations, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from zoo.attention import DenseSupport
from zoo.attention.kernels.kept import for_later
from zoo.tasks.batches import moved
from zoo.tasks.generation.language import Language
from zoo.tasks.generation.targets import Targets, padded, real, some_rows

Link = tuple[int, int]
"""A target token and the source token that it was made of, each by its place in its text."""


@dataclass(frozen=True, eq=False)
class Languages:
    """The language that is read and the one that is written."""

    source: Language
    target: Language


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


@dataclass(frozen=True, eq=False)
class Source:
    """The texts that are read, padded.

    Args:
        tokens: Numbers of the tokens.
        lengths: Number of tokens of each text.
    """

    tokens: Int[Tensor, "b k"]
    lengths: Int[Tensor, " b"]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> Source:
        return cls(*padded(texts))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b k"]:
        """Mask of the tokens that are not padding."""
        return for_later(lambda: real(self.lengths, self.tokens.shape[1]))

    @cached_property
    def support(self) -> DenseSupport:
        """The support of attention to these texts."""
        return DenseSupport.from_key_mask(self.is_real)

    def some(self, numbers: Int[Tensor, " s"]) -> Source:
        """Returns some of the texts, without the padding that none of them needs."""
        return Source(*some_rows(self.tokens, self.lengths, numbers))

    def to(self, device: torch.device | str) -> Source:
        return moved(self, device)


@dataclass(frozen=True, eq=False)
class Pairs:
    """A batch of texts and their translations.

    Args:
        source: The texts that are read.
        targets: The texts that are to be written; None if one of them is not known.
        ids: Names of the pairs.
        splits: Their splits; "" for a pair in none.
        gold: Mask of the source tokens that each target token, without the end, was made of; None if it is not known
            of all pairs.
        languages: The languages, by which numbers become texts.
        written: The pairs as people read them; None in training.
    """

    source: Source
    targets: Targets | None
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    gold: Bool[Tensor, "b n k"] | None = None
    languages: Languages | None = None
    written: tuple[Written, ...] | None = None

    @classmethod
    def of(cls, pairs: Sequence[Pair], languages: Languages | None = None) -> Pairs:
        """Collates pairs, in their order."""
        targets = [pair.target for pair in pairs if pair.target is not None]
        written = [pair.written for pair in pairs if pair.written is not None]
        made = cls(
            source=Source.of([pair.source for pair in pairs]),
            targets=Targets.of(targets) if len(targets) == len(pairs) else None,
            ids=tuple(pair.id for pair in pairs),
            splits=tuple(pair.split for pair in pairs),
            languages=languages,
            written=tuple(written) if len(written) == len(pairs) else None,
        )
        return made._with_gold([pair.links for pair in pairs])

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> Pairs:
        return moved(self, device)

    def some(self, numbers: Sequence[int]) -> Pairs:
        """Returns some of the pairs, without the padding that none of them needs."""
        chosen = torch.tensor(numbers, device=self.source.lengths.device)
        source, targets = self.source.some(chosen), None if self.targets is None else self.targets.some(chosen)
        gold = None
        if self.gold is not None and targets is not None:
            gold = self.gold[chosen, : targets.tokens.shape[1], : source.tokens.shape[1]]
        return replace(
            self,
            source=source,
            targets=targets,
            ids=tuple(self.ids[number] for number in numbers),
            splits=tuple(self.splits[number] for number in numbers),
            gold=gold,
            written=None if self.written is None else tuple(self.written[number] for number in numbers),
        )

    def with_targets(self, targets: Targets) -> Pairs:
        """Returns the pairs with other translations, whose alignment is not known."""
        return replace(self, targets=targets, gold=None)

    def _with_gold(self, links: Sequence[Sequence[Link] | None]) -> Pairs:
        known = [each for each in links if each is not None]
        if self.targets is None or len(known) < len(self):
            return self
        gold = torch.zeros(*self.targets.tokens.shape, self.source.tokens.shape[1], dtype=torch.bool)
        at = [(number, target, source) for number, each in enumerate(known) for target, source in each]
        if at:
            gold[tuple(torch.tensor(at).T)] = True
        return replace(self, gold=gold)
