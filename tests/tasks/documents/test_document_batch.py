"""The packed batch: whose words and sentences are whose, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from document_cases import texts

from zoo.tasks.documents.batch import Document, DocumentBatch

DOCUMENTS = [
    Document([[5, 6], [7]], 2, "first", [True, False, False], [True, False]),
    Document([[8, 9, 1]], 0, "second", [False, True, True], [True]),
]


def test_words_sentences_and_documents() -> None:
    batch = DocumentBatch.collate(DOCUMENTS)
    assert len(batch) == 2
    assert batch.ids == ("first", "second")
    expected = {
        "words": [5, 6, 7, 8, 9, 1],
        "sentences": [0, 0, 1, 2, 2, 2],
        "documents": [0, 0, 1],
        "labels": [2, 0],
        "sentence_lengths": [2, 1, 3],
        "document_lengths": [2, 1],
        "word_documents": [0, 0, 0, 1, 1, 1],
        "text_lengths": [3, 3],
    }
    for name, numbers in expected.items():
        assert getattr(batch, name).tolist() == numbers, name
        assert getattr(batch, name).dtype == torch.int64
    assert batch.gold_words.tolist() == [True, False, False, False, True, True]
    assert batch.gold_sentences.tolist() == [True, False, True]


def test_several_labels_and_unknown_gold() -> None:
    several = [replace(each, label=[True, False, number == 1]) for number, each in enumerate(DOCUMENTS)]
    batch = DocumentBatch.collate([several[0], replace(several[1], gold_words=None)])
    assert batch.labels.tolist() == [[True, False, False], [True, False, True]]
    assert batch.labels.dtype == torch.bool
    assert batch.gold_words is None
    assert batch.gold_sentences is not None


def test_all_tensors_move() -> None:
    moved = DocumentBatch.collate(texts()).to("meta")
    for name in ("words", "sentences", "documents", "labels", "gold_words", "gold_sentences"):
        assert getattr(moved, name).device.type == "meta"
    assert moved.ids == DocumentBatch.collate(texts()).ids


@pytest.mark.parametrize("sentences", [[], [[1], []]])
def test_documents_without_sentences_or_words_are_refused(sentences: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="document 'odd' must have a sentence, and a word in each of its sentences"):
        DocumentBatch.collate([*DOCUMENTS, Document(sentences, 0, "odd")])
