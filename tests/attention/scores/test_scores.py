"""Scores beyond the dot product against loops in float64, and the laws of scores: variance, directions, positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attention_cases import (
    DTYPES,
    MASKS,
    SEQUENCE_SCORES,
    Run,
    Shape,
    assert_close,
    assert_same,
    complete,
    inputs,
    loss,
    masked,
    run,
    site,
    weights_of,
)
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import config
from omegaconf import OmegaConf
from test_laws import check_masks, on_path
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    Attention,
    AttentionFactory,
    Concat,
    Constant,
    Cosine,
    DenseSupport,
    Dot,
    EdgeSupport,
    General,
    MultiheadAttention,
    NormalizedAdditive,
    PositionAware,
    ScaledDot,
    Softmax,
    record,
)
from zoo.attention.supports.patterns import SlidingWindow

SHAPE = Shape()
CONFIGS = Path(__file__).parents[3] / "conf" / "attention"
OWN = ("general", "cosine", "concat", "normalised additive", "position aware")
every_own = pytest.mark.parametrize("score", OWN)


def score_of_pair(score: nn.Module, head: int, query: Tensor, key: Tensor, distance: int) -> Tensor:
    """One number from the formula, as a function of the parameters."""
    width = range(len(query))
    match score:
        case General():
            weight = score.weight[head]
            return sum(query[i] * weight[i, j] * key[j] for i in width for j in width)
        case Cosine():
            lengths = sum(x * x for x in query).sqrt() * sum(x * x for x in key).sqrt()
            return sum(query[d] * key[d] for d in width) / lengths * score.log_scale[head].exp()
        case NormalizedAdditive():
            length = sum(x * x for x in score.vector[head]).sqrt()
            rows = [torch.tanh(query[d] + key[d] + score.bias[head, d]) for d in width]
            return score.gain[head] * sum(score.vector[head, d] * rows[d] for d in width) / length
        case Concat():
            weight, both = score.weight[head], [*query, *key]
            rows = [sum(weight[i, j] * x for j, x in enumerate(both)) for i in width]
            return sum(score.vector[head, i] * torch.tanh(x) for i, x in enumerate(rows))
        case PositionAware():
            place = score.position[head, min(max(distance, -score.reach), score.reach) + score.reach]
            return sum(score.vector[head, d] * torch.tanh(query[d] + key[d] + place[d]) for d in width)
    raise AssertionError(score)


def run_of_loops(score: nn.Module, tensors: dict[str, Tensor], allowed: Tensor) -> Run:
    """Softmax attention pair by pair, and autograd's derivative of that."""
    leaves = {name: x.double().clone().requires_grad_() for name, x in tensors.items()}
    score.zero_grad()
    b, h, q, k = allowed.shape
    rows = []
    for n, m, i in ((n, m, i) for n in range(b) for m in range(h) for i in range(q)):
        seen = [j for j in range(k) if allowed[n, m, i, j]]
        if not seen:
            rows.append(leaves["value"].new_zeros(leaves["value"].shape[-1]))
            continue
        query, keys = leaves["query"][n, m, i], leaves["key"][n, m]
        exponents = [score_of_pair(score, m, query, keys[j], (j - k) - (i - q)).exp() for j in seen]
        total = sum(exponents)
        rows.append(sum(e / total * leaves["value"][n, m, j] for e, j in zip(exponents, seen, strict=True)))
    context = torch.stack(rows).view(b, h, q, -1)
    if context.requires_grad:
        loss(context).backward()
    named = {**leaves, **{f"score.{name}": p for name, p in score.named_parameters()}}
    return Run(context.detach(), {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in named.items()})


def in_double(result: Run) -> Run:
    return Run(result.context.double(), {name: x.double() for name, x in result.gradients.items()})


@every_own
@pytest.mark.parametrize("kind", ["none", "key", "causal", "causal+any"])
@pytest.mark.parametrize("shape", [Shape(2, 2, 3, 4, 3), Shape(1, 2, 4, 1, 1), Shape(2, 1, 1, 5, 3)])
def test_forward_and_gradients_are_those_of_the_formula(score: str, kind: str, shape: Shape) -> None:
    attend, tensors = site(score, "softmax", shape), inputs(shape)
    support, allowed = masked(kind, shape)
    expected = run_of_loops(attend.score, tensors, allowed)
    expected = expected._replace(gradients={name: x.clone() for name, x in expected.gradients.items()})
    single, rough = site(score, "softmax", shape, torch.float32), {name: x.float() for name, x in tensors.items()}
    for written_out in (False, True):
        assert_close(on_path(attend, tensors, support, written_out), expected, 1e-12)
        assert_close(in_double(on_path(single, rough, support, written_out)), expected, 1e-5)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_of_the_position_aware_score(kind: str, dtype: torch.dtype) -> None:
    check_masks("position aware", "softmax", kind, dtype, SHAPE)


@pytest.mark.parametrize("score", ["general", "cosine", "concat"])
def test_a_key_that_is_seen_and_not_a_number_is_not_hidden(score: str) -> None:
    """Only what nobody sees is cleared; a NaN that somebody attends to shows."""
    attend, tensors = site(score, "softmax", SHAPE), inputs(SHAPE)
    tensors["key"][0, 0, 1, 2] = torch.nan
    context = run(attend, tensors, DenseSupport()).context
    assert context[0, 0].isnan().all()
    assert context[1].isfinite().all()


@every_own
def test_no_queries(score: str) -> None:
    tensors = inputs(SHAPE._replace(queries=0))
    assert run(site(score, "softmax", SHAPE), tensors, DenseSupport()).context.shape == (2, 3, 0, 7)


@every_own
def test_one_key_has_all_the_weight(score: str) -> None:
    shape = SHAPE._replace(keys=1)
    assert (weights_of(site(score, "softmax", shape), inputs(shape), DenseSupport()) == 1).all()


@pytest.mark.parametrize("score", ["general", "concat", "cosine"])
@pytest.mark.parametrize("written_out", [False, True])
def test_fewer_key_heads_serve_groups_of_queries(score: str, written_out: bool) -> None:
    shape = Shape(2, 6, 3, 4, 5)
    attend, tensors = site(score, "softmax", shape), inputs(shape)
    few = {**tensors, "key": tensors["key"][:, :2], "value": tensors["value"][:, :2]}
    many = {**few, "key": few["key"].repeat_interleave(3, 1), "value": few["value"].repeat_interleave(3, 1)}
    few["key"][0, 1, 3] = many["key"][0, 3:, 3] = torch.nan  # prepared as what it is: not a number
    support = DenseSupport(torch.tensor([True, True, True, False]).view(1, 1, 1, 4))
    one, other = on_path(attend, few, support, written_out), on_path(attend, many, support, written_out)
    for name in ("key", "value"):
        other.gradients[name] = other.gradients[name].unflatten(1, (2, 3)).sum(2)
    assert_close(one, other, 1e-12)


@pytest.mark.parametrize("score", ["general", "concat"])
@pytest.mark.parametrize(("heads", "width"), [(3, 5), (2, 6), (6, 6)])
def test_keys_of_other_sizes(score: str, heads: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # its own refusal, not that of the tests' type checker
    key = torch.zeros(1, heads, 4, width, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"a score for 3 heads of width 6 was given {heads} of {width}"):
        site(score, "softmax", SHAPE).prepare(key, key, DenseSupport())


def test_queries_and_keys_of_two_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    query, key = torch.zeros(1, 3, 4, 6), torch.zeros(1, 3, 4, 5)
    for score in (PositionAware(dim=6, heads=3), Cosine(heads=3)):
        with pytest.raises(ValueError, match="d=6 and keys d=5"):
            score(query, score.prepare(key), DenseSupport())


def test_scores_that_need_no_preparation_take_the_keys_as_they_are() -> None:
    key = inputs(SHAPE)["key"]
    for score in (Constant(), Dot(), Additive(dim=6, heads=3), PositionAware(dim=6, heads=3)):
        assert not score.prepares_keys
        assert Attention(score, Softmax()).prepare(key, key, DenseSupport()).key is key


# Variance and the gradient of the softmax


def largest_jacobian_entry(score: nn.Module, width: int) -> float:
    """The mean over many queries of the largest entry of d weights / d scores, for ten keys."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 1, 400, width, generator=generator, dtype=torch.float64)
    key = torch.randn(1, 1, 10, width, generator=generator, dtype=torch.float64)
    weights = Attention(score, Softmax()).weights(query, key, DenseSupport())[0, 0]
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return jacobian.abs().amax((-1, -2)).mean().item()


@pytest.mark.parametrize("width", [1, 16, 64, 256])
def test_variance_of_scores(width: int) -> None:
    """Vaswani et al. 2017, footnote 4: unit variance of q and k gives d; divided by sqrt(d), one."""
    torch.manual_seed(0)
    query, key = (torch.randn(1, 20, 100, width) for _ in range(2))
    support = DenseSupport()
    for score, expected in ((Dot(), width), (ScaledDot(), 1.0)):
        assert score(query, key, support).var().item() == pytest.approx(expected, rel=0.1)
    general = General(dim=width, heads=20)
    if width > 1:  # of twenty numbers the variance is not known well enough
        assert general(query, general.prepare(key), support).var().item() == pytest.approx(1.0, rel=0.15)


def test_gradient_of_the_softmax_of_unscaled_scores_vanishes() -> None:
    """Why scores are scaled, measured for ten keys: unscaled the largest entry halves with each fourfold width."""
    widths = (16, 64, 256, 1024, 4096)
    unscaled = [largest_jacobian_entry(Dot(), width) for width in widths]
    scaled = [largest_jacobian_entry(ScaledDot(), width) for width in widths]
    assert unscaled == pytest.approx([0.157, 0.095, 0.047, 0.023, 0.014], abs=1e-3)
    assert scaled == pytest.approx([0.205, 0.202, 0.205, 0.206, 0.205], abs=1e-3)


# Half precision


def large(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries and keys of numbers near 40, which half precision holds with ease."""
    return {name: x if name == "value" else 40.0 * x.sign() + 2.0 * x for name, x in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_beyond_half_precision(dtype: torch.dtype) -> None:
    """64 products of 40 x 40 are 102,400; fp16 ends at 65,504. Written out as in the kernel, and over edges."""
    shape = Shape(1, 2, 3, 4, 64)
    tensors = large(inputs(shape, dtype))
    tensors["key"][:, :, 0] = tensors["query"][:, :, 0]
    attend = Attention(Dot(), Softmax())
    scores = attend.score(tensors["query"], tensors["key"], DenseSupport())
    assert scores.isfinite().all()
    assert scores.abs().max() > 65504
    written, fused = (on_path(attend, tensors, DenseSupport(), written_out) for written_out in (True, False))
    assert_close(in_double(written), in_double(fused), 0.02 if dtype == torch.bfloat16 else 0.002)
    for result in (written, fused):
        assert all(x.isfinite().all() for x in (result.context, *result.gradients.values()))
    flat = {name: x[0].transpose(0, 1).contiguous() for name, x in tensors.items()}
    context = run(attend, flat, complete(3, 4)).context
    torch.testing.assert_close(context, written.context[0].transpose(0, 1), rtol=0.0, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_beyond_half_precision_under_autocast(dtype: torch.dtype) -> None:
    tensors = large(inputs(Shape(1, 2, 3, 4, 64), torch.float32))
    attend = Attention(Dot(), Softmax())
    written = run(attend, tensors, DenseSupport(), within=[record(attend, grad=True), torch.autocast("cpu", dtype)])
    fused = run(attend, tensors, DenseSupport(), within=[torch.autocast("cpu", dtype)])
    assert written.context.isfinite().all()
    torch.testing.assert_close(written.context.float(), fused.context.float(), rtol=1e-2, atol=1e-2)
    assert all(gradient.isfinite().all() for gradient in written.gradients.values())


# Cosine


@settings(max_examples=30)
@given(longer=st.floats(0.01, 1e6), shorter=st.floats(1e-3, 10.0), written_out=st.booleans())
def test_cosine_knows_directions_only(longer: float, shorter: float, written_out: bool) -> None:
    attend, tensors = site("cosine", "softmax", SHAPE), inputs(SHAPE)
    scaled = {**tensors, "query": longer * tensors["query"], "key": shorter * tensors["key"]}
    one, other = (on_path(attend, each, DenseSupport(), written_out).context for each in (tensors, scaled))
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("written_out", [False, True])
def test_cosine_of_a_zero_vector(dtype: torch.dtype, written_out: bool) -> None:
    """No direction: a score of 0 and no gradient, also where a norm in half precision would be 0 or infinite."""
    attend, tensors = site("cosine", "softmax", SHAPE, dtype), inputs(SHAPE, dtype)
    tensors["query"][0, 0, 0] = tensors["key"][0, 1, 2] = 0.0
    tensors["query"][1, 0, 0] = tensors["key"][1, 1, 2] = 3e4
    result = on_path(attend, tensors, DenseSupport(), written_out)
    assert not result.gradients["query"][0, 0, 0].any()
    assert not result.gradients["key"][0, 1, 2].any()
    assert all(x.isfinite().all() for x in (result.context, *result.gradients.values()))
    weights = weights_of(attend, tensors, DenseSupport())
    torch.testing.assert_close(weights[0, 0, 0], torch.full_like(weights[0, 0, 0], 0.25))
    scores = attend.score(tensors["query"], attend.score.prepare(tensors["key"]), DenseSupport())
    assert not scores[0, 1, :, 2].any()
    assert (scores.abs() <= 2.02).all()  # 1 / T


def test_the_scale_of_cosine_ends_at_100() -> None:
    """As Swin Transformer V2 does: beyond it neither the scores nor the gradient of the scale go on."""
    cosine = Cosine(heads=2, temperature=0.02)
    same = torch.ones(1, 2, 1, 4)
    with torch.no_grad():
        cosine.log_scale[1] = 9.0
    scores = cosine(same, cosine.prepare(same), DenseSupport())
    torch.testing.assert_close(scores.flatten(), torch.tensor([50.0, 100.0]))
    scores.sum().backward()
    assert cosine.log_scale.grad is not None
    assert cosine.log_scale.grad.tolist() == [pytest.approx(50.0), 0.0]


def test_a_fixed_temperature_is_no_parameter() -> None:
    fixed = Cosine(heads=3, temperature=0.5, learned=False)
    assert not list(fixed.parameters())
    assert fixed.state_dict().keys() == {"log_scale"}
    learned = site("cosine", "softmax", SHAPE)
    attend, tensors = Attention(fixed, Softmax()).double(), inputs(SHAPE)
    expected = run(learned, tensors, DenseSupport()).context
    torch.testing.assert_close(run(attend, tensors, DenseSupport()).context, expected, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 0.01, math.inf, math.nan])
def test_a_temperature_that_the_scale_would_not_keep_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature (is to be a number above 0|must be above 0\.01)"):
        Cosine(heads=1, temperature=temperature)


# Positions in the score


def test_distances_beyond_the_reach_count_as_the_reach() -> None:
    score = PositionAware(dim=4, heads=2, reach=2)
    query, key = torch.randn(1, 2, 1, 4).expand(-1, -1, 9, -1), torch.randn(1, 2, 1, 4).expand(-1, -1, 9, -1)
    scores = score(query, key, DenseSupport())[0]
    for i in range(9):
        for j in range(9):
            assert torch.equal(scores[:, i, j], scores[:, 4, 4 + max(-2, min(2, j - i))])
    assert len(scores[0, 4].unique()) == 5


@settings(max_examples=20)
@given(before=st.integers(0, 5), after=st.integers(0, 5))
def test_relative_positions_do_not_change_with_a_shift(before: int, after: int) -> None:
    attend, tensors = site("position aware", "softmax", SHAPE), inputs(SHAPE._replace(queries=4))
    longer = {name: torch.nn.functional.pad(x, (0, 0, before, after), value=7.0) for name, x in tensors.items()}
    permitted = torch.arange(4 + before + after).sub(before).unsqueeze(0)
    support = DenseSupport.from_key_mask((permitted >= 0) & (permitted < 4))
    inside = slice(before, before + 4)
    weights = weights_of(attend, longer, support)[:, :, inside, inside]
    torch.testing.assert_close(weights, weights_of(attend, tensors, DenseSupport()), rtol=0.0, atol=1e-12)


def test_position_aware_attention_decodes_step_by_step() -> None:
    attend, tensors = site("position aware", "softmax", SHAPE), inputs(SHAPE._replace(queries=6, keys=6))
    whole = run(attend, tensors, DenseSupport(causal=True)).context
    for start, stop in ((0, 1), (1, 2), (2, 5), (5, 6)):
        step = {name: x[:, :, (start if name == "query" else 0) : stop] for name, x in tensors.items()}
        torch.testing.assert_close(run(attend, step, DenseSupport(causal=True)).context, whole[:, :, start:stop])


@every_own
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_is_dense_attention_under_its_mask(score: str, causal: bool) -> None:
    attend, tensors = site(score, "softmax", SHAPE), inputs(SHAPE._replace(queries=40, keys=40))
    permitted = torch.ones(2, 1, 1, 40, dtype=torch.bool)
    permitted[0, ..., 35:] = False
    at = torch.arange(40)
    band = (at.unsqueeze(1) - at).abs() <= 3
    dense = run(attend, tensors, DenseSupport(permitted & band, causal=causal))
    attend.restrict = SlidingWindow(radius=3)
    assert_close(run(attend, tensors, DenseSupport(permitted, causal=causal)), dense, 1e-12)


def test_a_graph_has_no_positions() -> None:
    attend = Attention(PositionAware(dim=6, heads=3), Softmax())
    with pytest.raises(ValueError, match="PositionAware works on DenseSupport or BlockSupport only"):
        attend.check_layout(EdgeSupport, "a graph layer")
    node = torch.zeros(2, 3, 6)
    with pytest.raises(ValueError, match="no order"):
        attend(node, node, node, EdgeSupport.from_edges(torch.tensor([[0], [1]]), 2))


def test_a_reach_is_a_distance() -> None:
    with pytest.raises(ValueError, match="reach is to be a whole number of at least 0"):
        PositionAware(dim=2, heads=1, reach=-1)
    assert PositionAware(dim=2, heads=1, reach=0).position.shape == (1, 1, 2)


def test_recording_does_not_change_the_position_aware_score() -> None:
    attend, tensors = site("position aware", "softmax", SHAPE), inputs(SHAPE)
    assert_same(run(attend, tensors, DenseSupport()), run(attend, tensors, DenseSupport(), within=[record(attend)]))


# From the configuration


@pytest.mark.parametrize(
    ("name", "kind"),
    [("general", General), ("cosine", Cosine), ("concat", Concat), ("position_aware", PositionAware)],
)
def test_configuration(name: str, kind: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    factory = instantiate(OmegaConf.load(CONFIGS / f"{name}.yaml"))
    assert isinstance(factory, AttentionFactory)
    layer = MultiheadAttention(dim=12, heads=3, attend=factory)
    assert type(layer.attend.score) is kind
    assert layer(torch.randn(2, 5, 12))[0].shape == (2, 5, 12)


def test_every_score_has_its_case() -> None:
    kinds = {type(make(4, 2)) for make in SEQUENCE_SCORES.values()}
    assert {General, Cosine, Concat, PositionAware, Additive, Dot, ScaledDot} <= kinds


def test_bounded_scores_may_begin_large() -> None:
    """Raffel et al. 2017, section 2.4: g begins at 1/sqrt(d), and bounds the scores by g sqrt(d)."""
    query, key = (20 * torch.randn(2, 2, 5, 16, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    for gain, bound in ((None, 1.0), (3.0, 12.0)):
        score = NormalizedAdditive(dim=16, heads=2, gain=gain)
        found = score(query, key, DenseSupport(), None)
        assert bound / 4 < found.abs().max() <= bound
    with pytest.raises(ValueError, match="gain is to be a number above 0 or null"):
        NormalizedAdditive(dim=16, heads=2, gain=0.0)
