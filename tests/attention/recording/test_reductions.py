"""Views of maps: what is kept of a long one is exactly what reducing the whole one gives, and no whole one is held."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from attention_cases import MASKS, Shape, assert_same, complete, inputs, masked, run, site, weights_of
from largest import Largest
from torch import Tensor

from zoo.attention import (
    Attention,
    AttentionMap,
    AttentionProbe,
    DenseSupport,
    Entropy,
    MultiheadAttention,
    Pooled,
    Rows,
    ScaledDot,
    Softmax,
    TopK,
    record,
)
from zoo.attention.recording import reductions

SHAPES = (Shape(), Shape(queries=7, keys=9), Shape(batch=1, heads=1, queries=1, keys=1), Shape(queries=3, keys=2))
SITES = [("scaled dot", "softmax"), ("additive", "softmax"), ("dot", "uniform")]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block holds two queries of the usual shape, so that most lengths are not a whole number of blocks."""
    monkeypatch.setattr(reductions, "_NUMBERS", 2 * 2 * 3 * 4 + 1)


def seen(
    attend: Attention, tensors: dict[str, Tensor], support: DenseSupport, view: Any, **options: Any
) -> AttentionMap:
    with record(attend, view=view, **options) as maps, torch.no_grad():
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    return maps[""]


every_case = pytest.mark.parametrize(
    ("mechanism", "kind", "shape"),
    [(SITES[0], kind, shape) for kind in MASKS for shape in SHAPES]
    + [(each, "causal+any", shape) for each in SITES[1:] for shape in SHAPES],
)


@every_case
def test_rows_are_those_of_the_whole_map(mechanism: tuple[str, str], kind: str, shape: Shape) -> None:
    attend, tensors, (support, _) = site(*mechanism, shape), inputs(shape), masked(kind, shape)
    whole = weights_of(attend, tensors, support)
    for start in range(shape.queries):
        for stop in range(start + 1, shape.queries + 1):
            found = seen(attend, tensors, support, Rows(start, stop))
            assert found.axes == ("batch", "head", "query", "key")
            torch.testing.assert_close(found.weights, whole[:, :, start:stop], rtol=0, atol=1e-14)
            assert isinstance(found.support, DenseSupport)
            mask, of_whole = found.support.mask_of(found.weights), support.mask_of(whole)
            if of_whole is None:
                assert mask is None
            else:
                part = of_whole.expand(whole.shape)[:, :, start:stop]
                mask = torch.ones_like(part) if mask is None else mask  # nothing is forbidden to these rows
                assert torch.equal(mask.expand(found.weights.shape), part)


@every_case
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_pooled_map_sums_over_keys_and_averages_over_queries(
    mechanism: tuple[str, str], kind: str, shape: Shape, size: int
) -> None:
    attend, tensors, (support, _) = site(*mechanism, shape), inputs(shape), masked(kind, shape)
    whole = weights_of(attend, tensors, support)
    down, across = min(size, shape.queries), min(size, shape.keys)
    found = seen(attend, tensors, support, Pooled(size))
    assert found.axes == ("batch", "head", "query_cell", "key_cell")
    assert found.weights.shape == (*whole.shape[:2], down, across)
    for row in range(down):
        of_row = [i for i in range(shape.queries) if i * down // shape.queries == row]
        for column in range(across):
            of_column = [j for j in range(shape.keys) if j * across // shape.keys == column]
            expected = sum(whole[:, :, i, j] for i in of_row for j in of_column) / len(of_row)
            torch.testing.assert_close(found.weights[:, :, row, column], expected, rtol=0, atol=1e-14)


@every_case
def test_top_keys(mechanism: tuple[str, str], kind: str, shape: Shape) -> None:
    attend, tensors, (support, _) = site(*mechanism, shape), inputs(shape), masked(kind, shape)
    whole = weights_of(attend, tensors, support)
    for k in (1, 3, 100):
        found = seen(attend, tensors, support, TopK(k))
        assert found.axes == ("batch", "head", "query", "rank")
        assert found.keys is not None
        torch.testing.assert_close(whole.gather(-1, found.keys), found.weights, rtol=0, atol=1e-14)
        expected = whole.sort(-1, descending=True).values[..., :k]
        torch.testing.assert_close(found.weights, expected, rtol=0, atol=1e-14)
        assert all(len(set(row)) == len(row) for row in found.keys.flatten(0, 2).tolist())


@every_case
def test_entropy_of_each_row(mechanism: tuple[str, str], kind: str, shape: Shape) -> None:
    attend, tensors, (support, _) = site(*mechanism, shape), inputs(shape), masked(kind, shape)
    whole = weights_of(attend, tensors, support).flatten(0, 2).tolist()
    expected = [-sum(w * math.log(w) for w in row if w) for row in whole]
    found = seen(attend, tensors, support, Entropy())
    assert found.axes == ("batch", "head", "query")
    torch.testing.assert_close(found.weights.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)


VIEWS = (Rows(1, 4), Pooled(2), TopK(2), Entropy())


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mechanism", SITES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_view_changes_nothing(view: Any, mechanism: tuple[str, str], dtype: torch.dtype) -> None:
    shape, (support, _) = Shape(), masked("causal+any", Shape())
    attend, tensors = site(*mechanism, shape, dtype, dropout=0.3), inputs(shape, dtype)
    for training in (False, True):
        attend.train(training)
        observed = run(attend, tensors, support, within=[record(attend, view=view)])
        assert_same(run(attend, tensors, support), observed)
        beside = [record(attend, view=view), record(attend), record(attend, view=Entropy())]
        assert_same(run(attend, tensors, support, within=beside[:1]), run(attend, tensors, support, within=beside[1:]))


def test_a_view_beside_the_whole_map() -> None:
    attend, tensors, (support, _) = site("dot", "softmax", Shape()), inputs(Shape()), masked("any", Shape())
    with record(attend) as whole, record(attend, view=TopK(2)) as top, record(attend, view=Entropy()) as entropy:
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    assert torch.equal(top[""].weights, whole[""].weights.topk(2).values)
    assert torch.equal(entropy[""].weights, torch.special.entr(whole[""].weights).sum(-1))
    assert (whole[""].view, top[""].view) == (None, TopK(2))


@pytest.mark.parametrize("view", [Rows(3, 10), Pooled(16), TopK(4), Entropy()])
@pytest.mark.parametrize("causal", [False, True])
def test_no_whole_map_is_held(view: Any, causal: bool) -> None:
    n = 300
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 1, n, 8)
    with Largest() as largest, torch.no_grad():
        with record(attend, view=view):
            attend(x, x, x, DenseSupport(causal=causal))
        assert largest.elements < n * 48  # the rows that the causal kernel takes at a time
        with record(attend):
            attend(x, x, x, DenseSupport(causal=causal))
        assert largest.elements >= n * n


def test_views_over_steps() -> None:
    """A prompt at once, then one token at a time; what a shorter step lacks is padding."""
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 2, 4, 6)
    whole = attend.weights(x, x, DenseSupport(causal=True))
    with record(attend, view=TopK(3)) as top, record(attend, view=Entropy()) as entropy:
        attend(x[:, :, :2], x[:, :, :2], x[:, :, :2], DenseSupport(causal=True))
        attend(x[:, :, 2:3], x[:, :, :3], x[:, :, :3], DenseSupport(causal=True))
        attend(x[:, :, 3:], x, x, DenseSupport(causal=True))
    found = top[""]
    assert found.axes == ("step", "batch", "head", "query", "rank")
    assert found.lengths["query"] == (2, 1, 1)
    assert found.lengths["rank"] == (2, 3, 3)
    assert found.keys is not None
    assert found.keys[0, ..., 2].tolist() == [[[-1, -1], [-1, -1]]]
    torch.testing.assert_close(found.weights[2, :, :, 0], whole[:, :, 3].sort(descending=True).values[..., :3])
    assert torch.equal(found.head(1).keys, found.keys[:, :, 1:])  # type: ignore[arg-type]
    assert torch.equal(found.head(1).weights, found.weights[:, :, 1:])
    torch.testing.assert_close(
        entropy[""].weights[1:, :, :, 0].movedim(0, -1), torch.special.entr(whole).sum(-1)[..., 2:]
    )


def test_heads_and_budget_count_what_is_kept() -> None:
    attend, tensors = site("dot", "softmax", Shape()), inputs(Shape())
    every = seen(attend, tensors, DenseSupport(), TopK(2))
    one = seen(attend, tensors, DenseSupport(), TopK(2), heads=[2])
    assert torch.equal(every.weights[:, 2:], one.weights)
    assert one.keys is not None
    assert every.keys is not None
    assert torch.equal(every.keys[:, 2:], one.keys)
    size = every.weights.nbytes + every.keys.nbytes
    seen(attend, tensors, DenseSupport(), TopK(2), budget=size)
    with pytest.warns(UserWarning, match="left out"), record(attend, view=TopK(2), budget=size - 1) as maps:
        attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport())
    assert maps.cut == {"": size}


@pytest.mark.parametrize("view", [Pooled(3), TopK(3), Entropy()])
@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0), (0, 0)])
def test_inputs_without_any_position(view: Any, queries: int, keys: int) -> None:
    attend = Attention(ScaledDot(), Softmax())
    query, key = torch.randn(2, 1, queries, 4), torch.randn(2, 1, keys, 4)
    with record(attend, view=view) as maps:
        attend(query, key, key, DenseSupport())
    assert maps[""].weights.shape[:2] == (2, 1)
    assert not maps[""].weights.isnan().any()


def test_keys_of_fewer_heads() -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(dim=8, heads=2, attend=lambda dim, heads: Attention(ScaledDot(), Softmax()))
    x = torch.randn(2, 5, 8)
    with record(layer) as whole, record(layer, view=Rows(1, 3)) as rows:
        layer(x)
    torch.testing.assert_close(rows["attend"].weights, whole["attend"].weights[:, :, 1:3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rows(2, 2), "got 2:2"),
        (lambda: Rows(-1, 2), "start is to be a whole number of at least 0"),
        (lambda: Pooled(0), "is to be a whole number of at least 1"),
        (lambda: TopK(0), "is to be a whole number of at least 1"),
    ],
)
def test_bad_views_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_view_cannot_see_is_said() -> None:
    attend, tensors = site("dot", "softmax", Shape()), inputs(Shape())
    with pytest.raises(ValueError, match="rows 2:6 were asked for, and there are 5 queries"):
        seen(attend, tensors, DenseSupport(), Rows(2, 6))
    with pytest.raises(ValueError, match="give it or a view"), record(attend, view=Entropy(), grad=True):
        pass
    nodes = {name: x[0].transpose(0, 1) for name, x in tensors.items()}
    with pytest.raises(ValueError, match="Entropy reduces maps over DenseSupport"):
        seen(attend, nodes, complete(5, 4), Entropy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not the same for all"):
        seen(attend, tensors, DenseSupport(), TopK(1)).mean_heads()
    gate = torch.nn.Sequential(AttentionProbe())
    with pytest.raises(ValueError, match="has no pairs"), record(gate, view=Entropy()):
        gate[0].emit(torch.ones(2, 3), None, ("batch", "channel"))  # type: ignore[operator]


LONG = """
import resource, sys, torch
from zoo.attention import *
torch.set_num_threads(1)
attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 1, 32_768, 64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with torch.no_grad(), record(attend, view=eval(sys.argv[1])):
    attend(x, x, x, DenseSupport(causal=True))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("view", ["Rows(5000, 6000)", "Pooled(512)", "TopK(16)", "Entropy()"])
def test_a_head_of_32768_tokens_is_exported_in_a_gigabyte(view: str) -> None:
    """The whole map alone would be 4.3 GB; `ru_maxrss` counts in kilobytes."""
    finished = subprocess.run([sys.executable, "-c", LONG, view], capture_output=True, text=True, check=True)
    assert float(finished.stdout) < 1.0
