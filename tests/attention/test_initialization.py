"""Weights of several heads have the values that a loop over the heads would draw, whatever their number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zoo.attention.initialization import glorot_


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 4), (8, 6), (2, 1, 1)])
def test_each_head_is_a_layer_of_its_own(shape: tuple[int, ...]) -> None:
    one, other = torch.empty(shape), torch.empty(shape)
    torch.manual_seed(0)
    assert glorot_(one) is one
    torch.manual_seed(0)
    for head in other:
        nn.init.xavier_uniform_(head.view(-1, shape[-1]))
    assert torch.equal(one, other)
