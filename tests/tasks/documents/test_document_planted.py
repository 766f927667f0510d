"""The planted reviews: one phrase decides, the same words of other aspects say nothing, and it is known where it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.documents.planted import ASPECTS, NEGATION, OPINIONS, VERB, Reviews, plant

CLASSES = list(OPINIONS)


@pytest.fixture(scope="module")
def reviews() -> Reviews:
    return plant()


def sentences(reviews: Reviews, of: np.ndarray) -> list[list[str]]:
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


def test_equal_arguments_give_equal_reviews(reviews: Reviews) -> None:
    same, other = plant(), plant(seed=1)
    for name in ("words", "sentence_lengths", "review_lengths", "labels", "gold_words", "gold_sentences", "splits"):
        np.testing.assert_array_equal(getattr(reviews, name), getattr(same, name))
        assert not np.array_equal(getattr(reviews, name), getattr(other, name)), name
    assert reviews.vocabulary == other.vocabulary
    assert len(set(reviews.vocabulary)) == len(reviews.vocabulary)


def test_sizes_and_splits(reviews: Reviews) -> None:
    assert len(reviews.labels) == len(reviews.review_lengths) == 800
    assert (reviews.review_lengths.min(), reviews.review_lengths.max()) == (23, 37)
    assert (reviews.sentence_lengths.min(), reviews.sentence_lengths.max()) == (15, 25)
    assert reviews.sentence_lengths.sum() == len(reviews.words) == len(reviews.gold_words)
    assert reviews.review_lengths.sum() == len(reviews.sentence_lengths) == len(reviews.gold_sentences)
    assert np.bincount(reviews.labels).tolist() == [200] * 4
    for part, count in ((TRAIN, 120), (VAL, 40), (TEST, 40)):
        assert np.bincount(reviews.labels[reviews.splits == part]).tolist() == [count] * 4


def test_one_phrase_decides_the_class(reviews: Reviews) -> None:
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


def test_other_aspects_are_spoken_of_alike_and_say_nothing_of_the_class(reviews: Reviews) -> None:
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
        ({"reviews": 3}, "data.reviews=3: write a whole number from 4, one for each class"),
        ({"sentences": 0}, "data.sentences=0: write a whole number from 1"),
        ({"words": 4}, "data.words=4: write a whole number from 5, so that each sentence has its phrase"),
        ({"distractors": 1.5}, "data.distractors=1.5: write a probability from 0 to 1"),
        ({"reviews": 10_000_000}, "data.reviews=10000000, sentences=30 and words=20 make 6,000,000,000 numbers"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plant(**options)


@pytest.mark.parametrize("options", [{"sentences": 1, "words": 5}, {"reviews": 4}, {"distractors": 0.0}])
def test_small_reviews(options: dict[str, float]) -> None:
    found = plant(**{"reviews": 40, "sentences": 4} | options)
    assert found.gold_sentences.sum() == len(found.labels)
