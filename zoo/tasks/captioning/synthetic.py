"""Generated pictures with sentences that say what is in them, so that the place of each word is known.

    a small red circle left of a blue square above a white ring

A sentence names all things from left to right, and says of each how it stands to the next one. A size is named if it is
small. Size, colour and shape speak of a thing, whose box is gold; all other words speak of no place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from jaxtyping import Float

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.images.synthetic_scenes import Box, Noise, SceneObject, Side, plant_scenes, relation
from zoo.types import PositiveInt, Seed, validate_ranges

Word = tuple[str, Box | None]
"""A word, and the place that it speaks of."""


@validate_ranges
def plant(
    *,
    pictures: PositiveInt = 16000,
    held_out: PositiveInt = 500,
    least: Annotated[int, ">= 1", "<= 6"] = 1,
    most: Annotated[int, ">= 1", "<= 6"] = 4,
    side: Side = 48,
    noise: Noise = 16,
    seed: Seed = 0,
) -> CaptionSet:
    """Generates pictures and their captions; the same arguments give the same pictures.

    Args:
        pictures: Number of training pictures.
        held_out: Number of pictures of the validation split, and of the test split.
        least: The fewest things in a picture.
        most: The most things in a picture. All numbers from `least` to this are equally frequent.
        side: Height and width of a picture.
        noise: Largest change of a pixel, of 255.
        seed: Seed of the generator.
    """
    scenes, _ = plant_scenes(
        pictures=pictures, held_out=held_out, least=least, most=most, side=side, noise=noise, seed=seed
    )
    said = [sentence(things) for things in scenes.things]
    return CaptionSet(
        pixels=scenes.pixels,
        captions=[[" ".join(word for word, _ in words)] for words in said],
        ids=[f"picture {number}" for number in range(1, len(said) + 1)],
        splits=np.repeat([TRAIN, VAL, TEST], [pictures, held_out, held_out]),
        size=(side, side),
        regions=[_boxes(words) for words in said],
    )


def sentence(things: Sequence[SceneObject]) -> list[Word]:
    """Says what is in a picture.

    Args:
        things: The things, from left to right.
    """
    words = _name_object(things[0])
    for one, other in pairwise(things):
        words += [(word, None) for word in relation(one, other).split()] + _name_object(other)
    return words


def _name_object(thing: SceneObject) -> list[Word]:
    size = ["small"] if thing.size == "small" else []
    return [("a", None), *((word, thing.box) for word in (*size, thing.colour, thing.shape))]


def _boxes(words: Sequence[Word]) -> Float[np.ndarray, "w 4"]:
    return np.array([(0, 0, 0, 0) if box is None else box for _, box in words], dtype=np.float32)
