"""Weights of cells, and boxes, in the size of the picture itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo.tasks.images.cell_maps import box_mask, upsample_cells
from zoo.tasks.vision.data.transforms import Preprocessing


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
def test_a_weight_lies_where_its_cell_lies_in_the_picture(resize: Any) -> None:
    """A cell's pixels as preprocessing takes them from the picture, and the heaviest pixels of its map."""
    seen = Preprocessing(channels=3, height=8, width=8, mean=(0.0,) * 3, std=(1.0,) * 3, resize=resize)
    for cell in range(16):
        weights = torch.zeros(1, 16)
        weights[0, cell] = 1.0
        (found,) = upsample_cells(weights, (4, 4), seen.find_crop(24, 40), (24, 40))
        row, column = divmod(cell, 4)
        top, left, height, width = seen.find_crop(24, 40)
        middle = top + (row + 0.5) * height / 4, left + (column + 0.5) * width / 4
        if not (0 <= middle[0] < 24 and 0 <= middle[1] < 40):
            continue  # padding of resize=pad
        y, x = np.unravel_index(int(found.argmax()), (24, 40))
        assert abs(y + 0.5 - middle[0]) <= height / 8 + 1
        assert abs(x + 0.5 - middle[1]) <= width / 8 + 1


def test_weights_in_own_size_are_bilinear_and_keep_their_sum() -> None:
    weights = torch.rand(2, 12, generator=torch.Generator().manual_seed(0))
    found = upsample_cells(weights, (3, 4), (0.0, 0.0, 30.0, 40.0), (30, 40))
    expected = torch.nn.functional.interpolate(weights.view(1, 2, 3, 4), size=(30, 40), mode="bilinear")[0] / 100
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum((1, 2)), weights.sum(1), rtol=1e-5, atol=1e-5)


def test_nothing_lies_outside_of_what_the_net_sees() -> None:
    found = upsample_cells(torch.full((1, 4), 0.25), (2, 2), (0.0, 10.0, 20.0, 20.0), (20, 40))
    assert (found[0, :, 10:30] > 0).all()
    assert not found[0, :, :10].any()
    assert not found[0, :, 30:].any()
    assert float(found.sum()) == pytest.approx(1.0)


def test_a_box_in_pixels() -> None:
    mask = box_mask(torch.tensor([0.0, 0.5, 0.5, 1.0]), (0.0, 10.0, 20.0, 20.0), (20, 40))
    assert mask.nonzero().amin(0).tolist() == [0, 20]
    assert mask.nonzero().amax(0).tolist() == [9, 29]
    assert not box_mask(torch.zeros(4), (0.0, 10.0, 20.0, 20.0), (20, 40)).any()
