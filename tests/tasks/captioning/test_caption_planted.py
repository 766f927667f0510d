"""Generated pictures and their sentences: what is said is there, and the places are right."""

from __future__ import annotations

from itertools import pairwise

import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.synthetic import plant, sentence
from zoo.tasks.images.synthetic_scenes import COLOURS, SHAPES, Scenes, draw_scenes, relation

COUNTS = [1, 2, 3, 4] * 50


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return draw_scenes(COUNTS)


@pytest.fixture(scope="module")
def captions() -> CaptionSet:
    return plant(pictures=200, held_out=20)


def test_a_sentence_names_everything_and_knows_the_place_of_each_word(scenes: Scenes) -> None:
    for things in scenes.things:
        words = sentence(things)
        said = " ".join(word for word, _ in words)
        named = [f"a {'small ' if thing.size == 'small' else ''}{thing.colour} {thing.shape}" for thing in things]
        expected = named[0]
        for (one, other), name in zip(pairwise(things), named[1:], strict=True):
            expected += f" {relation(one, other)} {name}"
        assert said == expected
        content = {"small", *COLOURS, *SHAPES}
        assert [(word in content) for word, _ in words] == [box is not None for _, box in words]
        boxes = {thing.box: thing for thing in things}
        for word, box in words:
            if box is not None:
                assert word in (boxes[box].size, boxes[box].colour, boxes[box].shape)


def test_splits_sizes_and_regions(captions: CaptionSet) -> None:
    assert captions.captions is not None
    assert captions.regions is not None
    assert [(captions.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [200, 20, 20]
    assert captions.pixels.shape == (240, 3, 48, 48)  # type: ignore[union-attr]
    for (text,), boxes in zip(captions.captions, captions.regions, strict=True):
        assert len(text.split()) == len(boxes)
    counts = [text.count(" a ") + 1 for (text,) in captions.captions]
    assert sorted(set(counts)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 7}, "most is to be a whole number of at least 1 and of at most 6"),
        ({"most": 4, "side": 32}, "data.most=4: write a whole number from 1 to 2 for pictures of 32 pixels"),
        ({"side": 20}, "side is to be a whole number of at least 32 and of at most 256"),
        ({"noise": 256}, "noise is to be a whole number of at least 0 and of at most 255"),
        ({"least": 3, "most": 2}, "data.least=3 is more than data.most=2"),
        ({"pictures": 10**9}, "data.pictures=1000000000, held_out=500 and side=48 make"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        plant(**options)
