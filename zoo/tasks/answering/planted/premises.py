"""Generated premises and hypotheses, with the words that decide whether one follows from the other.

    premise       the cup is red . the box is wooden . the hat is green . the bell is iron .
    entailment    the cup is red .
    contradiction the cup is green .       something else of this kind (colour or material) is said of the cup
    neutral       the cup is iron .        nothing of this kind is said of the cup

All words of a hypothesis are in its premise, whatever the label: its property is said of the thing itself, or of
another one. Which words are in both decides nothing; the property of the hypothesis must be compared with the one that
belongs to the same thing in the premise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from zoo.attention.ranges import Count, Seed
from zoo.data.generated import check_numbers
from zoo.tasks.answering.planted.texts import AskedTexts, Link, split_into

LABELS = ("entailment", "neutral", "contradiction")
THINGS = ("cup", "box", "hat", "bell", "chair", "door", "knife", "table", "lamp", "boat", "ring", "coat")
COLOURS = ("red", "green", "blue", "white", "black", "yellow")
MATERIALS = ("wooden", "iron", "glass", "paper", "stone", "silver")
_KINDS = (COLOURS, MATERIALS)


def plant(
    *,
    pairs: Count = 8000,
    held_out: Count = 400,
    things: Annotated[int, ">= 4", "<= 12"] = 6,
    seed: Seed = 0,
) -> AskedTexts:
    """Generates premises and hypotheses; the same arguments give the same ones.

    Args:
        pairs: Number of training pairs.
        held_out: Number of pairs of the validation split, and of the test split.
        things: Number of things in a premise; half of them have a colour, the others a material.
        seed: Seed of the generator.
    """
    total = pairs + 2 * held_out
    check_numbers(total * 5 * (things + 1), f"data.pairs={pairs}, held_out={held_out} and things={things}")
    draw = random.Random(seed)
    labels = [label for part in (pairs, held_out, held_out) for label in _balanced(draw, part)]
    made = [_made(draw, label, things) for label in labels]
    return AskedTexts(
        passages=[" ".join(premise) for premise, *_ in made],
        questions=[" ".join(hypothesis) for _, hypothesis, _ in made],
        answers=labels,
        spans=None,
        links=[links for *_, links in made],
        splits=split_into(pairs, held_out),
    )


def _balanced(draw: random.Random, count: int) -> list[str]:
    labels = [LABELS[number % len(LABELS)] for number in range(count)]
    draw.shuffle(labels)
    return labels


def _made(draw: random.Random, label: str, things: int) -> tuple[list[str], list[str], list[Link]]:
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
    hypothesis = ["the", named[about], "is", said[draw.choice(others[label])], "."]
    premise = [word for thing, each in zip(named, said, strict=True) for word in ("the", thing, "is", each, ".")]
    return premise, hypothesis, [(1, 5 * about + 1), (3, 5 * about + 3)]


def _properties(draw: random.Random, kinds: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns a property of each kind; no two are equal, so that a contradiction is said of another thing."""
    left: dict[tuple[str, ...], list[str]] = {kind: draw.sample(kind, len(kind)) for kind in _KINDS}
    return [left[kind].pop() for kind in kinds]
