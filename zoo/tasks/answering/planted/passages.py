"""Generated passages and questions whose answer is a span of the passage, with the words that decide it.

    anna found the coin in the hall . then bob found the drum behind the old mill . carl found the lamp in the garden .
    anna wants the lamp , bob wants the drum , carl wants the coin : who found it , and where ?

The answer is where the one person found what this very person wants: "behind the old mill". All persons of the
question are in the passage, and all things that they want, so that it is not enough to know which words are in both: a
person and a thing must be next to each other in both. The answer is another part of the sentence, and all places look
alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from zoo.attention.ranges import Count, Seed
from zoo.data.size_limits import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.answering.planted.texts import AskedTexts, Link, split_into

PERSONS = ("anna", "bob", "carl", "dora", "emil", "frida", "gus", "hanna", "ivan", "judith", "karl", "lena")
THINGS = ("coin", "lamp", "drum", "key", "ring", "book", "map", "hat", "cup", "bell", "rope", "knife")
PREPOSITIONS = ("in", "behind", "near", "under")
ADJECTIVES = ("old", "big", "dark", "small", "empty")
PLACES = ("hall", "mill", "garden", "barn", "tower", "kitchen", "bridge", "forest", "cellar", "church")
_OPENINGS = ("then", "later", "once", "today", "yesterday")
_SHARE = 0.5
"""Share of sentences with an opening, and of places with an adjective."""


def plant(
    *,
    passages: Count = 8000,
    held_out: Count = 400,
    wanted: Annotated[int, ">= 3", "<= 6"] = 4,
    others: Annotated[int, ">= 0", "<= 6"] = 3,
    seed: Seed = 0,
) -> AskedTexts:
    """Generates passages and questions; the same arguments give the same ones.

    Args:
        passages: Number of training passages.
        held_out: Number of passages of the validation split, and of the test split.
        wanted: Number of persons in a question. With fewer than three, not one alone could have found what is wanted.
        others: Number of sentences about other persons, who found other things.
        seed: Seed of the generator.
    """
    if wanted + others > len(PERSONS):
        raise ConfigError(f"data.wanted={wanted} and others={others} are more than {len(PERSONS)} persons.")
    total = passages + 2 * held_out
    options = f"data.passages={passages}, held_out={held_out}, wanted={wanted} and others={others}"
    check_numbers(total * 16 * (wanted + others), options)
    draw = random.Random(seed)
    made = [_made(draw, wanted, others) for _ in range(total)]
    return AskedTexts(
        passages=[" ".join(words) for words, *_ in made],
        questions=[" ".join(words) for _, words, *_ in made],
        answers=[" ".join(words[first : last + 1]) for words, _, (first, last), _ in made],
        spans=[span for *_, span, _ in made],
        links=[links for *_, links in made],
        splits=split_into(passages, held_out),
    )


def _made(draw: random.Random, wanted: int, others: int) -> tuple[list[str], list[str], tuple[int, int], list[Link]]:
    persons, things = draw.sample(PERSONS, wanted + others), draw.sample(THINGS, wanted + others)
    found = [*_with_one_in_place(draw, things[:wanted]), *things[wanted:]]
    lucky = next(number for number in range(wanted) if found[number] == things[number])
    order = list(range(wanted + others))
    draw.shuffle(order)
    passage: list[str] = []
    for number in order:
        passage += [draw.choice(_OPENINGS)] if draw.random() < _SHARE else []
        if number == lucky:
            person = len(passage)
        passage += [persons[number], "found", "the", found[number]]
        if number == lucky:
            first = len(passage)
        passage += _place(draw)
        if number == lucky:
            last = len(passage) - 1
        passage.append(".")
    question: list[str] = []
    asked = list(range(wanted))
    draw.shuffle(asked)
    for number in asked:
        if number == lucky:
            links = [(len(question), person), (len(question) + 3, person + 3)]
        question += [persons[number], "wants", "the", things[number], ","]
    question[-1] = ":"
    return passage, [*question, "who", "found", "it", ",", "and", "where", "?"], (first, last), links


def _with_one_in_place(draw: random.Random, things: Sequence[str]) -> list[str]:
    """Returns the things in an order in which exactly one is where it was, and each one as often."""
    while True:
        order = draw.sample(things, len(things))
        if sum(one == other for one, other in zip(order, things, strict=True)) == 1:
            return order


def _place(draw: random.Random) -> list[str]:
    adjective = [draw.choice(ADJECTIVES)] if draw.random() < _SHARE else []
    return [draw.choice(PREPOSITIONS), "the", *adjective, draw.choice(PLACES)]
