"""Row functions over edges: those of a row alone, in memory that grows with the edges however unequal degrees are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import config
from memory_cases import growth, peak
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    EdgeSupport,
    Entmax15,
    GATv2,
    HardStraightThrough,
    RenormalizedDropout,
    Softmax,
    Sparsemax,
    Unnormalized,
)
from zoo.attention.normalizers.sparsemax import entmax15, sparsemax

ROWS: dict[str, Callable[..., Tensor]] = {"sparsemax": sparsemax, "entmax": entmax15}
LENGTHS = [0, 1, 9, 3, 1, 0, 4, 5, 16, 2, 7, 8, 33, 0]
SITES: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "softmax": lambda: (Softmax(), 0.0),
    "sparsemax": lambda: (Sparsemax(), 0.0),
    "entmax": lambda: (Entmax15(), 0.0),
    "hard": lambda: (HardStraightThrough(), 0.0),
    "not normalised": lambda: (Unnormalized(), 0.0),
    "renormalised dropout": lambda: (Softmax(), RenormalizedDropout(0.3)),
}


def unequal() -> EdgeSupport:
    """Rows of all lengths, none of an own group, in any order of edges."""
    target = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    source = torch.arange(len(target)) % 40
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(1))
    return EdgeSupport.from_edges(torch.stack([source, target])[:, order], len(LENGTHS), 40)


def scores(support: EdgeSupport) -> Tensor:
    """With ties, and rows of -inf, +inf and NaN."""
    drawn = torch.randn(len(support.pattern), 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = (drawn * 4).round() / 4
    for row, junk in ((3, -torch.inf), (6, torch.inf), (7, torch.nan)):
        drawn[support.target == row, 1] = junk
    return drawn


@pytest.mark.parametrize("name", ROWS)
def test_each_row_is_the_function_of_that_row(name: str) -> None:
    support = unequal()
    drawn = scores(support).requires_grad_()
    found = support.apply_per_query(ROWS[name], drawn)
    weighing = torch.randn(found.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(found, drawn, weighing)
    for row in range(len(LENGTHS)):
        of_row = support.target == row
        alone = drawn[of_row].detach().t().requires_grad_()
        expected = ROWS[name](alone)
        torch.testing.assert_close(found[of_row], expected.t(), rtol=0.0, atol=1e-12, equal_nan=True)
        wanted = torch.autograd.grad(expected, alone, weighing[of_row].t())[0]
        torch.testing.assert_close(gradient[of_row], wanted.t(), rtol=0.0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("normalizer", [Sparsemax(), Entmax15()])
def test_gradients(normalizer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # which gradcheck would trip over
    support = unequal()
    drawn = torch.randn(len(support.pattern), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    assert torch.autograd.gradcheck(lambda x: normalizer(x, support), drawn.requires_grad_())


def test_without_edges() -> None:
    support = EdgeSupport.from_edges(torch.zeros(2, 0, dtype=torch.long), 3)
    assert Sparsemax()(torch.zeros(0, 2), support).shape == (0, 2)


@pytest.mark.parametrize("name", SITES)
def test_memory_of_a_star(name: str) -> None:
    """One node that sees all others: its row must not be everybody's length."""
    normalizer, dropout = SITES[name]()
    attend = Attention(GATv2(dim=4, heads=2), normalizer, dropout=dropout)

    def of(nodes: int) -> Callable[[], Tensor]:
        others = torch.arange(1, nodes)
        edges = torch.stack([others, torch.zeros_like(others)])
        support = EdgeSupport.from_edges(torch.cat([edges, edges.flip(0)], 1), nodes, self_loops=True)
        x = torch.randn(nodes, 2, 4, requires_grad=True)
        return lambda: attend(x, x, x, support)[0]

    assert growth(of, 500, 2000) < 1.1
    assert peak(of(2000)) < 16 * 2**20
