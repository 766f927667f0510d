"""Linear attention, and what it shares with the Performer: sums over keys in place of weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from attention_cases import DTYPES, Shape, assert_same, inputs, loss, masked, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import each_once
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import (
    ALiBi,
    DenseSupport,
    EdgeSupport,
    LinearAttention,
    LinearState,
    MechanismFactory,
    MultiheadAttention,
    Performer,
    Rotary,
    Shaw,
    record,
)
from zoo.attention.linear import kernel_attention
from zoo.attention.linear.kernel_attention import KernelAttention

KINDS: dict[str, Callable[[Shape], KernelAttention]] = {
    "linear": lambda shape: LinearAttention(),
    "performer": lambda shape: Performer(dim=shape.width, heads=shape.heads, features=13),
}
MASKS = ("none", "key", "causal", "causal+key")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_mask = pytest.mark.parametrize("mask", MASKS)


def site(kind: str, shape: Shape, dtype: torch.dtype = torch.float64) -> KernelAttention:
    torch.default_generator.manual_seed(5)
    return KINDS[kind](shape).to(dtype)


def phi(attend: KernelAttention, x: Tensor) -> Tensor:
    """The papers' feature maps of (b,h,n,d), as written there."""
    if isinstance(attend, LinearAttention):
        return torch.where(x > 0, x + 1.0, x.exp())
    assert isinstance(attend, Performer)
    x = x / x.shape[-1] ** 0.25
    products = torch.einsum("bhnd,hfd->bhnf", x, attend.directions)
    return (products - x.square().sum(-1, keepdim=True) / 2.0).exp() / math.sqrt(attend.directions.shape[1])


def reference(attend: KernelAttention, tensors: dict[str, Tensor], allowed: Tensor) -> Tensor:
    """One query at a time, over the keys that it may see."""
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    query, key = phi(attend, query), phi(attend, key)
    rows = []
    for b, h, i in itertools.product(*(range(size) for size in query.shape[:3])):
        total, context = query.new_zeros(()), value.new_zeros(value.shape[-1])
        for j in range(key.shape[2]):
            if allowed[b, h, i, j]:
                weight = query[b, h, i] @ key[b, h, j]
                total, context = total + weight, context + weight * value[b, h, j]
        rows.append(context / total if allowed[b, h, i].any() else context)
    return torch.stack(rows).view(*query.shape[:3], -1)


def check(kind: str, mask: str, shape: Shape, seed: int = 0) -> None:
    """The context and its gradients, in fp64 and in fp32."""
    attend, tensors = site(kind, shape), inputs(shape, seed=seed)
    support, allowed = masked(mask, shape, seed)
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    expected = reference(attend, leaves, allowed)
    # without a permitted pair nothing has a gradient
    gradients: tuple[Tensor | None, ...] = (None, None, None)
    if expected.requires_grad:
        gradients = torch.autograd.grad(loss(expected), list(leaves.values()), allow_unused=True)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = run(attend.to(dtype), {name: x.to(dtype) for name, x in tensors.items()}, support)
        scale = 1.0 + max(expected.detach().abs().max().item(), 1.0)
        torch.testing.assert_close(found.context.double(), expected.detach(), rtol=0.0, atol=tolerance * scale)
        for name, gradient in zip(leaves, gradients, strict=True):
            other = torch.zeros_like(leaves[name]) if gradient is None else gradient
            bound = tolerance * max(other.abs().max().item(), 1.0) * 5
            torch.testing.assert_close(found.gradients[name].double(), other, rtol=0.0, atol=bound)


@every_kind
@every_mask
@pytest.mark.parametrize("lengths", [(5, 4), (4, 5), (7, 7), (1, 1), (1, 6), (6, 1)])
def test_formula(kind: str, mask: str, lengths: tuple[int, int]) -> None:
    check(kind, mask, Shape(queries=lengths[0], keys=lengths[1]))


@settings(max_examples=25)
@given(
    kind=st.sampled_from(list(KINDS)),
    mask=st.sampled_from(MASKS),
    shape=st.builds(Shape, *(st.integers(1, most) for most in (2, 2, 6, 6, 5))),
    seed=st.integers(0, 2**20),
)
def test_formula_in_any_shape(kind: str, mask: str, shape: Shape, seed: int) -> None:
    check(kind, mask, shape, seed)


@every_kind
@pytest.mark.parametrize(("queries", "keys"), [(127, 127), (128, 128), (300, 300), (200, 331), (331, 200)])
def test_causal_blocks_are_the_masked_product(kind: str, queries: int, keys: int) -> None:
    """More than a block, whole blocks and not, earlier keys, and queries before the first key."""
    shape = Shape(2, 2, queries, keys, 4)
    attend, tensors = site(kind, shape), inputs(shape)
    mask = torch.rand(2, keys, generator=torch.Generator().manual_seed(0)) < 0.8
    support = DenseSupport.from_key_mask(mask, causal=True)
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    pairs = phi(attend, leaves["query"]) @ phi(attend, leaves["key"]).mT
    pairs = pairs.masked_fill(~support.mask_of(pairs), 0.0)
    total = pairs.sum(-1, keepdim=True)
    expected = pairs @ leaves["value"] / torch.where(total == 0, 1.0, total)
    gradients = torch.autograd.grad(loss(expected), list(leaves.values()))
    found = run(attend, tensors, support)
    torch.testing.assert_close(found.context, expected.detach(), rtol=0.0, atol=1e-11)
    for name, gradient in zip(leaves, gradients, strict=True):
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-10, atol=1e-11)


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sequence longer than two positions is long."""
    monkeypatch.setattr(kernel_attention, "_BLOCK", 2)
    monkeypatch.setattr(kernel_attention, "_LARGEST", 0)
    monkeypatch.setattr(kernel_attention, "_PART", 0)


@every_kind
@every_mask
@pytest.mark.parametrize("lengths", [(9, 9), (9, 4), (4, 9), (2, 7), (7, 1), (1, 7), (8, 5)])
def test_parts_of_a_long_sequence(
    kind: str, mask: str, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The formula, its gradients, and what is computed in one piece."""
    shape = Shape(queries=lengths[0], keys=lengths[1])
    attend, tensors, support = site(kind, shape), inputs(shape), masked(mask, shape)[0]
    whole = run(attend, tensors, support)
    in_parts(monkeypatch)
    check(kind, mask, shape)
    found = run(attend, tensors, support)
    torch.testing.assert_close(found.context, whole.context, rtol=0.0, atol=1e-12)
    for name, gradient in whole.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient, rtol=0.0, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(attend(**tensors, support=support)[0], found.context)
    with record(attend, implied=True) as maps:
        assert_same(found, run(attend, tensors, support))
    weights = maps[""].weights
    torch.testing.assert_close(weights @ support.zero_masked(tensors["value"]), found.context, rtol=0.0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("mask", ["key", "causal+key"])
def test_junk_in_parts(kind: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    test_empty_rows_and_padding(kind, mask)
    test_no_keys_and_no_queries(kind, mask.startswith("causal"))
    test_all_keys_forbidden(kind)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_large_inputs_in_parts(kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    test_large_inputs_stay_among_the_values(kind, 300.0, causal)


@every_kind
def test_decoding_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    test_decoding_by_sums_is_the_full_pass(kind, masks=True)
    test_a_query_may_follow_several_keys(kind)
    test_some_of_the_queries(kind)
    test_in_multi_head(kind, 2)


@each_once(kind=KINDS.keys(), causal=[False, True])
def test_second_derivatives_in_parts(kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    shape = Shape(1, 1, 5, 5, 2)
    attend, leaves = site(kind, shape), [x.requires_grad_() for x in inputs(shape).values()]
    support = DenseSupport(causal=causal)
    assert torch.autograd.gradgradcheck(lambda *x: attend(*x, support)[0], leaves)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_features_of_a_long_sequence_are_not_kept(kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the gradient there are the inputs, and little else."""
    monkeypatch.setattr(kernel_attention, "_LARGEST", 2**14)
    monkeypatch.setattr(kernel_attention, "_PART", 2**14)
    shape = Shape(1, 1, 4096, 4096, 4)
    attend, leaves = site(kind, shape), [x.requires_grad_() for x in inputs(shape).values()]
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        attend(*leaves, DenseSupport(causal=causal))
    assert sum(sizes) < 1.2 * sum(x.numel() for x in leaves)


def test_no_tensor_of_positions_times_features_times_values() -> None:
    """The memory saved for the gradient grows by less than half of the n d v of the published form."""
    kept = []
    for length in (2048, 4096):
        tensors = inputs(Shape(1, 1, length, length, 32), torch.float32)
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            leaves = [x.requires_grad_() for x in tensors.values()]
            LinearAttention()(*leaves, DenseSupport(causal=True))
        kept.append(sum(sizes))
        assert max(sizes) <= length * 128
    assert kept[1] <= 2.05 * kept[0]


@every_kind
@pytest.mark.parametrize("mask", ["key", "causal+key"])
def test_empty_rows_and_padding(kind: str, mask: str) -> None:
    shape = Shape()
    support, allowed = masked(mask, shape)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    for dtype in DTYPES:
        attend, tensors = site(kind, shape, dtype), inputs(shape, dtype)
        before = run(attend, tensors, support)
        assert before.context.dtype == dtype
        assert not before.context[~allowed.any(-1)].any()
        for name, gradient in before.gradients.items():
            assert gradient.isfinite().all(), name
            if name != "query":
                assert not gradient.masked_select(unseen).any(), name
        junk = {name: torch.where(unseen, torch.nan, tensors[name]) for name in ("key", "value")}
        assert_same(before, run(attend, {**tensors, **junk}, support))


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_no_keys_and_no_queries(kind: str, causal: bool) -> None:
    for queries, keys in ((3, 0), (0, 3), (0, 0)):
        shape = Shape(queries=queries, keys=keys)
        result = run(site(kind, shape), inputs(shape), DenseSupport(causal=causal))
        assert result.context.shape == (2, 3, queries, 7)
        assert not result.context.any()
        assert all(not gradient.any() for gradient in result.gradients.values())


@every_kind
def test_all_keys_forbidden(kind: str) -> None:
    shape = Shape()
    result = run(site(kind, shape), inputs(shape), DenseSupport(torch.zeros(1, 1, 1, 4, dtype=torch.bool)))
    assert not result.context.any()
    assert all(not gradient.any() for gradient in result.gradients.values())


@every_kind
@pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0])
@pytest.mark.parametrize("causal", [False, True])
def test_large_inputs_stay_among_the_values(kind: str, scale: float, causal: bool) -> None:
    """Features that overflow or vanish in fp32: still an average of the values, with finite gradients."""
    shape = Shape(queries=40, keys=40)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensors = inputs(shape, dtype)
        tensors["query"], tensors["key"] = tensors["query"] * scale, tensors["key"] * scale
        result = run(site(kind, shape, dtype), tensors, DenseSupport(causal=causal))
        value = tensors["value"].float()
        assert result.context.isfinite().all()
        assert (result.context.float() <= value.amax(2, keepdim=True) + 1e-2).all()
        assert (result.context.float() >= value.amin(2, keepdim=True) - 1e-2).all()
        assert all(gradient.isfinite().all() for gradient in result.gradients.values())
        assert result.context.any(-1).all()  # no query has lost all its keys


@every_kind
@pytest.mark.parametrize("masks", [False, True])
def test_decoding_by_sums_is_the_full_pass(kind: str, masks: bool) -> None:
    """One key at a time, and several; with beams that change their order."""
    shape = Shape(queries=9, keys=9)
    attend, tensors = site(kind, shape), inputs(shape)
    mask = torch.rand(2, 9, generator=torch.Generator().manual_seed(3)) < 0.7 if masks else None
    order = torch.tensor([1, 0])
    full, _ = attend(**tensors, support=support_of(mask))
    state = attend.start(tensors["query"], tensors["key"], DenseSupport(causal=True))
    swapped = False
    for start, stop in ((0, 1), (1, 2), (2, 5), (5, 6), (6, 9)):
        part = {name: x[:, :, start:stop] for name, x in tensors.items()}
        seen = None if mask is None else mask[:, start:stop]
        if swapped:
            part = {name: x[order] for name, x in part.items()}
            seen = None if seen is None else seen[order]
        context, state = attend(**part, support=support_of(seen), state=state)
        assert isinstance(state, LinearState)
        expected = full[:, :, start:stop]
        torch.testing.assert_close(context, expected[order] if swapped else expected, rtol=0.0, atol=1e-12)
        if stop == 5:
            state, swapped = state.reorder(order), True
    assert state.length == 9


def support_of(mask: Tensor | None) -> DenseSupport:
    return DenseSupport(causal=True) if mask is None else DenseSupport.from_key_mask(mask, causal=True)


@every_kind
def test_a_query_may_follow_several_keys(kind: str) -> None:
    shape = Shape(queries=9, keys=9)
    attend, tensors = site(kind, shape), inputs(shape)
    full, _ = attend(**tensors, support=DenseSupport(causal=True))
    state = attend.start(tensors["query"], tensors["key"], DenseSupport(causal=True))
    for start, stop in ((0, 4), (4, 9)):
        last = slice(stop - 2, stop)
        part = (tensors["query"][:, :, last], tensors["key"][:, :, start:stop], tensors["value"][:, :, start:stop])
        context, state = attend(*part, DenseSupport(causal=True), state)
        torch.testing.assert_close(context, full[:, :, last], rtol=0.0, atol=1e-12)


@every_kind
def test_a_thousand_steps_in_bfloat16(kind: str) -> None:
    """Step by step and in one pass: finite, and the same up to bfloat16's own rounding of the output."""
    shape = Shape(1, 2, 1000, 1000, 8)
    attend, tensors = site(kind, shape, torch.bfloat16), inputs(shape, torch.bfloat16)
    result = run(attend, tensors, DenseSupport(causal=True))
    assert result.context.dtype == torch.bfloat16
    assert all(x.isfinite().all() for x in (result.context, *result.gradients.values()))
    state = attend.start(tensors["query"], tensors["key"], DenseSupport(causal=True))
    assert state.sums.dtype == torch.float32
    for step in range(1000):
        part = {name: x[:, :, step : step + 1] for name, x in tensors.items()}
        context, state = attend(**part, support=DenseSupport(causal=True), state=state)
        assert context.isfinite().all()
        torch.testing.assert_close(context, result.context[:, :, step : step + 1], rtol=2**-7, atol=1e-4)


@every_kind
def test_sums_are_kept_wide_under_autocast(kind: str) -> None:
    shape = Shape(queries=20, keys=20)
    attend, tensors = site(kind, shape, torch.float32), inputs(shape, torch.float32)
    plain = run(attend, tensors, DenseSupport(causal=True))
    assert_same(plain, run(attend, tensors, DenseSupport(causal=True), within=[torch.autocast("cpu", torch.bfloat16)]))


@every_kind
def test_the_past_does_not_depend_on_the_future(kind: str) -> None:
    shape = Shape(queries=20, keys=20)
    attend, tensors = site(kind, shape), inputs(shape)
    before, _ = attend(**tensors, support=DenseSupport(causal=True))
    tensors["key"][:, :, 12:] *= -3.0
    tensors["value"][:, :, 12:] += 9.0
    after, _ = attend(**tensors, support=DenseSupport(causal=True))
    torch.testing.assert_close(after[:, :, :12], before[:, :, :12], rtol=0.0, atol=1e-12)
    assert (after[:, :, 12:] - before[:, :, 12:]).abs().max() > 1.0


@every_kind
def test_some_of_the_queries(kind: str) -> None:
    """Rows of a causal pass, with the keys that follow them in the tensor."""
    shape = Shape(queries=9, keys=11)
    attend, tensors = site(kind, shape), inputs(shape)
    whole = DenseSupport(causal=True)
    full, _ = attend(**tensors, support=whole)
    part, _ = attend(
        tensors["query"][:, :, 2:5], tensors["key"], tensors["value"], whole.select_queries(slice(2, 5), 9)
    )
    torch.testing.assert_close(part, full[:, :, 2:5], rtol=0.0, atol=1e-12)


@every_kind
@every_mask
def test_it_has_no_weights_and_says_so(kind: str, mask: str) -> None:
    """The implied map is given on request, marked, explains the context, and changes nothing."""
    shape = Shape()
    attend, tensors = site(kind, shape), inputs(shape)
    support, allowed = masked(mask, shape)
    plain = run(attend, tensors, support)
    with record(attend) as maps:
        assert_same(plain, run(attend, tensors, support))
    assert not maps
    assert "no weights" in maps.silent[""]
    for gradient in (False, True):
        with record(attend, implied=True, grad=gradient) as maps:
            assert_same(plain, run(attend, tensors, support))
        assert maps[""].implied
        assert maps[""].weights.requires_grad == gradient
        weights = maps[""].weights.detach()
        torch.testing.assert_close(weights @ support.zero_masked(tensors["value"]), plain.context, rtol=0.0, atol=1e-12)
        torch.testing.assert_close(weights.sum(-1), allowed.any(-1).double(), rtol=0.0, atol=1e-12)
        assert not weights[~allowed].any()


@every_kind
def test_positions_that_turn(kind: str) -> None:
    """Full, in steps with sums, and against phi of what the position has turned."""
    shape = Shape(queries=6, keys=6)
    attend, tensors = site(kind, shape), inputs(shape)
    rotary = Rotary(dim=6)
    turned = {**tensors, "query": rotary.turn(tensors["query"]), "key": rotary.turn(tensors["key"])}
    expected, _ = attend(**turned, support=DenseSupport(causal=True))
    attend.set_position(rotary)
    torch.testing.assert_close(attend(**tensors, support=DenseSupport(causal=True))[0], expected)
    state = attend.start(tensors["query"], tensors["key"], DenseSupport(causal=True))
    for step in range(6):
        part = {name: x[:, :, step : step + 1] for name, x in tensors.items()}
        context, state = attend(**part, support=DenseSupport(causal=True), state=state)
        torch.testing.assert_close(context, expected[:, :, step : step + 1])


@every_kind
def test_what_is_refused(kind: str) -> None:
    shape = Shape()
    attend, tensors = site(kind, shape), inputs(shape)
    with pytest.raises(ValueError, match="computes no pairs to which ALiBi could add"):
        attend.set_position(ALiBi(heads=4))
    with pytest.raises(ValueError, match="computes no pairs to which Shaw could add"):
        attend.set_position(Shaw(dim=6))
    with pytest.raises(ValueError, match="must be the same for each"):
        attend(**tensors, support=DenseSupport(torch.ones(1, 1, 5, 4, dtype=torch.bool)))
    with pytest.raises(ValueError, match="works on DenseSupport only; a graph attends over EdgeSupport"):
        attend.check_layout(EdgeSupport, "a graph")
    state = attend.start(tensors["query"], tensors["key"], DenseSupport())
    with pytest.raises(ValueError, match="needs causal attention"):
        attend(**tensors, support=DenseSupport(), state=state)


@every_kind
@pytest.mark.parametrize("key_heads", [4, 2])
def test_in_multi_head(kind: str, key_heads: int) -> None:
    """A drop-in for Attention: grouped keys, the growing memory of a decoder, and sums instead of it."""
    torch.manual_seed(0)
    factory = MechanismFactory(site=LinearAttention if kind == "linear" else Performer)
    model = MultiheadAttention(dim=16, heads=4, key_heads=key_heads, attend=factory).double()
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    full, _ = model(x, None, DenseSupport(causal=True))
    memory, state = None, None
    for step in range(7):
        row, memory = model.step(x[:, step : step + 1], memory)
        torch.testing.assert_close(row, full[:, step : step + 1])
        now = model.prepare(x[:, step : step + 1])
        query = model.query(x[:, step : step + 1]).view(2, 1, 4, 4).transpose(1, 2)
        state = model.attend.start(query, now.key, DenseSupport(causal=True)) if state is None else state
        row, state = model(x[:, step : step + 1], now, DenseSupport(causal=True), state)
        torch.testing.assert_close(row, full[:, step : step + 1])


def test_against_peers() -> None:
    performer = pytest.importorskip("performer_pytorch.performer_pytorch")
    tensors = inputs(Shape(2, 3, 9, 9, 6))
    query, key, value = tensors.values()
    expected = performer.linear_attention(F.elu(query) + 1, F.elu(key) + 1, value)
    torch.testing.assert_close(LinearAttention()(**tensors, support=DenseSupport())[0], expected, rtol=0.0, atol=1e-12)
    expected = performer.causal_linear_attention_noncuda(F.elu(query) + 1, F.elu(key) + 1, value, eps=0.0)
    found, _ = LinearAttention()(**tensors, support=DenseSupport(causal=True))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)


def test_features_far_below_zero() -> None:
    """elu(x) + 1 is zero in fp32 where e^x is not."""
    query = torch.full((1, 1, 1, 2), -30.0)
    key = torch.tensor([[-20.0, -20.0], [-21.0, -21.0]])[None, None]
    value = torch.tensor([[0.0], [1.0]])[None, None]
    context, _ = LinearAttention()(query, key, value, DenseSupport())
    assert context.item() == pytest.approx(1.0 / (1.0 + math.e), rel=1e-5)
