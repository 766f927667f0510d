"""Common properties of mechanisms without weights: groups of heads, queries without keys, shapes that do not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attention_cases import Shape, assert_close, inputs, run
from jaxtyping import config

from zoo.attention import DenseSupport, LinearAttention, Linformer, Performer
from zoo.attention.linear.base import PairFreeAttention

SHAPE = Shape(heads=4, queries=5, keys=7)
KINDS: dict[str, Callable[[], PairFreeAttention]] = {
    "linear": LinearAttention,
    "performer": lambda: Performer(dim=6, heads=4, features=16),
    "linformer": lambda: Linformer(dim=6, heads=4, length=9, slots=5),
    "linformer, a mixture a head": lambda: Linformer(dim=6, heads=4, length=9, slots=5, share="nothing"),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


def site(kind: str) -> PairFreeAttention:
    torch.default_generator.manual_seed(5)
    return KINDS[kind]().double()


@every_kind
def test_a_mask_for_each_head_of_a_group(kind: str) -> None:
    """Heads of a group may have different masks, as if each had keys and values of its own."""
    attend, tensors = site(kind), inputs(SHAPE)
    grouped = {**tensors, "key": tensors["key"][:, :2], "value": tensors["value"][:, :2]}
    apart = {**tensors, **{name: grouped[name].repeat_interleave(2, 1) for name in ("key", "value")}}
    permitted = torch.rand(2, 4, 1, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    support = DenseSupport(permitted)
    one, other = run(attend, grouped, support), run(attend, apart, support)
    for name in ("key", "value"):
        other.gradients[name] = other.gradients[name].unflatten(1, (2, 2)).sum(2)
    assert_close(one, other, 1e-12)
    spoilt = {**apart, **{name: apart[name].masked_fill(~permitted.mT, torch.nan) for name in ("key", "value")}}
    assert torch.equal(run(attend, spoilt, support).context, other.context)


@every_kind
@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_a_query_without_keys_may_be_anything(kind: str, junk: float) -> None:
    attend, tensors = site(kind), inputs(SHAPE)
    support = DenseSupport.from_key_mask(torch.tensor([[True] * 7, [False] * 7]))
    plain = run(attend, tensors, support)
    tensors["query"][1] = junk
    assert_close(run(attend, tensors, support), plain, 0.0)
    assert all(gradient.isfinite().all() for gradient in plain.gradients.values())
    assert not plain.context[1].any()


@pytest.mark.parametrize("kind", ["linear", "performer"])
def test_a_query_before_the_first_key_may_be_anything(kind: str) -> None:
    attend, tensors = site(kind), inputs(SHAPE._replace(keys=5))
    support = DenseSupport.from_key_mask(torch.tensor([[False, False, True, True, True]] * 2), causal=True)
    plain = run(attend, tensors, support)
    tensors["query"][:, :, :2] = torch.nan
    assert_close(run(attend, tensors, support), plain, 0.0)
    assert not plain.context[:, :, :2].any()


@every_kind
@pytest.mark.parametrize(
    ("sizes", "mask", "message"),
    [
        ({}, (2, 1, 1, 6), "mask has k=6 where queries and keys have k=7"),
        ({}, (3, 1, 1, 7), "mask has b=3 where queries and keys have b=2"),
        ({}, (2, 3, 1, 7), "mask has h=3 where queries and keys have h=4"),
        ({"value": (2, 4, 6, 6)}, None, "k=7 keys and k=6 values"),
        ({"key": (1, 4, 7, 6)}, None, "b=2 examples and keys b=1"),
        ({"key": (2, 3, 7, 6)}, None, "h=4 heads of queries are not divisible by the 3 of keys"),
        ({"key": (2, 4, 7, 5)}, None, "width d=6 and keys d=5"),
        ({"query": (4, 5, 6)}, None, r"query must have the axes \(b, h, q, d\)"),
    ],
)
def test_shapes_that_do_not_fit(
    kind: str,
    sizes: dict[str, tuple[int, ...]],
    mask: tuple[int, ...] | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # the refusals of the core itself
    shapes = {"query": (2, 4, 5, 6), "key": (2, 4, 7, 6), "value": (2, 4, 7, 6), **sizes}
    support = DenseSupport(None if mask is None else torch.ones(mask, dtype=torch.bool))
    with pytest.raises(ValueError, match=message):
        site(kind)(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes.values()), support)
