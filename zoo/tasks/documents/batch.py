"""What the nets, the task and the maps see of texts: a packed batch, all words of all documents one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.kept import for_later


@dataclass(frozen=True, eq=False)
class Document:
    """One text.

    Args:
        sentences: The numbers of the words of each sentence; at least one sentence, and at least one word in each.
        label: A class, or whether each class applies; -1 where it is not known.
        id: Its name.
        gold_words: Which words decide the label, in the order of the text; None where that is not known.
        gold_sentences: Which sentences do.
    """

    sentences: Sequence[Sequence[int]]
    label: int | Sequence[bool]
    id: str
    gold_words: Sequence[bool] | None = None
    gold_sentences: Sequence[bool] | None = None


@dataclass(frozen=True, eq=False)
class Documents:
    """A batch of texts; nothing is padded.

    Args:
        words: The numbers of all words, sentence after sentence, document after document.
        sentences: The sentence that each word is in, counted through the batch; without gaps.
        documents: The document that each sentence is in; without gaps.
        labels: The class of each document, -1 where it is not known; or whether each class applies.
        ids: Of the documents.
        gold_words: Which words decide the label; None where that is not known of all documents.
        gold_sentences: Which sentences do.
    """

    words: Int[Tensor, " w"]
    sentences: Int[Tensor, " w"]
    documents: Int[Tensor, " s"]
    labels: Shaped[Tensor, "b *c"]
    ids: tuple[str, ...]
    gold_words: Bool[Tensor, " w"] | None = None
    gold_sentences: Bool[Tensor, " s"] | None = None

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Documents:
        """Collates documents, in their order."""
        sentences = [sentence for document in documents for sentence in document.sentences]
        counts = _numbers([len(document.sentences) for document in documents])
        lengths = _numbers([len(sentence) for sentence in sentences])
        for document in documents:
            if not len(document.sentences) or not all(map(len, document.sentences)):
                raise ValueError(f"document {document.id!r} must have a sentence, and a word in each of its sentences")
        return cls(
            words=_numbers(list(chain.from_iterable(sentences))),
            sentences=_owners(lengths),
            documents=_owners(counts),
            labels=torch.tensor([document.label for document in documents]),
            ids=tuple(document.id for document in documents),
            gold_words=_gold([document.gold_words for document in documents]),
            gold_sentences=_gold([document.gold_sentences for document in documents]),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def sentence_lengths(self) -> Int[Tensor, " s"]:
        """How many words each sentence has."""
        return for_later(lambda: torch.bincount(self.sentences, minlength=len(self.documents)))

    @cached_property
    def document_lengths(self) -> Int[Tensor, " b"]:
        """How many sentences each document has."""
        return for_later(lambda: torch.bincount(self.documents, minlength=len(self)))

    @cached_property
    def word_documents(self) -> Int[Tensor, " w"]:
        """The document that each word is in."""
        return for_later(lambda: self.documents[self.sentences])

    @cached_property
    def text_lengths(self) -> Int[Tensor, " b"]:
        """How many words each document has."""
        return for_later(lambda: torch.bincount(self.word_documents, minlength=len(self)))

    def to(self, device: torch.device | str) -> Documents:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: each.to(device) for name, each in values.items() if isinstance(each, Tensor)}
        return replace(self, **moved)


def _numbers(values: Sequence[int]) -> Int[Tensor, " n"]:
    return torch.from_numpy(np.array(values, dtype=np.int64))


def _owners(lengths: Int[Tensor, " n"]) -> Int[Tensor, " total"]:
    """The number of the range to which each row belongs, where one range follows the other."""
    return torch.arange(len(lengths)).repeat_interleave(lengths)


def _gold(parts: Sequence[Sequence[bool] | None]) -> Bool[Tensor, " n"] | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return torch.from_numpy(np.array(list(chain.from_iterable(known)), dtype=bool))
