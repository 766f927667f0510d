"""Generated pictures of coloured shapes, in which the place of everything is known.

A picture has a few things on a noisy ground. A thing has a colour, a shape and one of two sizes. No two things overlap,
or are alike in colour and shape. For any two it is clear which is further left, and whether they stand rather beside or
above each other, so that what a sentence or a question says about them is either right or wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, UInt8

from zoo.data.size_limits import check_numbers
from zoo.errors import ConfigError
from zoo.types import Seed, validate_ranges

COLOURS = {
    "red": (214, 48, 40),
    "green": (48, 168, 64),
    "blue": (52, 88, 220),
    "yellow": (228, 208, 56),
    "purple": (150, 60, 190),
    "white": (236, 236, 236),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")
Size = Literal["small", "large"]
SIZES: dict[Size, int] = {"small": 7, "large": 13}
"""Height and width of a thing in pixels."""
Relation = Literal["left of", "right of", "above", "below"]
Side = Annotated[int, ">= 32", "<= 256"]
"""Height and width of a picture."""
Noise = Annotated[int, ">= 0", "<= 255"]
"""Largest change of a pixel, of 255."""
Alignment = Annotated[int, ">= 1", "<= 8"]
"""Pixels from one place where a thing may begin to the next."""
MOST = 6
"""The most things in a picture."""
_GAP, _APART = 2, 3
"""Pixels between things, and by which two distances must differ to be told apart."""
_ATTEMPTS = 60
_GROUND = (30, 90)
"""Range of the grey of a ground."""
_TINT = 20
"""Largest change of a thing's colour, of 255."""


class Box(NamedTuple):
    """The place of a thing in pixels; `bottom` and `right` are those after its last."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def centre(self) -> tuple[float, float]:
        """The middle: from the top, and from the left."""
        return (self.top + self.bottom) / 2, (self.left + self.right) / 2


@dataclass(frozen=True)
class SceneObject:
    """Something in a picture.

    Args:
        colour: One of `COLOURS`.
        shape: One of `SHAPES`.
        size: One of `SIZES`.
        box: Its place.
    """

    colour: str
    shape: str
    size: Size
    box: Box


@dataclass(frozen=True, eq=False)
class Scenes:
    """Generated pictures.

    Args:
        pixels: The pictures.
        things: The things in each picture, from left to right.
    """

    pixels: UInt8[np.ndarray, "n 3 h w"]
    things: list[tuple[SceneObject, ...]]


@dataclass(frozen=True)
class ShapeKinds:
    """What things there are.

    Args:
        colours: Names of `COLOURS`.
        shapes: Names of `SHAPES`.
        sizes: Names of `SIZES`.
    """

    colours: Sequence[str] = tuple(COLOURS)
    shapes: Sequence[str] = SHAPES
    sizes: Sequence[Size] = ("small", "large")


_ALL = ShapeKinds()


@validate_ranges
def draw_scenes(
    counts: Sequence[int],
    *,
    side: Side = 48,
    noise: Noise = 16,
    kinds: ShapeKinds = _ALL,
    align: Alignment = 1,
    seed: Seed = 0,
) -> Scenes:
    """Draws pictures; the same arguments give the same pictures.

    Args:
        counts: Number of things in each picture.
        side: Height and width of a picture.
        noise: Largest change of a pixel, of 255.
        kinds: What things there are.
        align: Pixels from one place where a thing may begin to the next.
        seed: Seed of all random numbers.
    """
    check_scenes(side=side, most=max(counts, default=1), kinds=kinds)
    draw, grain = random.Random(seed), np.random.default_rng(seed)
    things = [_things(draw, count, side, kinds, align) for count in counts]
    pixels = np.empty((len(things), 3, side, side), dtype=np.uint8)
    for picture, inside in zip(pixels, things, strict=True):
        picture[:] = _draw(grain, inside, side, noise)
    return Scenes(pixels, things)


def plant_scenes(
    *,
    pictures: int,
    held_out: int,
    least: int,
    most: int,
    side: int,
    noise: int,
    kinds: ShapeKinds = _ALL,
    align: int = 1,
    seed: int,
) -> tuple[Scenes, random.Random]:
    """Draws the pictures of all splits, as the options of a data set ask; see `zoo.tasks.captioning.synthetic.plant`.

    Returns:
        The pictures, and the generator that drew how many things each has, for what is said or asked about them.
    """
    check_scenes(side=side, most=most, kinds=kinds)
    if least > most:
        raise ConfigError(f"data.least={least} is more than data.most={most}.")
    total = pictures + 2 * held_out
    check_numbers(total * 3 * side**2, f"data.pictures={pictures}, held_out={held_out} and side={side}")
    draw = random.Random(seed)
    counts = [draw.randint(least, most) for _ in range(total)]
    return draw_scenes(counts, side=side, noise=noise, kinds=kinds, align=align, seed=seed), draw


def relation(one: SceneObject, other: SceneObject) -> Relation:
    """Returns where a thing is, seen from another."""
    (down, across), (other_down, other_across) = one.box.centre, other.box.centre
    if abs(other_across - across) > abs(other_down - down):
        return "left of" if across < other_across else "right of"
    return "above" if down < other_down else "below"


def check_scenes(*, side: int, most: int, kinds: ShapeKinds = _ALL) -> None:
    """Refuses options of pictures that cannot be drawn."""
    fits = 2 if side < 48 else MOST if "small" in kinds.sizes or side >= 64 else 4  # more seldom find a place
    if not 1 <= most <= fits:
        raise ConfigError(f"data.most={most}: write a whole number from 1 to {fits} for pictures of {side} pixels.")
    colours, shapes = len(kinds.colours), len(kinds.shapes)
    if most > colours * shapes:
        raise ConfigError(
            f"data.most={most}: {colours} colours and {shapes} shapes make {colours * shapes} things that differ; "
            "write more of them."
        )


def _things(draw: random.Random, count: int, side: int, kinds: ShapeKinds, align: int) -> tuple[SceneObject, ...]:
    """Places things one after another, and begins anew where the next one finds no place."""
    while True:
        found: list[SceneObject] = []
        for colour, shape in draw.sample(list(product(kinds.colours, kinds.shapes)), count):
            size: Size = draw.choice(kinds.sizes)
            box = _find_place(draw, found, SIZES[size], side, align)
            if box is None:
                break
            found.append(SceneObject(colour, shape, size, box))
        if len(found) == count:
            return tuple(sorted(found, key=lambda thing: thing.box.centre[1]))


def _find_place(draw: random.Random, others: Sequence[SceneObject], extent: int, side: int, align: int) -> Box | None:
    for _ in range(_ATTEMPTS):
        top, left = (1 + align * draw.randint(0, (side - extent - 2) // align) for _ in range(2))
        box = Box(top, left, top + extent, left + extent)
        if all(_clear(box, other.box) for other in others):
            return box
    return None


def _clear(one: Box, other: Box) -> bool:
    """Whether two boxes lie apart, and it is clear how."""
    beside = one.left >= other.right + _GAP or other.left >= one.right + _GAP
    below = one.top >= other.bottom + _GAP or other.top >= one.bottom + _GAP
    down, across = (abs(a - b) for a, b in zip(one.centre, other.centre, strict=True))
    return (beside or below) and across >= _APART and abs(down - across) >= _APART


def _draw(
    grain: np.random.Generator, things: Sequence[SceneObject], side: int, noise: int
) -> UInt8[np.ndarray, "3 h w"]:
    picture = np.full((3, side, side), grain.integers(*_GROUND, endpoint=True), dtype=np.int16)
    for thing in things:
        tint = grain.integers(-_TINT, _TINT, size=3, endpoint=True)
        inside = picture[:, thing.box.top : thing.box.bottom, thing.box.left : thing.box.right]
        colour = (np.array(COLOURS[thing.colour]) + tint)[:, None, None]
        np.copyto(inside, colour.astype(np.int16), where=_shape(thing.shape, SIZES[thing.size]))
    picture += grain.integers(-noise, noise, size=picture.shape, dtype=np.int16, endpoint=True)
    return np.clip(picture, 0, 255).astype(np.uint8)


@lru_cache
def _shape(name: str, extent: int) -> Bool[np.ndarray, "h w"]:
    """Returns the pixels of a shape in its box."""
    steps = (np.arange(extent) + 0.5) / extent * 2 - 1
    down, across = steps[:, None], steps[None, :]
    distance = np.sqrt(down**2 + across**2)
    masks = {
        "circle": distance <= 1,
        "square": np.ones((extent, extent), dtype=bool),
        "triangle": np.abs(across) <= (down + 1) / 2,
        "cross": (np.abs(across) <= 0.3) | (np.abs(down) <= 0.3),
        "ring": (distance <= 1) & (distance >= 0.55),
        "diamond": np.abs(across) + np.abs(down) <= 1,
    }
    return masks[name]
