"""Generates reviews in which the sentence and the words that determine the class are known.

One sentence of each review gives an opinion on the first aspect, among meaningless words: "... food was not superb
...". This opinion is the class; "not" reverses it. Some of the other sentences give opinions on other aspects, in the
same words and drawn from the same distribution.

Therefore neither a single word nor an opinion without its aspect predicts the class. A model has to find one sentence
of thirty, and three or four of its twenty words, from few examples. An average over all words does not suffice: the
phrase is half a percent of the words, and about ten similar phrases stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.size_limits import check_numbers
from zoo.data.splits import split_stratified
from zoo.types import Fraction, PositiveInt, Seed, validate_ranges

ASPECTS = ("food", "service", "room", "price", "view", "staff", "music", "parking", "garden", "breakfast")
"""Subjects of opinions; the opinion on the first determines the class."""
OPINIONS = {
    "awful": ("awful", "terrible"),
    "poor": ("poor", "dull"),
    "good": ("good", "pleasant"),
    "superb": ("superb", "excellent"),
}
"""The words that express each class, from the worst class to the best. Negation mirrors the order of classes."""
VERB = "was"
NEGATION = "not"
_NEGATED = 0.3
_FILLERS = """
the a we they it on in at of to and then after before with for from there here this that our their one two some
when while again also so still just about around near day night week morning evening table window door street
town friend family train bus road trip time hour minute visit year summer winter walked came went stayed sat
looked took gave found left arrived ordered asked said told saw heard knew thought booked paid waited returned
"""


@dataclass(frozen=True, eq=False)
class SyntheticReviews:
    """Generated reviews, whose words are concatenated.

    Args:
        vocabulary: All words that occur.
        words: Index in `vocabulary` of each word of each sentence of each review.
        sentence_lengths: Number of words of each sentence.
        review_lengths: Number of sentences of each review.
        labels: Index in `classes` of each review's class.
        classes: Names of the classes, from the worst to the best.
        gold_words: Mask of the words that determine the class.
        gold_sentences: Mask of the sentences that contain these words.
        splits: Split of each review: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
    """

    vocabulary: list[str]
    words: Int[np.ndarray, " w"]
    sentence_lengths: Int[np.ndarray, " s"]
    review_lengths: Int[np.ndarray, " b"]
    labels: Int[np.ndarray, " b"]
    classes: list[str]
    gold_words: Bool[np.ndarray, " w"]
    gold_sentences: Bool[np.ndarray, " s"]
    splits: Int[np.ndarray, " b"]


@validate_ranges
def plant(
    *,
    reviews: Annotated[int, ">= 4"] = 800,
    sentences: PositiveInt = 30,
    words: Annotated[int, ">= 5"] = 20,
    distractors: Fraction = 0.3,
    seed: Seed = 0,
) -> SyntheticReviews:
    """Generates reviews; the same arguments give the same reviews.

    Args:
        reviews: Number of reviews.
        sentences: Mean number of sentences of a review; the number varies by up to a quarter.
        words: Mean number of words of a sentence; the number varies by up to a quarter.
        distractors: Probability that a sentence that does not determine the class gives an opinion on another aspect.
        seed: Seed of the generator, and of the splits.
    """
    check_numbers(reviews * sentences * words, f"data.reviews={reviews}, sentences={sentences} and words={words}")
    random = np.random.default_rng(seed)
    classes = list(OPINIONS)
    fillers = _FILLERS.split()
    vocabulary = [*fillers, *ASPECTS, VERB, NEGATION, *(word for each in OPINIONS.values() for word in each)]
    number = {word: place for place, word in enumerate(vocabulary)}
    labels = random.permutation(np.arange(reviews) % len(classes))
    review_lengths = _draw_counts(random, sentences, reviews)
    ends = review_lengths.cumsum()
    total = int(ends[-1])

    deciding = ends - review_lengths + (random.random(reviews) * review_lengths).astype(np.int64)
    aspects = random.integers(1, len(ASPECTS), total)
    aspects[deciding] = 0
    said = random.integers(len(classes), size=total)
    said[deciding] = labels
    negated = random.random(total) < _NEGATED
    levels = np.where(negated, len(classes) - 1 - said, said)
    spoken = np.array([[number[word] for word in each] for each in OPINIONS.values()])

    # aspect, verb, negation or -1, opinion
    phrases = np.stack(
        [
            number[ASPECTS[0]] + aspects,
            np.full(total, number[VERB]),
            np.where(negated, number[NEGATION], -1),
            spoken[levels, random.integers(spoken.shape[1], size=total)],
        ],
        1,
    )
    lengths = _draw_counts(random, words, total)
    sizes = 3 + negated
    first = lengths.cumsum() - lengths + (random.random(total) * (lengths - sizes + 1)).astype(np.int64)
    gold_sentences = np.zeros(total, dtype=bool)
    gold_sentences[deciding] = True
    speaks = gold_sentences | (random.random(total) < distractors)
    inside = phrases >= 0
    places = first[:, None] + inside.cumsum(1) - 1
    written, decides = inside & speaks[:, None], inside & gold_sentences[:, None]
    filled = random.integers(len(fillers), size=int(lengths.sum()))
    filled[places[written]] = phrases[written]
    gold_words = np.zeros(len(filled), dtype=bool)
    gold_words[places[decides]] = True
    return SyntheticReviews(
        vocabulary=vocabulary,
        words=filled,
        sentence_lengths=lengths,
        review_lengths=review_lengths,
        labels=labels,
        classes=classes,
        gold_words=gold_words,
        gold_sentences=gold_sentences,
        splits=split_stratified(labels, seed),
    )


def _draw_counts(random: np.random.Generator, mean: int, count: int) -> Int[np.ndarray, " {count}"]:
    return random.integers(mean - mean // 4, mean + mean // 4 + 1, size=count)
