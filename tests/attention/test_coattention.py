"""Co-attention: two inputs, a map of each, and what padding and emptiness on either side mean."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    AlternatingCoAttention,
    AttentionFactory,
    AttentionFlow,
    CoAttention,
    Constant,
    Softmax,
    TwoWayAttention,
    Uniform,
    record,
    sites,
)

KINDS = {
    "parallel": lambda **how: CoAttention(dim=4, hidden=5, **how),
    "alternating": lambda **how: AlternatingCoAttention(dim=4, hidden=5, **how),
    "two-way": lambda **how: TwoWayAttention(dim=4, **how),
    "flow": lambda **how: AttentionFlow(dim=4, **how),
}
RESULTS = {"parallel": 2, "alternating": 2, "two-way": 2, "flow": 1}
BY_POSITION = ("two-way", "flow")
SITES = {
    "parallel": ["first", "second", "affinity"],
    "alternating": ["alone", "first", "second"],
    "two-way": ["first", "second"],
    "flow": ["first", "second"],
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(kind: str) -> tuple[nn.Module, list[Tensor]]:
    """A module, two inputs and their masks: the second example's first is empty, the third's second."""
    torch.default_generator.manual_seed(0)
    first, second = torch.randn(4, 3, 4, dtype=torch.float64), torch.randn(4, 5, 4, dtype=torch.float64)
    first_mask = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [True] * 3])
    second_mask = torch.tensor([[True, True, False, True, False], [True] * 5, [False] * 5, [True] * 5])
    return KINDS[kind]().double(), [first, second, first_mask, second_mask]


def test_two_way_attention_starts_with_the_products_of_both_inputs() -> None:
    """Chen et al. 2017, eq. 11: without W, positions attend to those that resemble them."""
    net, rows = TwoWayAttention(dim=4, identity=True), torch.eye(4).unsqueeze(0) * 20
    read, reverse = net(rows, rows.flip(1))
    torch.testing.assert_close(read, rows)
    torch.testing.assert_close(reverse, rows.flip(1))


def test_attention_flow_starts_with_the_products_of_both_inputs() -> None:
    """Seo et al. 2017, eq. 1: where w_m is the same everywhere, positions attend to those that resemble them."""
    net, rows = AttentionFlow(dim=4, product=2.0), torch.eye(4).unsqueeze(0) * 20
    read = net(rows, rows.flip(1))[..., 4:8]
    torch.testing.assert_close(read, rows)
    torch.testing.assert_close(net.of_pair[2], torch.full((4,), 2.0))


def softmax(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


def parallel(net: CoAttention, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Lu et al. 2016, eq. 3-5, one example without padding, in the paper's columns: contexts, then weights."""
    v, q = first.T, second.T
    c = torch.tanh((net.affinity.matrix @ q).T @ v)
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


def alternating(net: AlternatingCoAttention, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Lu et al. 2016, eq. 6, one position after another: q = A(Q; 0), v' = A(V; q), q' = A(Q; v')."""

    def step(name: str, x: Tensor, guide: Tensor | None) -> tuple[Tensor, Tensor]:
        part = net.light[name]
        of_guide = 0.0 if guide is None else part.guide.weight @ guide
        scores = [part.query @ torch.tanh(part.project.weight @ each + of_guide) for each in x]
        weights = softmax(torch.stack(scores)) if len(x) else x.new_zeros(0)
        return sum((w * each for w, each in zip(weights, x, strict=True)), torch.zeros(4, dtype=x.dtype)), weights

    alone, weights = step("alone", second, None)
    read_first, of_first = step("first", first, alone)
    read_second, of_second = step("second", second, read_first)
    return read_first, read_second, weights, of_first, of_second


def flow(net: AttentionFlow, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Seo et al. 2017, eq. 1-3, with the vector of 3d numbers for every pair: G, then weights."""
    scores = torch.stack(
        [torch.stack([net.of_pair.flatten() @ torch.cat([h, u, h * u]) for u in second]) for h in first]
    )
    rows = torch.stack([softmax(row) for row in scores])
    over = softmax(torch.stack([row.max() for row in scores]))
    read, whole = rows @ second, over @ first
    return torch.stack([torch.cat([h, u, h * u, h * whole]) for h, u in zip(first, read, strict=True)]), rows, over


REFERENCES = {"parallel": parallel, "alternating": alternating, "two-way": two_way, "flow": flow}


def results(kind: str, net: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = net(*inputs)
    return (found,) if kind == "flow" else found


def without_other(kind: str, net: nn.Module, sides: list[Tensor]) -> list[Tensor]:
    """What is found where a side is empty."""
    if kind == "alternating":
        return list(alternating(net, *sides)[:2])
    if kind == "two-way":
        return [torch.zeros_like(side) for side in sides]
    first, second = sides
    if kind == "flow":  # without a question the scores are equal, and the paragraph is averaged
        whole = first.mean(0, keepdim=True) if len(first) else first.new_zeros(1, 4)
        nothing = torch.zeros_like(first)
        return [torch.cat([first, nothing, nothing, first * whole], 1)]
    expected = []  # what is there is read without the other's light
    for x, project, query in ((first, net.of_first, net.query_first), (second, net.of_second, net.query_second)):
        expected.append(softmax(torch.tanh(project(x)) @ query) @ x)
    return expected


@every_kind
def test_formula_without_masks(kind: str) -> None:
    net, (first, second, _, _) = drawn(kind)
    leaves = [first.requires_grad_(), second.requires_grad_(), *net.parameters()]
    with record(net) as maps:
        found = results(kind, net, first, second)
    examples = [REFERENCES[kind](net, *each) for each in zip(first, second, strict=True)]
    expected = [torch.stack(each) for each in zip(*examples, strict=True)]
    of_sites = expected[RESULTS[kind] :]
    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    for site, weights in zip([name for name in SITES[kind] if name != "affinity"], of_sites, strict=True):
        torch.testing.assert_close(maps[site].weights.view(weights.shape), weights.detach(), rtol=0.0, atol=1e-12)
        assert maps[site].axes == ("batch", "head", "query", "key")
    kept = RESULTS[kind]
    gradients = [torch.autograd.grad(sum(x.square().sum() for x in each[:kept]), leaves) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    single = results(kind, net.float(), first.float(), second.float())
    for one, other in zip(single, expected, strict=False):
        torch.testing.assert_close(one.double(), other, rtol=0.0, atol=1e-5)


@every_kind
def test_masks_are_shorter_inputs(kind: str) -> None:
    """Padding on either side, junk in it included, is the same as leaving it out; an empty side is defined."""
    net, (first, second, first_mask, second_mask) = drawn(kind)
    junk = [torch.where(m.unsqueeze(-1), x, torch.nan) for x, m in ((first, first_mask), (second, second_mask))]
    leaves = [x.requires_grad_() for x in junk]
    found = results(kind, net, *leaves, first_mask, second_mask)
    for number in range(4):
        sides = [x[number][m[number]] for x, m in ((first, first_mask), (second, second_mask))]
        expected = REFERENCES[kind](net, *sides) if all(map(len, sides)) else without_other(kind, net, sides)
        for one, other, mask in zip(found, expected, (first_mask, second_mask), strict=False):
            of_example = one[number][mask[number]] if kind in BY_POSITION else one[number]
            torch.testing.assert_close(of_example, other, rtol=0.0, atol=1e-12)
            assert kind not in BY_POSITION or not one[number][~mask[number]].any()
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
    for found, mine, other in zip(results(kind, net, *sides), sides, sides[::-1], strict=False):
        assert found.isfinite().all()
        if kind == "flow":
            assert found.shape == (2, lengths[0], 16)
        elif kind == "two-way":
            assert found.shape == mine.shape
            assert found.any() == (mine.numel() * other.numel() > 0)
        else:
            assert found.shape == (2, 4)
            assert found.any() == (mine.numel() > 0)


@every_kind
def test_sites(kind: str) -> None:
    assert list(sites(drawn(kind)[0])) == SITES[kind]


@every_kind
def test_any_mechanism(kind: str) -> None:
    """A factory makes the sites. One that compares nothing averages, has no parameters and is recorded."""
    _, (first, second, first_mask, second_mask) = drawn(kind)
    net = KINDS[kind](attend=AttentionFactory(score=Constant, normalizer=Uniform)).double()
    assert not list(net.parameters())
    with record(net) as maps:
        found = results(kind, net, first, second, first_mask, second_mask)
    assert list(maps) == [name for name in SITES[kind] if name != "affinity"]
    for number in (0, 3):
        sides = [x[number][m[number]] for x, m in ((first, first_mask), (second, second_mask))]
        means = [side.mean(0) for side in sides]
        if kind == "flow":
            read = means[1].expand_as(sides[0])
            expected = [torch.cat([sides[0], read, sides[0] * read, sides[0] * means[0]], 1)]
        else:
            expected = [means[1].expand_as(sides[0]), means[0].expand_as(sides[1])] if kind == "two-way" else means
        for one, other, mask in zip(found, expected, (first_mask, second_mask), strict=False):
            of_example = one[number][mask[number]] if kind in BY_POSITION else one[number]
            torch.testing.assert_close(of_example, other, rtol=0.0, atol=1e-12)
    additive = KINDS[kind](attend=AttentionFactory(score=Additive, normalizer=Softmax)).double()
    sum(x.square().sum() for x in results(kind, additive, first, second, first_mask, second_mask)).backward()
    assert all(parameter.grad.any() for parameter in additive.parameters())


def test_affinity_is_recorded_with_its_gradient() -> None:
    net, (first, second, first_mask, second_mask) = drawn("parallel")
    with record(net, layers=["affinity"], grad=True) as maps:
        out = net(first, second, first_mask, second_mask)
    affinity = maps["affinity"]
    assert affinity.axes == ("batch", "second", "first")
    for number, found in enumerate(affinity.weights.detach()):
        for j, row in enumerate(found):
            for i, one in enumerate(row):
                there = first_mask[number, i] and second_mask[number, j]
                expected = torch.tanh(first[number, i] @ (net.affinity.matrix.detach() @ second[number, j])) * there
                torch.testing.assert_close(one, expected, rtol=0.0, atol=1e-12)
    (gradient,) = torch.autograd.grad(out[0].square().sum(), affinity.weights)
    assert gradient.any()


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
