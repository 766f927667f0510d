"""The layout of sparse attention: never n x n numbers, every operation that of a dense map, gradients of gradients."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from attention_cases import Shape, inputs
from largest import Largest
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    Attention,
    BigBird,
    BlockSupport,
    DenseSupport,
    EdgeSupport,
    ScaledDot,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    Support,
    record,
)
from zoo.attention.supports import partition, patterns

MODULES: dict[str, nn.Module] = {
    "window": SlidingWindow(radius=2),
    "dilated and global": SlidingWindow(radius=3, dilation=2, global_tokens=3),
    "bigbird": BigBird(block=4, global_blocks=1, random_blocks=2),
    "swin": ShiftedWindows(window=4, shift=2, height=8, width=7),
}
N = 56
every_module = pytest.mark.parametrize("name", MODULES)


def largest(module: nn.Module, n: int, score: nn.Module, written_out: bool, masked: bool) -> int:
    """Returns the size of the largest tensor in construction, forward and backward."""
    for make in (patterns._make_sliding, patterns._big_bird, patterns._windows):
        make.cache_clear()
    x = torch.randn(3, 1, 1, n, 2)
    support = DenseSupport.from_key_mask(torch.rand(1, n) < 0.9) if masked else DenseSupport()
    attend = Attention(score, Softmax(), restrict=module)
    with record(attend, grad=True) if written_out else torch.enable_grad(), Largest() as seen:
        query, key, value = (each.requires_grad_() for each in x)
        attend(query, key, value, support)[0].square().sum().backward()
    return seen.elements


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("path", ["fused", "written out", "additive"])
@pytest.mark.parametrize(
    ("module", "widest"),
    [
        (SlidingWindow(radius=32), 32 + 64),
        (SlidingWindow(radius=16, dilation=4, global_tokens=8), 8 + 16 + 32),
        (BigBird(block=16, global_blocks=1, random_blocks=2), 16 * 6),
        (ShiftedWindows(window=8, shift=4), 64),
    ],
)
def test_nothing_is_as_large_as_a_map(module: nn.Module, widest: int, path: str, masked: bool) -> None:
    """At 4,096 positions: at most pairs times width, where a map has 16.8 million numbers, and half of it at half."""
    score = Additive(dim=2, heads=1) if path == "additive" else ScaledDot()
    found = largest(module, 4096, score, path == "written out", masked)
    per_pair = 2 if path == "additive" else 1
    assert found <= per_pair * 4096 * (widest + 16) + 10_000
    assert found < 4096**2 // 15
    half = largest(module, 1024, score, path == "written out", masked)
    assert found <= 4.2 * half


@every_module
def test_operations_are_those_of_a_dense_map(name: str) -> None:
    """Each of the protocol, on the pairs that exist."""
    module, shape = MODULES[name], Shape(2, 3, N, N, 4)
    x = inputs(shape)
    mask = torch.rand(2, N, generator=torch.Generator().manual_seed(0)) < 0.7
    sparse, dense = module(x["query"], x["key"], DenseSupport.from_key_mask(mask)), DenseSupport()
    assert isinstance(sparse, Support)
    exists = sparse.to_dense(sparse.permitted.expand(2, 3, -1).double(), N, N) > 0

    def check(one: Tensor, other: Tensor) -> None:
        laid = sparse.to_dense(one.double().expand(2, 3, -1), N, N)
        torch.testing.assert_close(laid, other.expand(2, 3, N, N).to(laid.dtype) * exists, rtol=0.0, atol=1e-12)

    for each in (sparse, dense):
        assert each.axes[1] == "head"
    query, key = sparse.zero_blind_queries(x["query"], x["key"]), sparse.zero_masked(x["key"])
    check(sparse.zeros(query, key) + 1, dense.zeros(query, key) + 1)
    check(sparse.dot(query, key), dense.dot(query, key))
    check(sparse.gather_queries(query[..., 0]), dense.gather_queries(query[..., 0]).expand(2, 3, N, N))
    check(sparse.gather_keys(key[..., 0]), dense.gather_keys(key[..., 0]).expand(2, 3, N, N))
    hidden = sparse.gather_queries(query) * sparse.gather_keys(key)
    vector = torch.randn(3, 4, dtype=torch.float64)
    check(
        sparse.dot_parameter(hidden, vector),
        dense.dot_parameter(dense.gather_queries(query) * dense.gather_keys(key), vector),
    )
    check(sparse.relative_positions(query, key), dense.relative_positions(query, key))
    index = sparse.relative_positions(query, key).clamp(-2, 2) + 2
    rows = torch.randn(2, 3, N, 5, dtype=torch.float64)
    whole = dense.relative_positions(query, key).clamp(-2, 2) + 2
    check(sparse.gather_rows(rows, index), dense.gather_rows(rows, whole))
    scores = sparse.dot(query, key)
    weights, expected = sparse.softmax(scores), DenseSupport(exists).softmax(dense.dot(query, key))
    check(weights, expected)
    torch.testing.assert_close(
        sparse.scatter_add(weights, index, 5), dense.scatter_add(expected, whole, 5), rtol=0.0, atol=1e-12
    )
    torch.testing.assert_close(sparse.combine(weights, x["value"]), expected @ x["value"], rtol=0.0, atol=1e-12)
    at_query, at_key = sparse.pairs()
    for i, j, is_pair in zip(at_query, at_key, sparse.permitted.expand(2, 1, -1)[1, 0], strict=True):
        if is_pair:
            assert exists[1, 0, i, j]


@every_module
@pytest.mark.parametrize("written_out", [False, True])
def test_gradients(name: str, written_out: bool) -> None:
    """Second derivatives are correct too, which penalties on gradients need."""
    attend = Attention(
        Additive(dim=1, heads=1) if written_out else ScaledDot(), Softmax(), restrict=MODULES[name]
    ).double()
    x = tuple(torch.randn(1, 1, N, 1, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, DenseSupport())[0].square().sum()

    with record(attend, grad=True):
        assert torch.autograd.gradcheck(loss, x, fast_mode=True)
        assert torch.autograd.gradgradcheck(loss, x, fast_mode=True)


def test_layouts_are_shared() -> None:
    x = torch.randn(1, 1, 40, 2)
    one, other = (SlidingWindow(radius=3)(x, x, DenseSupport()) for _ in range(2))
    assert one.layout is other.layout
    assert SlidingWindow(radius=4)(x, x, DenseSupport()).layout is not one.layout


@every_module
def test_a_recorder_changes_nothing_and_gives_the_pairs(name: str) -> None:
    attend, x = Attention(ScaledDot(), Softmax(), restrict=MODULES[name]), inputs(Shape(2, 3, N, N, 4), torch.float32)
    found = []
    for manager in (torch.enable_grad(), record(attend)):
        leaves = [each.clone().requires_grad_() for each in x.values()]
        with manager as maps:
            context, _ = attend(*leaves, DenseSupport())
        context.square().sum().backward()
        found.append([context, *(leaf.grad for leaf in leaves)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert maps[""].axes == ("batch", "head", "pair")
    support = maps[""].support
    assert isinstance(support, BlockSupport)
    assert support.pairs().shape == (2, maps[""].weights.shape[2])
    torch.testing.assert_close(support.to_dense(maps[""].weights, N, N).sum(-1), torch.ones(2, 3, N))


def test_dropout_drops_weights() -> None:
    """On both paths; the context is a mean of ones, and so counts the weights that are left."""
    for score in (ScaledDot(), Additive(dim=1, heads=1)):
        attend = Attention(score, Softmax(), restrict=SlidingWindow(radius=8), dropout=0.25)
        x = torch.ones(1, 1, 400, 1)
        kept = attend(x, x, x, DenseSupport())[0][0, 0, 8:-8, 0] * 17 * 0.75
        torch.testing.assert_close(kept, kept.round(), rtol=0.0, atol=1e-3)
        assert abs(kept.mean().item() / (17 * 0.75) - 1) < 0.05
        torch.testing.assert_close(attend.eval()(x, x, x, DenseSupport())[0], x)


def test_moving_sums_add_up() -> None:
    """A run is read and its gradient added back, for runs that begin before, within and after the sequence."""
    for count, size, before, span in ((3, 4, 2, 9), (4, 3, -2, 5), (2, 5, 0, 5), (3, 2, 7, 16)):
        x = torch.randn(1, 1, 11, 2, dtype=torch.float64, requires_grad=True)
        runs = partition._Runs.apply(x, count, size, before, span)
        for block in range(count):
            for slot in range(span):
                at = block * size - before + slot
                expected = x[0, 0, at] if 0 <= at < 11 else torch.zeros(2)
                assert torch.equal(runs[0, 0, block, slot], expected.to(runs.dtype))
        factor = torch.randn_like(runs)
        (gradient,) = torch.autograd.grad((runs * factor).sum(), x)
        total = torch.zeros_like(x)
        for block in range(count):
            for slot in range(span):
                at = block * size - before + slot
                if 0 <= at < 11:
                    total[0, 0, at] += factor[0, 0, block, slot]
        torch.testing.assert_close(gradient, total.detach(), rtol=0.0, atol=1e-12)


COMPILED = """
import torch
from zoo.attention import *
for module in SlidingWindow(radius=3, global_tokens=2), ShiftedWindows(window=4, shift=2, height=7, width=10):
    attend = Attention(ScaledDot(), Softmax(), restrict=module)
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    query, key, value = (torch.randn(2, 3, 70, 4, requires_grad=True) for _ in range(3))
    support = DenseSupport.from_key_mask(torch.rand(2, 70) < 0.8)
    results = []
    for each in (compiled, attend):
        context, _ = each(query, key, value, support)
        results.append((context, *torch.autograd.grad(context.square().sum(), (query, key, value))))
    torch.testing.assert_close(*results)
"""


# slow tier, as it compiles for seconds; `test_compile` has a case of compiling in the fast tier
@pytest.mark.slow
def test_compiled() -> None:
    """In one graph; BigBird's draw would break it."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_restrictions_narrow_dense_supports_alone() -> None:
    for module in MODULES.values():
        with pytest.raises(ValueError, match="works on DenseSupport only"):
            Attention(ScaledDot(), Softmax(), restrict=module).check_layout(EdgeSupport, "a graph")
