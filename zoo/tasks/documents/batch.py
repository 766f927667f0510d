"""Packed batches of documents: the words of all documents are concatenated, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.cache import outside_inference_mode
from zoo.nn.segments import owners, ranges
from zoo.tasks.documents.label_set import LabelSet


@dataclass(frozen=True, eq=False)
class Document:
    """One text.

    Args:
        sentences: Vocabulary indices of the words of each sentence. There is at least one sentence, and each has at
            least one word.
        label: Index of the class, or -1 if it is unknown; if documents can have several labels, a flag per label.
        id: Name of the document.
        gold_words: Flag of each word of the text, True if it determines the label. Default: unknown.
        gold_sentences: Flag of each sentence, True if it determines the label. Default: unknown.
        split: Split of the document: train, val, test, or "" for none.
        spelled: Words of each sentence as they are written in the text, with a leading space after white space.
            Default: not stored, as in training and evaluation.
        planted: Index in the text of a word that was inserted into it. Default: no word was.
    """

    sentences: Sequence[Sequence[int]]
    label: int | Sequence[bool]
    id: str
    gold_words: Sequence[bool] | None = None
    gold_sentences: Sequence[bool] | None = None
    split: str = ""
    spelled: Sequence[Sequence[str]] | None = None
    planted: int | None = None

    def shorten(self, length: int) -> Document:
        """Returns the first words, for the net."""
        ends = list(accumulate(map(len, self.sentences), initial=0))
        kept = [each[: length - end] for each, end in zip(self.sentences, ends, strict=False) if end < length]
        return Document(kept, self.label, self.id, split=self.split)


class GoldMarks(NamedTuple):
    """What determines the labels of documents.

    Attributes:
        words: Mask of the words.
        sentences: Mask of the sentences.
    """

    words: Bool[Tensor, " w"]
    sentences: Bool[Tensor, " s"]


W = TypeVar("W", covariant=True)
"""None for a batch of training, and a tuple with all words as they are written for a batch for people."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DocumentBatch(Generic[W]):
    """A batch of texts without padding.

    Its type says whether it is for training (`DocumentBatch[None]`) or for people (`ReadableDocumentBatch`), as it is
    made for predictions that explain and for maps.

    Args:
        words: Vocabulary index of each word of each sentence of each document.
        sentences: Index in the batch of each word's sentence: 0, 1, 2, ... without gaps.
        documents: Index in the batch of each sentence's document: 0, 1, 2, ... without gaps.
        labels: Class of each document, or -1 if it is unknown; if documents can have several labels, a flag per label.
        ids: Name of each document.
        gold_words: Mask of the words that determine the label. Default: unknown for at least one document.
        gold_sentences: Mask of the sentences that determine the label. Default: likewise.
        splits: Split of each document; "" for none.
        label_set: Labels of the data set.
        spelled: All words as they are written in the texts, with a leading space after white space; None in training.
        planted: Mask of the words that were inserted into the texts. Default: none were.
    """

    words: Int[Tensor, " w"]
    sentences: Int[Tensor, " w"]
    documents: Int[Tensor, " s"]
    labels: Shaped[Tensor, "b *c"]
    ids: tuple[str, ...]
    gold_words: Bool[Tensor, " w"] | None = None
    gold_sentences: Bool[Tensor, " s"] | None = None
    splits: tuple[str, ...] = ()
    label_set: LabelSet | None = None
    spelled: W
    planted: Bool[Tensor, " w"] | None = None

    @classmethod
    def collate(cls, documents: Sequence[Document], label_set: LabelSet | None = None) -> DocumentBatch[Any]:
        """Collates documents in the given order."""
        sentences = [sentence for document in documents for sentence in document.sentences]
        counts = _numbers([len(document.sentences) for document in documents])
        lengths = _numbers([len(sentence) for sentence in sentences])
        for document in documents:
            if not len(document.sentences) or not all(map(len, document.sentences)):
                raise ValueError(f"document {document.id!r} must have a sentence, and a word in each of its sentences")
        return cls(
            words=_numbers(list(chain.from_iterable(sentences))),
            sentences=owners(lengths, sum(map(len, sentences))),
            documents=owners(counts, len(sentences)),
            labels=torch.tensor([document.label for document in documents]),
            ids=tuple(document.id for document in documents),
            gold_words=_gold([document.gold_words for document in documents]),
            gold_sentences=_gold([document.gold_sentences for document in documents]),
            splits=tuple(document.split for document in documents),
            label_set=label_set,
            spelled=_join_spelled([document.spelled for document in documents]),
            planted=_join_planted(documents),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def sentence_lengths(self) -> Int[Tensor, " s"]:
        """Number of words of each sentence."""
        return outside_inference_mode(lambda: torch.bincount(self.sentences, minlength=len(self.documents)))

    @cached_property
    def document_lengths(self) -> Int[Tensor, " b"]:
        """Number of sentences of each document."""
        return outside_inference_mode(lambda: torch.bincount(self.documents, minlength=len(self)))

    @cached_property
    def word_documents(self) -> Int[Tensor, " w"]:
        """Index in the batch of each word's document."""
        return outside_inference_mode(lambda: self.documents[self.sentences])

    @cached_property
    def text_lengths(self) -> Int[Tensor, " b"]:
        """Number of words of each document."""
        return outside_inference_mode(lambda: torch.bincount(self.word_documents, minlength=len(self)))

    @property
    def known_label_set(self) -> LabelSet:
        """The labels, in a batch that has them."""
        if self.label_set is None:
            raise ValueError("these documents have no labels")
        return self.label_set

    @property
    def gold(self) -> GoldMarks | None:
        """What determines the labels; None if words or sentences are not known of all documents."""
        if self.gold_words is None or self.gold_sentences is None:
            return None
        return GoldMarks(self.gold_words, self.gold_sentences)

    def select(self, numbers: Sequence[int]) -> DocumentBatch[W]:
        """Returns a batch of the documents with the given indices, in the given order."""
        chosen = torch.tensor(numbers, dtype=torch.int64, device=self.words.device)
        words = ranges((self.text_lengths.cumsum(0) - self.text_lengths)[chosen], self.text_lengths[chosen])
        counts = self.document_lengths[chosen]
        sentences = ranges((self.document_lengths.cumsum(0) - self.document_lengths)[chosen], counts)
        spelled: Any = self.spelled
        return DocumentBatch(
            words=self.words[words],
            sentences=owners(self.sentence_lengths[sentences], len(words)),
            documents=owners(counts, len(sentences)),
            labels=self.labels[chosen],
            ids=tuple(self.ids[number] for number in numbers),
            gold_words=None if self.gold_words is None else self.gold_words[words],
            gold_sentences=None if self.gold_sentences is None else self.gold_sentences[sentences],
            splits=tuple(self.splits[number] for number in numbers) if self.splits else (),
            label_set=self.label_set,
            spelled=spelled if spelled is None else tuple(spelled[word] for word in words.tolist()),  # type: ignore[arg-type]
            planted=None if self.planted is None else self.planted[words],
        )

    def mask_words(self, mask: Bool[Tensor, " w"]) -> Self:
        """Returns a batch in which the unknown word, index 0, replaces some words."""
        return replace(self, words=self.words.masked_fill(mask, 0))

    def to(self, device: torch.device | str) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: each.to(device) for name, each in values.items() if isinstance(each, Tensor)}
        return replace(self, **moved)


ReadableDocumentBatch: TypeAlias = DocumentBatch[tuple[str, ...]]


def _numbers(values: Sequence[int]) -> Int[Tensor, " n"]:
    return torch.from_numpy(np.array(values, dtype=np.int64))


def _gold(parts: Sequence[Sequence[bool] | None]) -> Bool[Tensor, " n"] | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return torch.from_numpy(np.array(list(chain.from_iterable(known)), dtype=bool))


def _join_spelled(parts: Sequence[Sequence[Sequence[str]] | None]) -> Any:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return tuple(word for part in known for sentence in part for word in sentence)


def _join_planted(documents: Sequence[Document]) -> Bool[Tensor, " n"] | None:
    if all(document.planted is None for document in documents):
        return None
    parts = []
    for document in documents:
        part = torch.zeros(sum(map(len, document.sentences)), dtype=torch.bool)
        if document.planted is not None:
            part[document.planted] = True
        parts.append(part)
    return torch.cat(parts)
