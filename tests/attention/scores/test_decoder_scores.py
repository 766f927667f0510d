"""Scores that know the attention before: against loops in float64 over several steps, and the laws of decoding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from attention_cases import DTYPES, Shape, loss, masked
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    Attention,
    AttentionFactory,
    AttentionState,
    CoverageAware,
    DenseSupport,
    EdgeSupport,
    LocationAware,
    MultiheadAttention,
    Softmax,
    record,
)
from zoo.attention.decoding import sees_last_key

SCORES: dict[str, Callable[[int, int], nn.Module]] = {
    "location": lambda dim, heads: LocationAware(dim=dim, heads=heads, filters=2, kernel_size=3),
    "location, wide": lambda dim, heads: LocationAware(dim=dim, heads=heads, filters=1, kernel_size=9),
    "coverage": lambda dim, heads: CoverageAware(dim=dim, heads=heads),
    "coverage, fertility": lambda dim, heads: CoverageAware(dim=dim, heads=heads, fertility=2.0),
}
every_score = pytest.mark.parametrize("score", SCORES)
STEPS = 3
SHAPE = Shape(2, 2, STEPS, 4, 3)


class Decoding(NamedTuple):
    """The contexts and weights of each step, and the gradients of a loss over all steps."""

    contexts: Tensor
    weights: Tensor
    gradients: dict[str, Tensor]


def site(score: str, shape: Shape = SHAPE, dtype: torch.dtype = torch.float64) -> Attention:
    torch.manual_seed(5)
    attend = Attention(SCORES[score](shape.width, shape.heads), Softmax())
    for parameter in attend.parameters():  # also the bias, which begins at zero
        nn.init.normal_(parameter)
    return attend.to(dtype)


def inputs(shape: Shape = SHAPE, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    """One query a step: (b, h, steps, d)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length: int, width: int) -> Tensor:
        return torch.randn(shape.batch, shape.heads, length, width, generator=generator, dtype=torch.float64).to(dtype)

    return {
        "query": draw(shape.queries, shape.width),
        "key": draw(shape.keys, shape.width),
        "value": draw(shape.keys, 4),
    }


def decode(attend: Attention, tensors: dict[str, Tensor], support: DenseSupport) -> Decoding:
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    attend.zero_grad()
    memory = attend.prepare(leaves["key"], leaves["value"], support)
    state = attend.start(leaves["query"], leaves["key"], support)
    contexts, weights = [], []
    for step in range(leaves["query"].shape[2]):
        context, state = attend.read(leaves["query"][:, :, step : step + 1], memory, None, state)
        contexts.append(context)
        weights.append(state.weights)
    context = torch.cat(contexts, 2)
    loss(context).backward()
    return gathered(context, torch.cat(weights, 2), {**leaves, **dict(attend.score.named_parameters())})


def gathered(context: Tensor, weights: Tensor, named: dict[str, Tensor]) -> Decoding:
    gradients = {name: torch.zeros_like(x) if x.grad is None else x.grad.clone() for name, x in named.items()}
    return Decoding(context.detach(), weights.detach(), gradients)


def decode_in_loops(score: nn.Module, tensors: dict[str, Tensor], seen: Tensor) -> Decoding:
    """From the formulas, one key at a time; `seen` (b,k) says which keys are real."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    score.zero_grad()
    b, h, steps, _ = leaves["query"].shape
    k = leaves["key"].shape[2]
    zero = leaves["key"].new_zeros(())
    contexts, weights = [], []
    for n in range(b):
        for m in range(h):
            alphas = [zero] * k
            totals = [zero] * k
            for i in range(steps):
                query, keys = leaves["query"][n, m, i], leaves["key"][n, m]
                energies = [energy(score, m, query, keys[j], j, alphas, totals) for j in range(k)]
                exponents = [energies[j].exp() if seen[n, j] else zero for j in range(k)]
                sum_of_them = sum(exponents)
                alphas = [e / sum_of_them if sum_of_them > 0 else zero for e in exponents]
                totals = [t + a for t, a in zip(totals, alphas, strict=True)]
                contexts.append(sum((a * leaves["value"][n, m, j] for j, a in enumerate(alphas)), torch.zeros(4)))
                weights.append(torch.stack(alphas))
    context = torch.stack(contexts).view(b, h, steps, 4)
    loss(context).backward()
    return gathered(context, torch.stack(weights).view(b, h, steps, k), {**leaves, **dict(score.named_parameters())})


def energy(
    score: nn.Module, m: int, query: Tensor, key: Tensor, j: int, alphas: list[Tensor], totals: list[Tensor]
) -> Tensor:
    hidden = []
    for d in range(len(query)):
        x = query[d] + key[d]
        match score:
            case LocationAware():  # Chorowski et al. 2015, eq. 8-9
                _, filters, size = score.filters.shape
                x = x + score.bias[m, d]
                for c in range(filters):
                    inside = [r for r in range(size) if 0 <= j + r - size // 2 < len(alphas)]
                    feature = sum(score.filters[m, c, r] * alphas[j + r - size // 2] for r in inside)
                    x = x + score.from_filters[m, c, d] * feature
            case CoverageAware():  # Tu et al. 2016, section 3.1, eq. 8-9
                coverage = totals[j]
                if score.fertility is not None:
                    logit = sum(key[e] * score.to_fertility[m, e] for e in range(len(key)))
                    coverage = coverage / (score.fertility / (1 + (-logit).exp()))
                x = x + score.from_coverage[m, d] * coverage
        hidden.append(torch.tanh(x))
    return sum(score.vector[m, d] * x for d, x in enumerate(hidden))


def assert_close(one: Decoding, other: Decoding, tolerance: float) -> None:
    torch.testing.assert_close(one.contexts.double(), other.contexts, rtol=0.0, atol=tolerance)
    torch.testing.assert_close(one.weights.double(), other.weights, rtol=0.0, atol=tolerance)
    assert one.gradients.keys() == other.gradients.keys()
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(
            gradient.double(), other.gradients[name], rtol=0.0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@every_score
@pytest.mark.parametrize("padded", [False, True])
def test_decoding_and_its_gradients_are_those_of_the_formula(score: str, padded: bool) -> None:
    """Through the state too: a step's loss reaches what earlier steps attended to."""
    tensors = inputs()
    seen = torch.ones(2, 4, dtype=torch.bool)
    if padded:
        seen[0], seen[1, 3] = False, False
    support = DenseSupport.from_key_mask(seen) if padded else DenseSupport()
    expected = decode_in_loops(site(score).score, tensors, seen)
    assert_close(decode(site(score), tensors, support), expected, 1e-12)
    single = {name: x.float() for name, x in tensors.items()}
    scale = max(float(x.abs().max()) for x in expected.gradients.values())
    assert_close(decode(site(score, dtype=torch.float32), single, support), expected, 1e-5 * max(1.0, scale))


@pytest.mark.parametrize("padded", [False, True])
def test_filters_as_a_matrix_compute_the_formula(padded: bool) -> None:
    """Without gradients, filters that are wider than the keys become a matrix before the first step."""
    attend, tensors = site("location, wide"), inputs()
    seen = torch.tensor([[True] * 4, [True, True, not padded, not padded]])
    support = DenseSupport.from_key_mask(seen)
    expected = decode_in_loops(attend.score, tensors, seen)
    query, key, value = tensors.values()
    with torch.no_grad():
        state = attend.start(query, key, support)
        assert state.of_score is not None
        for step in range(STEPS):
            context, state = attend(query[:, :, step : step + 1], key, value, support, state)
            torch.testing.assert_close(context[:, :, 0], expected.contexts[:, :, step], rtol=0.0, atol=1e-12)


@given(
    filters=st.integers(1, 3),
    half=st.integers(0, 6),
    keys=st.integers(0, 9),
    rows=st.integers(1, 2),
    seed=st.integers(0),
)
def test_filters_as_a_matrix_convolve(filters: int, half: int, keys: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    score = LocationAware(dim=2, heads=2, filters=filters, kernel_size=2 * half + 1).double()
    query, key = (torch.randn(3, 2, length, 2, dtype=torch.float64) for length in (rows, keys))
    weights = torch.rand(3, 2, rows, keys, dtype=torch.float64)
    with torch.no_grad():
        of_score = score.start(key)
        assert (of_score is None) == (keys > 2 * half + 1)
        state = AttentionState(weights, weights)
        found = score(query, key, DenseSupport(), replace(state, of_score=of_score))
        torch.testing.assert_close(found, score(query, key, DenseSupport(), state), rtol=0.0, atol=1e-12)


def test_filters_become_a_matrix_only_where_they_stay_as_they_are() -> None:
    """With a gradient they need a convolution, and so do keys that have come since."""
    attend, (query, key, value) = site("location, wide"), inputs().values()
    assert attend.start(query, key, DenseSupport()).of_score is None
    with torch.no_grad():
        state = attend.start(query, key, DenseSupport())
    longer = torch.cat([key, key], 2)
    later = state.extend(4)
    assert later.of_score is None
    with torch.no_grad():
        attend(query, longer, longer, DenseSupport(), later)
    context, _ = attend(
        query[:, :, :1], key, value, DenseSupport(), replace(state, weights=torch.ones_like(state.weights))
    )
    assert torch.autograd.grad(context.square().sum(), attend.score.filters)[0].abs().max() > 0.0


@every_score
@pytest.mark.parametrize("kind", ["key", "any"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(score: str, kind: str, dtype: torch.dtype) -> None:
    """Junk where no query may look changes nothing, to the last bit; who sees nothing gets zeros."""
    shape = SHAPE._replace(queries=1)
    support, allowed = masked(kind, shape)
    tensors = inputs(SHAPE, dtype)
    before = decode(site(score, dtype=dtype), tensors, support)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    changed = {
        "query": tensors["query"],
        "key": tensors["key"].masked_fill(unseen, torch.nan),
        "value": tensors["value"].masked_fill(unseen, torch.inf),
    }
    after = decode(site(score, dtype=dtype), changed, support)
    assert torch.equal(before.contexts, after.contexts)
    assert torch.equal(before.weights, after.weights)
    for name, gradient in before.gradients.items():
        assert gradient.isfinite().all(), name
        assert torch.equal(gradient, after.gradients[name]), name
    assert not before.weights.masked_select(~allowed).any()
    empty = ~allowed.any(-1).squeeze(2)
    assert empty.any()
    for what in (before.contexts, before.weights, before.gradients["query"]):
        assert not what[empty].any()


@every_score
def test_half_precision_is_near_full_precision(score: str) -> None:
    exact = decode(site(score), inputs(), DenseSupport())
    for dtype, tolerance in ((torch.bfloat16, 0.1), (torch.float16, 0.01)):
        rough = decode(site(score, dtype=dtype), inputs(dtype=dtype), DenseSupport())
        assert rough.weights.dtype == torch.float32
        torch.testing.assert_close(rough.contexts.double(), exact.contexts, rtol=0.0, atol=tolerance)


@every_score
def test_the_state_survives_autocast(score: str) -> None:
    attend, tensors = site(score, dtype=torch.float32), inputs(dtype=torch.float32)
    exact = decode(attend, tensors, DenseSupport())
    with torch.autocast("cpu", torch.bfloat16):
        rough = decode(attend, tensors, DenseSupport())
    assert rough.weights.dtype == torch.float32
    torch.testing.assert_close(rough.contexts.float(), exact.contexts, rtol=0.0, atol=0.1)


@pytest.mark.parametrize(
    ("score", "dtype"),
    [("location", torch.float16), ("coverage, fertility", torch.float16), ("coverage", torch.bfloat16)],
)
def test_many_steps_in_half_precision(score: str, dtype: torch.dtype) -> None:
    """The total is as large as the number of steps; one key that explains next to nothing divides it by little."""
    attend, tensors = site(score, dtype=dtype), inputs(dtype=dtype)
    tensors["key"][:, :, 0] = 30.0 * tensors["key"][:, :, 0].sign()
    query, memory = tensors["query"][:, :, :1], attend.prepare(tensors["key"], tensors["value"], DenseSupport())
    with torch.no_grad():
        state = attend.start(query, memory.key, DenseSupport())
        for _ in range(400):
            context, state = attend.read(query, memory, None, state)
            assert context.isfinite().all()
    assert state.total.dtype == torch.float32
    torch.testing.assert_close(state.total.sum(-1), torch.full((2, 2, 1), 400.0), rtol=1e-4, atol=0.0)


@every_score
def test_the_first_step_is_additive_attention(score: str) -> None:
    attend, tensors = site(score), inputs(SHAPE._replace(queries=1))
    additive = Attention(Additive(dim=3, heads=2), Softmax()).double()
    with torch.no_grad():
        additive.score.vector.copy_(attend.score.vector)
        if isinstance(attend.score, LocationAware):
            attend.score.bias.zero_()
    expected, _ = additive(tensors["query"], tensors["key"], tensors["value"], DenseSupport())
    actual = decode(attend, tensors, DenseSupport()).contexts
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("behind", "ahead"), [(1, 2), (0, 1), (None, 1), (1, None)])
@pytest.mark.parametrize("lengths", [None, (7, 4)])
def test_a_window_follows_the_median(behind: int | None, ahead: int | None, lengths: tuple[int, int] | None) -> None:
    """Chorowski et al. 2015, section 2.3: keys near the median of the previous weights; in training all keys."""
    shape = SHAPE._replace(keys=7, queries=5)
    tensors = inputs(shape)
    limits = (7, 7) if lengths is None else lengths
    real = torch.arange(7) < torch.tensor(limits).unsqueeze(1)
    support = DenseSupport() if lengths is None else DenseSupport.from_key_mask(real)
    torch.manual_seed(5)
    score = LocationAware(dim=3, heads=2, filters=2, kernel_size=3, behind=behind, ahead=ahead)
    whole = LocationAware(dim=3, heads=2, filters=2, kernel_size=3)
    whole.load_state_dict(score.state_dict())
    attend, plain = Attention(score, Softmax()).double(), Attention(whole, Softmax()).double()
    torch.testing.assert_close(decode(attend, tensors, support).contexts, decode(plain, tensors, support).contexts)
    memory = attend.eval().prepare(tensors["key"], tensors["value"], support)
    state = attend.start(tensors["query"], tensors["key"], support)
    for step in range(5):
        query = tensors["query"][:, :, step : step + 1]
        scores = plain.eval().score(query, memory.key, support, state)
        before = state.weights
        _, state = attend.read(query, memory, None, state)
        reached = sees_last_key(attend, replace(memory, attention=state))
        for n, m in itertools.product(range(2), range(2)):
            middle = median(before[n, m, 0].tolist())
            first = 0 if behind is None else max(0, middle - behind)
            seen = range(first, limits[n] if ahead is None else min(limits[n], middle + ahead + 1))
            expected = torch.zeros(7, dtype=torch.float64)
            expected[list(seen)] = scores[n, m, 0, list(seen)].softmax(0)
            torch.testing.assert_close(state.weights[n, m, 0], expected)
        for n in range(2):
            now = [median(state.weights[n, m, 0].tolist()) for m in range(2)]
            assert ahead is None or reached[n, 0] == any(each + ahead >= limits[n] - 1 for each in now)
    assert reached is None if ahead is None else not sees_last_key(attend.train(), replace(memory, attention=state))


def median(weights: list[float]) -> int:
    return next((j for j in range(len(weights)) if sum(weights[: j + 1]) >= 0.5 * sum(weights)), 0)


@every_score
@settings(max_examples=20)
@given(beams=st.lists(st.integers(0, 1), min_size=1, max_size=5))
def test_beams_take_their_memory_with_them(score: str, beams: list[int]) -> None:
    """Hypotheses reordered in the middle go on as they would have, each with its own attention so far."""
    attend, tensors, order = site(score), inputs(), torch.tensor(beams)
    query, key, value = tensors.values()
    support = DenseSupport()
    state = attend.start(query[:, :, :1], key, support)
    for step in range(2):
        _, state = attend(query[:, :, step : step + 1], key, value, support, state)
    straight, after = attend(query[:, :, 2:], key, value, support, state)
    kept, kept_after = attend(query[order, :, 2:], key[order], value[order], support, state.reorder(order))
    torch.testing.assert_close(kept, straight[order], rtol=0.0, atol=1e-12)
    torch.testing.assert_close(kept_after.total, after.total[order], rtol=0.0, atol=1e-12)
    swapped, _ = attend(query[:, :, 2:], key, value, support, state.reorder(torch.tensor([1, 0])))
    assert (swapped - straight).abs().max() > 1e-4  # the memory matters


@every_score
def test_hypotheses_have_each_its_own_memory(score: str) -> None:
    """As queries over keys that they share: a state with a row for each."""
    attend, tensors = site(score), inputs()
    query, key, value = tensors.values()
    start = attend.start(query, key, DenseSupport())
    rows = AttentionState(*(x.expand(-1, -1, STEPS, -1) for x in (start.weights, start.total)))
    first, state = attend(query, key, value, DenseSupport(), rows)
    second, _ = attend(query, key, value, DenseSupport(), state)
    for i in range(STEPS):
        alone = AttentionState(state.weights[:, :, i : i + 1], state.total[:, :, i : i + 1])
        context, _ = attend(query[:, :, i : i + 1], key, value, DenseSupport(), alone)
        torch.testing.assert_close(second[:, :, i : i + 1], context, rtol=0.0, atol=1e-12)
    assert (second - first).abs().max() > 1e-4


@every_score
@pytest.mark.parametrize(("queries", "keys"), [(1, 0), (1, 1), (0, 3)])
def test_lengths_of_zero_and_one(score: str, queries: int, keys: int) -> None:
    attend, tensors = site(score), inputs(SHAPE._replace(queries=queries, keys=keys))
    query, key, value = tensors.values()
    state = attend.start(query, key, DenseSupport())
    for _ in range(2):
        context, state = attend(query, key, value, DenseSupport(), state)
    assert context.shape == (2, 2, queries, 4)
    torch.testing.assert_close(context, value.expand(-1, -1, queries, -1) if keys == 1 else torch.zeros_like(context))


@every_score
def test_the_map_of_a_decoding_has_its_steps(score: str) -> None:
    attend, tensors = site(score), inputs()
    plain = decode(attend, tensors, DenseSupport())
    with record(attend) as maps:
        observed = decode(attend, tensors, DenseSupport())
    assert torch.equal(plain.contexts, observed.contexts)
    assert all(torch.equal(gradient, observed.gradients[name]) for name, gradient in plain.gradients.items())
    assert maps[""].axes == ("step", "batch", "head", "query", "key")
    assert torch.equal(maps[""].weights.squeeze(3).movedim(0, 2), plain.weights)


@every_score
def test_without_a_state(score: str) -> None:
    tensors = inputs()
    with pytest.raises(ValueError, match=r"Aware depends on previous weights: pass a state, .* Attention\.start"):
        site(score)(*tensors.values(), DenseSupport())


@every_score
def test_a_state_of_other_keys(score: str) -> None:
    attend, (query, key, value) = site(score), inputs().values()
    state = attend.start(query, key[:, :, :3], DenseSupport())
    with pytest.raises(ValueError, match="the state is of 3 keys, and there are 4"):
        attend(query, key, value, DenseSupport(), state)


@every_score
def test_a_graph_is_not_decoded(score: str) -> None:
    with pytest.raises(ValueError, match="Aware works on DenseSupport only"):
        site(score).check_layout(EdgeSupport, "a graph layer")


def test_multi_head_carries_the_state() -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(dim=6, heads=2, attend=AttentionFactory(score=CoverageAware, normalizer=Softmax))
    memory = layer.prepare(torch.randn(2, 4, 6))
    state = layer.attend.start(torch.zeros(2, 2, 1, 3), memory.key, DenseSupport())
    for _ in range(3):
        _, state = layer(torch.randn(2, 1, 6), memory, DenseSupport(), state)
    torch.testing.assert_close(state.total.sum(-1), torch.full((2, 2, 1), 3.0))


# What they are for


def test_location_can_walk_along_the_keys() -> None:
    """A filter that looks one key back, and contents that are all alike: attention moves on by one each step."""
    score = LocationAware(dim=1, heads=1, filters=1, kernel_size=3)
    with torch.no_grad():
        score.filters.copy_(torch.tensor([[[1.0, 0.0, 0.0]]]))
        score.from_filters.fill_(5.0)
        score.vector.fill_(60.0)
    attend = Attention(score, Softmax())
    query, key = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 6, 1)
    weights = torch.eye(6)[0].view(1, 1, 1, 6)
    state = AttentionState(weights=weights, total=weights)
    for step in range(1, 6):
        _, state = attend(query, key, key, DenseSupport(), state)
        assert state.weights.argmax() == step
        assert state.weights.max() > 0.999


def test_coverage_can_turn_away_from_what_was_attended_to() -> None:
    """Contents all alike: each step attends to a key that the steps before did not, as far as there are any."""
    score = CoverageAware(dim=1, heads=1)
    with torch.no_grad():
        score.from_coverage.fill_(-5.0)
        score.vector.fill_(60.0)
    attend = Attention(score, Softmax())
    query, key = torch.zeros(1, 1, 1, 1), torch.tensor([0.3, 0.2, 0.1, 0.0]).view(1, 1, 4, 1)
    state = attend.start(query, key, DenseSupport())
    for _ in range(4):
        _, state = attend(query, key, key, DenseSupport(), state)
    torch.testing.assert_close(state.total.flatten(), torch.ones(4), rtol=0.0, atol=0.2)


def test_twice_the_fertility_is_half_the_coverage() -> None:
    torch.manual_seed(0)
    once, twice = (CoverageAware(dim=3, heads=2, fertility=n) for n in (1.0, 2.0))
    twice.load_state_dict(once.state_dict())
    query, key, _ = inputs(dtype=torch.float32).values()
    total = torch.rand(2, 2, STEPS, 4)
    half = once(query, key, DenseSupport(), AttentionState(total, total / 2))
    torch.testing.assert_close(twice(query, key, DenseSupport(), AttentionState(total, total)), half)


@pytest.mark.parametrize("size", [0, -1, 2, 10])
def test_a_filter_has_a_middle(size: int) -> None:
    with pytest.raises(ValueError, match=f"kernel_size must be odd, .* got {size}|kernel_size={size}"):
        LocationAware(dim=2, heads=1, kernel_size=size)


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="filters is to be a whole number of at least 1"):
        LocationAware(dim=2, heads=1, filters=0)
    with pytest.raises(ValueError, match="ahead is to be a whole number of at least 1 or null"):
        LocationAware(dim=2, heads=1, behind=3, ahead=0)
    for fertility in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="fertility is to be a number above 0 or null"):
            CoverageAware(dim=2, heads=1, fertility=fertility)
