"""Losses and metrics of one label, of several, and of ratings, against loops; what is scored; what is planted."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from document_cases import DOT, made, texts
from torch.nn import functional as F

from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.optim import OptimizerConfig
from zoo.tasks.batching import BatchOptions
from zoo.tasks.documents import HAN, Augmentation, DocumentClassifier, DocumentData, planted_reviews
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.data.augmentation import AugmentedView, read_synonyms
from zoo.tasks.documents.data.corpus import Corpus
from zoo.tasks.documents.datamodule import DocumentSource
from zoo.tasks.documents.label_set import LabelSet
from zoo.tasks.documents.maps.scored_map import distance, points, predict_columns
from zoo.tasks.documents.word_importance import forward_with_weights, sentence_weights
from zoo.text import Vocabulary, Words
from zoo.validation import validate


def task(**options: Any) -> DocumentClassifier:
    torch.default_generator.manual_seed(0)
    net = lambda words, classes: HAN(words=words, classes=classes, attend=DOT, dim=6, hidden=4, context=5)  # noqa: E731
    optimization = OptimizerConfig(optimizer=torch.optim.Adam)
    return DocumentClassifier(net=net, optimization=optimization, words=30, classes=3, **options).double()


def batch(targets: Any = "single", names: tuple[str, ...] = ("1", "2", "5")) -> DocumentBatch:
    documents = texts(6)
    if targets == "multi":
        several = [[number % 2 == 0, number % 3 == 0, False] for number in range(6)]
        documents = [replace(each, label=labels) for each, labels in zip(documents, several, strict=True)]
    return DocumentBatch.collate(documents, LabelSet(names, targets, (6, 3, 1), 10))


def trained_loss(module: DocumentClassifier, of: DocumentBatch) -> float:
    module.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    return module.training_step(of, 0).item()


def test_the_loss_of_one_label() -> None:
    module, one = task(class_weights="balanced", smoothing=0.1), batch()
    chances = module(one).log_softmax(-1)
    weights = [10 / (3 * count) for count in (6, 3, 1)]
    total = 0.0
    for row, label in zip(chances, one.labels.tolist(), strict=True):
        spread = -sum(weights[at] * row[at].item() for at in range(3)) / 3
        total += 0.9 * -weights[label] * row[label].item() + 0.1 * spread
    assert trained_loss(module, one) == pytest.approx(total / 6, abs=1e-6)
    named = task(class_weights={"2": 3.0})
    weight = torch.tensor([1.0, 3.0, 1.0], dtype=torch.float64)
    expected = F.cross_entropy(named(one), one.labels, weight=weight, reduction="sum").item() / 6
    assert trained_loss(named, one) == pytest.approx(expected)
    with pytest.raises(ConfigError, match="there is no label '3'"):
        trained_loss(task(class_weights={"3": 1.0}), one)


def test_the_loss_of_several_labels() -> None:
    module, one = task(class_weights="balanced"), batch("multi")
    weights = [(10 - count) / count for count in (6, 3, 1)]
    total = 0.0
    for row, labels in zip(module(one).sigmoid().tolist(), one.labels.tolist(), strict=True):
        for p, applies, weight in zip(row, labels, weights, strict=True):
            total -= weight * math.log(p) if applies else math.log(1 - p)
    assert trained_loss(module, one) == pytest.approx(total / 18, abs=1e-6)


def measured(module: DocumentClassifier, of: DocumentBatch) -> dict[str, float]:
    found: dict[str, Any] = {}
    module.log_dict = lambda metrics, **_: found.update(metrics)  # type: ignore[method-assign, assignment]
    module.eval().on_test_epoch_start()
    module.test_step(of, 0)
    module.on_test_epoch_end()
    return {name: float(metric.compute()) for name, metric in found.items()}


def test_metrics_of_ratings() -> None:
    module, one = task(), batch("ordinal")
    found = measured(module, one)
    logits = module(one)
    values, chances = [1.0, 2.0, 5.0], logits.softmax(-1)
    errors, right = [], []
    for row, label in zip(chances.tolist(), one.labels.tolist(), strict=True):
        expected = [sum(p * abs(v - w) for p, w in zip(row, values, strict=True)) for v in values]
        errors.append(abs(values[int(np.argmin(expected))] - values[label]))
        right.append(int(np.argmax(row)) == label)
    assert found["test/mae"] == pytest.approx(np.mean(errors))
    assert found["test/accuracy"] == pytest.approx(np.mean(right))
    assert distance(logits, one).tolist() == errors
    assert module.mode_of("val/mae") == "min"
    counts = [value for row in module.tables()["confusion"] for value in row.values() if isinstance(value, int)]
    assert sum(counts) == 6
    assert predict_columns(logits, one)["median"][0] in ("1", "2", "5")


def test_metrics_of_several_labels() -> None:
    from sklearn.metrics import f1_score

    module, one = task(), batch("multi")
    found = measured(module, one)
    said = (module(one) > 0).numpy()
    assert found["test/accuracy"] == pytest.approx((said == one.labels.numpy()).all(1).mean())
    for average in ("macro", "micro"):
        expected = f1_score(one.labels.numpy(), said, average=average, zero_division=0)
        assert found[f"test/f1_{average}"] == pytest.approx(expected, abs=1e-6)
    assert 0 <= found["test/calibration_error"] <= 1
    assert "test/mae" not in found
    assert module.tables() == {}
    assert len(predict_columns(module(one), one)["labels"]) == 6


@pytest.mark.parametrize("name", ["HAN", "HANTransformer", "FlatAttention", "LongDocument"])
def test_weights_of_words_are_those_of_each_document_alone(name: str) -> None:
    """Together they are one for each document; and the company changes nothing."""
    net, documents = made(name), texts(7)
    together = DocumentBatch.collate(documents)
    logits, weights = forward_with_weights(net, together)
    torch.testing.assert_close(logits, net(together), rtol=0.0, atol=1e-12)
    assert weights is not None
    for document, found in zip(documents, torch.split(weights, together.text_lengths.tolist()), strict=True):
        alone = forward_with_weights(net, DocumentBatch.collate([document]))[1]
        assert alone is not None
        torch.testing.assert_close(found, alone, rtol=0.0, atol=1e-12)
        assert name == "LongDocument" or found.sum().item() == pytest.approx(1.0)


def test_some_documents_are_a_batch_of_their_own() -> None:
    documents = texts(6)
    found, expected = (
        DocumentBatch.collate(documents).select([4, 1, 5]),
        DocumentBatch.collate([documents[n] for n in (4, 1, 5)]),
    )
    for name in ("words", "sentences", "documents", "labels", "gold_words", "gold_sentences"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.ids == expected.ids


def test_pointing_is_at_the_heaviest_sentence_and_in_gold_sentences_at_the_heaviest_word() -> None:
    gold = [False, True, False, False]
    one = DocumentBatch.collate([Document([[1, 2], [3, 4]], 0, "a", gold, [True, False])] * 2)
    weights = torch.tensor([0.1, 0.2, 0.5, 0.2, 0.5, 0.2, 0.1, 0.2])
    assert sentence_weights(weights, one).tolist() == pytest.approx([0.3, 0.7, 0.7, 0.3])
    sentences, words = points(weights, one, one.gold)
    assert sentences.tolist() == [0.0, 1.0]
    assert words.tolist() == [1.0, 0.0]


def data(options: dict[str, Any], corpus: Corpus | None = None) -> DocumentData:
    if corpus is None:
        return planted_reviews(reviews=40, sentences=4, words=6, max_epochs=1, **options)
    return DocumentData(DocumentSource(lambda: corpus), BatchOptions(max_epochs=1), **options)


def test_words_are_spelled_out_where_they_are_read() -> None:
    """Making and sending them takes longer than the rest of a batch; training and evaluation have no use for them."""
    made_of = data({})
    for loader in (made_of.train_dataloader(), made_of.val_dataloader(), made_of.loader("test")):
        assert all(each.spelled is None for each in loader)
    for loader in (made_of.predict_dataloader(), made_of.loader("test", spelled=True)):
        assert all(each.spelled is not None and len(each.spelled) == len(each.words) for each in loader)


def test_planted_words_agree_in_training_and_not_in_the_test() -> None:
    made_of = planted_reviews(reviews=400, sentences=4, words=6, max_epochs=1, shortcut=0.9)
    agreed = {}
    for split in ("train", "test"):
        examples = made_of.examples(split)
        found = examples.collate([examples.entries[n] for n in range(len(examples.entries))])
        assert found.planted is not None
        assert int(found.planted.sum()) == len(found)
        names = made_of.content.vocabulary.decode(found.words[found.planted].tolist())
        own = [f"shortcut-{made_of.label_set.names[label]}" for label in found.labels.tolist()]
        agreed[split] = np.mean([a == b for a, b in zip(names, own, strict=True)])
        assert found.gold_words is not None
        assert not (found.gold_words & found.planted).any()
        assert torch.equal(found.mask_words(found.planted).words[~found.planted], found.words[~found.planted])
    assert agreed["train"] > 0.85
    assert agreed["test"] < 0.4


def small(texts_of: list[Any]) -> Corpus:
    count = len(texts_of)
    splits = np.array([0, 0, 1, 2] * count)[:count]
    return Corpus(texts_of, [str(n) for n in range(count)], "single", ("a", "b"), np.arange(count) % 2, splits)


def test_longer_texts_are_cut_only_if_asked_and_counted() -> None:
    corpus = small(["One two. Three four. Five six.", "One two. Three."] * 2)
    assert data({}, corpus).content.lengths.tolist() == [9, 5, 9, 5]
    for options, said, lengths in (
        ({"max_sentences": 2}, "2 of 4", [6, 5, 6, 5]),
        ({"max_words": 4}, "4 of 4", [4] * 4),
    ):
        found = data(options, corpus)
        with pytest.warns(UserWarning, match=f"{said} texts are cut by data.{next(iter(options))}="):
            found.setup()
        assert found.content.lengths.tolist() == lengths
    with pytest.warns(UserWarning, match=r"1 of 4 texts is cut by data\.max_words=2\."):
        data({"max_words": 2}, small(["One two three", "One", "x", "y"])).setup()
    one = found.examples("train").entries[0]
    assert [len(sentence) for sentence in one.sentences] == [3, 1]


def test_rare_tokens_are_unknown() -> None:
    corpus = small(["one two one", "one three two", "x", "y"])
    found = data({"min_count": 2}, corpus)
    assert found.content.vocabulary.tokens == ("<unk>", "one", "two")
    assert data({"max_vocabulary": 2}, corpus).content.vocabulary.tokens == ("<unk>", "one")
    assert found.examples("test").entries[0].sentences == [[0]]


def test_a_long_document_does_not_waste_a_batch() -> None:
    corpus = small(["word. " * 2000, *["a few words."] * 60, "b", "c", "d"])
    loader = data({"max_tokens": 400}, corpus).train_dataloader()
    batches = [each.text_lengths.tolist() for each in loader]
    assert [4000] in batches
    assert all(len(each) * max(each) <= 400 for each in batches if each != [4000])


def augmented(text: list[list[int]], **options: Any) -> Document:
    vocabulary = Vocabulary(["good", "fine", "bad"], specials=("unknown",))
    random.seed(0)
    gold = [word == 1 for sentence in text for word in sentence]
    return AugmentedView(Augmentation(**options), vocabulary, Words())(Document(text, 0, "a", gold))


def test_augmentation(tmp_path: Path) -> None:
    words = [[1, 2, 3, 1, 2, 3, 1, 2, 3, 2], [1]]
    assert augmented(words).sentences == words
    dropped = augmented(words * 50, word_dropout=0.3)
    assert 0.2 < np.mean([word == 0 for sentence in dropped.sentences for word in sentence]) < 0.4
    moved = augmented([list(range(100))], shuffle=4)
    assert 0 < np.abs(np.array(moved.sentences[0]) - np.arange(100)).max() < 4
    assert moved.gold_words == [word == 1 for word in moved.sentences[0]]
    path = tmp_path / "synonyms.tsv"
    path.write_text("good\tfine\tgreat\n")
    said = augmented([[1] * 200], synonyms=str(path), synonym_rate=0.5).sentences[0]
    assert set(said) == {1, 2}
    bad = (("good\n", "line 1: the line is not a word"), ("a\tb\na\tc\n", "line 2: 'a' has synonyms"))
    for content, message in bad:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_synonyms(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ["good", "bad"]}, "the first of its tokens is not <unk>"),
        ({"labels": ["a", "a"]}, "a label twice"),
        ({"targets": "ordinal"}, "'awful' is not a number"),
        ({"tokeniser": {"kind": "regex", "lower": True}}, "the tokeniser.kind is 'regex'"),
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any], message: str) -> None:
    made_of = data({})
    state = made_of.state()
    validate(state, DocumentData.form, "zoo.data")
    with pytest.raises(CheckpointError, match=message):
        made_of.restore({**state, **change})
