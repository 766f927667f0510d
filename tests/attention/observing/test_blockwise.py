"""Attention in blocks is attention: against loops, the written-out path and SDPA, and in memory that grows with n."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention_cases import MASKS, Shape, inputs, loss, masked
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import Attend, DenseSupport, ScaledDot, Softmax, blockwise, weights_between

SHAPES = (Shape(), Shape(queries=7, keys=7), Shape(queries=1, keys=9), Shape(batch=1, heads=1, queries=1, keys=1))


def looped(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """softmax(scale q_i · k_j) over the permitted j, one number after the other; and the log of its denominator."""
    context, log_sum = [], []
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                seen = [j for j in range(key.shape[2]) if allowed[b, h, i, j]]
                parts = [(scale * (query[b, h, i] * key[b, h, j]).sum()).exp() for j in seen]
                total = sum(parts, torch.zeros((), dtype=query.dtype))
                start = 0.0 * (value[b, h].sum(0) + query.sum() + key.sum())  # a gradient for every input
                context.append(sum((p / total * value[b, h, j] for p, j in zip(parts, seen, strict=True)), start))
                log_sum.append(total.log())
    return torch.stack(context).view(*query.shape[:3], -1), torch.stack(log_sum).view(query.shape[:3])


def with_gradients(function: Any, tensors: dict[str, Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in tensors.values()]
    context = function(*leaves)
    return [context, *torch.autograd.grad(loss(context), leaves)]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", [1, 3, 512])
def test_against_loops(kind: str, shape: Shape, block: int) -> None:
    tensors, (support, allowed) = inputs(shape), masked(kind, shape)
    expected = with_gradients(lambda q, k, v: looped(q, k, v, allowed, 0.7)[0], tensors)
    found = with_gradients(lambda q, k, v: blockwise(q, k, v, support, scale=0.7, block=block).context, tensors)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    log_sum = looped(*tensors.values(), allowed, 0.7)[1]
    torch.testing.assert_close(blockwise(*tensors.values(), support, scale=0.7).log_sum, log_sum, rtol=0, atol=1e-12)
    assert not found[0][~allowed.any(-1)].any()


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)],
)
def test_against_the_written_out_path(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    """In half precision the sums are held in fp32, and only the result is rounded."""
    shape = Shape(queries=17, keys=23)
    attend, (support, _) = Attend(ScaledDot(), Softmax()), masked(kind, shape)
    reference = inputs(shape, dtype)

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return support.combine(attend.weights(query, key, support), value)

    expected = with_gradients(written_out, {name: x.double() for name, x in reference.items()})
    found = with_gradients(lambda *x: blockwise(*x, support, block=5).context, reference)
    assert found[0].dtype == dtype
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_against_the_fused_kernel(causal: bool) -> None:
    shape = Shape(queries=70, keys=70)
    expected = with_gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), inputs(shape))
    found = with_gradients(lambda *x: blockwise(*x, DenseSupport(causal=causal), block=32).context, inputs(shape))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_gradients_of_context_and_denominator_are_those_of_finite_differences() -> None:
    shape = Shape(batch=1, heads=2)
    support, _ = masked("causal+any", shape)
    leaves = [x.requires_grad_() for x in inputs(shape).values()]

    def both(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        context, log_sum = blockwise(*tensors, support, block=2)
        return context, log_sum.masked_fill(log_sum == -math.inf, 0.0)

    assert torch.autograd.gradcheck(both, leaves)


@pytest.mark.parametrize("kind", MASKS)
def test_any_part_of_the_map_afterwards(kind: str) -> None:
    shape = Shape(queries=7, keys=9)
    tensors, (support, _) = inputs(shape), masked(kind, shape)
    query, key, value = tensors.values()
    whole = Attend(ScaledDot(), Softmax()).weights(query, key, support)
    log_sum = blockwise(query, key, value, support, block=4).log_sum
    for rows in (slice(0, 7), slice(2, 5), slice(6, 7)):
        for columns in (slice(0, 9), slice(3, 4), slice(5, 9)):
            found = weights_between(query, key, log_sum, support, rows, columns)
            torch.testing.assert_close(found, whole[:, :, rows, columns], rtol=0, atol=1e-14)


def test_the_part_of_a_sequence_that_others_follow() -> None:
    """Queries of which more come later stand before the end of the keys."""
    tensors, support = inputs(Shape(queries=6, keys=6)), DenseSupport(causal=True)
    whole = blockwise(*tensors.values(), support, block=2).context
    part = support.of_queries(slice(1, 4), 6)
    query, key, value = tensors.values()
    found = blockwise(query[:, :, 1:4], key, value, part, block=2).context
    torch.testing.assert_close(found, whole[:, :, 1:4], rtol=0, atol=1e-14)


@pytest.mark.parametrize("stands", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["key", "causal+key", "any", "causal+any", "query"])
def test_what_stands_where_no_pair_is_changes_nothing(kind: str, stands: float) -> None:
    shape = Shape(queries=5, keys=6)
    tensors, (support, allowed) = inputs(shape), masked(kind, shape)
    spoilt = {name: x.clone() for name, x in tensors.items()}
    spoilt["query"][~allowed.any(-1)] = stands
    for name in ("key", "value"):
        spoilt[name][~allowed.any(-2)] = stands
    assert any(not x.isfinite().all() for x in spoilt.values())
    expected, found = (with_gradients(lambda *x: blockwise(*x, support, block=2).context, t) for t in (tensors, spoilt))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_scores_that_are_large() -> None:
    """The maximum rises from block to block, by more than exp can hold."""
    key = torch.tensor([-2000.0, -1000.0, 0.0, 1000.0, 2000.0]).view(1, 1, 5, 1)
    value = torch.arange(5.0).view(1, 1, 5, 1)
    for keys, expected in ((key, 4.0), (key.flip(2), 0.0)):
        found = blockwise(torch.ones(1, 1, 1, 1), keys, value, scale=1.0, block=1)
        assert found.context.item() == expected
        assert found.log_sum.item() == 2000.0


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_inputs_without_any_position(queries: int, keys: int, causal: bool) -> None:
    query, key = torch.randn(1, 2, queries, 4, requires_grad=True), torch.randn(1, 2, keys, 4, requires_grad=True)
    context, log_sum = blockwise(query, key, key, DenseSupport(causal=causal))
    assert context.shape == query.shape
    assert not context.any()
    assert (log_sum == -math.inf).all()
    context.sum().backward()
    assert query.grad is not None
    assert not query.grad.any()


def test_the_backward_pass_recomputes() -> None:
    """Nothing that is kept for it grows faster than the input: the law of attention in blocks."""
    kept: dict[int, int] = {}
    for n in (64, 128, 256):
        sizes: list[int] = []
        tensors = [torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3)]
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: (s.append(x.numel()), x)[1], lambda x: x):
            blockwise(*tensors, DenseSupport(causal=True), block=16)
        kept[n] = sum(sizes)
        assert max(sizes) == 2 * n * 8
    assert kept[256] == 2 * kept[128] == 4 * kept[64]


def test_a_block_holds_something() -> None:
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(ValueError, match="at least 1 query and key, got 0"):
        blockwise(x, x, x, block=0)
