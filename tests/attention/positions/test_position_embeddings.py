"""Position embeddings against their formulas, and interpolation against explicit sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from zoo.attention import Learned, Learned2D, Sinusoidal, Sinusoidal2D

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def wave(position: int, dim: int, base: float = 10_000.0) -> list[float]:
    return [f(position / base ** (2 * i / dim)) for i in range(dim // 2) for f in (math.sin, math.cos)]


def linear(vectors: Tensor, length: int) -> Tensor:
    """Each new position is the centre of an interval as wide as the others; its two neighbours are mixed."""
    rows = []
    for i in range(length):
        at = min(max((i + 0.5) * len(vectors) / length - 0.5, 0.0), len(vectors) - 1.0)
        low = int(at)
        high = min(low + 1, len(vectors) - 1)
        rows.append(vectors[low] * (1 - (at - low)) + vectors[high] * (at - low))
    return torch.stack(rows)


def cubic_matrix(old: int, new: int) -> Tensor:
    """Keys 1981, a = -1/2, the kernel stretched where there are fewer places than before."""

    def kernel(x: float, a: float = -0.5) -> float:
        x = abs(x)
        if x < 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0

    scale = old / new
    stretch = max(scale, 1.0)
    rows = []
    for i in range(new):
        centre = (i + 0.5) * scale
        row = torch.tensor([kernel((j + 0.5 - centre) / stretch) for j in range(old)], dtype=torch.float64)
        rows.append(row / row.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("start", [0, 30_000])
def test_sinusoids(length: int, start: int) -> None:
    x = torch.randn(2, length, 8, dtype=torch.float64)
    expected = torch.tensor([wave(start + p, 8) for p in range(length)], dtype=torch.float64).view(length, 8)
    torch.testing.assert_close(Sinusoidal(dim=8)(x, start), x + expected, rtol=0.0, atol=1e-10 if start else 1e-12)
    found = Sinusoidal(dim=8)(x.float(), start)
    torch.testing.assert_close(found.double(), x + expected, rtol=0.0, atol=5e-3 if start else 1e-5)


def test_base() -> None:
    found = Sinusoidal(dim=4, base=100.0)(torch.zeros(1, 5, 4, dtype=torch.float64))
    torch.testing.assert_close(found[0], torch.tensor([wave(p, 4, 100.0) for p in range(5)]).double())


def test_a_shift_is_a_rotation() -> None:
    """Vaswani et al. 2017, section 3.5: PE(p + k) is a linear function of PE(p), the same for all p."""
    table = Sinusoidal(dim=6)(torch.zeros(1, 40, 6, dtype=torch.float64))[0]
    products = table @ table.T
    for k in range(10):
        diagonal = products.diagonal(k)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (5, 2), (0, 4)])
def test_sinusoids_of_rows_and_columns(grid: tuple[int, int]) -> None:
    rows, columns = grid
    x = torch.randn(2, rows * columns, 8, dtype=torch.float64)
    places = [wave(row, 4) + wave(column, 4) for row in range(rows) for column in range(columns)]
    expected = x + torch.tensor(places, dtype=torch.float64).view(-1, 8)
    torch.testing.assert_close(Sinusoidal2D(dim=8)(x, grid), expected, rtol=0.0, atol=1e-12)


def test_learned_vectors_and_their_gradient() -> None:
    torch.manual_seed(0)
    module, x = Learned(dim=3, length=5).double(), torch.randn(2, 3, 3, dtype=torch.float64)
    found = module(x, start=1)
    assert torch.equal(found, x + module.vectors[1:4])
    (gradient,) = torch.autograd.grad(found.sum(), module.vectors)
    assert torch.equal(gradient, torch.tensor([0.0, 2.0, 2.0, 2.0, 0.0]).double()[:, None].expand(5, 3))


@pytest.mark.parametrize(("old", "new"), [(5, 9), (4, 8), (1, 3), (7, 8), (8, 3)])
def test_learned_vectors_of_another_length(old: int, new: int) -> None:
    module = Learned(dim=3, length=old, interpolate=True).double()
    torch.testing.assert_close(module.resize(new), linear(module.vectors, new), rtol=0.0, atol=1e-12)
    x = torch.randn(2, new, 3, dtype=torch.float64)
    expected = linear(module.vectors, new) if new > old else module.vectors[:new]
    torch.testing.assert_close(module(x), x + expected, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(module.float()(x.float()).double(), x + expected, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("grid", [(4, 6), (8, 9), (7, 3), (2, 2), (5, 6), (1, 1)])
def test_learned_vectors_of_another_grid(grid: tuple[int, int]) -> None:
    """Bicubic with antialiasing, one axis after the other."""
    module = Learned2D(dim=3, grid=(4, 6)).double()
    x = torch.randn(2, grid[0] * grid[1], 3, dtype=torch.float64)
    down, across = cubic_matrix(4, grid[0]), cubic_matrix(6, grid[1])
    expected = x + torch.einsum("ri,cj,ijd->rcd", down, across, module.vectors).flatten(0, 1)
    torch.testing.assert_close(module(x, grid), expected, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(module.float()(x.float(), grid).double(), expected, rtol=0.0, atol=1e-5)


def test_the_learned_grid_itself_is_not_interpolated() -> None:
    module, x = Learned2D(dim=3, grid=(4, 6)), torch.randn(2, 24, 3)
    assert torch.equal(module(x), x + module.vectors.flatten(0, 1))
    assert torch.equal(module(x, (4, 6)), module(x))


def test_gradients_reach_the_vectors_through_interpolation() -> None:
    torch.manual_seed(0)
    vectors, grid = Learned(dim=2, length=3, interpolate=True).double(), Learned2D(dim=2, grid=(2, 3)).double()
    assert torch.autograd.gradcheck(lambda _: vectors(torch.zeros(1, 5, 2).double()), (vectors.vectors,))
    assert torch.autograd.gradcheck(lambda _: grid(torch.zeros(1, 12, 2).double(), (3, 4)), (grid.vectors,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_precision_of_the_inputs_is_kept(dtype: torch.dtype) -> None:
    """Positions are counted in single precision at least: those of half precision beyond 256 would be alike."""
    x = torch.zeros(1, 600, 8, dtype=dtype)
    found = [
        Sinusoidal(dim=8)(x),
        Sinusoidal2D(dim=8)(x, (300, 2)),
        Learned(dim=8, length=500, interpolate=True).to(dtype)(x),
        Learned2D(dim=8, grid=(25, 20)).to(dtype)(x, (30, 20)),
    ]
    for each in found:
        assert each.dtype == dtype
        assert each.isfinite().all()
    exact = torch.tensor([wave(p, 8) for p in range(600)], dtype=torch.float64)
    torch.testing.assert_close(found[0][0].double(), exact, rtol=0.0, atol=4e-3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sinusoidal(dim=7), "must be even, got 7"),
        (lambda: Sinusoidal(dim=0), "dim is to be a whole number of at least 1"),
        (lambda: Sinusoidal2D(dim=6), "divisible by 4, got 6"),
        (lambda: Sinusoidal2D(dim=8)(torch.zeros(1, 7, 8), (2, 3)), "2 x 3 has 6 cells, got 7 inputs"),
        (lambda: Learned2D(dim=8, grid=(2, 2))(torch.zeros(1, 7, 8)), "2 x 2 has 4 cells, got 7 inputs"),
        (lambda: Learned(dim=8, length=5)(torch.zeros(1, 4, 8), start=2), "6 positions, but vectors for 5"),
        (lambda: Learned(dim=8, length=5, interpolate=True)(torch.zeros(1, 4, 8), start=2), "with start=0"),
    ],
)
def test_bad_values(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
