"""Generated passages and questions whose answer is a span of the passage, with the words that decide it.

    then anna found the lamp in the hall at noon . carl found the drum behind the old mill before dinner . ...
    when did bob find the lamp , where did anna find the lamp , when did anna find the key ?

The passage tells what one of the questions asks for, and no other: where, or when, this person found this thing. All
persons and things of the questions are in the passage, so that it is not enough to know which words are in both: a
person and a thing must be next to each other in both. Of all questions of a passage, each person and each thing may be
in two, once with where and once with when: neither alone says what is asked for, and of two words that equal a word of
the passage one decides.

The person of the passage looks for its question, whose person is gold and stands near what is asked for. A state of the
recurrent encoder tells the words beside it, too, so that one look decides: the thing may look at whatever equals it,
and has no gold.
"""

from __future__ import annotations

import random
from typing import Annotated

from zoo.data.size_limits import check_numbers
from zoo.tasks.answering.synthetic.texts import Link, SyntheticQA, split_into
from zoo.types import PositiveInt, Seed, validate_ranges

PERSONS = ("anna", "bob", "carl", "dora", "emil", "frida", "gus", "hanna", "ivan", "judith", "karl", "lena")
THINGS = ("coin", "lamp", "drum", "key", "ring", "book", "map", "hat", "cup", "bell", "rope", "knife")
PREPOSITIONS = ("in", "behind", "near", "under")
ADJECTIVES = ("old", "big", "dark", "small", "empty")
PLACES = ("hall", "mill", "garden", "barn", "tower", "kitchen", "bridge", "forest", "cellar", "church")
ORDERS = ("at", "before", "after")
TIMES = ("dawn", "sunrise", "noon", "lunch", "dinner", "sunset", "midnight")
_OPENINGS = ("then", "later", "once", "today", "yesterday")
_SHARE = 0.5
"""Share of sentences with an opening, and of places with an adjective."""


@validate_ranges
def plant(
    *,
    passages: PositiveInt = 8000,
    held_out: PositiveInt = 400,
    wanted: Annotated[int, ">= 2", "<= 4"] = 2,
    others: Annotated[int, ">= 0", "<= 4"] = 1,
    seed: Seed = 0,
) -> SyntheticQA:
    """Generates passages and questions; the same arguments give the same ones.

    Args:
        passages: Number of training passages.
        held_out: Number of passages of the validation split, and of the test split.
        wanted: Number of persons, and of things, that questions name. There are one to twice as many questions about a
            passage; all numbers are equally frequent.
        others: Number of sentences about persons and things that no question names.
        seed: Seed of the generator.
    """
    total = passages + 2 * held_out
    options = f"data.passages={passages}, held_out={held_out}, wanted={wanted} and others={others}"
    check_numbers(total * (38 * wanted + 12 * others), options)
    draw = random.Random(seed)
    made = [_make_passage(draw, wanted, others) for _ in range(total)]
    return SyntheticQA(
        passages=[" ".join(words) for words, *_ in made],
        questions=[" ".join(words) for _, words, *_ in made],
        answers=[" ".join(words[first : last + 1]) for words, _, (first, last), _ in made],
        spans=[span for *_, span, _ in made],
        links=[links for *_, links in made],
        splits=split_into(passages, held_out),
    )


def _make_passage(
    draw: random.Random, wanted: int, others: int
) -> tuple[list[str], list[str], tuple[int, int], list[Link]]:
    named = 2 * wanted - 1 + others  # two sentences for each number that is not the lucky one's
    persons, things = (draw.sample(names, named) for names in (PERSONS, THINGS))
    ways = draw.sample(("where", "when"), 2)
    pairs = {(person, (person + way) % wanted): ways[way] for person in range(wanted) for way in (0, 1)}
    asked = draw.sample(list(pairs), draw.randint(1, len(pairs)))
    lucky = draw.choice(asked)
    strangers = (iter(range(wanted, named)), iter(range(wanted, named)))
    found = [
        lucky,
        *((person, next(strangers[1])) for person in range(wanted) if person != lucky[0]),
        *((next(strangers[0]), thing) for thing in range(wanted) if thing != lucky[1]),
        *zip(*strangers, strict=True),
    ]
    draw.shuffle(found)
    passage: list[str] = []
    for pair in found:
        passage += [draw.choice(_OPENINGS)] if draw.random() < _SHARE else []
        person = len(passage)
        passage += [persons[pair[0]], "found", "the", things[pair[1]]]
        for way, told in (("where", _place(draw)), ("when", _time(draw))):
            if pair == lucky and way == pairs[pair]:
                looking, span = person, (len(passage), len(passage) + len(told) - 1)
            passage += told
        passage.append(".")
    question: list[str] = []
    for pair in asked:
        if pair == lucky:
            links = [(len(question) + 2, looking)]
        question += [pairs[pair], "did", persons[pair[0]], "find", "the", things[pair[1]], ","]
    return passage, [*question[:-1], "?"], span, links


def _place(draw: random.Random) -> list[str]:
    adjective = [draw.choice(ADJECTIVES)] if draw.random() < _SHARE else []
    return [draw.choice(PREPOSITIONS), "the", *adjective, draw.choice(PLACES)]


def _time(draw: random.Random) -> list[str]:
    return [draw.choice(ORDERS), draw.choice(TIMES)]
