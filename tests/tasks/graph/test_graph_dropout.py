"""Dropout in the graph nets: of the input, dense and sparse, by head or shared, and of the weights."""

from __future__ import annotations

import pytest
import torch
from graph_net_cases import DIM, FEATURES, HEADS, NODES, layer, net
from torch import Tensor

from zoo.attention import GAT, AttentionFactory, EdgeSupport, Softmax
from zoo.tasks.graph.receptive_field import Hop
from zoo.tasks.graph.sparse_features import SparseFeatures

pytestmark = pytest.mark.usefixtures("double")


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


def test_dropout_is_for_training_and_keeps_the_mean(edges: Tensor) -> None:
    """With fixed weights the layer is linear in the dropped features, so that dropout keeps its mean."""
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
    """Without edges the output is the skip alone."""
    hop = Hop(EdgeSupport.from_edges(torch.empty(2, 0, dtype=torch.int64), NODES))
    ours, x = layer("uniform", skip=True, dropout=0.5), torch.ones(NODES, FEATURES)
    in_training = ours(x, hop)
    ours.eval()
    assert len(torch.unique(ours(x, hop), dim=0)) == 1
    assert len(torch.unique(in_training, dim=0)) > 5


def test_dropout_of_weights_is_the_mechanisms(edges: Tensor) -> None:
    dropped = AttentionFactory(score=GAT, normalizer=Softmax, dropout=0.7)
    ours = net(attend=dropped)
    x, support = torch.randn(NODES, FEATURES), EdgeSupport.from_edges(edges, NODES, self_loops=True)
    assert not torch.equal(ours(x, support), ours(x, support))
    ours.eval()
    assert torch.equal(ours(x, support), ours(x, support))
