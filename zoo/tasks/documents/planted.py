"""Reviews that were made, so that it is known which sentence and which words of it decide the class.

The class of a review is what its one sentence on the first aspect says: "... food was not superb ...", among words
without meaning; "not" turns it into the opposite. Some of the other sentences say the same words, drawn from the same
distribution, of other aspects.

So no word says much of the class, and nor does a phrase without its aspect. What is to be found is one sentence of
thirty, and three or four words of twenty in it, with few examples to learn from. An average over all rows does not lead
there: in it the phrase is diluted to a part in two hundred, beside ten others like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Int

from zoo.attention.ranges import Count, Seed, Share
from zoo.data.generated import check_numbers
from zoo.data.splits import stratified

ASPECTS = ("food", "service", "room", "price", "view", "staff", "music", "parking", "garden", "breakfast")
"""What sentences are about; the first decides the class."""
OPINIONS = {
    "awful": ("awful", "terrible"),
    "poor": ("poor", "dull"),
    "good": ("good", "pleasant"),
    "superb": ("superb", "excellent"),
}
"""The classes, from worst to best, and the words that say them. The opposite of a class is as near to the other end."""
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
class Reviews:
    """Generated texts, all words one after another.

    Args:
        vocabulary: The words; the number of a word is its place here.
        words: The number of each word, sentence after sentence, review after review.
        sentence_lengths: How many words each sentence has.
        review_lengths: How many sentences each review has.
        labels: The class of each review.
        classes: Their names, the worst first.
        gold_words: The phrase that decides the class.
        gold_sentences: The sentence that it is in.
        splits: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
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


def plant(
    *,
    reviews: Annotated[int, ">= 4"] = 800,
    sentences: Count = 30,
    words: Annotated[int, ">= 5"] = 20,
    distractors: Share = 0.3,
    seed: Seed = 0,
) -> Reviews:
    """Generates reviews; the same arguments give the same reviews.

    Args:
        reviews: Number of reviews.
        sentences: Mean number of sentences of a review; each has up to a quarter more or fewer.
        words: Mean number of words of a sentence; each has up to a quarter more or fewer.
        distractors: Probability with which another sentence says something of another aspect.
        seed: Seed of the generator, and of the splits.
    """
    check_numbers(reviews * sentences * words, f"data.reviews={reviews}, sentences={sentences} and words={words}")
    random = np.random.default_rng(seed)
    classes = list(OPINIONS)
    fillers = _FILLERS.split()
    vocabulary = [*fillers, *ASPECTS, VERB, NEGATION, *(word for each in OPINIONS.values() for word in each)]
    number = {word: place for place, word in enumerate(vocabulary)}
    labels = random.permutation(np.arange(reviews) % len(classes))
    review_lengths = _around(random, sentences, reviews)
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
    lengths = _around(random, words, total)
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
    return Reviews(
        vocabulary=vocabulary,
        words=filled,
        sentence_lengths=lengths,
        review_lengths=review_lengths,
        labels=labels,
        classes=classes,
        gold_words=gold_words,
        gold_sentences=gold_sentences,
        splits=stratified(labels, seed),
    )


def _around(random: np.random.Generator, mean: int, count: int) -> Int[np.ndarray, " {count}"]:
    return random.integers(mean - mean // 4, mean + mean // 4 + 1, size=count)
