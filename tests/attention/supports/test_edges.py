"""The laws of attention over edges, and that the edges of a complete graph are dense attention."""

from __future__ import annotations

import pytest
import torch
from attention_cases import NORMALISERS, SCORES, Run, Shape, assert_close, complete, inputs, run, site, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import every_pair
from torch import Tensor

from zoo.attention import GAT, Attention, Constant, Degree, DenseSupport, EdgeSupport, Softmax, Uniform
from zoo.attention.kernels import sparse

every_score = pytest.mark.parametrize("score", SCORES)
every_normaliser = pytest.mark.parametrize("normaliser", NORMALISERS)
SHAPE = Shape(batch=1)


def nodes(queries: int, keys: int | None = None, seed: int = 0) -> dict[str, Tensor]:
    """Query, key and value of an EdgeSupport: (n,h,d)."""
    shape = SHAPE._replace(queries=queries, keys=queries if keys is None else keys)
    return {name: x[0].transpose(0, 1).contiguous() for name, x in inputs(shape, seed=seed).items()}


def random_edges(count: int, sources: int, targets: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(0, sources, (count,), generator=generator)
    return torch.stack([source, torch.randint(0, targets, (count,), generator=generator)])


def as_edges(dense: Run) -> Run:
    """Converts one example from the layout of `DenseSupport` to that of `EdgeSupport`."""
    gradients = dict(dense.gradients)
    for name in ("query", "key", "value"):
        gradients[name] = gradients[name][0].transpose(0, 1)
    return Run(dense.context[0].transpose(0, 1), gradients)


@every_pair(
    score=SCORES.keys(),
    normaliser=NORMALISERS.keys(),
    sizes=[(5, 4), (4, 4), (1, 6), (6, 1)],
    limit=[8, 1 << 60],
)
def test_edges_of_a_complete_graph_are_dense_attention(
    score: str, normaliser: str, sizes: tuple[int, int], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "_CACHED", limit)
    queries, keys = sizes
    shape = SHAPE._replace(queries=queries, keys=keys)
    attend, tensors, flat = site(score, normaliser, shape), inputs(shape), nodes(queries, keys)
    support = complete(queries, keys)
    dense = run(attend, tensors, DenseSupport())
    assert_close(run(attend, flat, support), as_edges(dense), 1e-10)
    weights = weights_of(attend, tensors, DenseSupport())[0, :, support.target.long(), support.source.long()].T
    torch.testing.assert_close(weights_of(attend, flat, support), weights, rtol=0.0, atol=1e-10)


@settings(max_examples=40)
@given(
    score=st.sampled_from(list(SCORES)),
    normaliser=st.sampled_from(list(NORMALISERS)),
    size=st.integers(1, 6),
    count=st.integers(0, 12),
    seed=st.integers(0, 9999),
    data=st.data(),
)
def test_order_of_edges_and_names_of_nodes(
    score: str, normaliser: str, size: int, count: int, seed: int, data: st.DataObject
) -> None:
    attend, tensors, edges = (
        site(score, normaliser, SHAPE),
        nodes(size, seed=seed),
        random_edges(count, size, size, seed),
    )
    before = run(attend, tensors, EdgeSupport.from_edges(edges, size))
    shuffled = edges[:, torch.tensor(data.draw(st.permutations(range(count))), dtype=torch.long)]
    assert_close(run(attend, tensors, EdgeSupport.from_edges(shuffled, size)), before, 1e-12)
    names = torch.tensor(data.draw(st.permutations(range(size))))
    renamed = {name: torch.empty_like(x).index_copy(0, names, x) for name, x in tensors.items()}
    after = run(attend, renamed, EdgeSupport.from_edges(names[edges], size))
    torch.testing.assert_close(after.context[names], before.context, rtol=0.0, atol=1e-12)


@every_score
@every_normaliser
def test_repeated_edges_count_each_time(score: str, normaliser: str) -> None:
    """Twice the same neighbour is twice its share: as two nodes that are alike."""
    attend, tensors = site(score, normaliser, SHAPE), nodes(3)
    twice = EdgeSupport.from_edges(torch.tensor([[1, 1, 2], [0, 0, 0]]), 3)
    alike = {name: torch.cat([x, x[1:2]]) for name, x in tensors.items()}
    as_two_nodes = EdgeSupport.from_edges(torch.tensor([[1, 3, 2], [0, 0, 0]]), 4)
    context = run(attend, tensors, twice).context
    torch.testing.assert_close(context[0], run(attend, alike, as_two_nodes).context[0], rtol=0.0, atol=1e-12)
    once = EdgeSupport.from_edges(torch.tensor([[1, 2], [0, 0]]), 3)
    if not weights_of(attend, tensors, once).all():
        return  # a sparse normaliser may give one of the two nothing, and the other what it had
    assert (context[0] - run(attend, tensors, once).context[0]).abs().max() > 1e-3


@every_pair(score=SCORES.keys(), normaliser=NORMALISERS.keys(), count=[3, 0])
def test_isolated_nodes_give_zeros(score: str, normaliser: str, count: int) -> None:
    attend, tensors = site(score, normaliser, SHAPE), nodes(5)
    support = EdgeSupport.from_edges(torch.tensor([[1, 2, 2], [0, 0, 3]])[:, :count], 5)
    result = run(attend, tensors, support)
    alone = support.degrees == 0
    assert alone.tolist() == ([False, True, True, False, True] if count else [True] * 5)
    assert result.context[~alone].all()
    assert not result.context[alone].any()
    assert not result.gradients["query"][alone].any()
    assert not result.gradients["value"][4].any()
    for name, gradient in result.gradients.items():
        assert gradient.isfinite().all(), name
    weights = weights_of(attend, tensors, support)
    assert weights.shape == (count, 3)
    totals = torch.zeros(5, 3, dtype=torch.float64).index_add_(0, support.target.long(), weights)
    torch.testing.assert_close(totals, (~alone).double().unsqueeze(1).expand(5, 3))


def test_a_query_means_nothing_to_other_queries_keys() -> None:
    """The value of a node without outgoing edges is never read, whatever it is."""
    support = EdgeSupport.from_edges(torch.tensor([[0, 1], [1, 2]]), 3)
    for score in SCORES:
        attend, tensors = site(score, "softmax", SHAPE), nodes(3)
        before = run(attend, tensors, support).context
        changed = dict(tensors, value=tensors["value"].clone(), key=tensors["key"].clone())
        changed["value"][2], changed["key"][2] = torch.nan, torch.inf
        assert torch.equal(run(attend, changed, support).context, before)


def test_uniform_is_one_over_the_count() -> None:
    support = EdgeSupport.from_edges(random_edges(11, 5, 4), 4, 5)
    for score in SCORES:
        weights = weights_of(site(score, "uniform", SHAPE), nodes(4, 5), support)
        expected = 1.0 / support.degrees[support.target.long()].double()
        torch.testing.assert_close(weights, expected.unsqueeze(1).expand(-1, 3))


def test_self_loops_replace_those_that_are_there() -> None:
    """Exactly one a node, as PyG does it; `order` says which edge each was, -1 for those added."""
    edges = torch.tensor([[0, 1, 1, 2, 1], [1, 1, 0, 2, 1]])
    support = EdgeSupport.from_edges(edges, 4, self_loops=True)
    pairs = list(zip(support.source.tolist(), support.target.tolist(), support.order.tolist(), strict=True))
    assert sorted(pairs) == [(0, 0, -1), (0, 1, 0), (1, 0, 2), (1, 1, -1), (2, 2, -1), (3, 3, -1)]
    assert support.degrees.tolist() == [2, 2, 1, 1]
    with pytest.raises(ValueError, match="same nodes on both sides"):
        EdgeSupport.from_edges(edges, 4, 5, self_loops=True)


@settings(max_examples=30)
@given(st.integers(0, 15), st.integers(1, 5), st.integers(1, 5), st.integers(0, 9999))
def test_order_maps_back_to_the_callers_edges(count: int, sources: int, targets: int, seed: int) -> None:
    edges = random_edges(count, sources, targets, seed)
    support = EdgeSupport.from_edges(edges, targets, sources)
    assert torch.equal(torch.stack([support.source, support.target]).long(), edges[:, support.order])
    assert support.target.tolist() == sorted(support.target.tolist())
    assert support.degrees.sum() == count


def test_degree_is_gcns_propagation() -> None:
    """D^-1/2 (A + I) D^-1/2 X, Kipf & Welling 2017, eq. 2, on an undirected graph."""
    pairs = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 2]])
    support = EdgeSupport.from_edges(torch.cat([pairs, pairs.flip(0)], 1), 5, self_loops=True)
    adjacency = torch.eye(5, dtype=torch.float64)
    adjacency[pairs[0], pairs[1]] = adjacency[pairs[1], pairs[0]] = 1.0
    scale = torch.diag(adjacency.sum(1) ** -0.5)
    propagation = scale @ adjacency @ scale
    tensors, attend = nodes(5), Attention(Constant(), Degree())
    expected = torch.einsum("ij,jhd->ihd", propagation, tensors["value"])
    torch.testing.assert_close(run(attend, tensors, support).context, expected, rtol=0.0, atol=1e-12)
    half = weights_of(attend, {name: x.bfloat16() for name, x in tensors.items()}, support)
    assert half.dtype == torch.float32


def test_degree_is_refused_where_there_are_no_edges() -> None:
    attend = Attention(Constant(), Degree())
    attend.check_layout(EdgeSupport, "a graph layer")
    with pytest.raises(
        ValueError, match="Degree works on EdgeSupport only; MultiheadAttention attends over DenseSupport"
    ):
        attend.check_layout(DenseSupport, "MultiheadAttention")
    for normaliser in (Softmax(), Uniform()):
        Attention(GAT(dim=2, heads=1), normaliser).check_layout(DenseSupport, "MultiheadAttention")


def test_edges_move_between_devices() -> None:
    support = EdgeSupport.from_edges(random_edges(7, 4, 4), 4).to("meta")
    assert {support.order.device.type, support.pattern.rows.device.type} == {"meta"}
