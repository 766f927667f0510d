"""Generated pictures and their sentences: what is said is there, and the places are right."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.planted import COLOURS, SHAPES, SIZES, Scenes, draw_scenes, relation
from zoo.tasks.captioning.sentences import plant, sentence

COUNTS = [1, 2, 3, 4] * 50


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return draw_scenes(COUNTS)


@pytest.fixture(scope="module")
def captions() -> CaptionSet:
    return plant(pictures=200, held_out=20)


def test_equal_arguments_give_equal_pictures(scenes: Scenes) -> None:
    same, other = draw_scenes(COUNTS), draw_scenes(COUNTS, seed=1)
    assert same.things == scenes.things
    np.testing.assert_array_equal(same.pixels, scenes.pixels)
    assert other.things != scenes.things


def test_noise_changes_nothing_else(scenes: Scenes) -> None:
    plain = draw_scenes(COUNTS, noise=0)
    assert plain.things == scenes.things


def test_things_are_as_many_as_asked_for_apart_and_from_left_to_right(scenes: Scenes) -> None:
    assert [len(each) for each in scenes.things] == COUNTS
    for things in scenes.things:
        assert len({(thing.colour, thing.shape) for thing in things}) == len(things)
        for one, other in combinations(things, 2):
            assert other.box.centre[1] - one.box.centre[1] >= 3
            rows = one.box.top < other.box.bottom and other.box.top < one.box.bottom
            columns = one.box.left < other.box.right and other.box.left < one.box.right
            assert not (rows and columns)
        for thing in things:
            assert thing.box.bottom - thing.box.top == thing.box.right - thing.box.left == SIZES[thing.size]
            assert 0 < thing.box.top < thing.box.bottom < 48


def test_a_thing_has_its_colour_and_fills_its_box() -> None:
    found = draw_scenes(COUNTS, noise=0)
    for picture, things in zip(found.pixels.astype(int), found.things, strict=True):
        ground = picture[:, 0, 0]
        is_thing = (picture != ground[:, None, None]).any(0)
        for thing in things:
            box = thing.box
            inside = is_thing[box.top : box.bottom, box.left : box.right]
            assert inside.any(0).all()
            assert inside.any(1).all()
            drawn = picture[:, box.top : box.bottom, box.left : box.right][:, inside]
            assert (np.ptp(drawn, axis=1) == 0).all()
            assert np.abs(drawn[:, 0] - COLOURS[thing.colour]).max() <= 20
            is_thing[box.top : box.bottom, box.left : box.right] = False
        assert not is_thing.any()


def test_no_two_shapes_or_colours_look_alike() -> None:
    found = draw_scenes([1] * 400, noise=0, seed=3)
    drawn: dict[tuple[str, str], set[bytes]] = {}
    for picture, (thing,) in zip(found.pixels, found.things, strict=True):
        box = thing.box
        inside = picture[:, box.top : box.bottom, box.left : box.right] != picture[:, :1, :1]
        drawn.setdefault((thing.shape, thing.size), set()).add(inside.any(0).tobytes())
    assert len(drawn) == len(SHAPES) * len(SIZES)
    assert all(len(each) == 1 for each in drawn.values())
    for size in SIZES:
        assert len({next(iter(drawn[shape, size])) for shape in SHAPES}) == len(SHAPES)
    for one, other in combinations(COLOURS.values(), 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 2 * 20


def test_a_relation_is_right_from_both_sides(scenes: Scenes) -> None:
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    seen = set()
    for things in scenes.things:
        for one, other in combinations(things, 2):
            found = relation(one, other)
            seen.add(found)
            assert relation(other, one) == opposite[found]
            (down, across), (other_down, other_across) = one.box.centre, other.box.centre
            if found == "left of":
                assert other_across - across > abs(other_down - down)
            else:
                assert (other_down - down) * (1 if found == "above" else -1) > other_across - across
    assert seen == {"left of", "above", "below"}, "things are given from left to right"


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
        ({"most": 7}, "data.most=7: write a whole number from 1 to 6 for pictures of 48 pixels"),
        ({"most": 4, "side": 32}, "data.most=4: write a whole number from 1 to 2 for pictures of 32 pixels"),
        ({"side": 20}, "data.side=20: write a whole number from 32 to 256"),
        ({"noise": 256}, "data.noise=256: write a whole number from 0 to 255"),
        ({"least": 3, "most": 2}, "data.least=3 is more than data.most=2"),
        ({"pictures": 10**9}, "data.pictures=1000000000, held_out=500 and side=48 make"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plant(**options)


def test_the_most_things_that_can_be() -> None:
    assert all(len(things) == 6 for things in draw_scenes([6] * 20).things)
    assert all(len(things) == 2 for things in draw_scenes([2] * 20, side=32).things)
