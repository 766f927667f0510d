"""Monotonic attention and MoChA against loops over queries and keys, where the published products underflow too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from attention_cases import DTYPES, MASKS, Run, Shape, assert_same, inputs, loss, masked, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import every_pair
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    Additive,
    Attention,
    AttentionState,
    Constant,
    DenseSupport,
    EdgeSupport,
    Monotonic,
    MonotonicChunkwise,
    ScaledDot,
    ScorePair,
    record,
)
from zoo.attention.normalizers.monotonic import chunkwise, expected_alignment, hard_alignment

SHAPE = Shape()
CHUNK = 3


def reference(energies: Tensor, before: Tensor, advance: int = 0) -> Tensor:
    """Raffel et al. 2017, eq. 9-10, cell by cell; differentiable. Queries start `advance` keys behind the previous."""
    p, rows = energies.sigmoid(), []
    for i in range(energies.shape[2]):
        if i and advance:
            before = torch.cat([torch.zeros_like(before[..., :advance]), before], -1)[..., : before.shape[-1]]
        q, row = torch.zeros_like(before[..., 0]), []
        for j in range(energies.shape[3]):
            q = before[..., j] + (q * (1 - p[:, :, i, j - 1]) if j else 0.0)
            row.append(p[:, :, i, j] * q)
        before = torch.stack(row, -1)
        rows.append(before)
    return torch.stack(rows, 2)


def long_reference(energies: Tensor, before: Tensor) -> Tensor:
    """The same in NumPy, for long inputs of one head."""
    e = energies.double().numpy()
    e, previous = (np.ascontiguousarray(np.moveaxis(x[:, 0], 0, -1)) for x in (e, before.double().numpy()))
    p, not_p = 1 / (1 + np.exp(-e.clip(-700, 700))), 1 / (1 + np.exp(e.clip(-700, 700)))
    alpha = np.zeros_like(e)
    for i in range(len(e)):
        q = [previous[0]]
        for j in range(1, e.shape[1]):
            q.append(q[-1] * not_p[i, j - 1] + previous[j])
        previous = alpha[i] = p[i] * np.stack(q)
    return torch.from_numpy(alpha).movedim(-1, 0).unsqueeze(1)


def chunk_reference(alpha: Tensor, energies: Tensor, allowed: Tensor, chunk: int) -> Tensor:
    """Chiu & Raffel 2018, section 2.3, from right to left: each key's share goes to its chunk."""
    beta = [torch.zeros_like(alpha[..., 0]) for _ in range(alpha.shape[-1])]
    for k in range(alpha.shape[-1]):
        members = range(max(0, k - chunk + 1), k + 1)
        window = energies[..., members].masked_fill(~allowed[..., members], -1e300)
        share = window.softmax(-1) * allowed[..., members]
        for position, member in enumerate(members):
            beta[member] = beta[member] + alpha[..., k] * share[..., position]
    return torch.stack(beta, -1)


def published(energies: Tensor, before: Tensor, least: float = 1e-10) -> Tensor:
    """The parallel form of Raffel et al. 2017, section 2.3: products of 1 - p, clamped so that they can divide."""
    p, rows = energies.sigmoid(), []
    passed = F.pad((1 - p).clamp(least, 1.0).log().cumsum(-1), (1, 0))[..., :-1].exp()
    for i in range(energies.shape[2]):
        through = passed[:, :, i]
        before = p[:, :, i] * through * (before / through.clamp(least, 1.0)).cumsum(-1)
        rows.append(before)
    return torch.stack(rows, 2)


def first_key(energies: Tensor) -> Tensor:
    before = torch.zeros_like(energies[:, :, 0])
    before[..., 0] = 1.0
    return before


def drawn(*shape: int, scale: float = 2.0, shift: float = -0.5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64) + shift


def gradients(function: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
    leaves = [each.detach().clone().requires_grad_() for each in tensors]
    weights = function(*leaves)
    weighing = drawn(*weights.shape, seed=9).to(weights.dtype)
    return list(torch.autograd.grad((weighing * weights + weights.square()).sum(), leaves))


def monotonic_site(shape: Shape = SHAPE, dtype: torch.dtype = torch.float64, **options: object) -> Attention:
    torch.default_generator.manual_seed(5)
    normalizer = Monotonic(heads=shape.heads, offset=-0.5, **{"noise": 0.0, **options})
    return Attention(Additive(dim=shape.width, heads=shape.heads), normalizer).to(dtype)


def mocha_site(shape: Shape = SHAPE, dtype: torch.dtype = torch.float64, **options: object) -> Attention:
    torch.default_generator.manual_seed(5)
    score = ScorePair(monotonic=Additive, chunk=Additive, dim=shape.width, heads=shape.heads)
    normalizer = MonotonicChunkwise(heads=shape.heads, chunk=CHUNK, offset=-0.5, **{"noise": 0.0, **options})
    return Attention(score, normalizer).to(dtype)


SITES = {
    "monotonic": monotonic_site,
    "mocha": mocha_site,
    "monotonic, advancing": partial(monotonic_site, advance=1),
    "mocha, advancing": partial(mocha_site, advance=2),
}
every_site = pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())
MODES = ("training", "hard", "expected")
every_mode = pytest.mark.parametrize("mode", MODES)


def in_mode(attend: Attention, mode: str) -> Attention:
    inner = attend.normalizer if isinstance(attend.normalizer, Monotonic) else attend.normalizer.monotonic
    if mode != "training":
        inner.inference = mode
    return attend.train(mode == "training")


# The recursion


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (7, 1), (2, 2), (3, 9), (9, 3), (6, 6)])
def test_expected_alignment_is_the_recursion(queries: int, keys: int) -> None:
    energies = drawn(2, 3, queries, keys)
    for before in (first_key(energies), drawn(2, 3, keys, seed=1).softmax(-1), torch.zeros(2, 3, keys).double()):
        expected, reference_gradients = reference(energies, before), gradients(reference, energies, before)
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            given = energies.to(dtype), before.to(dtype)
            alpha = expected_alignment(*given)
            assert alpha.dtype == torch.float64  # a memory that fp32 would round at every step
            torch.testing.assert_close(alpha.double(), expected, rtol=0.0, atol=tolerance)
            for one, other in zip(gradients(expected_alignment, *given), reference_gradients, strict=True):
                torch.testing.assert_close(one.double(), other, rtol=0.0, atol=tolerance)


def test_by_hand() -> None:
    """p = 1/2 everywhere: the numbers of heads before the i-th tail."""
    alpha = expected_alignment(torch.zeros(1, 1, 3, 4), torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]))
    rows = [[1 / 2, 1 / 4, 1 / 8, 1 / 16], [1 / 4, 2 / 8, 3 / 16, 4 / 32], [1 / 8, 3 / 16, 6 / 32, 10 / 64]]
    assert torch.equal(alpha[0, 0], torch.tensor(rows).double())


def test_gradcheck() -> None:
    for queries in (1, 4):
        energies = drawn(1, 2, queries, 5).requires_grad_()
        before = drawn(1, 2, 5, seed=1).softmax(-1).requires_grad_()
        assert torch.autograd.gradcheck(expected_alignment, (energies, before))


def test_a_second_derivative_is_refused_where_there_is_none() -> None:
    energies = drawn(1, 1, 3, 4).requires_grad_()
    alpha = expected_alignment(energies, first_key(energies))
    (gradient,) = torch.autograd.grad(alpha.square().sum(), energies, create_graph=True)
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        gradient.sum().backward()


def test_a_thousand_steps_in_single_precision() -> None:
    """p near 0, near 1 (also the same at each step), at both at once, and so saturated that it is exactly 0 or 1."""
    ranges = ((1.0, -4.0), (2.0, 0.0), (1.0, -8.0), (1.0, 8.0), (0.0, 7.0), (0.0, 12.0), (20.0, 10.0), (1e4, 0.0))
    energies = torch.cat([drawn(1, 1, 1000, 400, scale=scale, shift=shift).float() for scale, shift in ranges])
    before = first_key(energies)
    expected = long_reference(energies, before)
    assert (expected_alignment(energies, before).double() - expected).abs().max() < 1e-6
    steps = []
    for i in range(energies.shape[2]):
        steps.append(before := expected_alignment(energies[:, :, i : i + 1], before)[:, :, 0])
    assert (torch.stack(steps, 2).double() - expected).abs().max() < 1e-6


def test_the_published_products_underflow() -> None:
    """Thirty steps over 400 keys, p about 0.1: the published form loses mass where it divides by what underflowed."""
    energies = drawn(4, 1, 30, 400, scale=1.0, shift=-2.0).float()
    before = first_key(energies)
    expected = long_reference(energies, before)
    assert (published(energies, before).double() - expected).abs().max() > 0.01
    assert (expected_alignment(energies, before).double() - expected).abs().max() < 1e-6


# What peers' users reported as NaN


def confident(rows: int = 30) -> Tensor:
    """Later in training p is 1 at the right key and 0 elsewhere: 1 - p has zeros."""
    energies = torch.full((2, 1, rows, 40), -200.0)
    energies[:, :, torch.arange(rows), torch.arange(rows)] = 200.0
    return energies


PEERS_NANS = {
    "j-min/MoChA-pytorch#4: gradients, after training for a while": confident(),
    "j-min/MoChA-pytorch#4: every p is one": torch.full((2, 1, 30, 40), 1e4),
    "tensorflow#13669: stays at the first key": torch.full((2, 1, 30, 40), -1e4).index_fill(-1, torch.tensor(0), 1e4),
    "Tacotron-2#291: at the first step, from large scores": drawn(2, 1, 30, 400, scale=300.0).float(),
    "r9y9/tacotron_pytorch#8: long inputs, short steps": drawn(2, 1, 30, 800, scale=1.0, shift=3.0).float(),
    "infinite scores": torch.full((2, 1, 30, 40), torch.inf).index_fill(-1, torch.arange(0, 40, 2), -torch.inf),
    "one key": torch.full((2, 1, 30, 1), 40.0),
    "no key may be stopped at": torch.full((2, 1, 30, 40), -torch.inf),
}


@pytest.mark.parametrize("case", PEERS_NANS)
def test_what_gave_peers_nan(case: str) -> None:
    energies = PEERS_NANS[case]
    before = first_key(energies)
    expected = long_reference(energies, before)
    for queries in (30, 1):
        some, wanted = energies[:, :, :queries], expected[:, :, :queries]
        alpha = expected_alignment(some, before)
        assert (alpha.double() - wanted).abs().max() < 1e-6
        for gradient in gradients(expected_alignment, some, before):
            assert gradient.isfinite().all()
        beta = chunkwise(alpha, some, None, CHUNK)
        assert beta.isfinite().all()
        torch.testing.assert_close(beta.sum(-1), alpha.sum(-1))
        for gradient in gradients(lambda a, e: chunkwise(a, e, None, CHUNK), alpha, some):
            assert gradient.isfinite().all()


def test_the_published_products_have_such_gradients() -> None:
    """Without the clamp of the divisor, as in MoChA-pytorch#4: the counter-example is one."""
    energies = confident()
    found = gradients(lambda e: published(e, first_key(e), least=0.0), energies)
    assert not all(gradient.isfinite().all() for gradient in found)


# Hard


def hard_reference(energies: Tensor, before: Tensor) -> Tensor:
    """Raffel et al. 2017, section 2.2, one row and head at a time."""
    alpha = torch.zeros_like(energies)
    for b in range(energies.shape[0]):
        for h in range(energies.shape[1]):
            at = int(before[b, h].argmax()) if before[b, h].any() else energies.shape[3]
            for i in range(energies.shape[2]):
                while at < energies.shape[3] and energies[b, h, i, at].sigmoid() <= 0.5:
                    at += 1
                if at < energies.shape[3]:
                    alpha[b, h, i, at] = 1.0
    return alpha


@settings(max_examples=50)
@given(queries=st.integers(1, 6), keys=st.integers(1, 8), shift=st.floats(-2, 2), seed=st.integers(0, 2**20))
def test_hard_alignment_is_the_walk(queries: int, keys: int, shift: float, seed: int) -> None:
    energies = drawn(2, 2, queries, keys, shift=shift, seed=seed)
    before = first_key(energies)
    alpha = hard_alignment(energies, before)
    assert torch.equal(alpha, hard_reference(energies, before))
    # stopping for sure, or never, leaves nothing to expect
    assert torch.equal(alpha, expected_alignment(torch.where(energies > 0, torch.inf, -torch.inf), before))
    # later queries stand no earlier, and whoever comes after one who found nothing finds nothing
    place = torch.where(alpha.any(-1), alpha.argmax(-1), keys)
    assert (place.diff(dim=-1) >= 0).all()


@settings(max_examples=50)
@given(queries=st.integers(1, 6), keys=st.integers(1, 8), scale=st.floats(0, 1e5), seed=st.integers(0, 2**20))
def test_mass_only_moves_on_and_leaves_at_the_end(queries: int, keys: int, scale: float, seed: int) -> None:
    energies = drawn(2, 2, queries, keys, scale=scale, seed=seed)
    alpha = expected_alignment(energies, first_key(energies))
    beyond = 1.0 - alpha.flip(-1).cumsum(-1).flip(-1)  # the probability of standing before each key
    assert (alpha >= 0).all()
    assert (alpha.sum(-1) <= 1 + 1e-12).all()
    assert (alpha.sum(-1).diff(dim=-1) <= 1e-12).all()
    before = beyond - (1 - alpha.sum(-1, keepdim=True))
    assert (before.diff(dim=2) <= 1e-12).all()


@settings(max_examples=50)
@given(queries=st.integers(1, 6), keys=st.integers(1, 8), advance=st.integers(1, 3), seed=st.integers(0, 2**20))
def test_no_two_queries_stop_at_one_key(queries: int, keys: int, advance: int, seed: int) -> None:
    """Of a walk that advances, each query is the walk of one query from behind the stop before it."""
    scores = drawn(2, 2, queries, keys, shift=0.0, seed=seed)
    normalizer = Monotonic(heads=2, offset=0.0, advance=advance).double().eval()
    alpha = normalizer(scores, DenseSupport()).alignment
    before = first_key(scores)
    for i in range(queries):
        assert torch.equal(alpha[:, :, i], hard_reference(scores[:, :, i : i + 1], before)[:, :, 0])
        before = F.pad(alpha[:, :, i], (advance, 0))[..., :keys]
    place = torch.where(alpha.any(-1), alpha.argmax(-1), keys)
    assert ((place.diff(dim=-1) >= advance) | (place[..., 1:] == keys)).all()


def test_none_found_is_a_context_of_zeros() -> None:
    attend = in_mode(monotonic_site(), "hard")
    with torch.no_grad():
        attend.normalizer.offset.fill_(-100.0)
    tensors = inputs(SHAPE)
    context, _ = attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport())
    assert not context.any()


# The chunk


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("kind", MASKS)
def test_chunkwise_is_the_sum_over_chunks(chunk: int, kind: str) -> None:
    shape = Shape(queries=4, keys=7)
    support, allowed = masked(kind, shape)
    alpha = drawn(2, 3, 4, 7).softmax(-1) * allowed
    energies = drawn(2, 3, 4, 7, seed=1)
    expected = chunk_reference(alpha, energies, allowed, chunk)
    wanted = gradients(lambda a, e: chunk_reference(a, e, allowed, chunk), alpha, energies)
    permitted = support.mask_of(energies)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        given = alpha.to(dtype), energies.to(dtype)
        beta = chunkwise(*given, permitted, chunk)
        torch.testing.assert_close(beta.double(), expected, rtol=0.0, atol=tolerance)
        assert not beta[~allowed].any()
        found = gradients(lambda a, e: chunkwise(a, e, permitted, chunk), *given)
        for name, one, other in zip(("alpha", "energies"), found, wanted, strict=True):
            # what stands at a forbidden key is nothing to anyone, and its own share goes to the rest of the chunk
            part = allowed if name == "energies" else torch.ones_like(allowed)
            torch.testing.assert_close(one.double()[part], other[part], rtol=0.0, atol=tolerance)


def test_a_chunk_of_one_is_monotonic_attention() -> None:
    energies = drawn(2, 3, 5, 9, scale=500.0)
    alpha = expected_alignment(drawn(2, 3, 5, 9), first_key(energies))
    assert torch.equal(chunkwise(alpha, energies, None, 1), alpha)


def test_chunks_far_below_the_largest_energy() -> None:
    """Softmaxes of chunks 1,000 below the row's largest: moving sums of exp(u - max) divide zero by zero."""
    energies = torch.linspace(0.0, 2000.0, 40).expand(1, 1, 2, 40).clone()
    alpha = expected_alignment(torch.full((1, 1, 2, 40), -2.0), first_key(energies))
    exponentials = (energies - energies.amax(-1, keepdim=True)).exp()
    sums = F.pad(exponentials, (CHUNK - 1, 0)).unfold(-1, CHUNK, 1).sum(-1)
    assert (alpha / sums).isinf().any()
    allowed = torch.ones(1, 1, 2, 40, dtype=torch.bool)
    expected = chunk_reference(alpha.double(), energies.double(), allowed, CHUNK)
    torch.testing.assert_close(chunkwise(alpha, energies, None, CHUNK).double(), expected, rtol=0.0, atol=1e-6)


def test_hard_mocha_is_softmax_over_the_chunk() -> None:
    alpha = torch.zeros(1, 1, 2, 6)
    alpha[..., 0, 4] = alpha[..., 1, 0] = 1.0
    energies = torch.arange(6.0).expand(1, 1, 2, 6)
    beta = chunkwise(alpha, energies, None, 3)
    torch.testing.assert_close(beta[0, 0, 0, 2:5], torch.tensor([2.0, 3.0, 4.0]).softmax(-1))
    torch.testing.assert_close(beta[0, 0].sum(-1), torch.ones(2))
    assert beta[0, 0, 1].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


# In Attention: masks, memory, precision, observation


@every_pair(site=SITES, mode=MODES, kind=MASKS)
def test_masks(site: Callable[..., Attention], mode: str, kind: str) -> None:
    """The law of masks for every dtype: rows of at most one, zeros where forbidden, nothing from unseen keys."""
    support, allowed = masked(kind, SHAPE)
    for dtype in DTYPES:
        attend, tensors = in_mode(site(dtype=dtype), mode), inputs(SHAPE, dtype)
        with record(attend) as maps:
            before = run(attend, tensors, support)
        weights = maps[""].weights
        assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert not weights[~allowed].any()
        assert (weights.sum(-1) <= 1 + 1e-5).all()
        check_empty_rows(before, allowed)
        check_unseen(before, attend, tensors, support, allowed)


def check_empty_rows(result: Run, allowed: Tensor) -> None:
    empty = ~allowed.any(-1)
    assert not result.context[empty].any()
    assert not result.gradients["query"][empty].any()
    for name, gradient in result.gradients.items():
        assert gradient.isfinite().all(), name


def check_unseen(
    before: Run, attend: Attention, tensors: dict[str, Tensor], support: DenseSupport, allowed: Tensor
) -> None:
    unseen = ~allowed.any(-2).unsqueeze(-1)
    spoilt = {name: x if name == "query" else torch.where(unseen, torch.nan, x) for name, x in tensors.items()}
    assert_same(before, run(attend, spoilt, support))


@every_site
@pytest.mark.parametrize("kind", MASKS)
def test_weights_are_those_of_the_loops(site: Callable[..., Attention], kind: str) -> None:
    """Scores, masks and normaliser together, with the gradients of all that is learned."""
    support, allowed = masked(kind, SHAPE)
    attend, tensors = site(), inputs(SHAPE)
    query, key = (tensors[name].requires_grad_() for name in ("query", "key"))
    leaves = [query, key, *attend.parameters()]
    scores = attend.score(query, key, support, None)
    first, second = (scores, None) if scores.dim() == 4 else scores
    inner = attend.normalizer if second is None else attend.normalizer.monotonic
    energies = (first + inner.offset.view(-1, 1, 1)).masked_fill(~allowed, -1e300)
    expected = reference(energies, first_key(energies), inner.advance)
    expected = expected if second is None else chunk_reference(expected, second, allowed, CHUNK)
    weights = attend.weights(query, key, support)
    torch.testing.assert_close(weights, expected, rtol=0.0, atol=1e-12)
    found, wanted = (torch.autograd.grad(loss(x), leaves, retain_graph=True) for x in (weights, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@every_site
@every_mode
@pytest.mark.parametrize("kind", ["none", "key", "any"])
@pytest.mark.parametrize("cuts", [(1, 1, 1, 1, 1), (2, 1, 2)])
def test_queries_at_once_are_steps_with_a_state(
    site: Callable[..., Attention], mode: str, kind: str, cuts: tuple[int, ...]
) -> None:
    _, allowed = masked(kind, SHAPE)
    attend, tensors = in_mode(site(), mode), inputs(SHAPE)
    leaves = [tensors["query"].requires_grad_(), tensors["key"].requires_grad_(), *attend.parameters()]
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    whole, _ = attend(query, key, value, DenseSupport(allowed))
    steps, state, start = [], attend.start(query[:, :, :1], key, DenseSupport(allowed[:, :, :1])), 0
    for cut in cuts:
        part = slice(start, start := start + cut)
        context, state = attend(query[:, :, part], key, value, DenseSupport(allowed[:, :, part]), state)
        steps.append(context)
    stepped = torch.cat(steps, 2)
    torch.testing.assert_close(stepped, whole, rtol=0.0, atol=1e-12)
    if not whole.requires_grad:
        assert mode == "hard"
        return
    found, wanted = (torch.autograd.grad(loss(x), leaves, allow_unused=True) for x in (stepped, whole))
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@every_site
def test_padding_takes_no_mass(site: Callable[..., Attention]) -> None:
    """Padding at either end, or between, is passed over: the weights of the real keys are those without it."""
    attend, tensors = site(), inputs(SHAPE)
    query, key = tensors["query"], tensors["key"]
    alone = attend.weights(query, key, DenseSupport())
    real = torch.tensor([1, 2, 4, 5])  # of eight, three of them at the ends and one between
    if attend.normalizer.__class__ is MonotonicChunkwise:
        real = torch.tensor([2, 3, 4, 5])  # chunks count places: padding within would shorten them
    padded = torch.full((*key.shape[:2], 8, key.shape[3]), 7.0, dtype=key.dtype).index_copy(2, real, key)
    mask = torch.zeros(2, 8, dtype=torch.bool).index_fill(1, real, True)
    weights = attend.weights(query, padded, DenseSupport.from_key_mask(mask))
    torch.testing.assert_close(weights[..., real], alone, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(weights.sum(-1), alone.sum(-1), rtol=0.0, atol=1e-12)


@every_site
def test_memory_follows_the_beams(site: Callable[..., Attention]) -> None:
    """Both states of a pair of beams are taken over, in the order of their survivors."""
    attend = in_mode(site(), "expected")
    shape = Shape(batch=3, queries=2)
    tensors = inputs(shape)
    key, value = tensors["key"], tensors["value"]
    beams = torch.tensor([2, 0, 0])

    def step(i: int, order: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        return attend(tensors["query"][order][:, :, i : i + 1], key[order], value[order], DenseSupport(), state)

    everyone = torch.arange(3)
    _, state = step(0, everyone, attend.start(tensors["query"][:, :, :1], key, DenseSupport()))
    moved, after = step(1, beams, state.reorder(beams))
    still, other = step(1, everyone, state)
    torch.testing.assert_close(moved, still[beams], rtol=0.0, atol=1e-12)
    assert torch.equal(after.weights, other.weights[beams])
    assert torch.equal(after.total, other.total[beams])
    if after.alignment is not None:
        assert torch.equal(after.alignment, other.alignment[beams])


def test_mocha_remembers_where_it_stood() -> None:
    attend, tensors = mocha_site(), inputs(SHAPE._replace(queries=1))
    state = attend.start(tensors["query"], tensors["key"], DenseSupport())
    assert state.alignment is None
    assert (state.weights[..., 0] == 1).all()
    _, state = attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport(), state)
    assert state.alignment is not None
    assert not torch.equal(state.alignment, state.weights)


@every_site
@pytest.mark.parametrize("queries", [1, 5])
def test_autocast_computes_in_single_precision(site: Callable[..., Attention], queries: int) -> None:
    tensors = inputs(SHAPE._replace(queries=queries), torch.float32)
    attend = site(dtype=torch.float32)
    query, key = tensors["query"], tensors["key"]
    with torch.autocast("cpu", torch.bfloat16):
        scores = attend.score(query, key, DenseSupport(), None)
        weights = attend.weights(query, key, DenseSupport())
    assert weights.dtype == torch.float32
    expected = attend.normalizer(scores.float(), DenseSupport())
    assert torch.equal(weights, expected.weights)


@every_site
@every_mode
def test_recording_changes_nothing(site: Callable[..., Attention], mode: str) -> None:
    support, _ = masked("any", SHAPE)
    for dtype in DTYPES:
        attend, tensors = in_mode(site(dtype=dtype, noise=1.0), mode), inputs(SHAPE, dtype)
        plain = run(attend, tensors, support)
        assert_same(plain, run(attend, tensors, support, within=[record(attend)]))
        assert_same(plain, run(attend, tensors, support, within=[record(attend, grad=True)]))


@every_site
@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (5, 0), (1, 0), (0, 0), (1, 1)])
@every_mode
def test_lengths_of_zero_and_one(site: Callable[..., Attention], queries: int, keys: int, mode: str) -> None:
    shape = SHAPE._replace(queries=queries, keys=keys)
    attend, tensors = in_mode(site(shape), mode), inputs(shape)
    result = run(attend, tensors, DenseSupport())
    assert result.context.shape == (2, 3, queries, 7)
    state = attend.start(tensors["query"], tensors["key"], DenseSupport())
    assert state.weights.shape == (2, 3, 1, keys)


# Options


def test_noise_is_for_training_alone() -> None:
    normalizer = Monotonic(heads=1, offset=0.0, noise=3.0)
    scores, support = torch.zeros(1, 1, 1, 20000), DenseSupport()
    torch.manual_seed(0)
    first = normalizer(scores, support).weights
    assert not torch.equal(first, normalizer(scores, support).weights)
    p_first = normalizer(torch.zeros(4000, 1, 1, 1), support).weights
    assert abs(p_first.logit().std().item() - 3.0) < 0.2
    normalizer.inference = "expected"
    normalizer.eval()
    assert normalizer(scores, support).weights[0, 0, 0, :3].tolist() == [0.5, 0.25, 0.125]


def test_noise_grows_with_the_steps_of_training() -> None:
    scores = torch.zeros(1, 1, 1, 4000, dtype=torch.float64)
    for kind in (Monotonic(heads=1, noise=2.0, noise_steps=100), Monotonic(heads=1, noise=2.0)):
        expected = {0: 0.0, 25: 0.5, 100: 2.0, 900: 2.0} if kind.noise_steps else {0: 2.0, 900: 2.0}
        for step, deviation in expected.items():
            kind.set_training_step(step)
            energies = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "zoo.attention.normalizers.monotonic.expected_alignment",
                    lambda e, before, kept=energies: kept.append(e) or torch.zeros_like(e),
                )
                kind.train()(scores, DenseSupport())
            assert float(energies[0].detach().std()) == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("offset", [-4.0, 2.0])
def test_the_offset_is_learned_for_each_head(offset: float) -> None:
    normalizer = Monotonic(heads=3, offset=offset, noise=0.0)
    assert normalizer.offset.tolist() == [offset] * 3
    weights = normalizer(torch.zeros(1, 3, 1, 2), DenseSupport()).weights
    torch.testing.assert_close(weights[0, :, 0, 0], torch.tensor(offset).sigmoid().expand(3))
    weights[0, 1].sum().backward()
    assert normalizer.offset.grad is not None
    assert normalizer.offset.grad.ne(0).tolist() == [False, True, False]


def test_two_scores_share_nothing() -> None:
    """Each half of the width is the first layer of one energy function alone."""
    attend, tensors = mocha_site(Shape(width=7)), inputs(Shape(width=7))
    assert attend.score.monotonic.vector.shape == (3, 3)
    assert attend.score.chunk.vector.shape == (3, 4)
    scores = attend.score(tensors["query"], tensors["key"], DenseSupport(), None)
    assert scores.shape == (2, 2, 3, 5, 4)
    changed = tensors["query"].clone()
    changed[..., :3] += 1.0
    others = attend.score(changed, tensors["key"], DenseSupport(), None)
    assert not torch.equal(scores[0], others[0])
    assert torch.equal(scores[1], others[1])


def test_mixed_scores() -> None:
    score = ScorePair(monotonic=Additive, chunk=ScaledDot, dim=6, heads=3).double()
    tensors = inputs(SHAPE)
    scores = score(tensors["query"], tensors["key"], DenseSupport())
    expected = ScaledDot()(tensors["query"][..., 3:], tensors["key"][..., 3:], DenseSupport())
    assert torch.equal(scores[1], expected)


@pytest.mark.parametrize("site", [monotonic_site, mocha_site], ids=["monotonic", "mocha"])
def test_an_alignment_is_learned(site: Callable[..., Attention]) -> None:
    """Inference finds the alignment that training expects: positions that stay, or move by one or two."""
    torch.manual_seed(0)
    attend, project = site(Shape(heads=1, width=16), torch.float32, noise=1.0), nn.Linear(16, 16)
    places = torch.cat([torch.zeros(32, 1).long(), torch.randint(0, 3, (32, 7))], 1).cumsum(1)
    keys = 4 * torch.eye(16)[torch.stack([torch.randperm(16) for _ in range(32)])].unsqueeze(1)
    queries = keys.gather(2, places[:, None, :, None].expand(-1, -1, -1, 16))
    if isinstance(attend.score, ScorePair):
        attend.score.monotonic, attend.score.widths = ScaledDot(), [16, 0]
        attend.score.chunk = Constant()
    else:
        attend.score = ScaledDot()
    optimizer = torch.optim.Adam([*project.parameters(), *attend.parameters()], 0.05)
    for _ in range(150):
        weights = attend.normalizer(attend.score(project(queries), keys, DenseSupport(), None), DenseSupport())
        weights = weights.alignment.float()
        optimizer.zero_grad()
        F.nll_loss(weights.clamp(min=1e-6).log().flatten(0, 2), places.flatten()).backward()
        optimizer.step()
    attend.eval()
    weights = attend.normalizer(attend.score(project(queries), keys, DenseSupport(), None), DenseSupport())
    weights = weights.alignment
    assert (weights.squeeze(1).argmax(-1) == places).float().mean() > 0.95


@pytest.mark.parametrize("kind", [Monotonic, MonotonicChunkwise])
def test_bad_options(kind: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="noise is to be a number of at least 0"):
        kind(heads=1, noise=-1.0)
    with pytest.raises(ValueError, match="noise is to be a number of at least 0"):
        kind(heads=1, noise=float("nan"))


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match="inference is hard or expected, got 'soft'"):
        Monotonic(heads=1, inference="soft")
    with pytest.raises(ValueError, match="chunk is to be a whole number of at least 1"):
        MonotonicChunkwise(heads=1, chunk=0)
    with pytest.raises(ValueError, match="dim is to be a whole number of at least 2"):
        ScorePair(monotonic=Additive, chunk=Additive, dim=1, heads=2)
    tensors = inputs(SHAPE)
    for score in (Additive(dim=6, heads=3).double(), ScaledDot()):
        attend = Attention(score, MonotonicChunkwise(heads=3).double())
        with pytest.raises(ValueError, match=r"needs two scores for each pair.*got the shape \(2, 3, 5, 4\)"):
            attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport())
    for attend in (monotonic_site(), mocha_site()):
        with pytest.raises(ValueError, match="works on DenseSupport only; GAT attends over EdgeSupport"):
            attend.check_layout(EdgeSupport, "GAT")


COMPILED = """
import torch
from zoo.attention import Additive, Attention, DenseSupport, Monotonic, linear_recurrence

def close(function, compiled, *tensors):
    found = []
    for each in (function, compiled):
        leaves = [x.clone().requires_grad_() for x in tensors]
        y = each(*leaves)
        found.append([y, *torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)])
    torch.testing.assert_close(*found)

compiled = torch.compile(linear_recurrence, backend="eager", fullgraph=True)
close(linear_recurrence, compiled, torch.rand(2, 9), torch.rand(2, 9))
attend = Attention(Additive(dim=6, heads=2), Monotonic(heads=2, noise=0.0))
for queries in (1, 3):
    def context(query, key, value):
        return attend(query, key, value, DenseSupport())[0]
    compiled = torch.compile(context, backend="eager", fullgraph=queries == 1)
    close(context, compiled, *(torch.randn(2, 2, n, 6) for n in (queries, 7, 7)))
"""


# slow tier, as it compiles for seconds; `test_compile` has a case of compiling in the fast tier
@pytest.mark.slow
def test_compiled() -> None:
    """In a process of its own, without the tests' type checker: steps in one graph, several queries beside it."""
    finished = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@every_site
def test_a_map_records_where_queries_stop(site: Callable[..., Attention]) -> None:
    """Beside weights, which MoChA spreads over chunks; of every call, of the chosen heads, with its gradient."""
    attend, shape = site().train(), SHAPE
    tensors, support = inputs(shape), DenseSupport()
    state = attend.start(tensors["query"], tensors["key"], support)
    with record(attend, heads=[1], grad=True) as maps:
        for number in range(2):
            query = tensors["query"][:, :, number : number + 1]
            _, state = attend(query, tensors["key"], tensors["value"], support, state)
    found = maps[""]
    assert found.alignment is not None
    assert found.alignment.shape == found.weights.shape == (2, shape.batch, 1, 1, shape.keys)
    assert found.alignment.requires_grad
    assert state is not None
    assert state.alignment is not None
    last = found.steps()[1].alignment
    assert last is not None
    assert torch.equal(last, state.alignment[:, 1:2])
    assert torch.equal(found.alignment, found.weights) == isinstance(attend.normalizer, Monotonic)
    torch.testing.assert_close(found.alignment.sum(-1), found.weights.sum(-1))
    assert found.mean_heads().alignment is None
