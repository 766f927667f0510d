"""Pooling by learned queries: one and many, as HAN writes it and as the Perceiver does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from zoo.attention import (
    Additive,
    AttendFactory,
    DenseSupport,
    LatentPooling,
    Pooling,
    ScaledDot,
    Softmax,
    record,
    sites,
)

FACTORY = AttendFactory(score=ScaledDot, normalise=Softmax)


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
    pool = Pooling(dim=4, queries=2, attend=AttendFactory(score=Additive, normalise=Softmax))
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
    with pytest.raises(ValueError, match="queries must be at least 1, got 0"):
        Pooling(dim=4, queries=0)
    with pytest.raises(ValueError, match="queries must be at least 1, got 0"):
        LatentPooling(dim=4, queries=0, heads=2, attend=FACTORY)
