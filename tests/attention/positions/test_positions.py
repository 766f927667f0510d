"""Positions that a site is given: against loops over pairs, against peers, and the laws of relative positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from attention_cases import (
    DTYPES,
    MASKS,
    Run,
    Shape,
    assert_close,
    assert_same,
    inputs,
    loss,
    masked,
    run,
    weights_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from largest import Largest
from tiers import each_once
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    ALiBi,
    Attention,
    AttentionFactory,
    Cosine,
    DenseSupport,
    EdgeSupport,
    Interpolated,
    LocalM,
    MultiheadAttention,
    NTKAware,
    Position,
    Rotary,
    ScaledDot,
    Shaw,
    SlidingWindow,
    Softmax,
    T5Bias,
    TransformerXL,
    YaRN,
    record,
)

KINDS: dict[str, Callable[[int, int], Position]] = {
    "alibi": lambda dim, heads: ALiBi(heads=heads),
    "t5": lambda dim, heads: T5Bias(heads=heads, buckets=8, distance=5),
    "t5 causal": lambda dim, heads: T5Bias(heads=heads, buckets=4, distance=6, causal=True),
    "shaw": lambda dim, heads: Shaw(dim=dim, distance=2),
    "shaw 0": lambda dim, heads: Shaw(dim=dim, distance=0),
    "xl": lambda dim, heads: TransformerXL(dim=dim, heads=heads),
    "rotary": lambda dim, heads: Rotary(dim=dim),
    "rotary part": lambda dim, heads: Rotary(dim=dim, fraction=2 / 3, base=100.0),
    "rotary interpolated": lambda dim, heads: Rotary(dim=dim, scaling=Interpolated(3.0)),
    "rotary ntk": lambda dim, heads: Rotary(dim=dim, scaling=NTKAware(3.0)),
    "rotary yarn": lambda dim, heads: Rotary(dim=dim, scaling=YaRN(3.0, trained=40, slow=1.0, fast=4.0)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
kinds = st.sampled_from(sorted(KINDS))
SHAPE = Shape(queries=5, keys=7)


def placed(
    kind: str, shape: Shape, dtype: torch.dtype = torch.float64, score: nn.Module | None = None, dropout: float = 0.0
) -> Attention:
    torch.default_generator.manual_seed(3)
    attend = Attention(ScaledDot() if score is None else score, Softmax(), dropout=dropout)
    attend.set_position(KINDS[kind](shape.width, shape.heads))
    for parameter in attend.parameters():
        nn.init.normal_(parameter)
    return attend.to(dtype)


def tensors_of(shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    tensors = inputs(shape, dtype, seed)
    return {**tensors, "value": tensors["value"][..., : shape.width].contiguous()}


def bucket(offset: int, buckets: int, distance: int, causal: bool) -> int:
    """Raffel et al.'s in whole numbers: that log(n / exact) / log(distance / exact) >= w / wide compares powers."""
    one_way = buckets if causal else buckets // 2
    away = max(-offset, 0) if causal else abs(offset)
    exact = one_way // 2
    found = away
    if away >= exact:
        wide = one_way - exact
        reached = [w for w in range(wide) if away**wide * exact**w >= distance**w * exact**wide]
        found = exact + max(reached)
    return found + (one_way if offset > 0 and not causal else 0)


def slope(head: int, heads: int) -> float:
    """Computes a slope as in the authors' `get_slopes`."""

    def of_power(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    power = 2 ** math.floor(math.log2(heads))
    return [*of_power(power), *of_power(2 * power)[0::2]][head]


def angles(position: Rotary, dim: int) -> list[float]:
    """Computes the angle per position of each pair from the formulas of the papers."""
    scaling, base, pairs = position.scaling, position.base, dim // 2
    if isinstance(scaling, NTKAware):
        base = base * scaling.factor ** (dim / (dim - 2))
    speeds = [base ** (-2 * i / dim) for i in range(pairs)]
    if isinstance(scaling, Interpolated):
        return [speed / scaling.factor for speed in speeds]
    if isinstance(scaling, YaRN):
        mixed = []
        for speed in speeds:
            ratio = scaling.trained / (2 * math.pi / speed)
            gamma = min(max((ratio - scaling.slow) / (scaling.fast - scaling.slow), 0.0), 1.0)
            mixed.append((1 - gamma) * speed / scaling.factor + gamma * speed)
        return mixed
    return speeds


def score_of(position: Position, q: Tensor, k: Tensor, i: int, j: int, head: int, heads: int) -> Tensor:
    """The scaled score of one pair, from the papers' formulas."""
    dim, parameters = len(q), {name: x.double() for name, x in position.named_parameters()}
    root = math.sqrt(dim)
    if isinstance(position, ALiBi):
        return q @ k / root - slope(head, heads) * abs(i - j)
    if isinstance(position, T5Bias):
        buckets = parameters["table"].shape[1]
        place = bucket(j - i, buckets, position.distance, position.causal)
        return q @ k / root + parameters["table"][head, place]
    if isinstance(position, Shaw):
        clipped = max(-position.distance, min(position.distance, j - i)) + position.distance
        return q @ (k + parameters["keys"][clipped]) / root
    if isinstance(position, TransformerXL):
        u, v, width = parameters["content"][head], parameters["place"][head], dim * heads
        wave = [f((i - j) / 10_000 ** (2 * p / width)) for p in range(width // 2) for f in (math.sin, math.cos)]
        relative = parameters["project.weight"][head * dim : (head + 1) * dim] @ torch.tensor(wave, dtype=q.dtype)
        return (q @ k + q @ relative + u @ k + v @ relative) / root
    assert isinstance(position, Rotary)
    total = q[position.turned :] @ k[position.turned :]
    for pair, speed in enumerate(angles(position, position.turned)):
        (a, b), (c, d) = q[2 * pair : 2 * pair + 2], k[2 * pair : 2 * pair + 2]
        turn = (i - j) * speed
        # the real part of (a + bi) conj(c + di) e^(i turn)
        product = (a * c + b * d) * math.cos(turn) - (b * c - a * d) * math.sin(turn)
        total = total + product * (1.0 if position.scaling is None else position.scaling.magnitude**2)
    return total / root


def reference(attend: Attention, tensors: dict[str, Tensor], allowed: Tensor) -> Run:
    """Context and gradients by a loop over pairs in float64."""
    position = attend.position
    assert position is not None
    leaves = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    attend.zero_grad()
    b, heads, queries, _ = leaves["query"].shape
    keys = leaves["key"].shape[2]
    rows = []
    for n in range(b):
        for h in range(heads):
            for row in range(queries):
                q, i = leaves["query"][n, h, row], row + keys - queries
                seen = [j for j in range(keys) if allowed[n, h, row, j]]
                if not seen:
                    rows.append(torch.zeros_like(q))
                    continue
                scores = [score_of(position, q, leaves["key"][n, h, j], i, j, h, heads) for j in seen]
                weights = torch.stack(scores).softmax(0)
                context = torch.zeros_like(q)
                for weight, j in zip(weights, seen, strict=True):
                    value = leaves["value"][n, h, j]
                    if isinstance(position, Shaw):
                        clipped = max(-position.distance, min(position.distance, j - i)) + position.distance
                        value = value + position.values[clipped].double()
                    context = context + weight * value
                rows.append(context)
    context = torch.stack(rows).view(b, heads, queries, -1)
    loss(context).backward()
    named = {**leaves, **dict(attend.named_parameters())}
    return Run(context.detach(), {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in named.items()})


@every_kind
@pytest.mark.parametrize("mask", MASKS)
def test_context_and_gradients_are_those_of_the_formulas(kind: str, mask: str) -> None:
    shape = Shape(batch=1, heads=3, queries=3, keys=5, width=6) if mask == "none" else Shape(2, 1, 4, 5, 6)
    support, allowed = masked(mask, shape)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    expected = reference(attend, tensors, allowed)
    assert_close(run(attend, tensors, support), expected, 1e-12)
    assert_close(run(attend, tensors, support, within=[record(attend, grad=True)]), expected, 1e-12)


@every_kind
@pytest.mark.parametrize("shape", [Shape(1, 2, 1, 1, 4), Shape(1, 2, 6, 4, 4), Shape(1, 5, 1, 9, 2)])
def test_other_shapes(kind: str, shape: Shape) -> None:
    """One query, more queries than keys (which then begin before zero), numbers of heads that are no power of two."""
    if kind in ("rotary part", "rotary ntk"):
        shape = shape._replace(width=6)  # a third of 4 or 2 is no pair, and one pair has no slowest and fastest
    support, allowed = masked("causal", shape)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    assert_close(run(attend, tensors, support), reference(attend, tensors, allowed), 1e-12)


@every_kind
def test_single_precision(kind: str) -> None:
    support, allowed = masked("causal+any", Shape(2, 1, 4, 5, 6))
    attend, tensors = placed(kind, Shape(2, 1, 4, 5, 6), torch.float32), tensors_of(Shape(2, 1, 4, 5, 6), torch.float32)
    expected = reference(attend, tensors, allowed)
    result = run(attend, tensors, support)
    torch.testing.assert_close(result.context.double(), expected.context, rtol=0.0, atol=1e-5)
    for name, gradient in result.gradients.items():
        torch.testing.assert_close(gradient.double(), expected.gradients[name].double(), rtol=1e-5, atol=1e-5)


@every_kind
def test_gradients_by_finite_differences(kind: str) -> None:
    shape = Shape(1, 2, 3, 4, 6)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    leaves = [tensors[name].requires_grad_() for name in ("query", "key", "value")]
    parameters = list(attend.parameters())

    def context(query: Tensor, key: Tensor, value: Tensor, *_: Tensor) -> Tensor:
        return attend(query, key, value, DenseSupport(causal=True))[0]

    assert torch.autograd.gradcheck(context, (*leaves, *parameters), fast_mode=True)


@every_kind
@pytest.mark.parametrize("length", [0, 1])
def test_short_inputs(kind: str, length: int) -> None:
    shape = Shape(queries=length, keys=length)
    for causal in (False, True):
        result = run(placed(kind, shape), tensors_of(shape), DenseSupport(causal=causal))
        assert result.context.shape == (2, 3, length, 6)
        assert result.context.isfinite().all()


@each_once(kind=KINDS.keys(), mask=MASKS)
def test_fused_and_recorded(kind: str, mask: str) -> None:
    """Fused as written out; a recorder changes nothing, in no precision, with dropout and without."""
    support, _ = masked(mask, SHAPE)
    for dtype in (torch.float64, torch.float32):
        attend, tensors = placed(kind, SHAPE, dtype), tensors_of(SHAPE, dtype)
        written_out = run(attend, tensors, support, within=[record(attend, grad=True)])
        fused = run(attend, tensors, support)
        assert_close(fused, written_out, 1e-10 if dtype == torch.float64 else None)
    for dtype in DTYPES:
        attend, tensors = placed(kind, SHAPE, dtype, dropout=0.3), tensors_of(SHAPE, dtype)
        assert_same(run(attend, tensors, support), run(attend, tensors, support, within=[record(attend)]))
    attend, tensors = placed(kind, SHAPE, torch.float32, dropout=0.3), tensors_of(SHAPE, torch.float32)
    low = partial(torch.autocast, "cpu", torch.bfloat16)
    plain = run(attend, tensors, support, within=[low()])
    assert_same(plain, run(attend, tensors, support, within=[record(attend), low()]))


@every_kind
def test_shaw_alone_needs_its_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kernel = nn.functional.scaled_dot_product_attention

    def counted(*args: object, **options: object) -> Tensor:
        calls.append(1)
        return kernel(*args, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)
    run(placed(kind, SHAPE), tensors_of(SHAPE), DenseSupport(causal=True))
    assert len(calls) == (0 if kind.startswith("shaw") else 1)


@every_kind
@pytest.mark.parametrize("mask", ["key", "causal+any"])
def test_masks_in_every_precision(kind: str, mask: str) -> None:
    """Rows without keys are zeros; what nobody may see, also NaN, changes nothing."""
    support, allowed = masked(mask, SHAPE)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    for dtype in DTYPES:
        attend, tensors = placed(kind, SHAPE, dtype), tensors_of(SHAPE, dtype)
        for within in ((), (record(attend, grad=True),)):
            before = run(attend, tensors, support, within=within)
            assert not before.context[~allowed.any(-1)].any()
            assert not before.gradients["query"][~allowed.any(-1)].any()
            assert all(gradient.isfinite().all() for gradient in before.gradients.values())
        spoilt = {name: torch.where(unseen, torch.nan, tensors[name]) for name in ("key", "value")}
        assert_same(run(attend, tensors, support), run(attend, {**tensors, **spoilt}, support))
        weights = weights_of(attend, tensors, support)
        assert not weights[~allowed].any()


@settings(max_examples=60)
@given(kind=kinds, shift=st.integers(0, 40), queries=st.integers(1, 5), more=st.integers(0, 3), seed=st.integers(0, 99))
def test_shifting_every_position_changes_no_weight(kind: str, shift: int, queries: int, more: int, seed: int) -> None:
    """The end of a longer sequence whose beginning nobody sees is the shorter sequence."""
    shape = Shape(queries=queries, keys=queries + more)
    attend, tensors = placed(kind, shape), tensors_of(shape, seed=seed)
    before = attend.weights(tensors["query"], tensors["key"], DenseSupport(causal=True))
    hidden = torch.randn(2, 3, shift, 6, dtype=torch.float64)
    permitted = (torch.arange(shift + shape.keys) >= shift)[None, None, None]
    key = torch.cat([hidden, tensors["key"]], 2)
    after = attend.weights(tensors["query"], key, DenseSupport(permitted, causal=True))
    torch.testing.assert_close(after[..., shift:], before, rtol=0.0, atol=1e-12)


@settings(max_examples=40)
@given(kind=kinds, seed=st.integers(0, 99))
def test_distance_matters(kind: str, seed: int) -> None:
    """Without positions the order of the keys changes no context; with them it does, unless all distances are alike."""
    shape = Shape(queries=6, keys=6)
    attend, tensors = placed(kind, shape), tensors_of(shape, seed=seed)
    turned = {**tensors, "key": tensors["key"].flip(2), "value": tensors["value"].flip(2)}
    before, after = (run(attend, each, DenseSupport()).context for each in (tensors, turned))
    assert torch.allclose(before, after, rtol=0.0, atol=1e-12) == (kind == "shaw 0")


@every_kind
def test_decoding_with_kept_keys_is_the_full_pass(kind: str) -> None:
    """Keys are turned once, where they stand; one query, or some, stand at the end of what is there."""
    shape = Shape(queries=9, keys=9)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    causal = DenseSupport(causal=True)
    whole, _ = attend(**tensors, support=causal)
    kept = None
    for start, stop in ((0, 1), (1, 2), (2, 6), (6, 9)):
        query, key, value = (tensors[name][:, :, start:stop] for name in ("query", "key", "value"))
        later = attend.prepare(key, value, causal, start)
        kept = later if kept is None else kept.append(later, causal)
        context, _ = attend.read(query, kept)
        torch.testing.assert_close(context, whole[:, :, start:stop], rtol=0.0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_a_longer_block(kind: str, causal: bool) -> None:
    attend, tensors = placed(kind, SHAPE), tensors_of(SHAPE)
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    support = DenseSupport(causal=causal)
    whole, weights = attend(query, key, value, support)[0], attend.weights(query, key, support)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 5)):
        part = support.select_queries(rows, SHAPE.queries)
        torch.testing.assert_close(attend.weights(query[:, :, rows], key, part), weights[:, :, rows])
        torch.testing.assert_close(attend(query[:, :, rows], key, value, part)[0], whole[:, :, rows])


@every_kind
@pytest.mark.parametrize(("causal", "mask"), [(False, False), (True, True)])
def test_windows(kind: str, causal: bool, mask: bool) -> None:
    """Every layout of pairs: the same as dense attention under the mask that it stands for."""
    n = 11
    shape = Shape(2, 3, n, n, 6)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    permitted = None
    if mask:
        permitted = (torch.arange(n) < torch.tensor([[n], [n - 4]]))[:, None, None]
    support = DenseSupport(permitted, causal=causal)
    away = torch.arange(n) - torch.arange(n).unsqueeze(1)
    nearby, first = away.abs() <= 2, torch.arange(n) < 2
    patterns = {
        SlidingWindow(radius=2): nearby,
        SlidingWindow(radius=2, dilation=2): (away.abs() <= 4) & (away % 2 == 0),
        SlidingWindow(radius=2, global_tokens=2): nearby | first | first.unsqueeze(1),
        LocalM(radius=2): nearby,
    }
    for restrict, pattern in patterns.items():
        narrow = Attention(attend.score, attend.normalizer, restrict=restrict)
        assert attend.position is not None
        narrow.set_position(attend.position)
        seen = pattern[None, None] if permitted is None else pattern & permitted
        dense = run(attend, tensors, DenseSupport(seen, causal=causal))
        for within in ((), (record(narrow, grad=True),)):
            found = run(narrow, tensors, support, within=within)
            torch.testing.assert_close(found.context, dense.context, rtol=0.0, atol=1e-10)
            for name, gradient in found.gradients.items():
                torch.testing.assert_close(gradient, dense.gradients[name], rtol=0.0, atol=1e-10)


@every_kind
def test_any_score_takes_a_position(kind: str) -> None:
    score: nn.Module = Additive(dim=6, heads=3)
    if kind.startswith("rotary"):  # turns what is compared: of use to products and cosines alone
        with pytest.raises(ValueError, match="more than the angle"):
            placed(kind, SHAPE, score=score)
        score = Cosine(heads=3)
    attend = placed(kind, SHAPE, score=score)
    result = run(attend, tensors_of(SHAPE), DenseSupport(causal=True))
    plain = Attention(attend.score, Softmax())
    assert result.context.isfinite().all()
    assert not torch.allclose(result.context, run(plain, tensors_of(SHAPE), DenseSupport(causal=True)).context)
    assert all(gradient.isfinite().all() for gradient in result.gradients.values())


@every_kind
def test_graphs_have_no_order(kind: str) -> None:
    tensors = {name: x[0].transpose(0, 1) for name, x in tensors_of(SHAPE).items()}
    support = EdgeSupport.from_edges(torch.randint(0, 5, (2, 9)), 5, 7)
    with pytest.raises(ValueError, match="no order"):
        placed(kind, SHAPE)(tensors["query"], tensors["key"], tensors["value"], support)


@every_kind
def test_no_pair_has_a_vector(kind: str) -> None:
    n, width = 48, 30
    shape = Shape(1, 2, n, n, width)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    with Largest() as largest:
        run(attend, tensors, DenseSupport(), within=[record(attend, grad=True)])
    assert n * n <= largest.elements <= shape.heads * n * (2 * n - 1)


@pytest.mark.parametrize("kind", ["shaw", "xl"])
def test_large_products_in_half_precision(kind: str) -> None:
    """Products beyond the largest number of half precision are numbers still, also under autocast."""
    attend, support = placed(kind, SHAPE, torch.float16), DenseSupport(causal=True)
    tensors = {name: x * 60 for name, x in tensors_of(SHAPE, torch.float16).items()}
    for parameter in attend.parameters():
        parameter.data.mul_(1500)
    weights = weights_of(attend, tensors, support)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@every_kind
def test_multi_head(kind: str) -> None:
    """Given as a class or partial, it gets the width of one head and their number; each site has its own."""
    factory = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    makers: dict[str, Callable[..., Position]] = {
        "alibi": ALiBi,
        "shaw": partial(Shaw, distance=3),
        "xl": TransformerXL,
        "t5": T5Bias,
        "rotary": Rotary,
    }
    maker = makers.get(kind)
    if maker is None:
        pytest.skip("a variant")
    heads = MultiheadAttention(dim=12, heads=3, attend=factory, position=maker).double()
    assert type(heads.attend.position) is (maker.func if isinstance(maker, partial) else maker)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    whole, _ = heads(x, None, DenseSupport(causal=True))
    plain = MultiheadAttention(dim=12, heads=3, attend=factory).double()
    plain.load_state_dict(heads.state_dict(), strict=False)
    assert not torch.allclose(whole, plain(x, None, DenseSupport(causal=True))[0])
    # a step at a time
    memory = None
    for start in range(7):
        step, memory = heads.step(x[:, start : start + 1], memory)
        torch.testing.assert_close(step, whole[:, start : start + 1], rtol=0.0, atol=1e-12)


@every_kind
def test_fewer_key_heads(kind: str) -> None:
    """Each key head serves a group of query heads: as if it were repeated."""
    shape = Shape(2, 6, 5, 5, 6)
    attend, tensors = placed(kind, shape), tensors_of(shape)
    fewer = {**tensors, "key": tensors["key"][:, :2], "value": tensors["value"][:, :2]}
    repeated = {**tensors, **{name: fewer[name].repeat_interleave(3, 1) for name in ("key", "value")}}
    support = DenseSupport(causal=True)
    torch.testing.assert_close(run(attend, fewer, support).context, run(attend, repeated, support).context)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
def test_slopes(heads: int) -> None:
    slopes = ALiBi(heads=heads).slopes(torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(slopes, torch.tensor([slope(h, heads) for h in range(heads)]).double())
    if heads == 8:  # the paper's example, section 3
        assert slopes.tolist() == [1 / 2**i for i in range(1, 9)]


@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (64, 256), (16, 50), (6, 10)])
@pytest.mark.parametrize("causal", [False, True])
def test_buckets(buckets: int, distance: int, causal: bool) -> None:
    position = T5Bias(heads=1, buckets=buckets, distance=distance, causal=causal)
    offsets = torch.arange(-600, 601)
    found = position.bucket(offsets).tolist()
    assert found == [bucket(offset, buckets, distance, causal) for offset in offsets.tolist()]
    assert set(found) == set(range(buckets)) - (set() if causal else {buckets // 2})


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (1, 12), (3, 200)])
def test_alibi_and_t5_as_x_transformers_has_them(heads: int, queries: int, keys: int) -> None:
    peers = pytest.importorskip("x_transformers.x_transformers")
    q, k = torch.zeros(1, heads, queries, 8), torch.zeros(1, heads, keys, 8)
    found = ALiBi(heads=heads).bias(q, k, DenseSupport(), 1.0)
    torch.testing.assert_close(found[0], peers.AlibiPositionalBias(heads)(queries, keys))
    for causal in (False, True):
        peer = peers.RelativePositionBias(scale=1.0, causal=causal, heads=heads)
        ours = T5Bias(heads=heads, causal=causal)
        ours.table.data = peer.relative_attention_bias.weight.data.T
        expected = peer(queries, keys)
        assert torch.equal(ours.bias(q, k, DenseSupport(), 1.0)[0], expected)


@pytest.mark.parametrize("scaling", [None, Interpolated(4.0), NTKAware(4.0)])
@pytest.mark.parametrize("turned", [8, 16])
def test_rotary_as_x_transformers_has_it(scaling: Any, turned: int) -> None:
    peers = pytest.importorskip("x_transformers.x_transformers")
    options = {Interpolated: {"interpolation_factor": 4.0}, NTKAware: {"base_rescale_factor": 4.0}}
    peer = peers.RotaryEmbedding(turned, **options.get(type(scaling), {}))
    x = torch.randn(2, 3, 50, 16)
    frequencies, _ = peer(torch.arange(50))
    expected = peers.apply_rotary_pos_emb(x, frequencies)
    ours = Rotary(dim=16, fraction=turned / 16, scaling=scaling)
    torch.testing.assert_close(ours.turn(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.turn(x[:, :, 20:], start=20), expected[:, :, 20:], rtol=1e-5, atol=1e-5)


def test_turning_whatever_the_layout_in_memory() -> None:
    position, x = Rotary(dim=9, fraction=0.5), torch.randn(2, 3, 5, 20, dtype=torch.float64)
    for strange in (
        x[..., 1:10],
        x[..., ::2][..., :9],
        x.transpose(-1, -2)[..., :9, :5].expand(2, 3, 9, 5).mT,
        x[..., :9],
    ):
        turned = position.turn(strange)
        torch.testing.assert_close(turned, position.turn(strange.contiguous()), rtol=0.0, atol=1e-14)
        assert torch.equal(turned[..., 4:], strange[..., 4:])


def test_compiled_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers get real numbers in place of complex ones."""
    attend, tensors = placed("rotary yarn", SHAPE), tensors_of(SHAPE)
    plain = run(attend, tensors, DenseSupport(causal=True))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert_close(run(attend, tensors, DenseSupport(causal=True)), plain, 1e-12)


def test_turning_keeps_lengths() -> None:
    x = torch.randn(2, 3, 50, 16, dtype=torch.float64)
    torch.testing.assert_close(Rotary(dim=16).turn(x, start=1000).norm(dim=-1), x.norm(dim=-1))


def test_scalings_at_their_ends() -> None:
    """NTK-aware keeps the fastest pair and interpolates the slowest; YaRN does so beyond its two bounds."""
    speed = torch.logspace(0, -4, 16, dtype=torch.float64)
    ntk, yarn = NTKAware(8.0)(speed), YaRN(8.0, trained=256)(speed)
    torch.testing.assert_close(ntk[[0, -1]], speed[[0, -1]] / torch.tensor([1.0, 8.0]))
    turns = 256 * speed / (2 * math.pi)
    torch.testing.assert_close(yarn[turns > 32], speed[turns > 32])
    torch.testing.assert_close(yarn[turns < 1], speed[turns < 1] / 8)
    assert YaRN(8.0, trained=256).magnitude == pytest.approx(0.1 * math.log(8) + 1)
    for scaling in (Interpolated(1.0), NTKAware(1.0), YaRN(1.0, trained=64)):
        torch.testing.assert_close(scaling(speed), speed)
        assert scaling.magnitude == 1.0


def test_a_constant_on_every_score_changes_no_weight() -> None:
    attend, tensors = placed("t5", SHAPE), tensors_of(SHAPE)
    before = weights_of(attend, tensors, DenseSupport(causal=True))
    assert isinstance(attend.position, T5Bias)
    attend.position.table.data += 7.0
    torch.testing.assert_close(weights_of(attend, tensors, DenseSupport(causal=True)), before)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ALiBi(heads=0), "heads is to be a whole number of at least 1"),
        (lambda: T5Bias(heads=2, buckets=7), "both the same number"),
        (lambda: T5Bias(heads=2, buckets=2), "each direction needs at least 2 buckets"),
        (lambda: T5Bias(heads=2, buckets=32, distance=8), "above the 8"),
        (lambda: Shaw(dim=4, distance=-1), "distance is to be a whole number of at least 0"),
        (lambda: TransformerXL(dim=3, heads=3), "must be even, got 9"),
        (lambda: Rotary(dim=5), "must be even, got 5"),
        (lambda: Rotary(dim=8, fraction=0.1), "must be even, got 0"),
        (lambda: Rotary(dim=8, fraction=1.5), "at most 1"),
        (lambda: Interpolated(0.5), "at least 1"),
        (lambda: NTKAware(0.0), "at least 1"),
        (lambda: YaRN(2.0, trained=64, slow=3.0, fast=2.0), "below fast"),
    ],
)
def test_bad_values(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
