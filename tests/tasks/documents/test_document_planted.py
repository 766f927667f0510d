"""The planted reviews: one phrase decides, the same words of other aspects say nothing, and it is known where it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from document_cases import DOT
from scipy.stats import chi2_contingency
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import AttentionFactory, Constant, Uniform, record
from zoo.config import instantiate
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.documents import HAN
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.synthetic import ASPECTS, NEGATION, OPINIONS, VERB, SyntheticReviews, plant
from zoo.tasks.documents.word_importance import weights_of

CLASSES = list(OPINIONS)


@pytest.fixture(scope="module")
def reviews() -> SyntheticReviews:
    return plant()


def sentences(reviews: SyntheticReviews, of: np.ndarray) -> list[list[str]]:
    """The words of each sentence, of those that `of` marks."""
    words = [reviews.vocabulary[word] for word in reviews.words[of]]
    owners = np.arange(len(reviews.sentence_lengths)).repeat(reviews.sentence_lengths)[of]
    found: list[list[str]] = [[] for _ in reviews.sentence_lengths]
    for owner, word in zip(owners, words, strict=True):
        found[owner].append(word)
    return found


def said(phrase: list[str]) -> int:
    """The class that a phrase says, as a person reads it."""
    level = next(number for number, each in enumerate(OPINIONS.values()) if phrase[-1] in each)
    return len(CLASSES) - 1 - level if NEGATION in phrase else level


def test_equal_arguments_give_equal_reviews(reviews: SyntheticReviews) -> None:
    same, other = plant(), plant(seed=1)
    for name in ("words", "sentence_lengths", "review_lengths", "labels", "gold_words", "gold_sentences", "splits"):
        np.testing.assert_array_equal(getattr(reviews, name), getattr(same, name))
        assert not np.array_equal(getattr(reviews, name), getattr(other, name)), name
    assert reviews.vocabulary == other.vocabulary
    assert len(set(reviews.vocabulary)) == len(reviews.vocabulary)


def test_sizes_and_splits(reviews: SyntheticReviews) -> None:
    assert len(reviews.labels) == len(reviews.review_lengths) == 800
    assert (reviews.review_lengths.min(), reviews.review_lengths.max()) == (23, 37)
    assert (reviews.sentence_lengths.min(), reviews.sentence_lengths.max()) == (15, 25)
    assert reviews.sentence_lengths.sum() == len(reviews.words) == len(reviews.gold_words)
    assert reviews.review_lengths.sum() == len(reviews.sentence_lengths) == len(reviews.gold_sentences)
    assert np.bincount(reviews.labels).tolist() == [200] * 4
    for part, count in ((TRAIN, 120), (VAL, 40), (TEST, 40)):
        assert np.bincount(reviews.labels[reviews.splits == part]).tolist() == [count] * 4


def test_one_phrase_decides_the_class(reviews: SyntheticReviews) -> None:
    ends = reviews.review_lengths.cumsum()
    gold = sentences(reviews, reviews.gold_words)
    whole = sentences(reviews, np.ones(len(reviews.words), dtype=bool))
    for label, start, end in zip(reviews.labels, ends - reviews.review_lengths, ends, strict=True):
        (place,) = np.flatnonzero(reviews.gold_sentences[start:end]) + start
        assert [bool(phrase) for phrase in gold[start:end]] == [at == place for at in range(start, end)]
        assert gold[place][:2] == [ASPECTS[0], VERB]
        assert said(gold[place]) == label
        text, phrase = " ".join(whole[place]), " ".join(gold[place])
        assert text.count(phrase) == 1
        assert [ASPECTS[0] in sentence for sentence in whole[start:end]].count(True) == 1


def test_other_aspects_are_spoken_of_alike_and_say_nothing_of_the_class(reviews: SyntheticReviews) -> None:
    whole = sentences(reviews, np.ones(len(reviews.words), dtype=bool))
    owners = np.arange(800).repeat(reviews.review_lengths)
    others = np.zeros((4, 4), dtype=int)
    kinds = np.zeros((2, 2, 4), dtype=int)
    spoken = 0
    for sentence, owner, decides in zip(whole, owners, reviews.gold_sentences, strict=True):
        if VERB not in sentence:
            assert not any(word in ASPECTS or word == NEGATION for word in sentence)
            continue
        phrase = sentence[sentence.index(VERB) - 1 :][: 4 if NEGATION in sentence else 3]
        kinds[int(decides), int(NEGATION in phrase), said(phrase)] += 1
        if not decides:
            spoken += 1
            others[reviews.labels[owner], said(phrase)] += 1
    assert 0.29 < spoken / (len(whole) - 800) < 0.31
    assert chi2_contingency(others).pvalue > 0.01
    assert chi2_contingency(kinds.reshape(2, -1)).pvalue > 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reviews": 3}, "data.reviews=3 does not fit: it is to be a whole number of at least 4"),
        ({"sentences": 0}, "data.sentences=0 does not fit: it is to be a whole number of at least 1"),
        ({"words": 4}, "data.words=4 does not fit: it is to be a whole number of at least 5"),
        (
            {"distractors": 1.5},
            "data.distractors=1.5 does not fit: .* a number of at least 0 and of at most 1",
        ),
        ({"reviews": 10_000_000}, "data.reviews=10000000, sentences=30 and words=20 make 6,000,000,000 numbers"),
    ],
)
def test_options_that_cannot_be(options: dict[str, float], message: str) -> None:
    node = {"_target_": "zoo.tasks.documents.planted_reviews", "max_epochs": 1, **options}
    with pytest.raises(ConfigError, match=message):
        instantiate.build(node, "data").sizes()


@pytest.mark.parametrize("options", [{"sentences": 1, "words": 5}, {"reviews": 4}, {"distractors": 0.0}])
def test_small_reviews(options: dict[str, float]) -> None:
    found = plant(**{"reviews": 40, "sentences": 4} | options)
    assert found.gold_sentences.sum() == len(found.labels)


def documents(reviews: SyntheticReviews) -> list[Document]:
    sizes, counts = reviews.sentence_lengths, reviews.review_lengths
    of_sentences = np.split(reviews.words, sizes.cumsum()[:-1])
    gold = np.split(reviews.gold_words, sizes.cumsum()[:-1])
    return [
        Document(
            [sentence.tolist() for sentence in of_sentences[end - count : end]],
            int(label),
            str(number),
            np.concatenate(gold[end - count : end]).tolist(),
            reviews.gold_sentences[end - count : end].tolist(),
        )
        for number, (label, count, end) in enumerate(zip(reviews.labels, counts, counts.cumsum(), strict=True))
    ]


def trained(parts: list[list[Document]], attend: AttentionFactory, epochs: int) -> tuple[HAN, DocumentBatch, float]:
    """The net, what is held out, and the accuracy there."""
    torch.default_generator.manual_seed(0)
    net = HAN(words=200, classes=4, attend=attend, dim=32, hidden=16, context=32, dropout=0.3)
    optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(parts[TRAIN]))
        for start in range(0, len(order), 16):
            batch = DocumentBatch.collate([parts[TRAIN][place] for place in order[start : start + 16]])
            optimizer.zero_grad()
            F.cross_entropy(net(batch), batch.labels).backward()
            optimizer.step()
    held_out = DocumentBatch.collate([*parts[VAL], *parts[TEST]])
    with torch.no_grad():
        found = net.eval()(held_out).argmax(1)
    return net, held_out, (found == held_out.labels).float().mean().item()


def pointing(weights: Tensor, gold: Tensor, owners: Tensor, of: Tensor) -> float:
    """How often the row of the largest weight, of those of an owner, is gold."""
    found = [gold[rows[weights[rows].argmax()]] for rows in ((owners == one).nonzero().squeeze(1) for one in of)]
    return torch.stack(found).float().mean().item()


# slow tier: trains until something is learned; planted baskets have such a test in the fast tier
@pytest.mark.slow
def test_attention_finds_the_phrase_and_means_do_not() -> None:
    """Smaller reviews, so that it takes seconds: with more epochs means would learn these by heart and then learn."""
    reviews = plant(reviews=600, sentences=12, words=8)
    every = documents(reviews)
    parts = [[each for each, part in zip(every, reviews.splits, strict=True) if part == of] for of in (0, 1, 2)]
    net, held_out, reached = trained(parts, DOT, epochs=12)
    control = trained(parts, AttentionFactory(score=Constant, normalizer=Uniform), epochs=12)[2]
    assert reached >= 0.97
    assert control <= reached - 0.3
    with record(net) as maps, torch.no_grad():
        net(held_out)
    words, sentences = (weights_of(maps[net.SITES[name]]) for name in ("words", "sentences"))
    all_reviews, decisive = torch.arange(len(held_out)), held_out.gold_sentences.nonzero().squeeze(1)
    assert pointing(sentences, held_out.gold_sentences, held_out.documents, all_reviews) >= 0.9
    assert pointing(words, held_out.gold_words, held_out.sentences, decisive) >= 0.9
