"""The graph nets against PyTorch Geometric's, with transplanted weights, and against what their formulas imply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from graph_net_cases import CLASSES, DIM, FEATURES, HEADS, MECHANISMS, NODES, layer, net
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from zoo.attention import GAT, Attention, AttentionFactory, DenseSupport, EdgeSupport, Softmax, Traits, record
from zoo.tasks.graph.models import GraphAttention, elu
from zoo.tasks.graph.receptive_field import Hop
from zoo.tasks.graph.sparse_features import SparseFeatures

pytestmark = pytest.mark.usefixtures("double")

Pairs = list[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]
"""Our parameter, the peer's, and how a tensor of the peer's shape becomes one of ours."""


def transplanted(ours: GraphAttention, peer: GATConv | GATv2Conv) -> Pairs:
    """Gives our layer the peer's weights."""

    def as_projection(x: Tensor) -> Tensor:
        return x.t().reshape(x.shape[1], ours.source.weight.shape[1], -1)

    def as_heads(x: Tensor) -> Tensor:
        return x.reshape(ours.source.weight.shape[1], -1)

    def same(x: Tensor) -> Tensor:
        return x

    pairs: Pairs = [(ours.bias, peer.bias, same)]
    score: Any = ours.attend.score
    if isinstance(peer, GATConv):
        pairs += [(ours.source.weight, peer.lin.weight, as_projection)]
        pairs += [(score.to_key, peer.att_src, as_heads), (score.to_query, peer.att_dst, as_heads)]
    else:
        assert ours.target is not None
        assert ours.source.bias is not None
        assert ours.target.bias is not None
        pairs += [(ours.source.weight, peer.lin_l.weight, as_projection), (ours.source.bias, peer.lin_l.bias, as_heads)]
        pairs += [(ours.target.weight, peer.lin_r.weight, as_projection), (ours.target.bias, peer.lin_r.bias, as_heads)]
        pairs += [(score.vector, peer.att, as_heads)]
    with torch.no_grad():
        for mine, other, shaped in pairs:
            nn.init.normal_(other)
            mine.copy_(shaped(other))
    assert {id(mine) for mine, _, _ in pairs} == {id(each) for each in ours.parameters()}
    return pairs


def check_equal(output: Tensor, expected: Tensor, inputs: tuple[Tensor, Tensor], pairs: Pairs, atol: float) -> None:
    """Outputs, and every gradient of a loss that no symmetry makes trivial."""
    torch.testing.assert_close(output, expected, rtol=atol, atol=atol)
    weights = torch.linspace(-1, 1, output.numel()).view_as(output).to(output.dtype)
    ours = torch.autograd.grad((output * weights).sum(), [inputs[0], *(mine for mine, _, _ in pairs)])
    theirs = torch.autograd.grad((expected * weights).sum(), [inputs[1], *(other for _, other, _ in pairs)])
    shapes = [lambda x: x, *(shaped for _, _, shaped in pairs)]
    for mine, other, shaped in zip(ours, theirs, shapes, strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(mine, shaped(other), rtol=atol, atol=atol)


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("merge", ["concat", "mean"])
@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_a_layer_is_pygs(mechanism: str, merge: Any, self_loops: bool, dtype: Any, atol: float, edges: Tensor) -> None:
    kind = GATConv if mechanism == "gat" else GATv2Conv
    peer = kind(FEATURES, DIM, HEADS, concat=merge == "concat", add_self_loops=self_loops)
    ours = layer(mechanism, merge=merge)
    pairs = transplanted(ours.to(dtype), peer.to(dtype))
    x = torch.randn(NODES, FEATURES, dtype=dtype)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    support = EdgeSupport.from_edges(edges, NODES, self_loops=self_loops)
    check_equal(ours(mine, Hop(support)), peer(theirs, edges), (mine, theirs), pairs, atol)


@pytest.mark.parametrize("merge", ["concat", "mean"])
@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_a_net_is_pygs_layers_with_elu_between(mechanism: str, merge: Any, edges: Tensor) -> None:
    kind = GATConv if mechanism == "gat" else GATv2Conv
    hidden = DIM * HEADS if merge == "concat" else DIM
    peers = [
        kind(FEATURES, DIM, HEADS, concat=merge == "concat"),
        kind(hidden, DIM, HEADS, concat=merge == "concat"),
        kind(hidden, CLASSES, 2, concat=False),
    ]
    ours = net(mechanism, layers=3, out_heads=2, merge=merge)
    pairs = [pair for mine, peer in zip(ours.layers, peers, strict=True) for pair in transplanted(mine, peer)]
    x = torch.randn(NODES, FEATURES)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = theirs
    for number, peer in enumerate(peers):
        expected = peer(F.elu(expected) if number else expected, edges)
    support = EdgeSupport.from_edges(edges, NODES, self_loops=True)
    check_equal(ours(mine, support), expected, (mine, theirs), pairs, 1e-10)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sparse_features_give_what_dense_ones_give(mechanism: str, skip: bool, edges: Tensor) -> None:
    dense = torch.randn(NODES, FEATURES) * (torch.rand(NODES, FEATURES) < 0.3)
    dense[4] = 0
    ours = layer(mechanism, skip=skip)
    hop = Hop(EdgeSupport.from_edges(edges, NODES, self_loops=True))
    outputs = []
    for x in (dense, SparseFeatures.from_csr(dense.to_sparse_csr())):
        ours.zero_grad()
        output = ours(x, hop)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        outputs.append([output, *(each.grad for each in ours.parameters())])
    for mine, other in zip(*outputs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_degree_has_gcns_weights(edges: Tensor) -> None:
    undirected = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    ours = layer("degree")
    support = EdgeSupport.from_edges(undirected, NODES, self_loops=True)
    x = torch.randn(NODES, FEATURES)
    loops, weight = gcn_norm(undirected, num_nodes=NODES, dtype=torch.float64)
    with record(ours) as maps:
        output = ours(x, Hop(support))
    (found,) = maps.values()
    mine, theirs = support.target.long() * NODES + support.source.long(), loops[1] * NODES + loops[0]
    assert torch.equal(mine.sort().values, theirs.sort().values)
    torch.testing.assert_close(found.weights[mine.argsort()], weight[theirs.argsort(), None].expand(-1, HEADS))
    dense = torch.zeros(NODES, NODES).index_put((loops[1], loops[0]), weight, accumulate=True)
    expected = torch.einsum("ij,jf,fhd->ihd", dense, x, ours.source.weight).flatten(1) + ours.bias
    torch.testing.assert_close(output, expected)


def test_uniform_is_the_mean_of_the_neighbours(edges: Tensor) -> None:
    ours = layer("uniform")
    x = torch.randn(NODES, FEATURES)
    output = ours(x, Hop(EdgeSupport.from_edges(edges, NODES)))
    for node in range(NODES):
        sources = edges[0, edges[1] == node]
        projected = torch.einsum("nf,fhd->nhd", x[sources], ours.source.weight).flatten(1)
        mean = projected.mean(0) if len(sources) else torch.zeros(HEADS * DIM)
        torch.testing.assert_close(output[node], mean + ours.bias)


@pytest.mark.parametrize("merge", ["concat", "mean"])
def test_a_skip_adds_a_linear_map_of_the_input_to_each_head(merge: Any, edges: Tensor) -> None:
    ours = layer("gat", merge=merge, skip=True)
    assert ours.skip is not None
    x = torch.randn(NODES, FEATURES)
    hop = Hop(EdgeSupport.from_edges(edges, NODES, self_loops=True))
    with_skip = ours(x, hop)
    mapped = torch.einsum("nf,fhd->nhd", x, ours.skip.weight)
    mapped = mapped.flatten(1) if merge == "concat" else mapped.mean(1)
    ours.skip = None
    torch.testing.assert_close(with_skip - ours(x, hop), mapped)


def test_a_node_without_edges_has_the_bias_and_no_gradient(edges: Tensor) -> None:
    ours = layer("gatv2")
    x = torch.randn(NODES, FEATURES, requires_grad=True)
    output = ours(x, Hop(EdgeSupport.from_edges(edges, NODES)))
    assert torch.equal(output[8], ours.bias)
    output.sum().backward()
    assert x.grad is not None
    assert not x.grad[8].any()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_renumbering_the_nodes_renumbers_the_outputs(mechanism: str, edges: Tensor) -> None:
    ours = net(mechanism, layers=3, skip=True)
    x, moved = torch.randn(NODES, FEATURES), torch.randperm(NODES)  # node i becomes moved[i]
    output = ours(x, EdgeSupport.from_edges(edges, NODES, self_loops=True))
    renumbered = torch.empty_like(x)
    renumbered[moved] = x
    again = ours(renumbered, EdgeSupport.from_edges(moved[edges], NODES, self_loops=True))
    torch.testing.assert_close(again[moved], output)
    assert not torch.allclose(again, output)


def test_the_order_of_the_edges_does_not_matter(edges: Tensor) -> None:
    ours, x = net("gat"), torch.randn(NODES, FEATURES)
    shuffled = edges[:, torch.randperm(edges.shape[1])]
    outputs = [ours(x, EdgeSupport.from_edges(each, NODES, self_loops=True)) for each in (edges, shuffled)]
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elu_is_torchs(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-30, 30, 2001), torch.tensor([0.0, -0.0, -1e-8, 1e-8, -1e4, 1e4])]).to(dtype)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, expected = elu(mine), F.elu(theirs)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)
    upstream = torch.linspace(-1, 1, len(x), dtype=dtype)
    ours.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-6)
    assert torch.equal(x, mine.detach())  # not in place


def test_elus_gradient_is_that_of_its_value() -> None:
    x = torch.randn(40).requires_grad_()
    assert torch.autograd.gradcheck(elu, (x,), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_vocabularies_name_the_axes_that_grow_with_them(mechanism: str) -> None:
    """Two more features and one more class: exactly the named axes are longer, and by that much."""
    for layers in (1, 2):
        small, large = (
            net(mechanism, skip=True, layers=layers, features=FEATURES + 2 * more, classes=CLASSES + more)
            for more in (0, 1)
        )
        named: set[tuple[str, int, int]] = set()
        for vocabulary, more in (("features", 2), ("labels", 1)):
            sizes = {n: p.dim() for n, p in small.named_parameters()}
            named |= {(n, axis % sizes[n], more) for n, axis in small.vocabularies()[vocabulary].items()}
        grown = {
            (name, axis, b - a)
            for (name, p), q in zip(small.named_parameters(), large.parameters(), strict=True)
            for axis, (a, b) in enumerate(zip(p.shape, q.shape, strict=True))
            if a != b
        }
        assert named == grown
        assert small.vocabularies().keys() == {"features", "labels"}


def test_sizes_by_layer() -> None:
    made = net(layers=3, out_heads=2)
    assert [tuple(each.source.weight.shape) for each in made.layers] == [
        (FEATURES, HEADS, DIM),
        (HEADS * DIM, HEADS, DIM),
        (HEADS * DIM, 2, CLASSES),
    ]
    assert net(layers=1)(torch.randn(3, FEATURES), EdgeSupport.from_edges(torch.tensor([[0], [1]]), 3)).shape == (3, 5)


@pytest.mark.parametrize("layers", [0, -1])
def test_a_net_without_layers_is_refused(layers: int) -> None:
    with pytest.raises(ValueError, match="layers is to be a whole number of at least 1"):
        net(layers=layers)


def test_a_mechanism_that_serves_no_edges_is_refused_at_once() -> None:
    class DenseAlone(Softmax):
        traits = Traits(layouts=(DenseSupport,))

    with pytest.raises(ValueError, match="DenseAlone works on DenseSupport only; a graph attends over EdgeSupport"):
        layer(attend=lambda dim, heads: Attention(GAT(dim=dim, heads=heads), DenseAlone()))


def test_slope_reaches_the_score(edges: Tensor) -> None:
    """A slope of 1 makes the score linear: what is peculiar to each node cancels in GAT's softmax."""
    linear = AttentionFactory(score=partial(GAT, slope=1.0), normalizer=Softmax)
    ours, x = layer(attend=linear), torch.randn(NODES, FEATURES)
    hop = Hop(EdgeSupport.from_edges(edges, NODES, self_loops=True))
    before = ours(x, hop)
    with torch.no_grad():
        ours.attend.score.to_query.zero_()  # type: ignore[union-attr]
    torch.testing.assert_close(ours(x, hop), before)
