"""The cells of a grid in which boxes lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoo.nn.images import image_input
from zoo.nn.images.image_input import OriginalImage, cells_of


def test_a_box_is_gold_in_the_cells_that_hold_much_of_it() -> None:
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.4, 0.0, 0.6, 0.1], [0.2, 0.2, 0.55, 0.55], [0.0, 0.0, 0.0, 0.0]])
    found = cells_of(boxes, (2, 2))
    # the second lies in two rows; the third has 0.3 x 0.3 in the first cell, and 0.3 x 0.05 beside it
    assert found.tolist() == [
        [True, False, False, False],
        [True, False, True, False],
        [True, *[False] * 3],
        [False] * 4,
    ]


def test_gold_cells_are_those_of_a_brute_force() -> None:
    random, grid = np.random.default_rng(0), (3, 5)
    corners = np.sort(random.uniform(size=(40, 2, 2)), -1)
    boxes = np.stack([corners[:, 0, 0], corners[:, 1, 0], corners[:, 0, 1], corners[:, 1, 1]], 1)
    found = cells_of(torch.from_numpy(boxes), grid)
    for box, cells in zip(boxes, found.tolist(), strict=True):
        areas = []
        for row in range(grid[0]):
            for column in range(grid[1]):
                down = min(box[2], (row + 1) / grid[0]) - max(box[0], row / grid[0])
                across = min(box[3], (column + 1) / grid[1]) - max(box[1], column / grid[1])
                areas.append(max(down, 0) * max(across, 0))
        assert cells == [area >= max(areas) / 2 and area > 0 for area in areas]


def test_a_large_picture_is_drawn_smaller_with_the_same_part_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [torch.zeros(3, 40, 90, dtype=torch.uint8)]
    original = OriginalImage(pictures, 0, (4.0, 9.0, 20.0, 45.0))
    assert original.read().shape == original.read().size == (40, 90)
    assert original.read().seen == original.seen
    monkeypatch.setattr(image_input, "_MOST_DRAWN", 900)
    drawn = original.read()
    assert (drawn.shape, drawn.size) == ((20, 45), (40, 90))
    assert drawn.seen == (2.0, 4.5, 10.0, 22.5)
