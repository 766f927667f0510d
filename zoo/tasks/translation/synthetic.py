"""Sentences and their translations into an invented language, so that it is known which word each word is made of.

    big clean spider just puts off teacher under bird
    la dulaza pitar tavos mipo detar la dinudis lo sores teva sanan

The source is English without articles; the other language is invented, one word for each content word except for:

- order: adjectives follow their noun, the adverb and the place stand before the object, the verb ends the clause;
- one to many: some nouns become two words, the first of which they share with others;
- many to one: a verb and its particle ("take up") become one word, and no particle is translated alone;
- silent words, which are not translated ("just", "indeed");
- words made of nothing: every noun has an article that agrees with it.

No content word occurs twice in a sentence, so that each word has a clear origin. Function words (articles,
prepositions, conjunctions) have no gold origin.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
from jaxtyping import Int

from zoo.data.size_limits import check_numbers
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.types import PositiveInt, Seed, validate_ranges

_NOUNS = """
dog cat horse cow bird fish bear wolf mouse snake spider butterfly dragonfly hedgehog squirrel beetle frog rabbit lion
tiger man woman child baker doctor farmer soldier sailor painter singer teacher student king queen neighbour stranger
uncle aunt brother sister house tower bridge castle church garden forest river lake mountain island village street
kitchen cellar window door table chair lamp candle mirror carpet bottle glass cup plate knife spoon box basket bag
hammer rope wheel boat wagon bicycle letter book newspaper picture coin ring crown coat hat shoe apple pear cherry bread
cheese honey egg flower tree stone
"""
_ADJECTIVES = """
old young big small long short tall thin heavy light warm cold hot dry wet clean dirty new rich poor strong weak brave
clever silent loud happy sad angry hungry tired red green blue yellow black white grey brown golden round square sharp
soft hard smooth empty full broken wooden
"""
_VERBS = """
sees hears finds follows carries paints washes sells buys steals hides loves hates fears wakes feeds draws eats visits
watches chases helps thanks calls kisses forgets remembers describes admires cleans touches greets catches repairs
weighs measures
"""
STEMS = ["takes", "turns", "brings", "sets", "puts", "lets", "pulls", "throws"]
PARTICLES = ("up", "off", "out")
"""A stem and a particle are a verb with a meaning of its own."""
_ADVERBS = """
slowly quickly gladly secretly often never always quietly today yesterday tomorrow soon carefully proudly suddenly
finally again alone outside everywhere
"""
NOUNS, ADJECTIVES, VERBS, ADVERBS = (each.split() for each in (_NOUNS, _ADJECTIVES, _VERBS, _ADVERBS))
PREPOSITIONS = ("near", "behind", "under", "above", "with", "without", "beside", "before")
CONJUNCTIONS = ("and", "but", "because", "while")
ARTICLES = ("le", "la", "lo")
SILENT = ("just", "indeed", "well", "simply")
_SHORTEST = 4
_LONGEST_CLAUSE = 9
_EVEN = 5
"""The first word of a list is twice as frequent as the one so many places behind it."""
_AT_ONCE, _MOST_DRAWN = 1024, 40
"""Sentences whose words are drawn together, and the most words of a kind in one."""
_TWO_WORDS = 5
"""One noun of so many becomes two words."""
_FIRST_WORDS = 3
"""The first words of all these nouns: no more, or the second word could be told from the first without the source."""

Link = tuple[int, int]
"""A word of the translation and the word of the source that it is made of, by their places."""
Written = list[tuple[str, tuple[int, ...]]]
"""Words of a translation, each with the places in the source that it is made of."""


@dataclass(frozen=True, eq=False)
class SyntheticPairs:
    """Generated sentences and their translations.

    Args:
        sources: The sentences: words between spaces.
        targets: Their translations.
        links: The gold alignment of each pair.
        splits: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
    """

    sources: list[str]
    targets: list[str]
    links: list[list[Link]]
    splits: Int[np.ndarray, " n"]


@validate_ranges
def plant(
    *,
    pairs: PositiveInt = 8000,
    held_out: PositiveInt = 400,
    longest: Annotated[int, ">= 4", "<= 30"] = 24,
    seed: Seed = 0,
) -> SyntheticPairs:
    """Generates pairs of sentences; the same arguments give the same pairs.

    Args:
        pairs: Number of training pairs.
        held_out: Number of pairs of the validation split, and of the test split.
        longest: The most words of a source sentence. All lengths from 4 to this are equally frequent.
        seed: Seed of the generator. The languages do not depend on it.
    """
    total = pairs + 2 * held_out
    check_numbers(total * longest, f"data.pairs={pairs}, held_out={held_out} and longest={longest}")
    draw = random.Random(seed)
    words = _words(np.random.default_rng(seed))
    found = [_sentence(draw, next(words), draw.randint(_SHORTEST, longest)) for _ in range(total)]
    return SyntheticPairs(
        sources=[" ".join(source) for source, _ in found],
        targets=[" ".join(word for word, _ in target) for _, target in found],
        links=[[(at, place) for at, (_, places) in enumerate(target) for place in places] for _, target in found],
        splits=np.repeat([TRAIN, VAL, TEST], [pairs, held_out, held_out]),
    )


@dataclass(frozen=True)
class _Words:
    """Content words of one sentence, each at most once."""

    nouns: Iterator[str]
    adjectives: Iterator[str]
    verbs: Iterator[str]
    stems: Iterator[str]
    adverbs: Iterator[str]


def _words(draw: np.random.Generator) -> Iterator[_Words]:
    """Yields the words of sentence after sentence. The first words of each list are the most frequent."""
    kinds = (NOUNS, ADJECTIVES, VERBS, STEMS, ADVERBS)
    while True:
        orders = [_orders(draw, len(kind)) for kind in kinds]
        for rows in zip(*orders, strict=True):
            yield _Words(*(map(kind.__getitem__, row) for kind, row in zip(kinds, rows, strict=True)))


def _orders(draw: np.random.Generator, count: int) -> list[list[int]]:
    """Draws orders of the numbers below `count`, in which the number n is early as often as its weight 1/(n+k) says."""
    keys = draw.exponential(size=(_AT_ONCE, count)) * (np.arange(count) + _EVEN)
    found: list[list[int]] = keys.argsort(1)[:, :_MOST_DRAWN].tolist()
    return found


def _sentence(draw: random.Random, words: _Words, length: int) -> tuple[list[str], Written]:
    """Returns a sentence of so many words, and its translation."""
    source: list[str] = []
    target: Written = []
    left = length
    while left:
        is_last = left <= _LONGEST_CLAUSE and (left < 2 * _SHORTEST or draw.random() < 0.5)
        size = left if is_last else draw.randint(_SHORTEST - 1, min(_LONGEST_CLAUSE, left - _SHORTEST))
        _clause(draw, words, size, source, target)
        left -= size
        if left:
            source.append(draw.choice(CONJUNCTIONS))
            target.append((_TRANSLATED[source[-1]], ()))
            left -= 1
    return source, target


def _clause(draw: random.Random, words: _Words, size: int, source: list[str], target: Written) -> None:
    """Appends a clause of so many source words, and its translation."""
    extras = ["subject"] * 2 + ["object"] * 2 + ["adverb", "silent", "particle", "place"]
    draw.shuffle(extras)
    left, chosen = size - 3, list[str]()
    for each in extras:
        cost = 2 if each == "place" else 1
        if cost <= left:
            chosen.append(each)
            left -= cost
    is_first = draw.random() < 0.5

    def silent() -> None:
        if "silent" in chosen:
            source.append(draw.choice(SILENT))

    def write(word: str) -> Written:
        source.append(word)
        return [(each, (len(source) - 1,)) for each in _TRANSLATED[word].split()]

    def phrase(adjectives: int) -> Written:
        described = [each for word in islice(words.adjectives, adjectives) for each in write(word)]
        noun = next(words.nouns)
        return [(_ARTICLE[noun], ()), *write(noun), *described]

    if is_first:
        silent()
    subject = phrase(chosen.count("subject"))
    if not is_first:
        silent()
    verb = _verb(draw, words, source) if "particle" in chosen else write(next(words.verbs))
    thing = phrase(chosen.count("object"))
    place: Written = []
    if "place" in chosen:
        source.append(draw.choice(PREPOSITIONS))
        place = [(_TRANSLATED[source[-1]], ()), *phrase(0)]
    adverb = write(next(words.adverbs)) if "adverb" in chosen else []
    target += [*subject, *adverb, *place, *thing, *verb]


def _verb(draw: random.Random, words: _Words, source: list[str]) -> Written:
    """Appends a stem and its particle."""
    source += [next(words.stems), draw.choice(PARTICLES)]
    return [(_TRANSLATED[" ".join(source[-2:])], (len(source) - 2, len(source) - 1))]


def _invent_words() -> Iterator[str]:
    """Yields words of two or three syllables, all different, always the same."""
    draw, seen = random.Random(0), set[str]()
    while True:
        count = draw.choice((2, 2, 3))
        word = "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(count))
        if word not in seen:
            seen.add(word)
            yield word + draw.choice(("", "", "n", "s", "r"))


def _dictionary() -> tuple[dict[str, str], dict[str, str]]:
    """Returns the translation of each word, and the article of each noun."""
    words, translated = _invent_words(), dict[str, str]()
    phrasal = [f"{stem} {particle}" for stem in STEMS for particle in PARTICLES]
    for word in (*NOUNS, *ADJECTIVES, *VERBS, *phrasal, *ADVERBS, *PREPOSITIONS, *CONJUNCTIONS):
        translated[word] = next(words)
    shared = list(islice(words, _FIRST_WORDS))
    for number, noun in enumerate(NOUNS[::_TWO_WORDS]):
        translated[noun] = f"{shared[number % _FIRST_WORDS]} {translated[noun]}"
    return translated, {noun: random.Random(noun).choice(ARTICLES) for noun in NOUNS}


_TRANSLATED, _ARTICLE = _dictionary()
