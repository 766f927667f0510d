"""Generated questions about pictures of coloured shapes, with the things that decide the answer.

    colour    what colour is the ring ?                         the only ring
    shape     what shape is the red thing ?                     the only red thing
    count     how many things are red ?                         all red things; or: how many things look like a ring ?
    relation  what colour is the leftmost thing ?               the thing that is further left than all others

A relation asks for the colour or the shape of the leftmost, rightmost, highest or lowest thing. The other things of a
picture have colours and shapes too, so that neither the question nor the picture decides alone. The boxes of the things
that decide are gold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int, UInt8

from zoo.tasks.answering.synthetic.texts import split_into
from zoo.tasks.images.synthetic_scenes import (
    COLOURS,
    Alignment,
    Box,
    Noise,
    SceneObject,
    ShapeKinds,
    Side,
    plant_scenes,
)
from zoo.types import PositiveInt, Seed, validate_ranges

_COLOURS = tuple(COLOURS)
_SHAPES = ("square", "cross", "ring", "triangle", "circle", "diamond")
"""In the order in which data takes them; the first ones differ most."""

_FURTHEST = {"leftmost": (1, -1), "rightmost": (1, 1), "highest": (0, -1), "lowest": (0, 1)}
"""The axis of a box's centre, and the direction along it."""
_CLEAR = 4
"""Pixels by which a thing is further than any other."""

Question = tuple[str, str, list[Box]]
"""A question, its answer, and the places of the things that decide it."""


@dataclass(frozen=True, eq=False)
class SyntheticVQA:
    """Generated questions about pictures, one for each.

    Args:
        pixels: The pictures.
        questions: Words between spaces.
        answers: The answers, a word each.
        kinds: The kind of each question, one of `KINDS`.
        boxes: The places, in pixels, of the things that decide; none if zero things are counted.
        splits: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
    """

    pixels: UInt8[np.ndarray, "n 3 h w"]
    questions: list[str]
    answers: list[str]
    kinds: list[str]
    boxes: list[list[Box]]
    splits: Int[np.ndarray, " n"]


@validate_ranges
def plant(
    *,
    pictures: PositiveInt = 16000,
    held_out: PositiveInt = 500,
    least: Annotated[int, ">= 2", "<= 6"] = 2,
    most: Annotated[int, ">= 2", "<= 6"] = 4,
    colours: Annotated[int, ">= 2", "<= 6"] = 6,
    shapes: Annotated[int, ">= 2", "<= 6"] = 3,
    small: bool = False,
    side: Side = 48,
    align: Alignment = 8,
    noise: Noise = 16,
    seed: Seed = 0,
) -> SyntheticVQA:
    """Generates pictures and a question about each; the same arguments give the same ones.

    Args:
        pictures: Number of training pictures.
        held_out: Number of pictures of the validation split, and of the test split.
        least: The fewest things in a picture.
        most: The most things in a picture. All numbers from `least` to this are equally frequent.
        colours: Number of colours: red, green, blue, yellow, purple and white.
        shapes: Number of shapes: square, cross, ring, triangle, circle and diamond.
        small: Whether some things are small; otherwise all are large.
        side: Height and width of a picture.
        align: Pixels from one place where a thing may begin to the next. With 8, the side of a cell of the default
            model, four cells hold a thing in nearly equal parts, so that no cell holds an edge alone.
        noise: Largest change of a pixel, of 255.
        seed: Seed of the generator.
    """
    kinds = ShapeKinds(_COLOURS[:colours], _SHAPES[:shapes], ("small", "large") if small else ("large",))
    scenes, draw = plant_scenes(
        pictures=pictures,
        held_out=held_out,
        least=least,
        most=most,
        side=side,
        noise=noise,
        kinds=kinds,
        align=align,
        seed=seed,
    )
    asked = [ask(draw, things, kinds) for things in scenes.things]
    return SyntheticVQA(
        pixels=scenes.pixels,
        questions=[question for _, (question, _, _) in asked],
        answers=[answer for _, (_, answer, _) in asked],
        kinds=[kind for kind, _ in asked],
        boxes=[boxes for _, (_, _, boxes) in asked],
        splits=split_into(pictures, held_out),
    )


def ask(draw: random.Random, things: Sequence[SceneObject], kinds: ShapeKinds) -> tuple[str, Question]:
    """Asks something about a picture; returns the kind of the question, and the question.

    Kinds are equally frequent, except where nothing in a picture has a colour, or a shape, of its own.
    """
    asked = ((kind, KINDS[kind](draw, things, kinds)) for kind in draw.sample(list(KINDS), len(KINDS)))
    return next((kind, each) for kind, each in asked if each is not None)  # things can be counted in any picture


def _colour(draw: random.Random, things: Sequence[SceneObject], kinds: ShapeKinds) -> Question | None:
    shapes = [thing.shape for thing in things]
    alone = [thing for thing in things if shapes.count(thing.shape) == 1]
    if not alone:
        return None
    thing = draw.choice(alone)
    return f"what colour is the {thing.shape} ?", thing.colour, [thing.box]


def _shape(draw: random.Random, things: Sequence[SceneObject], kinds: ShapeKinds) -> Question | None:
    colours = [thing.colour for thing in things]
    alone = [thing for thing in things if colours.count(thing.colour) == 1]
    if not alone:
        return None
    thing = draw.choice(alone)
    return f"what shape is the {thing.colour} thing ?", thing.shape, [thing.box]


def _count(draw: random.Random, things: Sequence[SceneObject], kinds: ShapeKinds) -> Question:
    """Asks for any number of things that there is as often as for any other."""
    counted: dict[int, list[tuple[str, list[Box]]]] = {}
    for said, value, of in (
        *((f"how many things are {colour} ?", colour, "colour") for colour in kinds.colours),
        *((f"how many things look like a {shape} ?", shape, "shape") for shape in kinds.shapes),
    ):
        boxes = [thing.box for thing in things if getattr(thing, of) == value]
        counted.setdefault(len(boxes), []).append((said, boxes))
    number = draw.choice(sorted(counted))
    said, boxes = draw.choice(counted[number])
    return said, str(number), boxes


def _relation(draw: random.Random, things: Sequence[SceneObject], kinds: ShapeKinds) -> Question | None:
    if len(things) < 2:
        return None
    found = [(word, thing) for word, way in _FURTHEST.items() if (thing := _furthest(things, *way)) is not None]
    if not found:
        return None
    word, thing = draw.choice(found)
    asked: Literal["colour", "shape"] = draw.choice(("colour", "shape"))
    return f"what {asked} is the {word} thing ?", getattr(thing, asked), [thing.box]


def _furthest(things: Sequence[SceneObject], axis: int, way: int) -> SceneObject | None:
    """Returns the thing that is further along an axis (0: down, 1: across) than all others; None if it is not clear."""
    *_, second, first = sorted(things, key=lambda thing: way * thing.box.centre[axis])
    return first if way * (first.box.centre[axis] - second.box.centre[axis]) >= _CLEAR else None


KINDS: dict[str, Callable[[random.Random, Sequence[SceneObject], ShapeKinds], Question | None]] = {
    "colour": _colour,
    "shape": _shape,
    "count": _count,
    "relation": _relation,
}
