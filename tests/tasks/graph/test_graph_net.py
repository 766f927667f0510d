"""The graph nets against PyTorch Geometric's, with transplanted weights, and against what their formulas imply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from zoo.attention import (
    GAT,
    Additive,
    Attend,
    AttendFactory,
    Constant,
    Degree,
    EdgeSupport,
    GATv2,
    ScaledDot,
    Softmax,
    Uniform,
    record,
)
from zoo.tasks.graph.features import SparseFeatures
from zoo.tasks.graph.field import Hop, receptive_field
from zoo.tasks.graph.net import GraphAttention, GraphAttentionNet, elu

NODES, FEATURES, DIM, HEADS, CLASSES = 11, 7, 4, 3, 5
MECHANISMS = {
    "gat": AttendFactory(score=GAT, normalise=Softmax),
    "gatv2": AttendFactory(score=GATv2, normalise=Softmax),
    "additive": AttendFactory(score=Additive, normalise=Softmax),
    "softmax": AttendFactory(score=ScaledDot, normalise=Softmax),
    "uniform": AttendFactory(score=Constant, normalise=Uniform),
    "degree": AttendFactory(score=Constant, normalise=Degree),
}


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    """In float64 a difference of 1e-9 is one of the formula, and 1e-5 of the issue is met with room."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def edges() -> Tensor:
    """Repeated edges, self-loops there from the start, node 8 without edges, 9 and 10 with one end of one each."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, 8, (2, 24), generator=generator)
    return torch.cat([random, random[:, :3], torch.tensor([[2, 5, 9, 1], [2, 5, 0, 10]])], dim=1)


def layer(mechanism: str = "gat", **options: Any) -> GraphAttention:
    given: dict[str, Any] = {"features": FEATURES, "dim": DIM, "heads": HEADS, "attend": MECHANISMS[mechanism]}
    made = GraphAttention(**(given | {"shared": mechanism != "gatv2"} | options))
    nn.init.normal_(made.bias)  # a bias of zeros would hide a mistake
    return made


def net(mechanism: str = "gat", **options: Any) -> GraphAttentionNet:
    given: dict[str, Any] = {"features": FEATURES, "classes": CLASSES, "attend": MECHANISMS[mechanism], "dim": DIM}
    return GraphAttentionNet(**(given | {"heads": HEADS, "shared": mechanism != "gatv2"} | options))


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


@pytest.mark.parametrize("mechanism", ["gat", "gatv2"])
def test_a_net_is_pygs_layers_with_elu_between(mechanism: str, edges: Tensor) -> None:
    kind = GATConv if mechanism == "gat" else GATv2Conv
    peers = [
        kind(FEATURES, DIM, HEADS),
        kind(DIM * HEADS, DIM, HEADS),
        kind(DIM * HEADS, CLASSES, 2, concat=False),
    ]
    ours = net(mechanism, layers=3, out_heads=2)
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


@pytest.mark.parametrize("masks", [1, HEADS])
def test_dropout_of_sparse_features_drops_nonzeros_alone(masks: int) -> None:
    dense = (torch.rand(50, 40) < 0.2).double()
    features = SparseFeatures.from_csr(dense.to_sparse_csr())
    dropped = features.dropout(0.6, masks=masks)
    assert dropped.pattern is features.pattern
    # the probability is a multiple of 2 ** -16
    torch.testing.assert_close(dropped.values.unique(), torch.tensor([0.0, 2.5]), rtol=1e-4, atol=0)
    kept = (dropped.values > 0).double().view(len(features.values), masks)
    assert ((kept.mean(0) - 0.4).abs() < 4 * (0.24 / len(kept)) ** 0.5).all()
    weight = torch.randn(40, HEADS, DIM)
    for head in range(HEADS):  # each head sees what its mask has left
        left = torch.zeros(50, 40)
        left[dense > 0] = dropped.values.view(len(kept), masks)[:, head % masks]
        torch.testing.assert_close(dropped.project(weight)[:, head], left @ weight[:, head])


def test_each_head_may_drop_the_input_on_its_own() -> None:
    dense = torch.ones(200, FEATURES)
    for by_head in (False, True):
        made = layer(dropout=0.5, drop_by_head=by_head)
        kept = made._drop_input(dense)
        assert kept.shape == ((200, HEADS, FEATURES) if by_head else (200, FEATURES))
        if by_head:
            shared = (kept[:, 0] == kept[:, 1]).double().mean()
            assert abs(shared - 0.5) < 0.06  # two masks agree by chance alone
        made.eval()
        assert made._drop_input(dense) is dense


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


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_receptive_field_of_some_nodes_is_enough(
    mechanism: str, layers: int, self_loops: bool, edges: Tensor
) -> None:
    """Outputs and gradients as from the whole graph: dense and sparse features, nodes without edges, in any order."""
    ours = net(mechanism, layers=layers, skip=True)
    dense = torch.randn(NODES, FEATURES) * (torch.rand(NODES, FEATURES) < 0.5)
    support = EdgeSupport.from_edges(edges, NODES, self_loops=self_loops)

    def results(output: Tensor) -> list[Tensor]:
        ours.zero_grad()
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        return [output, *(torch.zeros_like(each) if each.grad is None else each.grad for each in ours.parameters())]

    for nodes in (torch.tensor([5, 1, 10]), torch.tensor([8]), torch.tensor([9]), torch.arange(NODES)):
        expected = results(ours(dense, support)[nodes])
        for x in (dense, SparseFeatures.from_csr(dense.to_sparse_csr())):
            found = results(ours.on_field(receptive_field(x, support, nodes, layers)))
            for mine, other in zip(found, expected, strict=True):
                torch.testing.assert_close(mine, other, rtol=0, atol=1e-11)


def test_a_receptive_field_holds_no_more_than_it_needs() -> None:
    """A path 0 -> 1 -> 2 -> 3 -> 4: two layers of node 4 see nodes 2 to 4."""
    path = torch.stack([torch.arange(4), torch.arange(1, 5)])
    support = EdgeSupport.from_edges(path, 5, self_loops=True)
    x = torch.arange(5.0).unsqueeze(1)
    field = receptive_field(x, support, torch.tensor([4]), layers=2)
    assert field.x.flatten().tolist() == [2, 3, 4]
    assert [hop.support.pattern.shape for hop in field.hops] == [(2, 3), (1, 2)]


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


def test_dropout_is_for_training_and_keeps_the_mean(edges: Tensor) -> None:
    """With fixed weights the layer is linear in what is dropped, so that its mean over many draws is what it was."""
    copies = 1000  # of the graph, side by side: as many draws in one call
    shifts = torch.arange(copies).repeat_interleave(edges.shape[1]) * NODES
    hop = Hop(EdgeSupport.from_edges(edges.repeat(1, copies) + shifts, NODES * copies, self_loops=True))
    x = torch.randn(NODES, FEATURES).repeat(copies, 1)
    ours, plain = layer("uniform", dropout=0.5), layer("uniform")
    plain.load_state_dict(ours.state_dict())
    ours.eval()
    expected = plain(x, hop)
    assert torch.equal(ours(x, hop), expected)
    ours.train()
    draws = ours(x, hop).view(copies, NODES, -1).detach()
    error = draws.mean(0) - expected.view(copies, NODES, -1)[0]
    assert (error.abs() < 5 * draws.std(0) / copies**0.5).all()
    assert draws.std(0).min() > 0.01


def test_a_skip_sees_the_dropped_input_as_in_the_authors_code() -> None:
    """Without edges all that is left is the skip."""
    hop = Hop(EdgeSupport.from_edges(torch.empty(2, 0, dtype=torch.int64), NODES))
    ours, x = layer("uniform", skip=True, dropout=0.5), torch.ones(NODES, FEATURES)
    in_training = ours(x, hop)
    ours.eval()
    assert len(torch.unique(ours(x, hop), dim=0)) == 1
    assert len(torch.unique(in_training, dim=0)) > 5


def test_dropout_of_weights_is_the_mechanisms(edges: Tensor) -> None:
    dropped = AttendFactory(score=GAT, normalise=Softmax, dropout=0.7)
    ours = net(attend=dropped)
    x, support = torch.randn(NODES, FEATURES), EdgeSupport.from_edges(edges, NODES, self_loops=True)
    assert not torch.equal(ours(x, support), ours(x, support))
    ours.eval()
    assert torch.equal(ours(x, support), ours(x, support))


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
    with pytest.raises(ValueError, match="layers must be at least 1"):
        net(layers=layers)


def test_a_mechanism_that_serves_no_edges_is_refused_at_once() -> None:
    class DenseAlone(nn.Module):
        supports = (dict,)

    with pytest.raises(ValueError, match="DenseAlone works on dict alone; a graph attends over EdgeSupport"):
        layer(attend=lambda dim, heads: Attend(GAT(dim=dim, heads=heads), DenseAlone()))


def test_slope_reaches_the_score(edges: Tensor) -> None:
    """A slope of 1 makes the score linear: what is peculiar to each node cancels in GAT's softmax."""
    linear = AttendFactory(score=partial(GAT, slope=1.0), normalise=Softmax)
    ours, x = layer(attend=linear), torch.randn(NODES, FEATURES)
    hop = Hop(EdgeSupport.from_edges(edges, NODES, self_loops=True))
    before = ours(x, hop)
    with torch.no_grad():
        ours.attend.score.to_query.zero_()  # type: ignore[union-attr]
    torch.testing.assert_close(ours(x, hop), before)
