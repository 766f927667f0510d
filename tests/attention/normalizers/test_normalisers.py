"""Normalisers against float64 references of their definitions, on every layout, with masks and in half precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from attention_cases import DTYPES, complete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.attention import Attention, DenseSupport, EdgeSupport, Entmax15, ScaledDot, SmoothedSigmoid, Softmax, Sparsemax

Row = list[float]


def softmax_of_row(scores: Row, temperature: float = 1.0) -> Row:
    powers = [math.exp((score - max(scores)) / temperature) for score in scores]
    return [power / math.fsum(powers) for power in powers]


def smoothed_sigmoid_of_row(scores: Row) -> Row:
    sigmoids = [1.0 / (1.0 + math.exp(-score)) for score in scores]
    return [each / math.fsum(sigmoids) for each in sigmoids]


def by_bisection(scores: Row, scale: float, power: float) -> Row:
    """max(scale s - τ, 0)^power whose sum is one: the sum falls as τ grows."""
    scaled = [score * scale for score in scores]
    low, high = max(scaled) - 1.0, max(scaled)
    for _ in range(200):
        middle = (low + high) / 2
        above = math.fsum(max(score - middle, 0.0) ** power for score in scaled) > 1.0
        low, high = (middle, high) if above else (low, middle)
    return [max(score - low, 0.0) ** power for score in scaled]


REFERENCES: dict[str, tuple[Callable[[], nn.Module], Callable[[Row], Row]]] = {
    "softmax": (Softmax, softmax_of_row),
    "sharp softmax": (lambda: Softmax(temperature=0.3), lambda row: softmax_of_row(row, 0.3)),
    "smoothed sigmoid": (SmoothedSigmoid, smoothed_sigmoid_of_row),
    "sparsemax": (Sparsemax, lambda row: by_bisection(row, 1.0, 1.0)),
    "entmax": (Entmax15, lambda row: by_bisection(row, 0.5, 2.0)),
}
every_normaliser = pytest.mark.parametrize("name", REFERENCES)
SPARSE = ("sparsemax", "entmax")


def expected(scores: Tensor, allowed: Tensor, reference: Callable[[Row], Row]) -> Tensor:
    weights = torch.zeros_like(scores, dtype=torch.float64)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in scores.shape[:-1])).tolist():
        keys = allowed[tuple(place)].nonzero().flatten()
        if len(keys):
            weights[tuple(place)][keys] = torch.tensor(
                reference(scores[tuple(place)][keys].tolist()), dtype=torch.float64
            )
    return weights


@every_normaliser
@settings(max_examples=40)
@given(keys=st.integers(1, 9), spread=st.sampled_from([0.0, 0.1, 1.0, 5.0, 50.0]), seed=st.integers(0, 2**20))
def test_dense_weights(name: str, keys: int, spread: float, seed: int) -> None:
    normaliser, reference = REFERENCES[name]
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(2, 1, 3, keys, generator=generator, dtype=torch.float64)
    allowed = torch.rand(2, 1, 3, keys, generator=generator) < 0.7
    allowed[0, 0, 0] = False
    for support, mask in ((DenseSupport(), torch.ones_like(allowed)), (DenseSupport(allowed), allowed)):
        wanted = expected(scores, mask, reference)
        weights = normaliser()(scores, support)
        torch.testing.assert_close(weights, wanted, rtol=0.0, atol=1e-12)
        assert not weights[~mask].any()
        torch.testing.assert_close(normaliser()(scores.float(), support), wanted.float(), rtol=0.0, atol=1e-5)


@every_normaliser
def test_weights_of_edges(name: str) -> None:
    """Rows of unlike degrees, one of them without an edge."""
    normaliser, reference = REFERENCES[name]
    support = EdgeSupport.from_edges(torch.tensor([[0, 1, 2, 1, 3, 0], [0, 0, 0, 2, 2, 3]]), 4)
    scores = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weights = normaliser()(scores, support)
    dense = support.to_dense(scores.detach(), 4, 4)
    allowed = support.to_dense(torch.ones(6, 2), 4, 4) > 0
    torch.testing.assert_close(support.to_dense(weights, 4, 4), expected(dense, allowed, reference), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: normaliser()(x, support), scores)


@every_normaliser
def test_gradients(name: str) -> None:
    normaliser, _ = REFERENCES[name]
    scores = torch.randn(1, 2, 3, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    allowed = torch.rand(1, 2, 3, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    allowed[0, 1, 2] = False
    for support in (DenseSupport(), DenseSupport(allowed)):
        assert torch.autograd.gradcheck(lambda x, s=support: normaliser()(x, s), scores)


@every_normaliser
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(name: str, dtype: torch.dtype) -> None:
    """Also at the largest numbers that it can hold."""
    normaliser, reference = REFERENCES[name]
    scores = torch.randn(1, 1, 4, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    weights = normaliser()(scores, DenseSupport())
    assert weights.dtype == torch.float32
    wanted = expected(scores.double(), torch.ones_like(scores, dtype=torch.bool), reference)
    torch.testing.assert_close(weights, wanted.float(), rtol=0.0, atol=3e-6)
    largest = torch.finfo(dtype).max / 4  # which a temperature of 0.3 does not take beyond that of fp32
    edge = torch.tensor([[[[largest, -largest, 0.0], [-largest, -largest, -largest]]]], dtype=dtype).requires_grad_()
    weights = normaliser()(edge, DenseSupport())
    if name == "smoothed sigmoid":  # a sigmoid has no more than one, and half of it at 0
        torch.testing.assert_close(weights[0, 0, 0], torch.tensor([2 / 3, 0.0, 1 / 3]))
    else:
        assert weights[0, 0, 0].tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(weights[0, 0, 1], torch.full((3,), 1 / 3))
    weights.square().sum().backward()
    assert edge.grad.isfinite().all()


@every_normaliser
@pytest.mark.parametrize("layout", ["dense", "edges"])
def test_scores_of_minus_infinity_weigh_nothing(name: str, layout: str) -> None:
    """As a key that a mask forbids; a row of nothing else is a row without keys."""
    normaliser, reference = REFERENCES[name]
    inf = math.inf
    scores = torch.tensor([[0.3, -inf, -0.2], [-inf, -inf, -inf], [0.1, 0.2, 0.3]], dtype=torch.float64)
    wanted = expected(scores[None, None], (scores > -inf)[None, None], reference)
    if layout == "dense":
        x, support = scores[None, None].requires_grad_(), DenseSupport()
    else:
        support = complete(3, 3)
        x = scores[support.target.long(), support.source.long()].unsqueeze(1).requires_grad_()
    weights = normaliser()(x, support)
    torch.testing.assert_close(support.to_dense(weights, 3, 3), wanted, rtol=0.0, atol=1e-12)
    weights.square().sum().backward()
    assert x.grad.isfinite().all()
    assert not x.grad[x == -inf].any()


@every_normaliser
@pytest.mark.parametrize("junk", [math.nan, math.inf])
@pytest.mark.parametrize("layout", ["dense", "edges"])
def test_what_is_no_number_spoils_its_row_alone(name: str, junk: float, layout: str) -> None:
    normaliser, _ = REFERENCES[name]
    scores = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    support = DenseSupport() if layout == "dense" else complete(3, 3)
    for spoilt in (False, True):
        scores[1, 1] = junk if spoilt else 0.0
        if isinstance(support, DenseSupport):
            x = scores[None, None].clone()
        else:
            x = scores[support.target.long(), support.source.long()].unsqueeze(1)
        x.requires_grad_()
        weights = support.to_dense(normaliser()(x, support), 3, 3)[0, 0]
        weights.square().sum().backward()
        gradient = support.to_dense(x.grad, 3, 3)[0, 0]
        found.append((weights[[0, 2]], gradient[[0, 2]]))
        if spoilt and not (name == "smoothed sigmoid" and junk == math.inf):
            assert weights[1].isnan().any()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@every_normaliser
def test_very_low_scores_share_as_others_do(name: str) -> None:
    """Sums of sigmoids at -1000 would be 0 / 0."""
    weights = REFERENCES[name][0]()(torch.tensor([[[[-1000.0, -1000.0, -1005.0]]]]).double(), DenseSupport())
    shift = torch.tensor([[[[0.0, 0.0, -5.0]]]]).double()
    alike = Softmax() if name == "smoothed sigmoid" else REFERENCES[name][0]()
    torch.testing.assert_close(weights, alike(shift, DenseSupport()), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "smoothed sigmoid"])
def test_a_constant_changes_nothing(name: str) -> None:
    scores = torch.randn(1, 1, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    normaliser = REFERENCES[name][0]()
    before, after = (normaliser(scores + constant, DenseSupport()) for constant in (0.0, 37.0))
    torch.testing.assert_close(before, after, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPARSE)
def test_low_scores_get_exactly_nothing(name: str, dtype: torch.dtype) -> None:
    """And no gradient; a gap of 1 is enough for sparsemax, one of 2 for entmax."""
    gap = {"sparsemax": 1.0, "entmax": 2.0}[name]
    scores = torch.tensor([[[[gap, 0.0, -3.0]]]], dtype=dtype).requires_grad_()
    weights = REFERENCES[name][0]()(scores, DenseSupport())
    assert weights.flatten().tolist() == [1.0, 0.0, 0.0]
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert not scores.grad.any()


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    """The conditions of Karush, Kuhn and Tucker: s - p is one number where p > 0, and no more elsewhere."""
    scores = 2 * torch.randn(1, 1, 50, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = Sparsemax()(scores, DenseSupport())
    rest = (scores - weights).masked_fill(weights == 0, torch.nan)
    threshold = rest.nanmean(-1, keepdim=True)
    assert (rest - threshold).nan_to_num().abs().max() < 1e-12
    assert (scores <= threshold + 1e-12)[weights == 0].all()


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_long_rows(name: str, spread: float) -> None:
    """20,000 keys: sums and thresholds keep their digits, also where nearly all of them share the weight."""
    scores = spread * torch.rand(1, 1, 1, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.tensor(REFERENCES[name][1](scores.flatten().tolist()), dtype=torch.float64)
    weights = REFERENCES[name][0]()(scores, DenseSupport()).flatten()
    torch.testing.assert_close(weights, wanted, rtol=0.0, atol=1e-12)
    single = REFERENCES[name][0]()(scores.float(), DenseSupport())
    assert abs(single.sum().item() - 1.0) < 1e-5
    torch.testing.assert_close(single.flatten().double(), wanted, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("masked", [False, True])
def test_the_temperature_reaches_the_fused_kernel(temperature: float, masked: bool) -> None:
    query, key, value = torch.randn(3, 2, 1, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    allowed = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(1)) < 0.8
    support = DenseSupport(allowed) if masked else DenseSupport()
    context, _ = Attention(ScaledDot(), Softmax(temperature=temperature))(query, key, value, support)
    scores = query @ key.transpose(-2, -1) / math.sqrt(6)
    seen = allowed if masked else torch.ones_like(allowed)
    weights = expected(scores, seen, lambda row: softmax_of_row(row, temperature))
    torch.testing.assert_close(context, weights @ value, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature is to be a number above 0"):
        Softmax(temperature=temperature)


@every_normaliser
@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_no_query_no_key_or_one(name: str, queries: int, keys: int) -> None:
    for support in (DenseSupport(), complete(queries, keys)):
        shape = (1, 2, queries, keys) if isinstance(support, DenseSupport) else (queries * keys, 2)
        scores = torch.randn(shape).requires_grad_()
        weights = REFERENCES[name][0]()(scores, support)
        assert weights.shape == shape
        assert (weights == 1).all()
        weights.sum().backward()
        assert not scores.grad.any()
