"""Losses, compared with loops in double precision that have the same draws."""

import math
from fractions import Fraction

import pytest
import torch
from recommendation_cases import numbers, users
from torch import Tensor
from torch.nn import functional as F

from zoo.errors import ConfigError
from zoo.tasks.recommendation import losses
from zoo.tasks.recommendation.losses import BCE, FullSoftmax, GeneralisedBCE, SampledSoftmax
from zoo.tasks.recommendation.sampling import Distribution, NegativeSampler

ITEMS, WIDTH = 40, 5
SEEN = [[0, 1, 2, 3, 30], [4], list(range(39))]
OWNERS = [0, 0, 0, 1, 2, 2]
TARGETS = [1, 2, 30, 4, 0, 38]
COUNTS = [60 if item in (1, 38) else item % 7 for item in range(ITEMS)]


class Case:
    """Six positions of three users."""

    def __init__(self, scale: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(0)
        self.hidden = (scale * torch.randn(6, WIDTH, generator=generator)).requires_grad_()
        self.items = (scale * torch.randn(ITEMS, WIDTH, generator=generator)).requires_grad_()
        self.targets, self.users = numbers(TARGETS), numbers(OWNERS)
        self.batch = users([[0]] * 3, items=ITEMS, seen=SEEN, counts=COUNTS)

    def __call__(self, loss, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        return loss(self.hidden, self.targets, self.items, self.users, self.batch)

    def drawn(self, count: int, seed: int = 0) -> list[list[int]]:
        torch.manual_seed(seed)
        return NegativeSampler.from_batch(self.batch).draw(self.users, count).tolist()

    def agrees(self, found: Tensor, expected: Tensor) -> None:
        """Compares value and gradients; the loss is divided by the number of targets."""
        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-6)
        ours = torch.autograd.grad(found * 0.3, (self.hidden, self.items))
        theirs = torch.autograd.grad(expected * 0.3, (self.hidden, self.items))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def log_sigmoid(x: Tensor) -> Tensor:
    return -torch.log1p(torch.exp(-x))


def binary(case: Case, negatives: list[list[int]], beta: float = 1.0) -> Tensor:
    """Computes the definition, one target and one negative at a time."""
    hidden, items = case.hidden.double(), case.items.double()
    total = torch.zeros((), dtype=torch.float64)
    for x, target, drawn in zip(hidden, TARGETS, negatives, strict=True):
        total = total - beta * log_sigmoid(x @ items[target])
        for item in drawn:
            total = total - log_sigmoid(-(x @ items[item]))
    return total


@pytest.mark.parametrize("negatives", [1, 3, 50])  # a gather of vectors, a product with all of them, more than items
def test_bce_is_the_papers(negatives, monkeypatch):
    monkeypatch.setattr(losses, "_PRODUCT", 32)
    case = Case()
    assert (len(case.items) > losses._PRODUCT * negatives) == (negatives == 1)
    case.agrees(case(BCE(negatives=negatives)), binary(case, case.drawn(negatives)))


def test_gbce_is_the_papers():
    case = Case()
    loss = GeneralisedBCE(negatives=13, t=0.5)
    share = Fraction(13, 39)
    beta = share * (Fraction(1, 2) * (1 - 1 / share) + 1 / share)
    assert beta == Fraction(2, 3)
    assert loss.beta(ITEMS) == pytest.approx(2 / 3)
    case.agrees(case(loss), binary(case, case.drawn(13), beta=2 / 3) / 14)


@pytest.mark.parametrize("items", [2, 300, 3416, 10**6])
def test_the_power_goes_from_one_to_the_share_of_negatives(items):
    share = min(1.0, 256 / (items - 1))
    assert GeneralisedBCE(t=0).beta(items) == pytest.approx(1)
    assert GeneralisedBCE(t=1).beta(items) == pytest.approx(share)
    assert GeneralisedBCE(t=0.75).beta(items) == pytest.approx(0.25 + 0.75 * share)  # linear in t


def test_shared_negatives_are_those_a_user_has_not_seen_and_count_for_the_others():
    case, count = Case(), 30
    found = case(BCE(negatives=count, shared=True))
    torch.manual_seed(0)
    drawn = torch.randint(ITEMS, (count,)).tolist()
    hidden, items = case.hidden.double(), case.items.double()
    total = torch.zeros((), dtype=torch.float64)
    for x, user, target in zip(hidden, OWNERS, TARGETS, strict=True):
        kept = [item for item in drawn if item not in SEEN[user]]
        total = total - log_sigmoid(x @ items[target])
        for item in kept:
            total = total - log_sigmoid(-(x @ items[item])) * count / len(kept)
    case.agrees(found, total)
    both = case(GeneralisedBCE(negatives=count, t=0, shared=True))
    torch.testing.assert_close(both, found.detach() / (count + 1))


def test_shared_negatives_expect_what_own_negatives_expect():
    case = Case()
    with torch.no_grad():
        shared = torch.stack([case(BCE(negatives=30, shared=True), seed) for seed in range(80)]).double()
        own = torch.stack([case(BCE(negatives=30), seed) for seed in range(80)]).double()
    error = ((shared.var() + own.var()) / 80).sqrt()
    # user 2 has one unseen item: it is in 30 draws with a chance of .53, and what it misses otherwise is known
    hidden, items = case.hidden.detach().double(), case.items.detach().double()
    missed = sum(-30 * log_sigmoid(-(hidden[row] @ items[39])) for row in (4, 5)) * (1 - 1 / ITEMS) ** 30
    assert abs(own.mean() - shared.mean() - missed) < 4 * error


@pytest.mark.parametrize("logits", [4 * ITEMS, 8 * ITEMS, 2**24])  # one row at a time, two, all
def test_the_full_softmax_is_exact_whatever_the_block(logits, monkeypatch):
    monkeypatch.setattr(losses, "_LOGITS", logits)
    monkeypatch.setattr(losses, "_ROWS", 1)
    case = Case(scale=3.0)
    hidden, items = case.hidden.double(), case.items.double()
    total = torch.zeros((), dtype=torch.float64)
    for x, target in zip(hidden, TARGETS, strict=True):
        scores = items @ x
        total = total + scores.exp().sum().log() - scores[target]
    case.agrees(case(FullSoftmax()), total)
    with torch.no_grad():
        torch.testing.assert_close(case(FullSoftmax()), total.float())


def test_the_full_softmax_of_a_target_without_a_chance_is_finite():
    case = Case(scale=40.0)
    found = case(FullSoftmax())
    torch.testing.assert_close(found, F.cross_entropy(case.hidden @ case.items.T, case.targets, reduction="sum"))
    assert found > 1000


def test_rows_of_logits_are_bounded_by_memory():
    for items in (1, 200, 3416, 10**6, 10**8, 10**9):
        assert losses._rows(items) == 1 or losses._rows(items) * items * 4 <= losses._MOST
    assert losses._rows(10**6) >= 256


@pytest.mark.parametrize("distribution", ["uniform", "log_uniform", "popularity"])
def test_the_sampled_softmax_is_its_definition(distribution):
    case, count = Case(), 25
    found = case(SampledSoftmax(negatives=count, distribution=distribution))
    torch.manual_seed(0)
    known = Distribution(numbers(COUNTS), distribution)
    drawn, chances = known.draw(count).tolist(), known.log_p.double().exp()
    assert set(drawn) & set(TARGETS)  # there is an accidental hit to be left out
    hidden, items = case.hidden.double(), case.items.double()
    total = torch.zeros((), dtype=torch.float64)
    for x, target in zip(hidden, TARGETS, strict=True):
        whole = (x @ items[target]).exp()
        for item in drawn:
            if item != target:
                whole = whole + (x @ items[item]).exp() / (count * chances[item])
        total = total + whole.log() - x @ items[target]
    case.agrees(found, total)


@pytest.mark.parametrize("distribution", ["uniform", "log_uniform", "popularity"])
def test_the_sampled_denominator_is_the_softmaxs_in_expectation(distribution):
    case, loss, draws = Case(scale=0.7), SampledSoftmax(negatives=8, distribution=distribution), 300
    for row in (0, 5):
        x, target = case.hidden.detach()[row : row + 1], numbers([TARGETS[row]])
        scores = (case.items.detach() @ x[0]).double()
        torch.manual_seed(row)
        found = [loss(x, target, case.items.detach(), numbers([0]), case.batch) for _ in range(draws)]
        sums = (torch.stack(found).double() + scores[target]).exp()
        assert abs(sums.mean() - scores.exp().sum()) < 4 * sums.std() / draws**0.5


def test_many_samples_come_near_the_full_softmax():
    case = Case()
    full = case(FullSoftmax())
    torch.testing.assert_close(
        case(SampledSoftmax(negatives=100_000, distribution="popularity")), full, rtol=0.02, atol=0
    )


def test_a_draw_of_nothing_but_the_target_teaches_nothing():
    hidden, items = torch.ones(2, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)
    batch = users([[0]], items=1, seen=[[0]])
    loss = SampledSoftmax(negatives=4)(hidden, numbers([0, 0]), items, numbers([0, 0]), batch)
    loss.backward()
    assert loss == 0
    assert not hidden.grad.any()
    assert not items.grad.any()


def test_counts_of_other_data_make_another_distribution():
    case, loss = Case(), SampledSoftmax(negatives=5, distribution="popularity")
    case(loss)
    first = loss._last
    case.batch = users([[0]] * 3, items=ITEMS, seen=SEEN, counts=COUNTS)
    case(loss)
    assert loss._last is first  # equal counts
    case.batch = users([[0]] * 3, items=ITEMS, seen=SEEN, counts=[9] * ITEMS)
    assert case(loss).isfinite()
    assert loss._last[1].log_p.allclose(torch.tensor(-math.log(ITEMS)))


ALL = [BCE(), BCE(negatives=4, shared=True), GeneralisedBCE(), FullSoftmax(), SampledSoftmax()]


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: type(loss).__name__)
def test_no_targets_cost_nothing(loss):
    case = Case()
    hidden = case.hidden[:0]
    found = loss(hidden, numbers([]), case.items, numbers([]), case.batch)
    assert found == 0
    found.backward()
    assert not case.items.grad.any()


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: type(loss).__name__)
def test_a_loss_is_the_same_under_autocast_but_for_rounding(loss):
    case = Case()
    expected = case(loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case(loss)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.03, atol=0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BCE(negatives=0), "negatives is to be a whole number of at least 1"),
        (lambda: GeneralisedBCE(negatives=-1), "negatives is to be a whole number of at least 1"),
        (lambda: GeneralisedBCE(t=1.5), "t is to be a number of at least 0 and of at most 1"),
        (lambda: SampledSoftmax(negatives=0), "negatives is to be a whole number of at least 1"),
        (lambda: SampledSoftmax(distribution="zipf"), "write uniform, log_uniform or popularity"),
    ],
)
def test_bad_options_are_refused(make, words):
    with pytest.raises((ConfigError, ValueError), match=words):
        make()
