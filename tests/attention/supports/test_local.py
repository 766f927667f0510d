"""Luong's local attention against loops over its equations, and the laws that it shares with all others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from attention_cases import NORMALISERS, SCORES, Shape, assert_close, assert_same, inputs, run, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.attention import (
    ActivationUnit,
    ALiBi,
    Attention,
    DenseSupport,
    EdgeSupport,
    Gaussian,
    LocalM,
    LocalP,
    LocalSupport,
    LocationAware,
    Shaw,
    Softmax,
    record,
)

SHAPE = Shape(2, 3, 9, 14, 4)


def site(score: str, restrict: nn.Module, normalizer: nn.Module, dtype: torch.dtype = torch.float64) -> Attention:
    torch.default_generator.manual_seed(5)
    return Attention(SCORES[score](4, 3), normalizer, restrict=restrict).to(dtype)


def local_p(radius: int = 2) -> LocalP:
    torch.default_generator.manual_seed(6)
    return LocalP(dim=4, heads=3, radius=radius).double()


def key_mask() -> Tensor:
    """Ragged, and an example without any key."""
    return torch.arange(14) < torch.tensor([[10], [0]])


def reference(
    attend: Attention, x: dict[str, Tensor], lengths: list[int], first: int = 0
) -> tuple[Tensor, list[list[list[list[float]]]]]:
    """Equations 7, 9 and 10 with a dot product, one query at a time."""
    module, gaussian = attend.restrict, isinstance(attend.normalizer, Gaussian)
    contexts, weights = [], []
    for b, length in enumerate(lengths):
        contexts.append([])
        weights.append([])
        for h in range(x["query"].shape[1]):
            rows = []
            weights[b].append([])
            for t in range(x["query"].shape[2]):
                query = x["query"][b, h, t]
                p = torch.tensor(float(t + first), dtype=torch.float64)
                if isinstance(module, LocalP):
                    p = length * torch.sigmoid(module.vector[h] @ torch.tanh(module.weight[h] @ query))
                near = [s for s in range(length) if p - module.radius <= s <= p + module.radius]
                row = torch.zeros(x["value"].shape[-1], dtype=torch.float64)
                dense = [0.0] * x["key"].shape[2]
                exponentials = {s: torch.exp(query @ x["key"][b, h, s]) for s in near}
                for s in near:
                    weight = exponentials[s] / sum(exponentials.values())
                    if gaussian:
                        weight = weight * torch.exp(-((s - p) ** 2) / (2 * (module.radius / 2) ** 2))
                    row = row + weight * x["value"][b, h, s]
                    dense[s] = weight.item()
                rows.append(row)
                weights[b][h].append(dense)
            contexts[b].append(torch.stack(rows))
    return torch.stack([torch.stack(each) for each in contexts]), weights


CASES: dict[str, Callable[[], tuple[nn.Module, nn.Module]]] = {
    "local-m": lambda: (LocalM(radius=2), Softmax()),
    "local-m with a Gaussian": lambda: (LocalM(radius=3), Gaussian()),
    "local-m, wide": lambda: (LocalM(radius=50), Softmax()),
    "local-p": lambda: (local_p(), Gaussian()),
    "local-p, narrow": lambda: (local_p(1), Gaussian()),
    "local-p, wide": lambda: (local_p(30), Gaussian()),
}
every_case = pytest.mark.parametrize("name", CASES)


@every_case
@pytest.mark.parametrize("masked", [False, True])
def test_equations(name: str, masked: bool) -> None:
    """Contexts, weights, and the gradients of all that learns; what stands in padding is not read."""
    attend = site("dot", *CASES[name]())
    x = inputs(SHAPE)
    support = DenseSupport.from_key_mask(key_mask()) if masked else DenseSupport()
    lengths = [10, 0] if masked else [14, 14]
    leaves = {name: each.clone().requires_grad_() for name, each in x.items()}
    parameters = list(attend.parameters())
    expected, weights = reference(attend, leaves, lengths)
    loss = (expected + 0.5 * expected.square()).sum()
    gradients = torch.autograd.grad(loss, [*leaves.values(), *parameters], allow_unused=True)
    spoilt = {name: each.clone() for name, each in x.items()}
    if masked:
        for each in (spoilt["key"], spoilt["value"]):
            each.masked_fill_(~key_mask()[:, None, :, None], torch.nan)
        spoilt["query"][1] = torch.nan
    for within in ([], [record(attend, grad=True)]):
        found = run(attend, spoilt, support, within=within)
        torch.testing.assert_close(found.context, expected.detach(), rtol=0.0, atol=1e-12)
        for one, other in zip(found.gradients.values(), gradients, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=0.0, atol=1e-11)
    narrow = attend.restrict(spoilt["query"], spoilt["key"], support)
    dense = narrow.to_dense(weights_of(attend, spoilt, support), 9, 14)
    torch.testing.assert_close(dense, torch.tensor(weights, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_case
def test_lower_precision(name: str, dtype: torch.dtype) -> None:
    restrict, normalizer = CASES[name]()
    x = inputs(SHAPE, dtype)
    exact = run(site("dot", restrict, normalizer), {k: each.double() for k, each in x.items()}, DenseSupport())
    found = run(site("dot", restrict, normalizer, dtype), x, DenseSupport())
    assert all(gradient.isfinite().all() for gradient in found.gradients.values())
    if dtype == torch.float32:
        torch.testing.assert_close(found.context.double(), exact.context, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("score", SCORES)
def test_every_score_equals_dense_attention_under_the_same_mask(score: str) -> None:
    x = inputs(SHAPE)
    near = (torch.arange(14) - torch.arange(9).unsqueeze(1)).abs() <= 3
    allowed = near & key_mask()[:, None, None]
    local = run(site(score, LocalM(radius=3), Softmax()), x, DenseSupport.from_key_mask(key_mask()))
    assert_close(local, run(site(score, None, Softmax()), x, DenseSupport(allowed)), 1e-12)


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_every_normaliser_equals_dense_attention_under_the_same_mask(normaliser: str) -> None:
    x = inputs(SHAPE)
    allowed = torch.rand(2, 3, 9, 14, generator=torch.Generator().manual_seed(1)) < 0.6
    near = (torch.arange(14) - torch.arange(9).unsqueeze(1)).abs() <= 3
    local = run(site("additive", LocalM(radius=3), NORMALISERS[normaliser]()), x, DenseSupport(allowed))
    dense = run(site("additive", None, NORMALISERS[normaliser]()), x, DenseSupport(allowed & near))
    assert_close(local, dense, 1e-12)


@pytest.mark.parametrize("make", [lambda: ALiBi(heads=3), lambda: Shaw(dim=4, distance=2)])
@pytest.mark.parametrize("causal", [False, True])
def test_positions(make: Callable[[], nn.Module], causal: bool) -> None:
    x = inputs(SHAPE)
    x["value"] = x["value"][..., :4]
    near = (torch.arange(14) - torch.arange(9).unsqueeze(1)).abs() <= 3
    if causal:
        near = near.tril(14 - 9)
    runs = []
    for restrict, support in ((LocalM(radius=3), DenseSupport(causal=causal)), (None, DenseSupport(near[None, None]))):
        attend = site("dot", restrict, Softmax())
        torch.default_generator.manual_seed(1)
        attend.set_position(make())
        runs.append(run(attend.double(), x, support))
    assert_close(*runs, 1e-12)


@every_case
def test_steps_equal_all_queries_at_once(name: str) -> None:
    """A decoder says how many queries came before; its state has the pairs' layout."""
    attend, x = site("additive", *CASES[name]()), inputs(SHAPE)
    support = DenseSupport.from_key_mask(key_mask())
    whole = run(attend, x, support).context
    state, steps = None, []
    with torch.no_grad(), record(attend) as maps:
        for t in range(9):
            query = x["query"][:, :, t : t + 1]
            here = DenseSupport(support.permitted, first=t)
            state = attend.start(query, x["key"], here) if state is None else state
            context, state = attend(query, x["key"], x["value"], here, state)
            steps.append(context)
    torch.testing.assert_close(torch.cat(steps, 2), whole, rtol=0.0, atol=1e-12)
    assert maps[""].axes == ("step", "batch", "head", "query", "near")
    for rows in (slice(0, 4), slice(4, 9)):
        part = attend(x["query"][:, :, rows], x["key"], x["value"], support.select_queries(rows, 9))[0]
        torch.testing.assert_close(part, whole[:, :, rows], rtol=0.0, atol=1e-12)


@settings(max_examples=12)
@given(queries=st.integers(1, 8), keys=st.integers(0, 12), radius=st.integers(1, 9), seed=st.integers(0, 99))
def test_any_size(queries: int, keys: int, radius: int, seed: int) -> None:
    x = inputs(Shape(2, 3, queries, keys, 4), seed=seed)
    for restrict, normalizer in ((LocalM(radius=radius), Softmax()), (local_p(radius), Gaussian())):
        attend = site("dot", restrict, normalizer)
        found = run(attend, x, DenseSupport())
        expected, _ = reference(attend, x, [keys, keys])
        torch.testing.assert_close(found.context, expected.detach(), rtol=0.0, atol=1e-12)
        assert all(gradient.isfinite().all() for gradient in found.gradients.values())


def test_the_prediction_learns_through_the_gaussian() -> None:
    """To find the one key whose value matters; without the Gaussian it has no gradient."""
    torch.manual_seed(0)
    query, key = torch.randn(16, 1, 1, 4), torch.zeros(16, 1, 20, 4)
    value = torch.zeros(16, 1, 20, 1)
    value[:, :, 12] = 1.0
    attend = Attention(SCORES["dot"](4, 1), Gaussian(), restrict=LocalP(dim=4, heads=1, radius=8))
    optimizer = torch.optim.Adam(attend.parameters(), lr=0.1)
    for _ in range(100):
        loss = -attend(query, key, value, DenseSupport())[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    center = attend.restrict(query, key, DenseSupport()).center
    assert (center - 12).abs().mean() < 1
    flat = Attention(SCORES["dot"](4, 1), Softmax(), restrict=LocalP(dim=4, heads=1, radius=8))
    with torch.no_grad():
        flat.restrict.vector.copy_(attend.restrict.vector)
    context = flat(query, key, value, DenseSupport())[0]
    assert not context.requires_grad


def test_a_step_reads_its_window_alone() -> None:
    """2D + 1 keys of 10,000; the others may be anything."""
    x = inputs(Shape(1, 3, 1, 10_000, 4))
    support = DenseSupport(first=400)
    before = run(site("dot", LocalM(radius=5), Softmax()), x, support).context
    far = (torch.arange(10_000) - 400).abs() > 5
    for name in ("key", "value"):
        x[name][:, :, far] = torch.nan
    assert torch.equal(run(site("dot", LocalM(radius=5), Softmax()), x, support).context, before)
    assert weights_of(site("dot", LocalM(radius=5), Softmax()), x, support).shape == (1, 3, 1, 11)


def test_local_window_of_the_worked_example() -> None:
    """[p_t - D, p_t + D] has 2D + 1 positions."""
    x = torch.zeros(1, 1, 1, 4)
    support = LocalM(radius=2)(x, torch.zeros(1, 1, 20, 4), DenseSupport(first=7))
    assert isinstance(support, LocalSupport)
    assert support.key_at.flatten().tolist() == [5, 6, 7, 8, 9]
    half = LocalSupport.from_centers(torch.full((1, 1, 1), 7.5), 2, 20, DenseSupport())
    assert half.key_at[half.permitted].tolist() == [6, 7, 8, 9]


def test_gaussian_is_half_as_wide_as_the_window() -> None:
    support = LocalSupport.from_centers(torch.full((1, 1, 1), 7.0, dtype=torch.float64), 4, 20, DenseSupport())
    weights = Gaussian()(torch.zeros(1, 1, 1, 9, dtype=torch.float64), support).flatten() * 9
    assert weights[4] == 1.0
    assert weights[6].item() == pytest.approx(math.exp(-0.5))  # 2 away, sigma 4 / 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LocalM(radius=-1), "radius"),
        (lambda: LocalP(dim=2, heads=1, radius=0), "radius"),
        (
            lambda: Attention(SCORES["dot"](4, 1), Gaussian()).check_layout(DenseSupport, "a decoder"),
            "LocalSupport only",
        ),
        (lambda: site("dot", LocalM(), Softmax()).check_layout(EdgeSupport, "a graph"), "LocalM works on DenseSupport"),
        (
            lambda: Attention(LocationAware(dim=4, heads=1), Softmax(), restrict=LocalM()).check_layout(
                DenseSupport, "a decoder"
            ),
            "LocationAware works on DenseSupport",
        ),
    ],
)
def test_bad_input(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("restrict", ["local-m", "local-p"])
def test_what_no_query_reads_may_be_anything(score: str, restrict: str) -> None:
    """Neither what a mask forbids nor what lies beside all windows reaches a gradient."""
    tensors = inputs(SHAPE)
    attend = site(score, local_p() if restrict == "local-p" else LocalM(radius=2), Softmax())
    support = DenseSupport.from_key_mask(key_mask())
    unread = torch.arange(14) >= (10 if restrict == "local-p" else 11)  # the last of nine queries reads the tenth
    plain = run(attend, tensors, support)
    for name in ("key", "value"):
        tensors[name][:, :, unread] = torch.nan
        tensors[name][1] = torch.inf
    assert_same(plain, run(attend, tensors, support))
    assert all(gradient.isfinite().all() for gradient in plain.gradients.values())


def test_a_network_as_a_score_does_not_see_what_is_not_read() -> None:
    torch.manual_seed(0)
    attend = Attention(ActivationUnit(dim=4, hidden=(6, 5)), Softmax(), restrict=LocalM(radius=2)).double()
    tensors = inputs(SHAPE)
    plain = run(attend, tensors, DenseSupport())
    dense = run(Attention(attend.score, Softmax()), tensors, DenseSupport(near_the_diagonal(9, 14, 2)))
    assert_close(plain, dense, 1e-12)
    for name in ("key", "value"):
        tensors[name][:, :, 11:] = torch.nan
    assert_same(plain, run(attend, tensors, DenseSupport()))


def near_the_diagonal(queries: int, keys: int, radius: int) -> Tensor:
    distance = torch.arange(keys) - torch.arange(queries).unsqueeze(1)
    return (distance.abs() <= radius)[None, None]
