"""A batch of sources and the texts that are written of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.data.transfer import to_device
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import TextCodec, WordSegmentation


class BatchSource(Protocol):
    """What a batch reads: padded places, such as words or frames."""

    def __len__(self) -> int: ...

    def select(self, numbers: Int[Tensor, " s"]) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...


class WrittenExample(Protocol):
    """An example as people read it."""

    @property
    def references(self) -> Sequence[str]:
        """The given texts, as people wrote them; none if they are not known."""


S = TypeVar("S", bound=BatchSource)
E = TypeVar("E")
W = TypeVar("W", covariant=True)
"""None for a batch of training, and a tuple with an example as people read it for each of a batch for people."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Seq2SeqBatch(ABC, Generic[S, W]):
    """Sources and their texts.

    Its type says whether it is for training (`TranslationBatch[None]`) or for people (`ReadableTranslationBatch`), as
    it is made for evaluation, prediction and maps.

    Args:
        source: What is read.
        targets: The texts that are to be written; None if one of them is not known.
        ids: Names of the examples.
        splits: Their splits; "" for an example in none.
        language: The language that is written, by which numbers become texts.
        gold: The places of the source that each target token was made of, in the form of the domain; None if they are
            not known of all examples.
        written: The examples as people read them; None in training.
    """

    source: S
    targets: Targets | None
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    language: TextCodec
    gold: Any = None
    written: W

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def known_targets(self) -> Targets:
        """The texts that are to be written, in a batch that has them."""
        if self.targets is None:
            raise ValueError("these examples have no given texts")
        return self.targets

    @property
    def references(self: ReadableBatch) -> list[Sequence[str]]:
        """The given texts of each example, as people wrote them."""
        return [written.references for written in self.written]

    @property
    def comparable_references(self: ReadableBatch) -> list[Sequence[str]]:
        """The given texts of each example as the model spells its own, which scores compare them with."""
        return [[self.language.respell(text) for text in texts] for texts in self.references]

    @abstractmethod
    def select_gold(self, gold: Any, numbers: Int[Tensor, " s"], source: S, targets: Targets) -> Any:
        """Returns the gold of some examples, whose source and targets are these."""

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)

    def select(self, numbers: Sequence[int]) -> Self:
        """Returns some of the examples, without the padding that none of them needs."""
        rows = torch.tensor(numbers, dtype=torch.int64)  # also indexes tensors of other devices
        source, targets = self.source.select(rows), None if self.targets is None else self.targets.select(rows)
        is_known = self.gold is not None and targets is not None
        written: Any = self.written
        return replace(
            self,
            source=source,
            targets=targets,
            ids=tuple(self.ids[number] for number in numbers),
            splits=tuple(self.splits[number] for number in numbers),
            gold=self.select_gold(self.gold, rows, source, targets) if is_known else None,  # type: ignore[arg-type]
            written=written if written is None else tuple(written[number] for number in numbers),  # type: ignore[arg-type]
        )

    def replace_targets(self, targets: Targets) -> Self:
        """Returns the examples with other texts, of which no gold is known."""
        return replace(self, targets=targets, gold=None)


AnyBatch: TypeAlias = Seq2SeqBatch[Any, Any]
ReadableBatch: TypeAlias = Seq2SeqBatch[Any, tuple[WrittenExample, ...]]


def segment_target(batch: AnyBatch, number: int) -> WordSegmentation:
    """Returns the words of an example's given text, as the model knows them."""
    return batch.language.segment(batch.known_targets.texts()[number])


def all_known(parts: Sequence[E | None]) -> list[E] | None:
    """Returns something known of each example; None if it is not known of one."""
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None


def collate_written(parts: Sequence[E | None]) -> Any:
    """Returns the examples of a batch as people read them; None in training."""
    known = all_known(parts)
    return None if known is None else tuple(known)
