"""Pooling by learned queries: one and many, as HAN writes it and as the Perceiver does."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from zoo.attention import (
    Additive,
    AttentionFactory,
    Constant,
    DenseSupport,
    EdgeSupport,
    LatentPooling,
    LinearAttention,
    MechanismFactory,
    Pooling,
    ScaledDot,
    Softmax,
    Uniform,
    record,
    sites,
)

ATTENTION = Path(__file__).parents[2] / "conf/attention"
POOLS = [
    "additive",
    "concat",
    "cosine",
    "dot",
    "entmax",
    "gat",
    "gatv2",
    "general",
    "hard",
    "hard_reinforce",
    "smoothed_sigmoid",
    "softmax",
    "sparsemax",
    "target",
    "uniform",
]
"""The configurations of attention that pool over edges; the others are refused."""
FACTORY = AttentionFactory(score=ScaledDot, normalizer=Softmax)


def drawn(queries: int = 1, hidden: int | None = None) -> tuple[Pooling, Tensor, Tensor]:
    """A module, its input, and who is real; the second example is empty, the last position of the first is padding."""
    torch.default_generator.manual_seed(0)
    mask = torch.tensor([[True, True, False, True, False], [False] * 5, [True] * 5])
    return Pooling(dim=4, queries=queries, hidden=hidden).double(), torch.randn(3, 5, 4, dtype=torch.float64), mask


def reference(pool: Pooling, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Yang et al. 2016, eq. 5-7, a sentence at a time: vectors and weights."""
    weight, bias = pool.project.weight, pool.project.bias
    vectors, maps = [], []
    for example, real in zip(x, mask, strict=True):
        for query in pool.query:
            numerators = [(torch.tanh(weight @ h + bias) @ query).exp() * r for h, r in zip(example, real, strict=True)]
            total = sum(numerators)
            alphas = torch.stack([n / total if real.any() else 0.0 * n for n in numerators])
            vectors.append(sum(alpha * h for alpha, h in zip(alphas, example, strict=True)))
            maps.append(alphas)
    shape = len(x), len(pool.query)
    return torch.stack(vectors).view(*shape, -1), torch.stack(maps).view(len(x), 1, len(pool.query), -1)


@pytest.mark.parametrize("queries", [1, 3])
def test_sequence_pooling(queries: int) -> None:
    """Hassani et al. 2021, section 3.2: softmax(g(x)) x with g linear, whose bias changes nothing."""
    torch.manual_seed(0)
    pool, g = Pooling(dim=4, queries=queries, project=False).double(), torch.nn.Linear(4, queries).double()
    pool.query.data.copy_(g.weight)
    assert [name for name, _ in pool.named_parameters()] == ["query"]
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(pool(x), g(x).softmax(1).mT @ x, rtol=0.0, atol=1e-12)


def test_a_width_without_a_projection_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden=7 is the width of what x is projected to; without projection leave"):
        Pooling(dim=4, hidden=7, project=False)


@pytest.mark.parametrize(("queries", "hidden"), [(1, None), (3, 7)])
@pytest.mark.parametrize("masks", [False, True])
def test_formula(queries: int, hidden: int | None, masks: bool) -> None:
    pool, x, mask = drawn(queries, hidden)
    mask = mask if masks else torch.ones_like(mask)
    support = DenseSupport.from_key_mask(mask) if masks else None
    x.requires_grad_()
    expected, weights = reference(pool, x, mask)
    named = [x, *pool.parameters()]
    gradients = torch.autograd.grad(expected.square().sum(), named)
    with record(pool) as maps:
        found = pool(x, support)
    assert found.shape == (3, queries, 4)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(maps["attend"].weights, weights.detach(), rtol=0.0, atol=1e-12)
    for one, other in zip(torch.autograd.grad(found.square().sum(), named), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(pool.float()(x.float(), support).double(), expected, rtol=0.0, atol=1e-5)


def test_padding_and_empty_examples() -> None:
    pool, x, mask = drawn(2)
    support = DenseSupport.from_key_mask(mask)
    before = pool(x, support)
    assert not before[1].any()
    spoilt = torch.where(mask.unsqueeze(-1), x, torch.nan).requires_grad_()
    after = pool(spoilt, support)
    assert torch.equal(before, after)
    after.sum().backward()
    assert spoilt.grad.isfinite().all()
    assert not spoilt.grad[~mask].any()
    for parameter in pool.parameters():
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("length", [0, 1])
def test_short_inputs(length: int) -> None:
    pool, x, _ = drawn(2)
    found = pool(x[:, :length])
    assert found.shape == (3, 2, 4)
    torch.testing.assert_close(found, x[:, :length].sum(1, keepdim=True).expand(-1, 2, -1))


def test_another_score() -> None:
    torch.manual_seed(0)
    pool = Pooling(dim=4, queries=2, attend=AttentionFactory(score=Additive, normalizer=Softmax))
    assert pool(torch.randn(3, 5, 4)).shape == (3, 2, 4)


def test_latents_are_multi_head_cross_attention() -> None:
    """torch.nn.MultiheadAttention with its weights transplanted, masks included."""
    torch.manual_seed(0)
    pool = LatentPooling(dim=8, queries=3, heads=2, attend=FACTORY, source_dim=6).double()
    other = torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True).double()
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(other, f"{name[0]}_proj_weight").copy_(getattr(pool.heads, name).weight)
        biases = torch.cat([getattr(pool.heads, name).bias for name in ("query", "key", "value")])
        other.in_proj_bias.copy_(biases)
        other.out_proj.load_state_dict(pool.heads.out.state_dict())
    x, mask = torch.randn(4, 5, 6, dtype=torch.float64), torch.rand(4, 5) < 0.6
    mask[:, 0] = True
    expected, weights = other(pool.query.expand(4, -1, -1), x, x, key_padding_mask=~mask, average_attn_weights=False)
    with record(pool) as maps:
        found = pool(x, DenseSupport.from_key_mask(mask))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(maps["heads.attend"].weights, weights, rtol=0.0, atol=1e-12)


def test_each_site_has_one_tap_and_bad_options_are_refused() -> None:
    assert list(sites(drawn()[0])) == ["attend"]
    with pytest.raises(ValueError, match="queries is to be a whole number of at least 1"):
        Pooling(dim=4, queries=0)
    with pytest.raises(ValueError, match="queries is to be a whole number of at least 1"):
        LatentPooling(dim=4, queries=0, heads=2, attend=FACTORY)


def of_configuration(name: str, queries: int, over: type = EdgeSupport) -> Pooling:
    attend = hydra.utils.instantiate(OmegaConf.load(ATTENTION / f"{name}.yaml"))
    torch.manual_seed(0)
    return Pooling(dim=4, queries=queries, hidden=6, attend=attend, over=over).double().eval()


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("name", POOLS)
def test_edges_from_packed_rows_are_padded_sequences(name: str, queries: int) -> None:
    """Every mechanism, outputs, gradients and maps; groups without rows, and rows in any order."""
    zeros = name == "hard_reinforce"  # it learns from rewards alone
    pool, lengths = of_configuration(name, queries), torch.tensor([3, 0, 7, 1, 7, 2])
    mask = torch.arange(7) < lengths.unsqueeze(1)
    x = torch.randn(int(lengths.sum()), 4, dtype=torch.float64, requires_grad=True)
    padded = torch.zeros(*mask.shape, 4, dtype=torch.float64).index_put(mask.nonzero(as_tuple=True), x)
    named = [x, *pool.parameters()]
    with record(pool) as maps:
        expected = pool(padded, DenseSupport.from_key_mask(mask))
    weights = maps["attend"].weights
    gradients = torch.autograd.grad(expected.square().sum(), named, materialize_grads=zeros)

    order = torch.randperm(len(x))
    groups = torch.arange(6).repeat_interleave(lengths)[order]
    with record(pool) as maps:
        found = pool(x[order], EdgeSupport.from_groups(groups, 6))
    assert found.shape == (6, queries, 4)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    again = torch.autograd.grad(found.square().sum(), named, materialize_grads=zeros)
    for one, other in zip(again, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)

    support = maps["attend"].support
    assert maps["attend"].axes == ("edge", "head")
    for number in range(queries):
        edges = support.target % queries == number
        assert torch.equal(support.target[edges] // queries, groups.sort(stable=True).values)
        assert torch.equal(support.order[edges] // queries, support.source[edges])
        of_row = torch.zeros(len(x), dtype=torch.float64)
        of_row[order[support.source[edges].long()]] = maps["attend"].weights[edges, 0]
        torch.testing.assert_close(of_row, weights[:, 0, number][mask], rtol=0.0, atol=1e-12)


def test_packed_rows_and_edges_have_the_same_order() -> None:
    support = EdgeSupport.from_groups(torch.tensor([0, 0, 1, 3, 3, 3]), 4)
    assert support.order.tolist() == support.source.tolist() == [0, 1, 2, 3, 4, 5]
    assert support.target.tolist() == [0, 0, 1, 3, 3, 3]
    assert support.repeat(1) is support
    assert support.repeat(2) is support.repeat(2)


def test_a_group_does_not_see_another_nor_what_is_not_a_number_there() -> None:
    pool = of_configuration("softmax", 2)
    x, groups = torch.randn(9, 4, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2])
    before = pool(x, EdgeSupport.from_groups(groups, 3))
    spoilt = x.index_fill(0, torch.tensor([2, 3, 4, 5]), torch.nan)
    after = pool(spoilt, EdgeSupport.from_groups(groups, 3))
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    torch.testing.assert_close(
        pool(x[2:6], EdgeSupport.from_groups(groups[:4] * 0, 1))[0], before[1], rtol=0.0, atol=1e-15
    )
    assert pool(x[:0], EdgeSupport.from_groups(groups[:0], 0)).shape == (0, 2, 4)
    assert not pool(x[:0], EdgeSupport.from_groups(groups[:0], 2)).any()


def test_what_cannot_pool_over_edges_is_refused_at_start_up() -> None:
    with pytest.raises(ValueError, match="LinearAttention works on DenseSupport only; Pooling attends over EdgeSup"):
        Pooling(dim=4, attend=MechanismFactory(site=LinearAttention), over=EdgeSupport)
    pooled = set(POOLS)
    for file in ATTENTION.glob("*.yaml"):
        if file.stem not in pooled:
            with pytest.raises(ValueError, match=r"works on|depends on|replaces self-attention|attention=none"):
                of_configuration(file.stem, 1)


def test_uniform_pooling_has_no_parameters_that_nothing_reads() -> None:
    pool = Pooling(dim=4, queries=2, attend=AttentionFactory(score=Constant, normalizer=Uniform))
    assert not list(pool.parameters())
    assert not pool.state_dict()
    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(pool(x), x.mean(1, keepdim=True).expand(-1, 2, -1))
