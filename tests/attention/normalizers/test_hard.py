"""Hard attention: what is drawn and how often, what the gradient is, and that masks and recorders are respected."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from attention_cases import DTYPES, MASKS, Shape, assert_same, complete, inputs, masked, run
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    AttentionMap,
    Constant,
    DenseSupport,
    EdgeSupport,
    HardReinforce,
    HardStraightThrough,
    ScaledDot,
    SlidingWindow,
    Softmax,
    log_probability,
    record,
)

every_kind = pytest.mark.parametrize("kind", [HardReinforce, HardStraightThrough])
SHAPE = Shape()


def drawn(
    attend: Attention, tensors: dict[str, Tensor], support: DenseSupport | EdgeSupport, seed: int = 0
) -> AttentionMap:
    torch.manual_seed(seed)
    with record(attend, grad=True) as maps:
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    return maps[""]


@every_kind
@pytest.mark.parametrize("kind_of_mask", MASKS)
@pytest.mark.parametrize("training", [True, False])
def test_one_permitted_key_or_none(kind: type[nn.Module], kind_of_mask: str, training: bool) -> None:
    support, allowed = masked(kind_of_mask, SHAPE)
    for dtype in DTYPES:
        attend = Attention(ScaledDot(), kind()).train(training)
        tensors = inputs(SHAPE, dtype)
        found = drawn(attend, tensors, support)
        weights = found.weights.detach()
        assert set(weights.flatten().tolist()) <= {0.0, 1.0}
        assert torch.equal(weights.sum(-1) == 1, allowed.any(-1))
        assert not weights[~allowed].any()
        if not training:
            best = found.probabilities.masked_fill(~allowed, -1.0).amax(-1)
            assert torch.equal((weights * found.probabilities).sum(-1)[allowed.any(-1)], best[allowed.any(-1)])
        result = run(attend, tensors, support)
        assert not result.context[~allowed.any(-1)].any()
        assert all(gradient.isfinite().all() for gradient in result.gradients.values())


@every_kind
@pytest.mark.parametrize("layout", ["dense", "edges"])
def test_keys_are_drawn_as_often_as_their_probability_says(kind: type[nn.Module], layout: str) -> None:
    """Within five standard deviations of 40,000 draws."""
    count, row = 40_000, torch.tensor([0.5, 0.0, 0.2, 0.3])
    if layout == "dense":
        support = DenseSupport()
        sample = kind().draw(row.expand(1, 1, count, 4), support)[0, 0]
    else:
        support = complete(count, 4)
        sample = support.to_dense(kind().draw(row[support.source.long()].unsqueeze(1), support), count, 4)[0, 0]
    assert (sample.sum(-1) == 1).all()
    assert not sample[:, 1].any()
    deviation = (row * (1 - row) / count).sqrt()
    assert ((sample.mean(0) - row).abs() <= 5 * deviation).all()
    neighbours = (sample[1:, 0] * sample[:-1, 0]).mean()  # each query draws for itself
    assert abs(neighbours.item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / count) * 1.5


@every_kind
@pytest.mark.parametrize("number", [0.0, 1.0 - 2**-24])
def test_the_ends_of_the_random_numbers(kind: type[nn.Module], number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without probability at both ends are not drawn, whatever the rounding."""
    monkeypatch.setattr(torch, "rand_like", lambda x: torch.full_like(x, number))
    probabilities = torch.tensor([0.0, 0.1, 0.3, 0.5999998, 0.0]).view(1, 1, 1, 5)
    weights = kind().draw(probabilities, DenseSupport())
    assert weights.flatten().tolist() == ([0, 1, 0, 0, 0] if number == 0.0 else [0, 0, 0, 1, 0])


def test_the_straight_through_gradient_is_that_of_the_probabilities() -> None:
    tensors = inputs(SHAPE)
    leaf = tensors["query"].requires_grad_()
    attend = Attention(ScaledDot(), HardStraightThrough())
    factor = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    torch.manual_seed(0)
    (attend(leaf, tensors["key"], tensors["value"], DenseSupport())[0] * factor).sum().backward()
    soft = Attention(ScaledDot(), Softmax())(leaf, tensors["key"], tensors["value"], DenseSupport())[0]
    torch.testing.assert_close(leaf.grad, torch.autograd.grad((soft * factor).sum(), leaf)[0], rtol=0.0, atol=1e-12)


def test_no_gradient_passes_through_the_draw_of_reinforce() -> None:
    tensors = inputs(SHAPE)
    result = run(Attention(ScaledDot(), HardReinforce()), tensors, DenseSupport())
    assert not result.gradients["query"].any()
    assert not result.gradients["key"].any()
    assert result.gradients["value"].any()


def test_reinforce_is_an_unbiased_estimate() -> None:
    """Two queries, three keys: all nine choices, weighted by their probability, give the exact gradient."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, n, 2, dtype=torch.float64).requires_grad_() for n in (2, 3, 3))
    attend = Attention(ScaledDot(), HardReinforce())

    def reward(context: Tensor) -> Tensor:
        return (context[0, 0, 0] * context[0, 0, 1]).sum().sin()  # of both queries, and not linear

    probabilities = attend.weights(query, key, DenseSupport())[0, 0]
    choices = list(itertools.product(range(3), repeat=2))
    chances = [probabilities[0, i] * probabilities[1, j] for i, j in choices]
    rewards = [reward(value[:, :, [i, j]]) for i, j in choices]
    exact = torch.autograd.grad(sum(c * r for c, r in zip(chances, rewards, strict=True)), (query, key))

    estimates: dict[tuple[int, ...], tuple[Tensor, ...]] = {}
    seed = 0
    while len(estimates) < len(choices):  # until each choice has been drawn once, by the module itself
        seed += 1
        torch.manual_seed(seed)
        with record(attend, grad=True) as maps:
            context, _ = attend(query, key, value, DenseSupport())
        choice = tuple(maps[""].weights.argmax(-1).flatten().tolist())
        if choice in estimates:
            continue
        advantage = reward(context).detach() - 0.7  # a baseline changes nothing on average
        loss = advantage * log_probability(maps[""]).sum()
        estimates[choice] = torch.autograd.grad(loss, (query, key))
    for index in range(2):
        expected = sum(c.detach() * estimates[choice][index] for c, choice in zip(chances, choices, strict=True))
        torch.testing.assert_close(expected, exact[index], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "edges"])
def test_some_queries_keep_their_probabilities_in_training(layout: str) -> None:
    """A share of them, within five standard deviations; they add nothing to the log-probability of the draw."""
    count, row = 4_000, torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    normaliser = HardReinforce(mixing=0.25)
    support = DenseSupport() if layout == "dense" else complete(count, 3)
    given = row.expand(1, 1, count, 3) if layout == "dense" else row[support.source.long()].unsqueeze(1)
    leaf = given.clone().requires_grad_()
    found = normaliser.draw(leaf, support)
    weights = found[0, 0] if layout == "dense" else support.to_dense(found, count, 3)[0, 0]
    is_soft = (weights == row).all(-1)
    assert ((weights == 1.0).sum(-1) + is_soft.long() == 1).all()
    assert abs(is_soft.double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / count)
    (gradient,) = torch.autograd.grad(found.sum(), leaf)
    assert gradient.sum().item() == 3 * int(is_soft.sum())
    if layout == "dense":
        chances = log_probability(AttentionMap("", found, support.axes, support, (0,), probabilities=leaf))
        drawn = (weights * row).sum(-1).log()
        torch.testing.assert_close(chances[0, 0], torch.where(is_soft, 0.0, drawn), rtol=0.0, atol=1e-12)
    assert normaliser.eval().draw(given, support).unique().tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="mixing is to be a number of at least 0 and of at most 1"):
        HardReinforce(mixing=1.5)


@every_kind
def test_log_probability_of_edges_and_sequences(kind: type[nn.Module]) -> None:
    """The same numbers in both layouts; zero, and no gradient, where nothing can be drawn."""
    allowed = torch.rand(1, 1, 5, 4, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[0, 0, 2] = False
    dense, edges = DenseSupport(allowed), EdgeSupport.from_edges(allowed[0, 0].T.nonzero().T, 5, 4)
    tensors = inputs(SHAPE._replace(batch=1))
    nodes = {name: x[0].transpose(0, 1) for name, x in tensors.items()}
    attend = Attention(ScaledDot(), kind()).eval()  # the same choice in both
    query = tensors["query"].requires_grad_()
    found = log_probability(drawn(attend, tensors, dense))
    assert found.shape == (1, 3, 5)
    over_edges = log_probability(drawn(attend, nodes, edges))
    torch.testing.assert_close(over_edges.T, found[0], rtol=0.0, atol=1e-12)
    wanted = attend.weights(query, tensors["key"], dense).amax(-1)
    torch.testing.assert_close(found, torch.where(wanted > 0, wanted, 1.0).log(), rtol=0.0, atol=1e-12)
    assert not found[:, :, 2].any()
    found.sum().backward()
    assert query.grad.isfinite().all()
    assert query.grad.any()
    assert not query.grad[:, :, 2].any()


def test_log_probability_in_a_window() -> None:
    """As of the dense mask of the same pairs, padding included."""
    x = torch.randn(2, 3, 11, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tensors = {"query": x, "key": x, "value": x}
    at = torch.arange(11)
    near = ((at.unsqueeze(1) - at).abs() <= 2)[None, None]
    real = (at < torch.tensor([[11], [4]]))[:, None, None]
    window = Attention(ScaledDot(), HardReinforce(), restrict=SlidingWindow(radius=2)).eval()
    found = log_probability(drawn(window, tensors, DenseSupport(real)))
    wanted = log_probability(drawn(Attention(ScaledDot(), HardReinforce()).eval(), tensors, DenseSupport(real & near)))
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-12)
    assert not found[1, :, 6:].any()
    assert found[1, :, :6].any()


def test_only_what_is_drawn_has_a_log_probability() -> None:
    with record(attend := Attention(ScaledDot(), Softmax())) as maps:
        attend(*inputs(SHAPE).values(), DenseSupport())
    assert maps[""].probabilities is None
    with pytest.raises(ValueError, match="draws nothing"):
        log_probability(maps[""])


@every_kind
@pytest.mark.parametrize("options", [{}, {"heads": [1]}])
def test_an_open_recorder_draws_nothing_of_its_own(kind: type[nn.Module], options: dict[str, list[int]]) -> None:
    attend = Attention(ScaledDot(), kind(), dropout=0.3)
    plain = run(attend, inputs(SHAPE), DenseSupport())
    after = torch.rand(3)
    observed = run(attend, inputs(SHAPE), DenseSupport(), within=[record(attend, **options)])
    assert_same(plain, observed)
    assert torch.equal(after, torch.rand(3))


@every_kind
def test_the_record_has_the_sample_and_its_probabilities(kind: type[nn.Module]) -> None:
    """By head, by step and within the budget."""
    attend, tensors = Attention(ScaledDot(), kind()), inputs(SHAPE)
    with record(attend, heads=[2, 0]) as maps:
        attend(*tensors.values(), DenseSupport())
    found = maps[""]
    assert found.probabilities is not None
    assert not found.probabilities.requires_grad
    wanted = Attention(ScaledDot(), Softmax()).weights(tensors["query"], tensors["key"], DenseSupport())
    torch.testing.assert_close(found.probabilities, wanted[:, [2, 0]])
    torch.testing.assert_close(found.head(0).probabilities, wanted[:, [0]])
    assert found.mean_heads().probabilities is None
    with record(attend, grad=True) as maps:
        for _ in range(3):
            attend(*tensors.values(), DenseSupport())
    assert maps[""].probabilities.shape == (3, 2, 3, 5, 4)
    assert log_probability(maps[""]).shape == (3, 2, 3, 5)
    with pytest.warns(UserWarning, match="left out"), record(attend, budget=found.nbytes) as maps:
        attend(*tensors.values(), DenseSupport())
    assert not len(maps)


def test_equal_scores_take_the_first_key_in_evaluation() -> None:
    attend = Attention(Constant(), HardReinforce()).eval()
    context, _ = attend(*inputs(SHAPE).values(), DenseSupport())
    torch.testing.assert_close(context, inputs(SHAPE)["value"][:, :, :1].expand_as(context))
