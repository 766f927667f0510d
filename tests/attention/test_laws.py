"""The laws of dense attention: who is forbidden has no say, who sees no one gets zeros, and order does not matter."""

from __future__ import annotations

import pytest
import torch
from attention_cases import (
    DTYPES,
    FUSED,
    MASKS,
    NORMALISERS,
    SCORES,
    Run,
    Shape,
    assert_close,
    assert_same,
    inputs,
    masked,
    run,
    site,
    weights_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import config
from tiers import every_pair
from torch import Tensor

from zoo.attention import Attention, DenseSupport, Dot, ScaledDot, Softmax, Uniform, record

every_mechanism = pytest.mark.parametrize(
    ("score", "normaliser"), [(score, normaliser) for score in SCORES for normaliser in NORMALISERS]
)

sizes = st.integers(1, 6)
shapes = st.builds(Shape, st.integers(1, 3), st.integers(1, 3), sizes, sizes, st.integers(1, 5))
scores, normalisers = st.sampled_from(list(SCORES)), st.sampled_from(list(NORMALISERS))
kinds, dtypes, seeds = st.sampled_from(MASKS), st.sampled_from(DTYPES), st.integers(0, 2**20)


def on_path(attend: Attention, tensors: dict[str, Tensor], support: DenseSupport, written_out: bool) -> Run:
    return run(attend, tensors, support, within=[record(attend, grad=True)] if written_out else [])


def check_masks(score: str, normaliser: str, kind: str, dtype: torch.dtype, shape: Shape, seed: int = 0) -> None:
    """The mask convention, for one mechanism, mask, number type and path at a time."""
    attend, tensors = site(score, normaliser, shape, dtype), inputs(shape, dtype, seed)
    support, allowed = masked(kind, shape, seed)
    check_weights(weights_of(attend, tensors, support), allowed, normaliser, dtype)
    for written_out in {False, (score, normaliser) in FUSED}:
        before = on_path(attend, tensors, support, written_out)
        check_empty_rows(before, allowed)
        check_unseen(before, attend, tensors, support, allowed, written_out)
        check_unseen_by_some(before, attend, tensors, support, allowed, written_out)


def check_weights(weights: Tensor, allowed: Tensor, normaliser: str, dtype: torch.dtype) -> None:
    assert weights.shape == allowed.shape
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert not weights[~allowed].any()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).to(weights.dtype), rtol=0.0, atol=tolerance)
    if normaliser == "uniform":
        shares = allowed.double() / allowed.sum(-1, keepdim=True).clamp(min=1)
        torch.testing.assert_close(weights, shares.to(weights.dtype), rtol=0.0, atol=tolerance)


def check_empty_rows(result: Run, allowed: Tensor) -> None:
    """A query with no permitted key: zeros, nothing for it to learn, nothing that is not a number."""
    empty = ~allowed.any(-1)
    assert not result.context[empty].any()
    assert not result.gradients["query"][empty].any()
    for name, gradient in result.gradients.items():
        assert gradient.isfinite().all(), name


def check_unseen(
    before: Run,
    attend: Attention,
    tensors: dict[str, Tensor],
    support: DenseSupport,
    allowed: Tensor,
    written_out: bool,
) -> None:
    """Whatever stands at a key that no query may see, also NaN: the same context, the same gradients, none for it."""
    unseen = ~allowed.any(-2).unsqueeze(-1)
    changed = {"query": tensors["query"]}
    for name, junk in (("key", [torch.nan, 3.0, torch.inf]), ("value", [torch.inf, torch.nan, -7.0])):
        width = tensors[name].shape[-1]
        spoilt = torch.tensor(junk * width, dtype=tensors[name].dtype)[:width]
        changed[name] = torch.where(unseen, spoilt, tensors[name])
    after = on_path(attend, changed, support, written_out)
    assert_same(before, after)
    for name in ("key", "value"):
        assert not after.gradients[name].masked_select(unseen).any()


def check_unseen_by_some(
    before: Run,
    attend: Attention,
    tensors: dict[str, Tensor],
    support: DenseSupport,
    allowed: Tensor,
    written_out: bool,
) -> None:
    """A key means nothing to the queries that may not see it, whatever it means to others."""
    changed = {name: x.clone() for name, x in tensors.items()}
    for name in ("key", "value"):
        changed[name][:, :, -1] = 2.0 - 3.0 * changed[name][:, :, -1]
    after = on_path(attend, changed, support, written_out)
    blind = ~allowed[..., -1]
    assert torch.equal(before.context[blind], after.context[blind])
    assert torch.equal(before.gradients["query"][blind], after.gradients["query"][blind])


@every_pair(score=SCORES.keys(), normaliser=NORMALISERS.keys(), kind=MASKS)
def test_masks_for_every_mechanism_mask_and_dtype(score: str, normaliser: str, kind: str) -> None:
    for dtype in DTYPES:
        check_masks(score, normaliser, kind, dtype, Shape())


@settings(max_examples=100)
@given(score=scores, normaliser=normalisers, kind=kinds, dtype=dtypes, shape=shapes, seed=seeds)
def test_masks_in_any_shape(
    score: str, normaliser: str, kind: str, dtype: torch.dtype, shape: Shape, seed: int
) -> None:
    check_masks(score, normaliser, kind, dtype, shape, seed)


@every_mechanism
@pytest.mark.parametrize("keys", [0, 4])
def test_no_key_for_anyone(score: str, normaliser: str, keys: int) -> None:
    shape = Shape(keys=keys)
    attend, tensors = site(score, normaliser, shape), inputs(shape)
    support = DenseSupport(torch.zeros(1, 1, 1, keys, dtype=torch.bool))
    result = run(attend, tensors, support)
    assert result.context.shape == (2, 3, 5, 7)
    assert not result.context.any()
    for name, gradient in result.gradients.items():
        assert not gradient.any(), name
    assert not weights_of(attend, tensors, support).any()


@settings(max_examples=60)
@given(score=scores, normaliser=normalisers, kind=kinds, shape=shapes, seed=seeds, data=st.data())
def test_order_of_keys_and_queries(
    score: str, normaliser: str, kind: str, shape: Shape, seed: int, data: st.DataObject
) -> None:
    """Keys moved together with their mask: the same context. Queries moved: the context moves with them."""
    attend, tensors = site(score, normaliser, shape), inputs(shape, seed=seed)
    support, allowed = masked(kind, shape, seed)
    k = torch.tensor(data.draw(st.permutations(range(shape.keys))))
    q = torch.tensor(data.draw(st.permutations(range(shape.queries))))
    moved = {"query": tensors["query"][:, :, q], "key": tensors["key"][:, :, k], "value": tensors["value"][:, :, k]}
    before = run(attend, tensors, support)
    after = run(attend, moved, DenseSupport(allowed[:, :, q][..., k]))
    torch.testing.assert_close(after.context, before.context[:, :, q], rtol=0.0, atol=1e-12)
    weights = weights_of(attend, tensors, support)
    torch.testing.assert_close(
        weights_of(attend, moved, DenseSupport(allowed[:, :, q][..., k])),
        weights[:, :, q][..., k],
        rtol=0.0,
        atol=1e-12,
    )


def test_causal_with_more_keys_than_queries_is_aligned_at_the_end() -> None:
    """Decoding step by step with the keys kept gives what the whole sequence at once gives."""
    shape = Shape(queries=6, keys=6)
    tensors = inputs(shape)
    attend = site("scaled dot", "softmax", shape)
    whole = run(attend, tensors, DenseSupport(causal=True)).context
    for start, stop in ((0, 1), (1, 2), (2, 5), (5, 6)):
        step = {name: x[:, :, (start if name == "query" else 0) : stop] for name, x in tensors.items()}
        torch.testing.assert_close(run(attend, step, DenseSupport(causal=True)).context, whole[:, :, start:stop])


def test_causal_mask_of_equal_scores() -> None:
    """Reference document 004, question 36."""
    shape = Shape(1, 1, 4, 4, 2)
    weights = weights_of(site("constant", "softmax", shape), inputs(shape), DenseSupport(causal=True))
    expected = torch.tensor([[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4])
    torch.testing.assert_close(weights[0, 0], expected.double())


@pytest.mark.parametrize("wrong", [torch.zeros(2, 1, 1, 4), torch.ones(2, 1, 1, 4, dtype=torch.int64)])
def test_a_mask_that_is_not_boolean_is_refused(wrong: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # its own refusal, not that of the tests' type checker
    with pytest.raises(TypeError, match="boolean with True = may attend"):
        DenseSupport(wrong)


@pytest.mark.parametrize("axes", [1, 2, 3, 5])
def test_a_mask_without_its_four_axes_is_refused(axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"axes \(b, h, q, k\)"):
        DenseSupport(torch.ones([2] * axes, dtype=torch.bool))


def test_key_mask() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    support = DenseSupport.from_key_mask(mask, causal=True)
    full = support.mask(3, 3, mask.device)
    assert full is not None
    assert full[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    assert full[1, 0].tolist() == [[True, False, False]] * 3


@pytest.mark.parametrize("score", [Dot(), ScaledDot()])
@pytest.mark.parametrize("kind", MASKS)
def test_written_out_agrees_with_fused(score: Dot, kind: str) -> None:
    shape = Shape()
    support, _ = masked(kind, shape)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, None)):
        attend, tensors = Attention(score, Softmax()), inputs(shape, dtype)
        assert_close(on_path(attend, tensors, support, True), on_path(attend, tensors, support, False), tolerance)


def test_only_exact_types_are_fused() -> None:
    """A subclass of Dot may score otherwise; the kernel of Dot must not run in its place."""

    class Negative(Dot):
        def forward(self, *args: object) -> Tensor:
            return -super().forward(*args)

    tensors = {"query": torch.ones(1, 1, 1, 1), "key": torch.tensor([[[[0.0], [9.0]]]])}
    tensors["value"] = tensors["key"]
    assert run(Attention(Negative(), Softmax()), tensors, DenseSupport()).context.item() < 0.1


@pytest.mark.parametrize("probability", [-0.1, 1.0])
def test_dropout_is_a_probability(probability: float) -> None:
    with pytest.raises(ValueError, match="is to be a number of at least 0 and below 1"):
        Attention(Dot(), Uniform(), dropout=probability)
