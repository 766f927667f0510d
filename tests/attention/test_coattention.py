"""Co-attention: two inputs, a map of each, and what padding and emptiness on either side mean."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import CoAttention, TwoWayAttention, record, sites

KINDS = {"parallel": lambda: CoAttention(dim=4, hidden=5), "two-way": lambda: TwoWayAttention(dim=4)}
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(kind: str) -> tuple[nn.Module, list[Tensor]]:
    """A module, two inputs and their masks: the second example's first is empty, the third's second."""
    torch.default_generator.manual_seed(0)
    first, second = torch.randn(4, 3, 4, dtype=torch.float64), torch.randn(4, 5, 4, dtype=torch.float64)
    first_mask = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [True] * 3])
    second_mask = torch.tensor([[True, True, False, True, False], [True] * 5, [False] * 5, [True] * 5])
    return KINDS[kind]().double(), [first, second, first_mask, second_mask]


def softmax(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


def parallel(net: CoAttention, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Lu et al. 2016, eq. 3-5, one example without padding, in the paper's columns: contexts, then weights."""
    v, q = first.T, second.T
    c = torch.tanh((net.affinity.weight @ q).T @ v)
    w_v, w_q = net.of_first.weight, net.of_second.weight
    h_v = torch.tanh(w_v @ v + (w_q @ q) @ c)
    h_q = torch.tanh(w_q @ q + (w_v @ v) @ c.T)
    a_v, a_q = softmax(net.query_first @ h_v), softmax(net.query_second @ h_q)
    return v @ a_v, q @ a_q, a_v, a_q


def two_way(net: TwoWayAttention, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """The affinity of every pair, its rows and its columns normalised, one example without padding."""
    affinity = torch.stack([torch.stack([(net.affinity.weight @ a) @ b for b in second]) for a in first])
    rows = torch.stack([softmax(row) for row in affinity])
    columns = torch.stack([softmax(column) for column in affinity.T])
    return rows @ second, columns @ first, rows, columns


REFERENCES = {"parallel": parallel, "two-way": two_way}


@every_kind
def test_formula_without_masks(kind: str) -> None:
    net, (first, second, _, _) = drawn(kind)
    leaves = [first.requires_grad_(), second.requires_grad_(), *net.parameters()]
    with record(net) as maps:
        found = net(first, second)
    examples = [REFERENCES[kind](net, *each) for each in zip(first, second, strict=True)]
    expected = [torch.stack(each) for each in zip(*examples, strict=True)]
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    for site, weights in zip(("first", "second"), expected[2:], strict=True):
        torch.testing.assert_close(maps[site].weights.view(weights.shape), weights.detach(), rtol=0.0, atol=1e-12)
        assert maps[site].axes == ("batch", "head", "query", "key")
    gradients = [torch.autograd.grad(sum(x.square().sum() for x in each[:2]), leaves) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    single = net.float()(first.float(), second.float())
    for one, other in zip(single, expected, strict=False):
        torch.testing.assert_close(one.double(), other, rtol=0.0, atol=1e-5)


@every_kind
def test_masks_are_shorter_inputs(kind: str) -> None:
    """Padding on either side, junk in it included, is the same as leaving it out; an empty side gives zeros."""
    net, (first, second, first_mask, second_mask) = drawn(kind)
    junk = [torch.where(m.unsqueeze(-1), x, torch.nan) for x, m in ((first, first_mask), (second, second_mask))]
    leaves = [x.requires_grad_() for x in junk]
    found = net(*leaves, first_mask, second_mask)
    for number in range(4):
        sides = [x[number][m[number]] for x, m in ((first, first_mask), (second, second_mask))]
        if all(len(side) for side in sides):
            expected = REFERENCES[kind](net, *sides)
        elif kind == "two-way":
            expected = [torch.zeros_like(side) for side in sides]
        else:  # what is there is read without the other's light
            expected = [torch.zeros(4, dtype=torch.float64)] * 2
            for side, (x, project, query) in enumerate(
                ((sides[0], net.of_first, net.query_first), (sides[1], net.of_second, net.query_second))
            ):
                if len(x):
                    expected[side] = softmax(torch.tanh(project(x)) @ query) @ x
        for one, other, mask in zip(found, expected, (first_mask, second_mask), strict=False):
            of_example = one[number][mask[number]] if kind == "two-way" else one[number]
            torch.testing.assert_close(of_example, other, rtol=0.0, atol=1e-12)
            assert kind != "two-way" or not one[number][~mask[number]].any()
    sum(x.square().sum() for x in found).backward()
    for leaf, mask in zip(leaves, (first_mask, second_mask), strict=True):
        assert leaf.grad.isfinite().all()
        assert not leaf.grad[~mask].any()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


@every_kind
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_lengths(kind: str, lengths: tuple[int, int]) -> None:
    net, _ = drawn(kind)
    sides = [torch.randn(2, length, 4, dtype=torch.float64) for length in lengths]
    for found, mine, other in zip(net(*sides), sides, sides[::-1], strict=True):
        assert found.isfinite().all()
        if kind == "two-way":
            assert found.shape == mine.shape
            assert found.any() == (mine.numel() * other.numel() > 0)
        else:
            assert found.shape == (2, 4)
            assert found.any() == (mine.numel() > 0)


@every_kind
def test_two_sites(kind: str) -> None:
    assert list(sites(drawn(kind)[0])) == ["first", "second"]


def test_the_directions_mirror_each_other() -> None:
    """Inputs exchanged and their parameters with them: the results are exchanged."""
    net, (first, second, *masks) = drawn("parallel")
    other = CoAttention(dim=4, hidden=5).double()
    with torch.no_grad():
        other.affinity.weight.copy_(net.affinity.weight.T)
        for mine, its in (("first", "second"), ("second", "first")):
            getattr(other, f"of_{mine}").weight.copy_(getattr(net, f"of_{its}").weight)
            getattr(other, f"query_{mine}").copy_(getattr(net, f"query_{its}"))
    for one, mirrored in zip(net(first, second, *masks), other(second, first, *masks[::-1])[::-1], strict=True):
        torch.testing.assert_close(one, mirrored)
