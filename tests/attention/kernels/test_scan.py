"""The linear recurrence against a loop in time, in every layout and at the edges of its range."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from zoo.attention import linear_recurrence


def loop(decay: Tensor, x: Tensor, *, dim: int = -1, reverse: bool = False) -> Tensor:
    decay, x = (each.unbind(dim) for each in torch.broadcast_tensors(decay, x))
    order = range(len(x))
    y: dict[int, Tensor] = {}
    before = torch.zeros_like(x[0])
    for j in reversed(order) if reverse else order:
        before = y[j] = decay[j] * before + x[j]
    return torch.stack([y[j] for j in order], dim)


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Decays of which every fourth is zero and every fourth one."""
    generator = torch.Generator().manual_seed(seed)
    decay = torch.rand(shape, generator=generator, dtype=torch.float64)
    kind = torch.randint(0, 4, shape, generator=generator)
    decay = torch.where(kind == 0, 0.0, torch.where(kind == 1, 1.0, decay))
    return decay.to(dtype), torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def gradients(function: object, decay: Tensor, x: Tensor, **options: object) -> tuple[Tensor, ...]:
    leaves = [each.clone().requires_grad_() for each in (decay, x)]
    y = function(*leaves, **options)
    return torch.autograd.grad((y + 0.5 * y.square()).sum(), leaves)


# few sequences take the doubling scan, many of them the steps in their order
@pytest.mark.parametrize("sequences", [3, 1100])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_the_loop(sequences: int, length: int, reverse: bool) -> None:
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        decay, x = drawn(sequences, length, dtype=dtype)
        expected = loop(decay.double(), x.double(), reverse=reverse)
        y = linear_recurrence(decay, x, reverse=reverse)
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
        reference = gradients(loop, decay.double(), x.double(), reverse=reverse)
        for one, other in zip(gradients(linear_recurrence, decay, x, reverse=reverse), reference, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=10 * tolerance, atol=10 * tolerance)


@settings(max_examples=60)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    dim=st.integers(-4, 3),
    reverse=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_along_any_axis(shape: list[int], dim: int, reverse: bool, seed: int) -> None:
    dim = dim % len(shape)
    decay, x = drawn(*shape, seed=seed)
    for axis in (dim, dim - len(shape)):
        y = linear_recurrence(decay, x, dim=axis, reverse=reverse)
        torch.testing.assert_close(y, loop(decay, x, dim=dim, reverse=reverse), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("of_decay", "of_x"), [((9,), (2, 3, 9)), ((2, 1, 9), (3, 9)), ((2, 3, 9), (9,))])
def test_leading_axes_broadcast(of_decay: tuple[int, ...], of_x: tuple[int, ...]) -> None:
    decay, x = drawn(*of_decay)[0], drawn(*of_x)[1]
    torch.testing.assert_close(linear_recurrence(decay, x), loop(decay, x), rtol=0.0, atol=1e-12)
    for one, other in zip(gradients(linear_recurrence, decay, x), gradients(loop, decay, x), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
def test_nothing(shape: tuple[int, ...]) -> None:
    leaves = [torch.ones(shape, requires_grad=True) for _ in range(2)]
    y = linear_recurrence(*leaves)
    assert y.shape == shape
    for gradient in torch.autograd.grad(y.sum(), leaves):
        assert gradient.shape == shape


@pytest.mark.parametrize("sequences", [1, 2000])
def test_decays_of_zero_and_one_are_exact(sequences: int) -> None:
    """A sum that starts anew wherever the decay is zero."""
    x = torch.arange(1.0, 65.0).expand(sequences, -1)
    decay = torch.ones(64)
    torch.testing.assert_close(linear_recurrence(decay, x), x.cumsum(-1), rtol=0.0, atol=0.0)
    decay[::8] = 0.0
    expected = x.unflatten(-1, (8, 8)).cumsum(-1).flatten(-2)
    torch.testing.assert_close(linear_recurrence(decay, x), expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("sequences", [2, 1100])
def test_long_and_near_the_ends_of_the_range(sequences: int) -> None:
    """Decays so near one, and so near zero, that their products over- or underflow a division."""
    generator = torch.Generator().manual_seed(0)
    for exponent in (-20.0, -6.0, 6.0, 20.0):
        decay = torch.sigmoid(exponent + torch.randn(sequences, 700, generator=generator))
        x = torch.rand(sequences, 700, generator=generator)
        expected = loop(decay.double(), x.double())
        torch.testing.assert_close(linear_recurrence(decay, x).double(), expected, rtol=2e-6, atol=0.0)


def test_inputs_are_left_as_they_are() -> None:
    for shape in ((1, 5), (5, 1), (2000, 5)):
        decay, x = drawn(*shape)
        copies = decay.clone(), x.clone()
        y = linear_recurrence(decay, x, dim=0)
        y.zero_()
        assert torch.equal(decay, copies[0])
        assert torch.equal(x, copies[1])


@pytest.mark.parametrize("reverse", [False, True])
def test_first_and_second_derivatives(reverse: bool) -> None:
    decay, x = (each.requires_grad_() for each in drawn(2, 6))

    def recurrence(decay: Tensor, x: Tensor) -> Tensor:
        return linear_recurrence(decay, x, reverse=reverse)

    assert torch.autograd.gradcheck(recurrence, (decay, x))
    assert torch.autograd.gradgradcheck(recurrence, (decay, x))


def test_complex_decays() -> None:
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(2, 7, generator=generator, dtype=torch.float64)
    decay = torch.polar(0.9 * torch.ones_like(angle), 6 * angle).requires_grad_()
    x = torch.randn(2, 7, generator=generator, dtype=torch.complex128).requires_grad_()
    torch.testing.assert_close(linear_recurrence(decay, x), loop(decay, x), rtol=0.0, atol=1e-12)
    assert torch.autograd.gradcheck(linear_recurrence, (decay, x))


def test_memory_for_the_gradient_does_not_grow_with_the_rounds() -> None:
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()), lambda x: x):
        linear_recurrence(*(each.requires_grad_() for each in drawn(3, 1000)))
    assert sum(sizes) == 2 * 3000


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mixed_type_is_the_wider_one(dtype: torch.dtype) -> None:
    decay, x = drawn(2, 9, dtype=torch.float32)
    y = linear_recurrence(decay.to(dtype), x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, loop(decay.to(dtype).float(), x))


def test_it_goes_on_from_a_state() -> None:
    decay, x = drawn(2, 12)
    whole, parts, state = linear_recurrence(decay, x), [], torch.zeros(2, dtype=torch.float64)
    for start, stop in pairwise((0, 1, 5, 12)):
        part = x[:, start:stop].clone()
        part[:, 0] += decay[:, start] * state
        parts.append(linear_recurrence(decay[:, start:stop], part))
        state = parts[-1][:, -1]
    torch.testing.assert_close(torch.cat(parts, -1), whole, rtol=0.0, atol=1e-12)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="equally long, got 3 and 4 steps"):
        linear_recurrence(torch.ones(2, 3), torch.ones(2, 4))
    with pytest.raises(ValueError, match="equally long, got 1 and 4 steps"):
        linear_recurrence(torch.ones(2, 1), torch.ones(2, 4))
    with pytest.raises(ValueError, match="no axis 2 in a tensor with 2 axes"):
        linear_recurrence(torch.ones(2, 3), torch.ones(2, 3), dim=2)
