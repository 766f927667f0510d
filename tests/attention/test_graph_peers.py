"""Attention over edges against PyTorch Geometric's GATConv and GATv2Conv, with transplanted weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv

from zoo.attention import GAT, Attention, Constant, Degree, EdgeSupport, GATv2, Softmax, record

NODES, HEADS, WIDTH, FEATURES = 9, 3, 4, 5
TOLERANCE = {"rtol": 0.0, "atol": 1e-5}

options = pytest.mark.parametrize(
    ("concat", "self_loops"), [(concat, self_loops) for concat in (True, False) for self_loops in (True, False)]
)


def edges() -> Tensor:
    """Random, with a repeated edge, a self-loop there from the start, node 7 without any, 8 only as a source."""
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(0, 7, (2, 20), generator=generator)
    return torch.cat([random, random[:, :2], torch.tensor([[3, 8], [3, 0]])], dim=1)


def joined(context: Tensor, concat: bool, bias: Tensor) -> Tensor:
    return (context.flatten(1) if concat else context.mean(1)) + bias


def check(peer: Any, output: Tensor, x: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Outputs and every gradient of a loss that no symmetry makes trivial."""
    expected = peer(x, edges())
    torch.testing.assert_close(output, expected, **TOLERANCE)
    ours = torch.autograd.grad(output.square().sum(), [x, *(mine for mine, _ in pairs)])
    theirs = torch.autograd.grad(expected.square().sum(), [x, *(other for _, other in pairs)])
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.any()
        torch.testing.assert_close(mine.reshape(other.shape), other, **TOLERANCE)


def features() -> Tensor:
    torch.manual_seed(2)
    return torch.randn(NODES, FEATURES, requires_grad=True)


def weights_by_edge(peer: Any, x: Tensor, support: EdgeSupport) -> Tensor:
    """The peer's weights in the order of ours: both keep the caller's order among edges of the same ends."""
    _, (index, weights) = peer(x, edges(), return_attention_weights=True)
    order = torch.argsort(index[1] * NODES + index[0], stable=True)
    mine = torch.argsort(support.target.long() * NODES + support.source.long(), stable=True)
    assert torch.equal(index[:, order], torch.stack([support.source, support.target]).long()[:, mine])
    return weights[order][torch.argsort(mine)]


@options
def test_gat_is_gat_conv(concat: bool, self_loops: bool) -> None:
    torch.manual_seed(1)
    peer = GATConv(FEATURES, WIDTH, HEADS, concat=concat, add_self_loops=self_loops)
    torch.nn.init.normal_(peer.bias)
    attend = Attention(GAT(dim=WIDTH, heads=HEADS), Softmax())
    with torch.no_grad():
        attend.score.to_query.copy_(peer.att_dst[0])
        attend.score.to_key.copy_(peer.att_src[0])
    support = EdgeSupport.from_edges(edges(), NODES, self_loops=self_loops)
    x = features()
    projected = (x @ peer.lin.weight.T).view(NODES, HEADS, WIDTH)
    with record(attend) as maps:
        context, _ = attend(projected, projected, projected, support)
    pairs = [(attend.score.to_query, peer.att_dst), (attend.score.to_key, peer.att_src)]
    # The gradient of the shared projection is compared through that of x; its own is the peer's parameter in both.
    check(peer, joined(context, concat, peer.bias), x, [*pairs, (peer.lin.weight, peer.lin.weight)])
    torch.testing.assert_close(maps[""].weights, weights_by_edge(peer, x, support).detach(), **TOLERANCE)


@options
def test_gatv2_is_gatv2_conv(concat: bool, self_loops: bool) -> None:
    torch.manual_seed(1)
    peer = GATv2Conv(FEATURES, WIDTH, HEADS, concat=concat, add_self_loops=self_loops)
    for bias in (peer.bias, peer.lin_l.bias, peer.lin_r.bias):
        torch.nn.init.normal_(bias)
    attend = Attention(GATv2(dim=WIDTH, heads=HEADS), Softmax())
    with torch.no_grad():
        attend.score.vector.copy_(peer.att[0])
    support = EdgeSupport.from_edges(edges(), NODES, self_loops=self_loops)
    x = features()
    key = (x @ peer.lin_l.weight.T + peer.lin_l.bias).view(NODES, HEADS, WIDTH)
    query = (x @ peer.lin_r.weight.T + peer.lin_r.bias).view(NODES, HEADS, WIDTH)
    with record(attend) as maps:
        context, _ = attend(query, key, key, support)
    shared = [(p, p) for p in (peer.lin_l.weight, peer.lin_r.weight, peer.lin_l.bias)]
    check(peer, joined(context, concat, peer.bias), x, [(attend.score.vector, peer.att), *shared])
    torch.testing.assert_close(maps[""].weights, weights_by_edge(peer, x, support).detach(), **TOLERANCE)


def test_isolated_nodes_get_the_bias_alone() -> None:
    """As in PyG, without self-loops."""
    peer = GATConv(FEATURES, WIDTH, HEADS, add_self_loops=False)
    torch.nn.init.normal_(peer.bias)
    x = features()
    attend = Attention(GAT(dim=WIDTH, heads=HEADS), Softmax())
    projected = (x @ peer.lin.weight.T).view(NODES, HEADS, WIDTH)
    context, _ = attend(projected, projected, projected, EdgeSupport.from_edges(edges(), NODES))
    for node in (7, 8):
        assert torch.equal(peer(x, edges())[node], peer.bias)
        assert not context[node].any()


@pytest.mark.parametrize("undirected", [True, False])
def test_degree_is_gcn_conv(undirected: bool) -> None:
    """Repeated edges count twice in the degree too."""
    index = torch.cat([edges(), edges().flip(0)], dim=1) if undirected else edges()
    peer = GCNConv(FEATURES, WIDTH, bias=False)
    support = EdgeSupport.from_edges(index, NODES, self_loops=True)
    x = features()
    projected = (x @ peer.lin.weight.T).unsqueeze(1)
    context, _ = Attention(Constant(), Degree())(projected, projected, projected, support)
    torch.testing.assert_close(context[:, 0], peer(x, index), **TOLERANCE)
