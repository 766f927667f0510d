"""A receptive field gives the outputs and gradients of the whole graph."""

from __future__ import annotations

import pytest
import torch
from graph_net_cases import FEATURES, MECHANISMS, NODES, net
from torch import Tensor

from zoo.attention import EdgeSupport
from zoo.tasks.graph.receptive_field import receptive_field
from zoo.tasks.graph.sparse_features import SparseFeatures

pytestmark = pytest.mark.usefixtures("double")


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
