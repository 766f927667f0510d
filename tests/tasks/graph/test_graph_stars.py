"""The attention of a few nodes of a graph, without that of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_net_cases import FEATURES, NODES, net
from largest import Largest
from torch import Tensor

from zoo.attention import EdgeSupport, record
from zoo.tasks.graph import stars
from zoo.tasks.graph.sparse_features import SparseFeatures
from zoo.tasks.graph.stars import Stars


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("ends", [1, 7, 1000])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    ("layers", "mechanism"), [(1, "gat"), (2, "gat"), (3, "gat"), (4, "gat"), (3, "gatv2"), (3, "degree")]
)
def test_the_attention_of_some_nodes_is_that_of_a_pass_over_all(
    layers: int, mechanism: str, is_sparse: bool, ends: int, edges: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stars, "_ENDS", ends)
    dense = torch.randn(NODES, FEATURES)
    x: Any = SparseFeatures.from_csr(dense.to_sparse_csr()) if is_sparse else dense
    made = net(layers=layers, mechanism=mechanism).eval()
    support = EdgeSupport.from_edges(edges, NODES, self_loops=True)
    chosen = Stars(support, torch.tensor([5, 8, 2]))
    with torch.no_grad():
        inputs = chosen.inputs(made, x)
        with record(made) as found:
            chosen.attend(made, inputs)
        with record(made) as whole:
            made(x, support)
    assert len(found) == len(whole) == layers
    for one, all_of_it in zip(found.values(), whole.values(), strict=True):
        torch.testing.assert_close(one.weights, all_of_it.weights[chosen.edges], rtol=0, atol=1e-12)
    ends_of = torch.stack([chosen.nodes[chosen.support.source.long()], chosen.nodes[chosen.support.target.long()]])
    assert torch.equal(ends_of, torch.stack([support.source, support.target]).long()[:, chosen.edges])
    assert set(ends_of[1].tolist()) == {5, 8, 2}
    assert chosen.nodes[:3].tolist() == [5, 8, 2]


def test_a_hub_among_the_neighbours_of_a_node_is_not_gathered_for_each_of_them() -> None:
    """Memory is that of the hub's own edges, in blocks; all edges of the graph together are three times as many."""
    count = 60_000
    leaves = torch.arange(1, count)
    hub = torch.zeros_like(leaves)
    edges = torch.stack([torch.cat([leaves, hub]), torch.cat([hub, leaves])])
    support, x = EdgeSupport.from_edges(edges, count, self_loops=True), torch.randn(count, FEATURES)
    made, chosen = net(layers=2, heads=8, dim=8).eval(), Stars(support, torch.tensor([0]))
    with torch.no_grad(), Largest() as largest:
        inputs = chosen.inputs(made, x)
        with record(made) as found:
            chosen.attend(made, inputs)
    assert [len(each.weights) for each in found.values()] == [count, count]
    assert largest.elements <= count * 8 * 8
