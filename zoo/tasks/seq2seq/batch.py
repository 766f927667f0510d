"""A batch of sources and the texts that are written of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

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


S = TypeVar("S", bound=BatchSource)
W = TypeVar("W")


@dataclass(frozen=True, eq=False)
class Seq2SeqBatch(ABC, Generic[S, W]):
    """Sources and their texts.

    Args:
        source: What is read.
        targets: The texts that are to be written; None if one of them is not known.
        ids: Names of the examples.
        splits: Their splits; "" for an example in none.
        gold: The places of the source that each target token was made of, in the form of the domain; None if they are
            not known of all examples.
        written: The examples as people read them, each with `references`, the given texts; None in training.
    """

    source: S
    targets: Targets | None
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    gold: Any = None
    written: tuple[W, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    @abstractmethod
    def language(self) -> TextCodec | None:
        """The language that is written, by which numbers become texts."""

    @property
    def references(self) -> list[Sequence[str]]:
        """The given texts of each example, as people wrote them."""
        written: Any = self.written
        return [each.references for each in written]

    @property
    def comparable_references(self) -> list[Sequence[str]]:
        """The given texts of each example as the model spells its own, which scores compare them with."""
        assert self.language is not None
        return [[self.language.respell(text) for text in each] for each in self.references]

    @abstractmethod
    def gold_of(self, chosen: Int[Tensor, " s"], source: S, targets: Targets) -> Any:
        """Returns the gold of some examples, whose source and targets are these, if there is any."""

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)

    def select(self, numbers: Sequence[int]) -> Self:
        """Returns some of the examples, without the padding that none of them needs."""
        chosen = torch.tensor(numbers, dtype=torch.int64)  # also indexes tensors of other devices
        source, targets = self.source.select(chosen), None if self.targets is None else self.targets.select(chosen)
        gold = None
        if self.gold is not None and targets is not None:
            gold = self.gold_of(chosen, source, targets)
        return replace(
            self,
            source=source,
            targets=targets,
            ids=tuple(self.ids[number] for number in numbers),
            splits=tuple(self.splits[number] for number in numbers),
            gold=gold,
            written=None if self.written is None else tuple(self.written[number] for number in numbers),
        )

    def with_targets(self, targets: Targets) -> Self:
        """Returns the examples with other texts, of which no gold is known."""
        return replace(self, targets=targets, gold=None)


AnyBatch = Seq2SeqBatch[Any, Any]


def segment_target(batch: AnyBatch, number: int) -> WordSegmentation:
    """Returns the words of an example's given text, as the model knows them."""
    assert batch.targets is not None
    assert batch.language is not None
    return batch.language.spelled(batch.targets.texts()[number])


def all_known(parts: Sequence[W | None]) -> list[W] | None:
    """Returns something known of each example; None if it is not known of one."""
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None
