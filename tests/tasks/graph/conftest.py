"""Fixtures of the tests of graph nets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture
def double() -> Iterator[None]:
    """Runs tests in float64, in which differences above 1e-9 are errors of a formula and not of rounding."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def edges() -> Tensor:
    """Edges with repetitions and self-loops; node 8 has none, nodes 9 and 10 share one."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, 8, (2, 24), generator=generator)
    return torch.cat([random, random[:, :3], torch.tensor([[2, 5, 9, 1], [2, 5, 0, 10]])], dim=1)
