"""Generated premises and hypotheses, with the words that decide whether one follows from the other.

    premise       the cup is red . the box is wooden . the hat is green . the bell is iron .
    entailment    the cup is red .
    contradiction the cup is green .       something else of this kind (colour or material) is said of the cup
    neutral       the cup is iron .        nothing of this kind is said of the cup

or, with `phrases`, in which a property stands beside its thing:

    premise       the red cup . the wooden box . the green hat . the iron bell .
    contradiction the green cup .

All words of a hypothesis are in its premise, whatever the label: its property is said of the thing itself, or of
another one. Which words are in both decides nothing; the property of the hypothesis must be compared with the one that
belongs to the same thing in the premise.

What decides is said of the hypothesis's thing, which looks for it: in a phrase, both words are gold for this thing. The
property of the hypothesis may look at whatever has it, and decides nothing alone, so that it has no gold in phrases. In
statements the states of a recurrent encoder tell the property at every word, so that no single word must be looked at.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from zoo.data.size_limits import check_numbers
from zoo.tasks.answering.synthetic.texts import Link, SyntheticQA, split_into
from zoo.types import PositiveInt, Seed, validate_ranges

LABELS = ("entailment", "neutral", "contradiction")
THINGS = ("cup", "box", "hat", "bell", "chair", "door", "knife", "table", "lamp", "boat", "ring", "coat")
COLOURS = ("red", "green", "blue", "white", "black", "yellow")
MATERIALS = ("wooden", "iron", "glass", "paper", "stone", "silver")
_KINDS = (COLOURS, MATERIALS)


@validate_ranges
def plant(
    *,
    pairs: PositiveInt = 8000,
    held_out: PositiveInt = 400,
    things: Annotated[int, ">= 4", "<= 12"] = 6,
    phrases: bool = False,
    seed: Seed = 0,
) -> SyntheticQA:
    """Generates premises and hypotheses; the same arguments give the same ones.

    Args:
        pairs: Number of training pairs.
        held_out: Number of pairs of the validation split, and of the test split.
        things: Number of things in a premise; half of them have a colour, the others a material.
        phrases: Whether texts consist of phrases, "the red cup .", instead of statements, "the cup is red .".
        seed: Seed of the generator.
    """
    total = pairs + 2 * held_out
    check_numbers(total * 5 * (things + 1), f"data.pairs={pairs}, held_out={held_out} and things={things}")
    draw = random.Random(seed)
    labels = [label for part in (pairs, held_out, held_out) for label in _balance(draw, part)]
    made = [_make_pair(draw, label, things, phrases) for label in labels]
    return SyntheticQA(
        passages=[" ".join(premise) for premise, *_ in made],
        questions=[" ".join(hypothesis) for _, hypothesis, _ in made],
        answers=labels,
        spans=[],
        links=[links for *_, links in made],
        splits=split_into(pairs, held_out),
    )


def _balance(draw: random.Random, count: int) -> list[str]:
    labels = [LABELS[number % len(LABELS)] for number in range(count)]
    draw.shuffle(labels)
    return labels


def _make_pair(draw: random.Random, label: str, things: int, phrases: bool) -> tuple[list[str], list[str], list[Link]]:
    named = draw.sample(THINGS, things)
    kinds = [_KINDS[number % 2] for number in range(things)]
    draw.shuffle(kinds)
    said = _properties(draw, kinds)
    about = draw.randrange(things)
    others = {
        "entailment": [about],
        "neutral": [number for number in range(things) if kinds[number] is not kinds[about]],
        "contradiction": [number for number in range(things) if kinds[number] is kinds[about] and number != about],
    }
    asked = said[draw.choice(others[label])]
    pairs = zip(named, said, strict=True)
    if phrases:
        premise = [word for thing, each in pairs for word in ("the", each, thing, ".")]
        first = 4 * about + 1
        return premise, ["the", asked, named[about], "."], [(2, first), (2, first + 1)]
    premise = [word for thing, each in pairs for word in ("the", thing, "is", each, ".")]
    return premise, ["the", named[about], "is", asked, "."], [(1, 5 * about + 1), (3, 5 * about + 3)]


def _properties(draw: random.Random, kinds: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns a property of each kind; no two are equal, so that a contradiction is said of another thing."""
    left: dict[tuple[str, ...], list[str]] = {kind: draw.sample(kind, len(kind)) for kind in _KINDS}
    return [left[kind].pop() for kind in kinds]
