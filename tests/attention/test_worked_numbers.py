"""The small numbers of reference document 004, with its slips named."""

from __future__ import annotations

import math

import pytest
import torch
from test_worked_examples import assert_rounded, attention, jacobian, matrix, scores_of
from torch import Tensor

from zoo.attention import (
    Attention,
    AttentionMap,
    AttentionState,
    Constant,
    DenseSupport,
    Dot,
    ScaledDot,
    Softmax,
    record,
)
from zoo.attention.dropout import DropWeights, RenormalizedDropout
from zoo.attention.penalties import Coverage, DoublyStochastic, EntropyPenalty, GuidanceSquared
from zoo.attention.supports.patterns import SlidingWindow


def test_saturated_softmax_does_not_overflow() -> None:
    """Document 004, question 14: written as exp(x) / sum(exp(x)), float32 gives NaN."""
    scores = torch.tensor([[1.0, 2.0, 100.0]])
    assert (scores.exp() / scores.exp().sum()).isnan().any()
    for dtype in (torch.float32, torch.float64):
        weights, _ = attention(Dot(), torch.ones(1, 1, dtype=dtype), scores.T.to(dtype), torch.zeros(3, 1, dtype=dtype))
        assert weights[0, 2] == 1.0
        assert weights.isfinite().all()
    assert_rounded(weights[:, :2] * 1e43, [[1.0112, 2.7488]])
    assert jacobian(weights).abs().max().item() == pytest.approx(2.7488e-43, rel=1e-4)  # nothing to learn from


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0, 0, 0, 0, 0], [0.3333, 0.3333, 0.3333, 0.0, 0.0]), ([1, 2, 3, 0, 0], [0.0900, 0.2447, 0.6652, 0.0, 0.0])],
)
def test_padding_mask(scores: list[float], expected: list[float]) -> None:
    """Document 004, question 35. Slip: -1e9 and minus infinity are not the same where everything is padding."""
    key = matrix([scores]).T[None, None]
    support = DenseSupport.from_key_mask(torch.tensor([[True, True, True, False, False]]))
    one = matrix([[1.0]])[None, None]
    attend = Attention(Dot(), Softmax())
    assert_rounded(attend.weights(one, key, support)[0, 0], [expected])
    nothing = DenseSupport.from_key_mask(torch.zeros(1, 5, dtype=torch.bool))
    for score in (Dot(), Constant()):
        assert not Attention(score, Softmax()).weights(one, key, nothing).any()


@pytest.mark.parametrize("width", [1, 2, 5])
def test_variance_of_products(width: int) -> None:
    """Document 004, question 14: over all vectors of -1 and 1, of mean 0 and variance 1, it is exactly d, and 1."""
    vectors = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * width).view(-1, width)
    for score, expected in ((Dot(), width), (ScaledDot(), 1.0)):
        scores = scores_of(score, vectors, vectors)
        assert scores.mean().item() == pytest.approx(0.0, abs=1e-12)
        assert scores.var(correction=0).item() == pytest.approx(expected)


def test_shapes() -> None:
    """Document 004, question 7: one query and ten keys of width 64, with an axis for the head here."""
    query, key = torch.randn(1, 1, 1, 64), torch.randn(1, 1, 10, 64)
    scores = ScaledDot()(query, key, DenseSupport())
    weights = Attention(ScaledDot(), Softmax()).weights(query, key, DenseSupport())
    assert scores.shape == weights.shape == (1, 1, 1, 10)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 1))


def window(restrict: SlidingWindow, length: int) -> Tensor:
    """Returns a mask of the pairs that attend."""
    x = torch.zeros(1, 1, length, 1)
    attend = Attention(Constant(), Softmax(), restrict=restrict)
    weights = attend.weights(x, x, DenseSupport())
    return restrict(x, x, DenseSupport()).to_dense(weights, length, length)[0, 0] > 0


def test_positions_of_a_dilated_window() -> None:
    """Document 004, question 19: two to each side with gap 2."""
    seen = window(SlidingWindow(radius=2, dilation=2), 24)
    for i in range(24):
        assert seen[i].nonzero().flatten().tolist() == [j for j in (i - 4, i - 2, i, i + 2, i + 4) if 0 <= j < 24]


@pytest.mark.parametrize("reach", [0, 1, 3])
def test_positions_of_a_local_window(reach: int) -> None:
    """Document 004, question 10: [p - D, p + D] has 2D + 1 positions, fewer where the sequence ends."""
    seen = window(SlidingWindow(radius=reach), 20)
    for i in range(20):
        assert seen[i].nonzero().flatten().tolist() == list(range(max(0, i - reach), min(20, i + reach + 1)))
    assert (seen.sum(-1)[reach : 20 - reach] == 2 * reach + 1).all()


def test_cost_of_a_window() -> None:
    """Document 004, question 20. Slip: stated as O(n w^2); the pairs of a sequence are n w, less its two ends."""
    for length, reach in ((40, 1), (40, 3), (80, 3), (80, 6)):
        pairs = int(window(SlidingWindow(radius=reach), length).sum())
        assert pairs == length * (2 * reach + 1) - reach * (reach + 1)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0, 0, 0, 0, 0], [0.2000, 0.2000, 0.2000, 0.2000, 0.2000]),
        ([1, 2, 3, 4, 5], [0.0844, 0.2295, 0.6239, 0.0311, 0.0311]),
    ],
)
def test_padding_that_is_multiplied_away_keeps_weight(scores: list[float], expected: list[float]) -> None:
    """Document 004, question 35: the error that it warns of, and what the mask does instead."""
    mask = (torch.tensor([[5, 8, 1, 0, 0]]) != 0).double()
    assert mask.tolist() == [[1, 1, 1, 0, 0]]
    multiplied = matrix([scores]) * mask
    assert_rounded(multiplied.softmax(-1), [expected])
    left = multiplied[0, :3].exp().sum() + 2
    torch.testing.assert_close(multiplied.softmax(-1)[0, 3:], (1 / left).expand(2))
    weights = Attention(Dot(), Softmax()).weights(
        matrix([[1.0]])[None, None], matrix([scores]).T[None, None], DenseSupport.from_key_mask(mask.bool())
    )
    assert not weights[..., 3:].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 1, dtype=torch.float64))


def test_large_negative_numbers_are_not_masks() -> None:
    """Document 004, question 35. Slip: a row of padding alone is uniform with -1e9 and NaN with minus infinity."""
    nothing = torch.zeros(1, 5, dtype=torch.float64)
    assert_rounded((nothing - 1e9).softmax(-1), [[0.2] * 5])
    assert (nothing - math.inf).softmax(-1).isnan().all()
    assert torch.tensor(-1e9).half() == -math.inf
    support = DenseSupport.from_key_mask(torch.zeros(1, 5, dtype=torch.bool))
    for dtype in (torch.float16, torch.float64):
        x = torch.ones(1, 1, 5, 1, dtype=dtype)
        assert not Attention(Dot(), Softmax()).weights(x, x, support).any()


def test_causal_mask() -> None:
    """Document 004, question 36, equal scores. Slip: there a 1 marks what is hidden, in question 35 what is seen."""
    x = torch.zeros(1, 1, 4, 1, dtype=torch.float64)
    expected = [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4]
    hidden = torch.ones(4, 4).triu(1).bool()
    for support in (DenseSupport(causal=True), DenseSupport(~hidden[None, None])):
        assert_rounded(Attention(Dot(), Softmax()).weights(x, x, support)[0, 0], expected)


def test_memory_of_a_map() -> None:
    """Document 004, questions 18 and 37. Slip: 16,777,216 entries are stated as 16.7 million and round to 16.8."""
    for length in (8, 64):
        x = torch.randn(2, 3, length, 4)
        attend = Attention(ScaledDot(), Softmax())
        with record(attend) as maps:
            attend(x, x, x, DenseSupport())
        assert maps[""].nbytes == 2 * 3 * length * length * 4
    entries = {length: length * length for length in (512, 4096, 65536)}
    assert list(entries.values()) == [262_144, 16_777_216, 4_294_967_296]
    assert (4 * entries[4096], 4 * entries[65536]) == (67_108_864, 17_179_869_184)
    assert round(entries[4096] / 1e6, 1) == 16.8


HEATMAP = [
    [0.8, 0.1, 0.0, 0.0, 0.1, 0.0],
    [0.1, 0.8, 0.0, 0.0, 0.0, 0.1],
    [0.0, 0.1, 0.8, 0.1, 0.0, 0.0],
    [0.0, 0.0, 0.1, 0.8, 0.0, 0.1],
    [0.8, 0.0, 0.0, 0.0, 0.2, 0.0],
    [0.1, 0.0, 0.0, 0.0, 0.1, 0.8],
]


def test_heatmap() -> None:
    """Document 004, question 23.

    Slips: seven target words for six rows, as two of them share one; the placeholder `torch.rand(6, 7)` is named
    [target, source], but six are the source words.
    """
    weights = matrix(HEATMAP)
    target, source = ["le", "chat", "s'est", "assis", "sur", "le", "tapis"], ["the", "cat", "sat", "on", "the", "mat"]
    assert (len(target), len(source)) == (7, 6)
    assert len(weights) == len(target) - 1
    assert_rounded(weights.sum(-1, keepdim=True).T, [[1.0] * 6])
    assert_rounded(weights.sum(0, keepdim=True), [[1.8, 1.0, 0.9, 0.9, 0.4, 1.0]])
    assert (weights.argmax(-1) + 1).tolist() == [1, 2, 3, 4, 1, 6]
    entropy = torch.special.entr(weights).sum(-1, keepdim=True)
    assert_rounded(entropy.T, [[0.6390, 0.6390, 0.6390, 0.6390, 0.5004, 0.6390]])
    assert EntropyPenalty()(heatmap()).total.item() == pytest.approx(5 * 0.6390 + 0.5004, abs=3e-4)
    assert weights.diagonal().mean().item() == pytest.approx(0.7)
    assert int((weights.argmax(-1) == torch.arange(6)).sum()) == 5


def heatmap() -> AttentionMap:
    """As a recorder gives it: the softmax of its own logarithm."""
    attend, queries = Attention(Dot(), Softmax()), torch.eye(6, dtype=torch.float64)[None, None]
    with record(attend) as maps:
        attend(queries, matrix(HEATMAP).clamp(min=1e-300).log().T[None, None], queries, DenseSupport())
    torch.testing.assert_close(maps[""].weights[0, 0], matrix(HEATMAP), rtol=0.0, atol=1e-12)
    return maps[""]


def test_coverage_of_the_heatmap() -> None:
    """Document 004, questions 31 and 33, by the memory of a decoder whose steps are the rows."""
    weights = matrix(HEATMAP)[None, None]
    nothing = torch.zeros(1, 1, 1, 6, dtype=torch.float64)
    state, losses = AttentionState(nothing, nothing), []
    for step in range(6):
        row = weights[:, :, step : step + 1]
        losses.append(torch.minimum(row, state.total).sum().item())
        before, state = state, state.step(row)
    assert_rounded(before.total[0, 0], [[1.7, 1.0, 0.9, 0.9, 0.3, 0.2]])
    assert losses == pytest.approx([0.0, 0.2, 0.1, 0.3, 0.9, 0.4])
    assert sum(losses) == pytest.approx(1.9)
    assert Coverage()(heatmap()).total.item() == pytest.approx(1.9)
    # Slip: question 33 describes the loss of question 31 as drawing each column's sum to one; that is another.
    assert (1 - state.total).square().sum().item() == pytest.approx(1.02)
    assert DoublyStochastic()(heatmap()).total.item() == pytest.approx(1.02)


def test_guidance_of_the_heatmap() -> None:
    """Document 004, question 33: the squared distance from the identity, of which row 5 alone is most."""
    distance = (matrix(HEATMAP) - torch.eye(6)).square().sum(-1)
    assert distance.sum().item() == pytest.approx(1.58)
    assert distance[4].item() == pytest.approx(1.28)
    assert GuidanceSquared()(heatmap(), torch.eye(6)).total.item() == pytest.approx(1.58)


@pytest.mark.parametrize(
    ("dropout", "expected"),
    [
        (DropWeights(0.1), [0.0, 0.1111, 0.0, 0.0, 0.1111, 0.0]),
        (RenormalizedDropout(0.1), [0.0, 0.5000, 0.0, 0.0, 0.5000, 0.0]),
    ],
)
def test_dropout_of_the_first_weight(dropout: DropWeights, expected: list[float]) -> None:
    """Document 004, questions 33 and 34. Slip: they give two definitions, and these differ."""
    row = matrix(HEATMAP[:1])[None, None]
    for seed in range(200):
        torch.manual_seed(seed)
        dropped = dropout(row, DenseSupport(), torch.zeros(1, 1, 6, 1))[0, 0]
        if (dropped[0] != 0).tolist() == [False, True, False, False, True, False]:
            assert_rounded(dropped, [expected])
            return
    raise AssertionError("no seed drops the first weight alone")
