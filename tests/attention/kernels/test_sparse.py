"""Sparse products against loops in float64, on both paths, with empty rows, repeated entries and half precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import config
from torch import Tensor

from zoo.attention.kernels import sparse
from zoo.attention.kernels.sparse import SparsePattern

heads_of = pytest.mark.parametrize("heads", [1, 3])
# (rows, columns, entries): square, wide, tall with many empty rows, one entry, none
sizes_of = pytest.mark.parametrize("sizes", [(5, 5, 14), (3, 7, 9), (9, 2, 6), (4, 4, 1), (4, 3, 0)])


@pytest.fixture(params=["at once", "in pieces"])
def both_paths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dot` gathers what fits the cache at once, and more in pieces."""
    monkeypatch.setattr(sparse, "_CACHED", 1 << 60 if request.param == "at once" else 8)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tests' type checker, which what gradcheck and opcheck do inside would trip over."""
    monkeypatch.setattr(config, "jaxtyping_disable", True)


def pattern_of(rows: int, columns: int, entries: int, seed: int = 0) -> SparsePattern:
    """Random entries, some of them repeated."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(0, rows, (entries,), generator=generator)
    column = torch.randint(0, columns, (entries,), generator=generator)
    if entries > 2:
        row[1], column[1] = row[0], column[0]
    return SparsePattern.from_entries(row, column, (rows, columns))[0]


def draw(*sizes: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)


def loops(pattern: SparsePattern, weights: Tensor, left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Every operation as a sum over the entries, one at a time."""
    heads, width = right.shape[1:]
    result = {
        "product": torch.zeros(*left.shape, dtype=torch.float64),
        "dot": torch.zeros(len(pattern), heads, dtype=torch.float64),
        "row_softmax": torch.zeros(len(pattern), heads, dtype=torch.float64),
        "at_rows": torch.zeros(len(pattern), heads, width, dtype=torch.float64),
        "at_columns": torch.zeros(len(pattern), heads, width, dtype=torch.float64),
    }
    rows, columns = pattern.rows.tolist(), pattern.columns.tolist()
    for e, (i, j) in enumerate(zip(rows, columns, strict=True)):
        result["at_rows"][e], result["at_columns"][e] = left[i], right[j]
        for h in range(heads):
            total = sum(math.exp(weights[f, h]) for f in range(len(rows)) if rows[f] == i)
            result["row_softmax"][e, h] = math.exp(weights[e, h]) / total
            for d in range(width):
                result["product"][i, h, d] += weights[e, h] * right[j, h, d]
                result["dot"][e, h] += left[i, h, d] * right[j, h, d]
    return result


def operations(pattern: SparsePattern, weights: Tensor, left: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {
        "product": sparse.product(weights, right, pattern),
        "dot": sparse.dot(left, right, pattern),
        "row_softmax": sparse.row_softmax(weights, pattern),
        "at_rows": sparse.gather_rows(left, pattern),
        "at_columns": sparse.gather_columns(right, pattern),
    }


def arguments(sizes: tuple[int, int, int], heads: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    rows, columns, entries = sizes
    return (
        draw(entries, heads, dtype=dtype, seed=1),
        draw(rows, heads, 4, dtype=dtype, seed=2),
        draw(columns, heads, 4, dtype=dtype, seed=3),
    )


@heads_of
@sizes_of
@pytest.mark.usefixtures("both_paths")
def test_operations_are_the_loops(sizes: tuple[int, int, int], heads: int) -> None:
    pattern, tensors = pattern_of(*sizes), arguments(sizes, heads)
    expected = loops(pattern, *tensors)
    for name, result in operations(pattern, *tensors).items():
        torch.testing.assert_close(result, expected[name], rtol=0.0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


@heads_of
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("both_paths")
def test_half_precision_is_rounded_once(dtype: torch.dtype, heads: int) -> None:
    """Computed in fp32 inside; the softmax stays there, everything else returns what came in. Gradients alike."""
    sizes = (5, 6, 14)
    pattern = pattern_of(*sizes)
    tensors = [x.requires_grad_() for x in arguments(sizes, heads, dtype)]
    exact = [x.detach().double().requires_grad_() for x in tensors]
    results, expected = operations(pattern, *tensors), operations(pattern, *exact)
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    for name, result in results.items():
        assert result.dtype == (torch.float32 if name == "row_softmax" else dtype)
        torch.testing.assert_close(result.double(), expected[name], rtol=tolerance, atol=tolerance)
        gradients = torch.autograd.grad(result.sum(), tensors, retain_graph=True, allow_unused=True)
        exact_gradients = torch.autograd.grad(expected[name].sum(), exact, retain_graph=True, allow_unused=True)
        for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
            assert (gradient is None) == (exact_gradient is None)
            if gradient is not None:
                assert gradient.dtype == dtype
                torch.testing.assert_close(gradient.double(), exact_gradient, rtol=tolerance, atol=2 * tolerance)


@heads_of
@sizes_of
@pytest.mark.usefixtures("both_paths", "unchecked")
def test_gradients(sizes: tuple[int, int, int], heads: int) -> None:
    pattern = pattern_of(*sizes)
    weights, left, right = (x.requires_grad_() for x in arguments(sizes, heads))
    check = torch.autograd.gradcheck
    if sizes[2]:
        assert check(lambda w, v: sparse.product(w, v, pattern), (weights, right))
        assert check(lambda a, b: sparse.dot(a, b, pattern), (left, right))
        assert check(lambda s: sparse.row_softmax(s, pattern), (weights,))
        assert check(lambda a: sparse.gather_rows(a, pattern), (left,))
        assert check(lambda b: sparse.gather_columns(b, pattern), (right,))
        return
    # gradcheck wants numbers to differentiate; without entries all gradients are zero.
    for name, result in operations(pattern, weights, left, right).items():
        gradients = torch.autograd.grad(result.sum(), (weights, left, right), retain_graph=True, allow_unused=True)
        assert not any(g.any() for g in gradients if g is not None), name


@pytest.mark.usefixtures("both_paths", "unchecked")
def test_second_derivatives() -> None:
    """Each of the two pairs is the other's derivative, so gradients of gradients come for nothing."""
    sizes = (4, 5, 8)
    pattern = pattern_of(*sizes)
    weights, left, right = (x.requires_grad_() for x in arguments(sizes, 2))
    check = torch.autograd.gradgradcheck
    assert check(lambda w, v: sparse.product(w, v, pattern), (weights, right))
    assert check(lambda a, b: sparse.dot(a, b, pattern), (left, right))
    assert check(lambda a: sparse.gather_rows(a, pattern) ** 2, (left,))


def test_a_second_derivative_of_the_softmax_is_refused() -> None:
    """There is no formula for it, and it must not pass for zero."""
    pattern, scores = pattern_of(4, 5, 8), draw(8, 2).requires_grad_()
    weights = sparse.row_softmax(scores, pattern)
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        gradient.square().sum().backward()


@heads_of
@pytest.mark.usefixtures("both_paths")
def test_any_memory_order(heads: int) -> None:
    sizes = (5, 6, 14)
    pattern, (weights, left, right) = pattern_of(*sizes), arguments(sizes, heads)
    strange = [weights.T.contiguous().T, left.permute(2, 1, 0).contiguous().permute(2, 1, 0), right]
    strange[2] = torch.cat([right, right], -1)[..., :4]
    expected = operations(pattern, weights, left, right)
    for name, result in operations(pattern, *strange).items():
        torch.testing.assert_close(result, expected[name], rtol=0.0, atol=1e-12)


def test_expanded_weights_and_gradients() -> None:
    """GCN's weights are one column expanded over the heads; the gradient of a sum is one number expanded."""
    sizes = (5, 6, 14)
    pattern, (weights, _, right) = pattern_of(*sizes), arguments(sizes, 3)
    one = weights[:, :1].expand(-1, 3)
    right.requires_grad_()
    result = sparse.product(one, right, pattern)
    torch.testing.assert_close(result, sparse.product(one.contiguous(), right, pattern))
    (gradient,) = torch.autograd.grad(result.sum(), right)
    expected = torch.zeros_like(gradient)
    expected.index_add_(0, pattern.columns.long(), one.unsqueeze(-1).expand(-1, 3, 4))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.usefixtures("both_paths")
def test_mixed_precision_is_computed_in_the_wider() -> None:
    pattern, (_, left, right) = pattern_of(5, 6, 14), arguments((5, 6, 14), 2)
    expected = sparse.dot(left, right, pattern)
    torch.testing.assert_close(sparse.dot(left, right.float(), pattern), expected, rtol=1e-5, atol=1e-6)
    assert sparse.dot(left.float(), right, pattern).dtype == torch.float32


def test_large_scores_do_not_overflow() -> None:
    pattern = SparsePattern.from_entries(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), (3, 2))[0]
    for dtype in (torch.float32, torch.float64, torch.float16):
        scores = torch.tensor([[6e4], [1.0], [-6e4]], dtype=dtype)
        assert sparse.row_softmax(scores, pattern).flatten().tolist() == [1.0, 0.0, 1.0]


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 20), st.integers(1, 3), st.integers(0, 9999), st.booleans())
def test_operations_in_any_shape(rows: int, columns: int, entries: int, heads: int, seed: int, pieces: bool) -> None:
    pattern, tensors = pattern_of(rows, columns, entries, seed), arguments((rows, columns, entries), heads)
    expected = loops(pattern, *tensors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "_CACHED", 8 if pieces else 1 << 60)
        for name, result in operations(pattern, *tensors).items():
            torch.testing.assert_close(result, expected[name], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("entries", [10, 0])
@pytest.mark.usefixtures("unchecked")
def test_operators_keep_torchs_rules(entries: int) -> None:
    """Schema, shapes without data, autograd registration: what torch.compile and export rely on."""
    sizes = (4, 5, entries)
    pattern = pattern_of(*sizes)
    weights, left, right = (x.requires_grad_() for x in arguments(sizes, 3))
    tensors, ops = pattern.tensors(), torch.ops.zoo_attention
    plain = ("test_schema", "test_faketensor")
    every = (*plain, "test_autograd_registration", "test_aot_dispatch_dynamic") if entries else plain
    for columns in (False, True):
        torch.library.opcheck(ops.gather, (right if columns else left, tensors, columns), test_utils=every)
        torch.library.opcheck(ops.collect, (weights, tensors, columns), test_utils=every)
        torch.library.opcheck(ops.product, (weights, left if columns else right, tensors, columns), test_utils=every)
    torch.library.opcheck(ops.dot, (left, right, tensors), test_utils=every)
    torch.library.opcheck(ops.row_softmax, (weights, pattern.rows, pattern.row_starts), test_utils=every)
    arguments_of_gradient = (weights.detach(), weights.detach(), pattern.rows, pattern.row_starts)
    torch.library.opcheck(ops.row_softmax_gradient, arguments_of_gradient, test_utils=plain)


def test_pattern_is_sorted_and_says_where_each_entry_stood() -> None:
    rows, columns = torch.tensor([2, 0, 2, 1, 0]), torch.tensor([1, 3, 0, 1, 2])
    pattern, order = SparsePattern.from_entries(rows, columns, (4, 5))
    assert (pattern.shape, len(pattern)) == ((4, 5), 5)
    assert pattern.rows.tolist() == [0, 0, 1, 2, 2]
    assert torch.equal(rows[order], pattern.rows.long())
    assert torch.equal(columns[order], pattern.columns.long())
    assert pattern.row_starts.tolist() == [0, 2, 3, 5, 5]
    assert pattern.columns[pattern.by_column.long()].tolist() == sorted(columns.tolist())
    assert torch.equal(pattern.rows[pattern.by_column.long()], pattern.rows_by_column)
    assert pattern.column_starts.tolist() == [0, 1, 3, 4, 5, 5]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([0, 4], [0, 0], r"row indices must lie in 0..3, got 0..4"),
        ([0, -1], [0, 0], r"row indices must lie in 0..3, got -1..0"),
        ([0, 1], [2, 3], r"column indices must lie in 0..2, got 2..3"),
    ],
)
def test_entries_outside_of_the_matrix_are_refused(rows: list[int], columns: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparsePattern.from_entries(torch.tensor(rows), torch.tensor(columns), (4, 3))


def test_pattern_moves_between_devices() -> None:
    pattern = pattern_of(4, 5, 7)
    assert all(x.device.type == "meta" for x in pattern.to("meta").tensors())
    assert pattern.to("meta").shape == (4, 5)
