"""Bad input: a clear error, or the documented zero; what is no number stays in its row."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import NORMALISERS, Run, Shape, assert_same, inputs, run, site, weights_of
from jaxtyping import config
from tiers import every_pair
from torch import Tensor

from zoo.attention import (
    GAT,
    Additive,
    Attention,
    AttentionFactory,
    DenseSupport,
    Dot,
    EdgeSupport,
    GATv2,
    MultiheadAttention,
    ScaledDot,
    Softmax,
    Support,
    record,
)

SHAPE = Shape()
ALL_NORMALISERS = list(NORMALISERS)
PLAIN = ("dot", "scaled dot", "additive")
every_normaliser = pytest.mark.parametrize("normaliser", ALL_NORMALISERS)
every_score = pytest.mark.parametrize("score", PLAIN)


@pytest.fixture
def own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusals of the core itself, not those of the tests' type checker."""
    monkeypatch.setattr(config, "jaxtyping_disable", True)


def zeros(**sizes: tuple[int, ...]) -> dict[str, Tensor]:
    shapes = {"query": (2, 3, 5, 6), "key": (2, 3, 4, 6), "value": (2, 3, 4, 7), **sizes}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"value": (2, 3, 5, 7)}, r"k=4 keys and k=5 values"),
        ({"key": (2, 3, 4, 5)}, r"queries have width d=6 and keys d=5"),
        ({"key": (2, 3, 4, 1)}, r"queries have width d=6 and keys d=1"),
        ({"key": (3, 3, 4, 6)}, r"queries have b=2 examples and keys b=3"),
        ({"value": (3, 3, 4, 7)}, r"queries have b=2 examples and values b=3"),
        ({"key": (1, 3, 4, 6)}, r"queries have b=2 examples and keys b=1"),
        ({"query": (1, 3, 5, 6)}, r"queries have b=1 examples and keys b=2"),
        ({"value": (1, 3, 4, 7)}, r"queries have b=2 examples and values b=1"),
        ({"key": (2, 2, 4, 6)}, r"h=3 heads of queries are not divisible by the 2 of keys"),
        ({"value": (2, 2, 4, 6)}, r"h=3 heads of queries are not divisible by the 2 of values"),
        ({"query": (2, 5, 6)}, r"query must have the axes \(b, h, q, d\), got shape \(2, 5, 6\)"),
        ({"key": (4, 6)}, r"key must have the axes \(b, h, k, d\)"),
        ({"value": (2, 4, 7)}, r"value must have the axes \(b, h, k, v\)"),
    ],
)
@pytest.mark.parametrize("score", [ScaledDot(), Additive(dim=6, heads=3), GATv2(dim=6, heads=3)])
@pytest.mark.parametrize("written_out", [False, True])
def test_shapes_that_do_not_belong_together(
    sizes: dict[str, tuple[int, ...]], message: str, score: Dot, written_out: bool
) -> None:
    attend = Attention(score, Softmax())
    with record(attend, grad=written_out), pytest.raises(ValueError, match=message):
        attend(*zeros(**sizes).values(), DenseSupport())


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 1, 1, 4), "mask has b=3 where queries and keys have b=2"),
        ((2, 2, 1, 4), "mask has h=2 where queries and keys have h=3"),
        ((2, 1, 4, 4), "mask has q=4 where queries and keys have q=5"),
        ((2, 1, 1, 5), "mask has k=5 where queries and keys have k=4"),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_of_other_sizes(shape: tuple[int, ...], message: str, causal: bool) -> None:
    support = DenseSupport(torch.ones(shape, dtype=torch.bool), causal=causal)
    with pytest.raises(ValueError, match=message):
        Attention(ScaledDot(), Softmax())(*zeros().values(), support)


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_another_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="boolean with True = may attend"):
        DenseSupport.from_key_mask(torch.ones(2, 4, dtype=dtype))


@pytest.mark.usefixtures("own_words")
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"query": (4, 2, 6)}, "edges are of q=5 nodes, and there are 4 queries"),
        ({"key": (5, 2, 6)}, "edges are of k=4 nodes, and there are 5 keys"),
        ({"value": (3, 2, 7)}, "edges are of k=4 nodes, and there are 3 values"),
        ({"key": (4, 2, 5)}, "queries have width d=6 and keys d=5"),
        ({"query": (1, 5, 2, 6)}, r"query must have the axes \(q, h, d\) over edges"),
    ],
)
@pytest.mark.parametrize("score", [ScaledDot(), GATv2(dim=6, heads=2)])
def test_nodes_that_are_not_those_of_the_edges(sizes: dict[str, tuple[int, ...]], message: str, score: Dot) -> None:
    support = EdgeSupport.from_edges(torch.tensor([[0, 1, 3], [0, 4, 2]]), 5, 4)
    shapes = {"query": (5, 2, 6), "key": (4, 2, 6), "value": (4, 2, 7), **sizes}
    with pytest.raises(ValueError, match=message):
        Attention(score, Softmax())(*(torch.zeros(shape) for shape in shapes.values()), support)


def test_widths_not_divisible_by_heads() -> None:
    with pytest.raises(ValueError, match="dim=10 is not divisible by heads=4"):
        MultiheadAttention(dim=10, heads=4, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax))


@every_pair(score=PLAIN, normaliser=ALL_NORMALISERS, sizes=[(0, 4), (5, 0), (0, 0), (1, 1), (1, 4), (5, 1)])
def test_no_query_no_key_or_one(score: str, normaliser: str, sizes: tuple[int, int]) -> None:
    """Zeros where there is no key, nothing where there is no query; parameters get a gradient of zeros."""
    queries, keys = sizes
    shape = Shape(queries=queries, keys=keys)
    tensors = inputs(shape)
    allowed = torch.ones(2, 1, queries, keys, dtype=torch.bool)
    every_edge = torch.cartesian_prod(torch.arange(keys), torch.arange(queries)).T
    for support in (
        DenseSupport(),
        DenseSupport(causal=True),
        DenseSupport(allowed),
        DenseSupport(allowed[:, :, :1], causal=True) if queries else DenseSupport(allowed, causal=True),
        EdgeSupport.from_edges(every_edge, queries, keys),
    ):
        given = tensors if isinstance(support, DenseSupport) else to_nodes(tensors)
        result = run(site(score, normaliser, shape), given, support)
        assert result.context.shape == (*given["query"].shape[:-1], 7)
        assert_finite(result)
        if not keys:
            assert not result.context.any()
        weights = weights_of(site(score, normaliser, shape), given, support)
        assert weights.isfinite().all()
        if keys == 1 and not (isinstance(support, DenseSupport) and support.causal):
            torch.testing.assert_close(weights, torch.ones_like(weights))


def to_nodes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x[0].transpose(0, 1) for name, x in tensors.items()}


def assert_finite(result: Run) -> None:
    assert result.context.isfinite().all()
    for name, gradient in result.gradients.items():
        assert gradient.isfinite().all(), name


@every_score
@every_normaliser
@pytest.mark.parametrize("layout", ["dense", "edges"])
@pytest.mark.parametrize(
    ("dtype", "junk"), [(torch.float32, math.nan), (torch.float16, math.inf), (torch.bfloat16, -math.inf)]
)
def test_junk_that_no_one_sees(score: str, normaliser: str, layout: str, dtype: torch.dtype, junk: float) -> None:
    """At a query without keys and at a key without queries: every output and every gradient is as without it."""
    attend, (tensors, support) = site(score, normaliser, SHAPE, dtype), case(layout, dtype)
    plain = run(attend, tensors, support)
    axis = 2 if layout == "dense" else 0
    spoilt = {name: x.clone() for name, x in tensors.items()}
    for name in spoilt:
        spoilt[name].select(axis, 3).fill_(junk)
    after = run(attend, spoilt, support)
    assert_same(plain, after)
    assert_finite(after)
    if score != "additive" and normaliser == "softmax" and layout == "dense":
        assert_finite(run(attend, spoilt, support, within=[record(attend, grad=True)]))


def case(layout: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], Support]:
    """Query 3 sees no key, and key 3 is seen by no query."""
    allowed = torch.rand(1, 1, 5, 4, generator=torch.Generator().manual_seed(0)) < 0.8
    allowed[..., 0] = True
    allowed[..., 3, :] = False
    allowed[..., 3] = False
    tensors = inputs(SHAPE, dtype)
    if layout == "dense":
        return tensors, DenseSupport(allowed)
    return to_nodes(tensors), EdgeSupport.from_edges(allowed[0, 0].T.nonzero().T, 5, 4)


@pytest.mark.parametrize("score", [GAT, GATv2, Additive])
def test_nodes_without_edges_do_not_reach_parameters(score: type[GAT]) -> None:
    """0 x NaN is NaN, also in the gradient of a vector that all nodes share."""
    torch.manual_seed(0)
    attend = Attention(score(dim=6, heads=3), Softmax())
    support = EdgeSupport.from_edges(torch.tensor([[0, 1, 2, 0, 1], [1, 2, 0, 2, 1]]), 5)
    x = torch.randn(5, 3, 6)
    x[3:] = math.nan
    result = run(attend, {"query": x, "key": x, "value": x}, support)
    assert_finite(result)
    assert any(result.gradients[name].any() for name, _ in attend.named_parameters())
    masked = run(attend, {name: x.nan_to_num(0.0) for name in ("query", "key", "value")}, support)
    assert_same(result, masked)


@every_score
@every_normaliser
@pytest.mark.parametrize("layout", ["dense", "edges"])
@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_a_bad_query_spoils_its_own_row(score: str, normaliser: str, layout: str, junk: float) -> None:
    attend, (tensors, support) = site(score, normaliser, SHAPE), case(layout, torch.float64)
    axis = 2 if layout == "dense" else 0
    spoilt = {**tensors, "query": tensors["query"].clone()}
    spoilt["query"].select(axis, 1).fill_(junk)
    index = torch.tensor([0, 2, 3, 4])
    for fused in (True, False):
        plain, after = (
            run(attend, each, support, within=[] if fused else [record(attend, grad=True)])
            for each in (tensors, spoilt)
        )
        assert torch.equal(plain.context.index_select(axis, index), after.context.index_select(axis, index))
        one, other = (each.gradients["query"].index_select(axis, index) for each in (plain, after))
        assert torch.equal(one, other)


@every_score
@every_normaliser
@pytest.mark.parametrize("layout", ["dense", "edges"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_at_the_edge_of_its_range(score: str, normaliser: str, layout: str, dtype: torch.dtype) -> None:
    """Scores of 24,000 and more, some masked: finite weights that sum to one, finite gradients."""
    attend, (tensors, support) = site(score, normaliser, SHAPE, dtype), case(layout, dtype)
    tensors = {**tensors, "query": tensors["query"].sign() * 80.0, "key": tensors["key"].sign() * 80.0}
    result = run(attend, tensors, support)
    assert_finite(result)
    weights = weights_of(attend, tensors, support)
    assert weights.isfinite().all()
    sums = support.to_dense(weights, 5, 4).sum(-1)
    wanted = torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]).expand_as(sums)
    torch.testing.assert_close(sums, wanted, rtol=0.0, atol=1e-5)


@every_score
@every_normaliser
def test_batches_with_nothing_permitted(score: str, normaliser: str) -> None:
    attend = site(score, normaliser, SHAPE)
    for support, tensors in (
        (DenseSupport.from_key_mask(torch.zeros(2, 4, dtype=torch.bool)), inputs(SHAPE)),
        (DenseSupport.from_key_mask(torch.zeros(2, 4, dtype=torch.bool), causal=True), inputs(SHAPE)),
        (EdgeSupport.from_edges(torch.zeros(2, 0, dtype=torch.int64), 5, 4), to_nodes(inputs(SHAPE))),
    ):
        for spoilt in (tensors, {name: torch.full_like(x, math.nan) for name, x in tensors.items()}):
            result = run(attend, spoilt, support)
            assert not result.context.any()
            for gradient in result.gradients.values():
                assert not gradient.any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 3), (3, 5), (1, 4)])
def test_who_sees_a_key(causal: bool, queries: int, keys: int) -> None:
    """The queries that see a key are the same with and without computing the whole mask."""
    for seed in range(10):
        permitted = torch.rand(2, 1, 1, keys, generator=torch.Generator().manual_seed(seed)) < 0.4
        for later in (0, 1):
            for mask in (None, permitted, permitted.expand(2, 1, queries, keys)):
                support = DenseSupport(mask, causal, later if causal else 0)
                sees = support.sees(queries, keys, torch.device("cpu"))
                whole = support.mask(queries, keys, torch.device("cpu"))
                wanted = torch.ones(1, 1, queries, 1) if whole is None else whole.any(-1, keepdim=True)
                sees = torch.ones(1, 1, queries, 1, dtype=torch.bool) if sees is None else sees
                assert torch.equal(sees.expand(2, 1, queries, 1), wanted.bool().expand(2, 1, queries, 1))


def test_what_a_support_knows_serves_training_after_inference_mode() -> None:
    """And other lengths, and fewer key heads, than those that it was used with first."""
    support = DenseSupport(causal=True)
    attend = site("additive", "softmax", SHAPE)
    for shape in (SHAPE, SHAPE._replace(keys=7), SHAPE):
        tensors = inputs(shape)
        with torch.inference_mode():
            before, _ = attend(*tensors.values(), support)
        result = run(attend, tensors, support)
        assert torch.equal(before, result.context)
        assert torch.equal(before, run(attend, tensors, DenseSupport(causal=True)).context)
