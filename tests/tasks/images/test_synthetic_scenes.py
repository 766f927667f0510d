"""Generated pictures: everything is where it is said to be, and can be told apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from zoo.tasks.images.synthetic_scenes import COLOURS, SHAPES, SIZES, Scenes, draw_scenes, relation

COUNTS = [1, 2, 3, 4] * 50


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return draw_scenes(COUNTS)


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


def test_the_most_things_that_can_be() -> None:
    assert all(len(things) == 6 for things in draw_scenes([6] * 20).things)
    assert all(len(things) == 2 for things in draw_scenes([2] * 20, side=32).things)
