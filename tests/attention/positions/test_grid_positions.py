"""Relative biases on a grid: against loops over pairs of places, in every layout of pairs, and their laws."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import DTYPES, MASKS, Run, Shape, assert_close, assert_same, inputs, loss, masked, run, weights_of
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    Attention,
    AttentionFactory,
    BigBird,
    DenseSupport,
    EdgeSupport,
    LocalM,
    MultiheadAttention,
    RelativeBias2D,
    Rows,
    ScaledDot,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    record,
)

GRID = (2, 3)
SHAPE = Shape(batch=2, heads=2, queries=6, keys=6, width=4)


def placed(
    grid: tuple[int, int] = GRID, dtype: torch.dtype = torch.float64, heads: int = 2, score: nn.Module | None = None
) -> Attention:
    torch.default_generator.manual_seed(3)
    attend = Attention(ScaledDot() if score is None else score, Softmax())
    attend.set_position(RelativeBias2D(heads=heads, grid=grid))
    for parameter in attend.parameters():
        nn.init.normal_(parameter)
    return attend.to(dtype)


def tensors_of(shape: Shape = SHAPE, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    tensors = inputs(shape, dtype)
    return {**tensors, "value": tensors["value"][..., : shape.width].contiguous()}


def reference(attend: Attention, tensors: dict[str, Tensor], allowed: Tensor) -> Run:
    """Liu et al. 2021, eq. 4, by a loop over pairs; a single query stands at the last place."""
    position = attend.position
    assert isinstance(position, RelativeBias2D)
    rows, columns = position.grid
    leaves = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    table = position.table.detach().double().requires_grad_()
    b, heads, queries, dim = leaves["query"].shape
    places = [(row, column) for row in range(rows) for column in range(columns)]
    contexts = []
    for n in range(b):
        for h in range(heads):
            for i in range(queries):
                down, right = places[i + len(places) - queries]
                seen = [j for j in range(len(places)) if allowed[n, h, i, j]]
                if not seen:
                    contexts.append(torch.zeros(dim, dtype=torch.float64))
                    continue
                scores = []
                for j in seen:
                    bias = table[h, down - places[j][0] + rows - 1, right - places[j][1] + columns - 1]
                    scores.append(leaves["query"][n, h, i] @ leaves["key"][n, h, j] / math.sqrt(dim) + bias)
                weights = torch.stack(scores).softmax(0)
                contexts.append(sum(w * leaves["value"][n, h, j] for w, j in zip(weights, seen, strict=True)))
    context = torch.stack(contexts).view(b, heads, queries, dim)
    loss(context).backward()
    named = {**leaves, "position.table": table}
    return Run(context.detach(), {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in named.items()})


@pytest.mark.parametrize("mask", MASKS)
def test_context_and_gradients_are_those_of_the_formula(mask: str) -> None:
    support, allowed = masked(mask, SHAPE)
    attend, tensors = placed(), tensors_of()
    expected = reference(attend, tensors, allowed)
    assert_close(run(attend, tensors, support), expected, 1e-12)
    assert_close(run(attend, tensors, support, within=[record(attend, grad=True)]), expected, 1e-12)


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (4, 1), (3, 2), (3, 3)])
def test_grids(grid: tuple[int, int]) -> None:
    length = grid[0] * grid[1]
    shape = SHAPE._replace(queries=length, keys=length)
    attend, tensors = placed(grid), tensors_of(shape)
    support, allowed = masked("none", shape)
    assert_close(run(attend, tensors, support), reference(attend, tensors, allowed), 1e-12)


def test_the_last_query_alone() -> None:
    shape = SHAPE._replace(queries=2)
    attend, tensors = placed(), tensors_of(shape)
    support, allowed = masked("causal", shape)
    assert_close(run(attend, tensors, support), reference(attend, tensors, allowed), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_under_a_recorder(dtype: torch.dtype) -> None:
    attend, tensors = placed(dtype=dtype), tensors_of(dtype=dtype)
    support, _ = masked("any", SHAPE)
    plain = run(attend, tensors, support)
    assert plain.context.dtype == dtype
    assert_same(run(attend, tensors, support, within=[record(attend)]), plain)


@pytest.mark.parametrize(
    "restrict",
    [
        SlidingWindow(radius=2),
        SlidingWindow(radius=1, dilation=2, global_tokens=1),
        BigBird(block=2, global_blocks=1, window_blocks=1, random_blocks=1),
        ShiftedWindows(window=2, shift=1, height=3, width=4),
    ],
    ids=lambda restrict: type(restrict).__name__,
)
@pytest.mark.parametrize("mask", ["none", "key", "any"])
def test_blocks_of_pairs_have_the_bias_of_dense_pairs(restrict: nn.Module, mask: str) -> None:
    shape = SHAPE._replace(queries=12, keys=12)
    attend, tensors = placed((3, 4)), tensors_of(shape)
    support, _ = masked(mask, shape)
    narrow = restrict(tensors["query"], tensors["key"], support)
    pairs = narrow.to_dense(narrow.permitted.expand(2, 2, -1).double(), 12, 12) > 0
    dense = run(attend, tensors, DenseSupport(pairs))
    attend.restrict = restrict
    for within in ([], [record(attend, grad=True)]):
        assert_close(run(attend, tensors, support, within=within), dense, 1e-12)


def test_a_local_window_that_depends_on_the_query() -> None:
    """LocalM around a place is dense attention to the places it reaches."""
    shape = SHAPE._replace(queries=12, keys=12)
    attend, tensors = placed((3, 4)), tensors_of(shape)
    near = (torch.arange(12) - torch.arange(12)[:, None]).abs() <= 2
    dense = run(attend, tensors, DenseSupport(near[None, None]))
    attend.restrict = LocalM(radius=2)
    assert_close(run(attend, tensors, DenseSupport()), dense, 1e-12)


def test_other_scores_have_the_bias_too() -> None:
    attend, tensors = placed(score=Additive(dim=4, heads=2)), tensors_of()
    scores = attend.score(tensors["query"], tensors["key"], DenseSupport(), None)
    bias = attend.position.bias(tensors["query"], tensors["key"], DenseSupport(), 1.0)
    assert torch.allclose(weights_of(attend, tensors, DenseSupport()), (scores + bias).softmax(-1))
    assert bias.std() > 0.1


def test_views_of_some_rows() -> None:
    attend, tensors = placed(), tensors_of()
    whole = weights_of(attend, tensors, DenseSupport())
    with record(attend, view=Rows(1, 4)) as maps, torch.no_grad():
        attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport())
    torch.testing.assert_close(maps[""].weights, whole[:, :, 1:4])


def test_equal_offsets_have_equal_biases_and_others_do_not() -> None:
    """(0,0)->(1,1) and (1,1)->(2,2), but not (0,0)->(0,3), which as far apart in a row of 3 would be the same."""
    attend = placed((3, 3))
    tensors = tensors_of(SHAPE._replace(queries=9, keys=9))
    bias = attend.position.bias(tensors["query"], tensors["key"], DenseSupport(), 1.0)
    assert torch.equal(bias[..., 0, 4], bias[..., 4, 8])
    assert bias.flatten().unique().numel() == 2 * 25
    assert (bias[..., 2, 3] - bias[..., 0, 1]).abs().min() > 0  # next in reading order: a row further down, not beside


def test_heads_and_sizes_come_from_multi_head() -> None:
    heads = MultiheadAttention(
        dim=8,
        heads=4,
        attend=AttentionFactory(ScaledDot, Softmax),
        position=lambda heads: RelativeBias2D(heads=heads, grid=GRID),
    )
    assert heads.attend.position.table.shape == (4, 3, 5)
    assert heads(torch.randn(2, 6, 8))[0].shape == (2, 6, 8)
    with pytest.raises(ValueError, match="a grid of 2 x 3 has 6 cells, got 5 keys"):
        heads(torch.randn(2, 5, 8))


def test_refused() -> None:
    with pytest.raises(ValueError, match="grid is to be a list, each a whole number of at least 1"):
        RelativeBias2D(heads=1, grid=(0, 3))
    nodes = torch.randn(6, 2, 4, dtype=torch.float64)
    edges = EdgeSupport.from_edges(torch.tensor([[0, 1], [1, 2]]), 6)
    with pytest.raises(ValueError, match="nodes of a graph have no order"):
        placed()(nodes, nodes, nodes, edges)
