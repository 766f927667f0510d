"""What the tests of the graph nets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture
def double() -> Iterator[None]:
    """Tests in float64: a difference of 1e-9 is then one of the formula, and the 1e-5 of the issue is met with room."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def edges() -> Tensor:
    """Repeated edges, self-loops there from the start, node 8 without edges, 9 and 10 with one end of one each."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, 8, (2, 24), generator=generator)
    return torch.cat([random, random[:, :3], torch.tensor([[2, 5, 9, 1], [2, 5, 0, 10]])], dim=1)
