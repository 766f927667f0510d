"""Penalties against loops and the worked examples; padding, batches and layouts make no difference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attention_cases import MASKS, Shape, inputs, masked, site
from torch import Tensor

from zoo.attention import (
    Attention,
    AttentionMap,
    Coverage,
    DenseSupport,
    Dot,
    DoublyStochastic,
    EdgeSupport,
    EntropyPenalty,
    GuidanceCrossEntropy,
    GuidanceSquared,
    HeadSimilarity,
    Locality,
    LocalM,
    NoStopPenalty,
    SlidingWindow,
    Softmax,
    record,
)

AXES = ("batch", "head", "query", "key")
# WORKED_EXAMPLES.md, section 7: rows are le, chat, s'est assis, sur, le, tapis; columns the cat sat on the mat.
A = torch.tensor(
    [
        [0.8, 0.1, 0.0, 0.0, 0.1, 0.0],
        [0.1, 0.8, 0.0, 0.0, 0.0, 0.1],
        [0.0, 0.1, 0.8, 0.1, 0.0, 0.0],
        [0.0, 0.0, 0.1, 0.8, 0.0, 0.1],
        [0.8, 0.0, 0.0, 0.0, 0.2, 0.0],
        [0.1, 0.0, 0.0, 0.0, 0.1, 0.8],
    ],
    dtype=torch.float64,
)


def dense(weights: Tensor, support: DenseSupport | None = None, site: str = "a") -> AttentionMap:
    support = DenseSupport() if support is None else support
    return AttentionMap(site, weights, AXES, support, tuple(range(weights.shape[1])))


class TestWorkedExample:
    found = dense(A[None, None])

    def test_the_coverage_loss_of_each_step(self) -> None:
        """Question 31: sum_i min(a_ti, c_ti) is 0, .2, .1, .3, .9, .4 by step, 1.9 in all."""
        until = [0.0, *(float(Coverage()(dense(A[None, None, : t + 1])).total) for t in range(6))]
        steps = [after - before for before, after in itertools.pairwise(until)]
        assert steps == pytest.approx([0.0, 0.2, 0.1, 0.3, 0.9, 0.4], abs=1e-12)
        amount = Coverage()(self.found)
        assert float(amount.total) == pytest.approx(1.9, abs=1e-12)
        assert amount.count == 6
        assert float(amount.mean) == pytest.approx(1.9 / 6)

    def test_columns_to_one(self) -> None:
        """Question 33 in words: sum_i (1 - sum_t a_ti)^2 = 1.02."""
        assert float(DoublyStochastic()(self.found).total) == pytest.approx(1.02, abs=1e-12)

    def test_the_slip_the_two_are_different_penalties(self) -> None:
        """Question 33 describes the coverage loss of question 31 as drawing columns towards one, which it does not:
        where nothing is looked at twice it is zero, however far from one the columns are."""
        half = dense(torch.diag(torch.full((4,), 0.5))[None, None])
        assert float(Coverage()(half).total) == 0.0
        assert float(DoublyStochastic()(half).total) == pytest.approx(1.0)

    def test_guidance_by_the_identity(self) -> None:
        """Question 33: ||A - A_true||^2 = 1.58, of which row 5 alone 1.28."""
        gold = torch.eye(6, dtype=torch.bool)
        assert float(GuidanceSquared()(self.found, gold).total) == pytest.approx(1.58, abs=1e-12)
        row = dense(A[None, None, 4:5])
        assert float(GuidanceSquared()(row, gold[4:5]).total) == pytest.approx(1.28, abs=1e-12)
        expected = -math.log(0.8) * 5 - math.log(0.2)
        assert float(GuidanceCrossEntropy()(self.found, gold).total) == pytest.approx(expected, abs=1e-12)

    def test_entropy_of_each_row(self) -> None:
        each = [float(EntropyPenalty()(dense(row[None, None, None])).total) for row in A]
        assert each == pytest.approx([0.6390, 0.6390, 0.6390, 0.6390, 0.5004, 0.6390], abs=5e-5)


def loops(name: str, w: Tensor, allowed: Tensor, real: Tensor, gold: Tensor) -> tuple[Tensor, int]:
    """The formulas, one number after the other; `real` (b,h,q)."""
    batch, heads, queries, keys = w.shape
    total, count = torch.zeros((), dtype=torch.float64), 0
    every = [(b, h) for b in range(batch) for h in range(heads)]
    for b, h in every:
        rows = [t for t in range(queries) if real[b, h, t]]
        columns = [j for j in range(keys) if any(allowed[b, h, t, j] for t in rows)]
        if name == "coverage":
            for n, t in enumerate(rows):
                for j in range(keys):
                    before = sum((w[b, h, s, j] for s in rows[:n]), torch.zeros((), dtype=torch.float64))
                    total = total + torch.minimum(w[b, h, t, j], before)
        if name == "doubly stochastic":
            for j in columns:
                total = total + (1 - sum(w[b, h, t, j] for t in rows)) ** 2
        if name == "locality":
            for i, t in enumerate(rows):
                for k, j in enumerate(columns):
                    away = i / len(rows) - k / len(columns)
                    total = total + w[b, h, t, j] * (1 - math.exp(-(away**2) / (2 * 0.2**2)))
        if name == "entropy":
            for t in rows:
                for j in range(keys):
                    if w[b, h, t, j] > 0:
                        total = total - w[b, h, t, j] * w[b, h, t, j].log()
        if name == "disagreement":
            for t in rows:
                for g in range(heads):
                    if g != h and real[b, g, t]:
                        total = total + sum(w[b, h, t, j] * w[b, g, t, j] for j in range(keys)) / heads / (heads - 1)
        if name.startswith("guidance"):
            rows = [t for t in rows if any(gold[b, t, j] and allowed[b, h, t, j] for j in range(keys))]
            for t in rows:
                true = [j for j in range(keys) if gold[b, t, j] and allowed[b, h, t, j]]
                for j in range(keys):
                    g = 1 / len(true) if j in true else 0.0
                    if name == "guidance squared":
                        total = total + (w[b, h, t, j] - g) ** 2
                    elif g:
                        total = total - g * w[b, h, t, j].log()
        count += len(rows)
    if name == "disagreement":
        count = int(real.any(1).sum())
    return total, count


PENALTIES: dict[str, Any] = {
    "coverage": Coverage(),
    "doubly stochastic": DoublyStochastic(),
    "locality": Locality(),
    "entropy": EntropyPenalty(),
    "disagreement": HeadSimilarity(),
    "guidance squared": GuidanceSquared(),
    "guidance cross-entropy": GuidanceCrossEntropy(),
}
every_penalty = pytest.mark.parametrize("name", PENALTIES)


def amount(name: str, found: AttentionMap, gold: Tensor, real: Tensor | None = None) -> Any:
    given = [found, gold] if name.startswith("guidance") else [found]
    return PENALTIES[name](*given, real)


def drawn(kind: str, shape: Shape) -> tuple[Tensor, DenseSupport, Tensor, Tensor]:
    """Weights that need a gradient, their support, who may attend to whom, and gold."""
    support, allowed = masked(kind, shape)
    scores = torch.randn(shape[:4], dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    gold = torch.rand(shape.batch, shape.queries, shape.keys, generator=torch.Generator().manual_seed(2)) < 0.4
    return scores, support, allowed, gold


@every_penalty
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("counted", [False, True])
def test_against_loops(name: str, kind: str, counted: bool) -> None:
    shape = Shape()
    scores, support, allowed, gold = drawn(kind, shape)
    weights = support.softmax(scores)
    real = torch.tensor([[True, True, False, True, True], [True, True, True, False, False]]) if counted else None
    is_real = allowed.any(-1) if real is None else allowed.any(-1) & real.unsqueeze(1)
    found = amount(name, dense(weights, support), gold, real)
    total, count = loops(name, weights, allowed, is_real, gold)
    assert found.count == count
    torch.testing.assert_close(found.total, total, rtol=0, atol=1e-12)
    if total.requires_grad:
        (one,), (other,) = (torch.autograd.grad(each, scores, retain_graph=True) for each in (found.total, total))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    single = amount(name, dense(weights.detach().float(), support), gold, real)
    torch.testing.assert_close(single.total.double(), total.detach(), rtol=1e-5, atol=1e-5)


@every_penalty
def test_padding_and_the_size_of_the_batch_make_no_difference(name: str) -> None:
    """Two examples of their own lengths, or one padded batch of both: the same sum over the same number."""
    generator = torch.Generator().manual_seed(0)
    total, count, rows = 0.0, 0, []
    for queries, keys in ((3, 4), (5, 6)):
        w = torch.rand(1, 2, queries, keys, dtype=torch.float64, generator=generator)
        w = w / w.sum(-1, keepdim=True)
        gold = torch.rand(1, queries, keys, generator=generator) < 0.5
        rows.append((w, gold))
        each = amount(name, dense(w), gold)
        total, count = total + float(each.total), count + each.count
    padded = torch.full((2, 2, 5, 6), 0.25, dtype=torch.float64)
    gold, key_mask, real = torch.ones(2, 5, 6).bool(), torch.zeros(2, 6).bool(), torch.zeros(2, 5).bool()
    for b, (w, g) in enumerate(rows):
        queries, keys = w.shape[-2:]
        padded[b, :, :queries, :keys], gold[b, :queries, :keys] = w[0], g[0]
        key_mask[b, :keys], real[b, :queries] = True, True
    found = amount(name, dense(padded, DenseSupport.from_key_mask(key_mask)), gold, real)
    assert found.count == count
    assert float(found.total) == pytest.approx(total, abs=1e-12)


@every_penalty
def test_the_steps_of_a_decoder_are_its_queries(name: str) -> None:
    """One call a step, or one call for all; what a growing memory had not yet is padding."""
    torch.manual_seed(0)
    attend, x = Attention(Dot(), Softmax()), torch.randn(2, 3, 4, 6, dtype=torch.float64)
    gold = torch.rand(2, 4, 4) < 0.6
    with record(attend) as whole:
        attend(x, x, x, DenseSupport(causal=True))
    with record(attend) as steps:
        for step in range(4):
            there = x[:, :, : step + 1]
            attend(x[:, :, step : step + 1], there, there, DenseSupport())
    one, other = (amount(name, maps[""], gold) for maps in (whole, steps))
    assert one.count == other.count
    torch.testing.assert_close(one.total, other.total, rtol=0, atol=1e-12)


@every_penalty
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_are_finite_where_attention_is_all_or_nothing(name: str, dtype: torch.dtype) -> None:
    """Rows of one key, weights that underflow, rows without keys."""
    scores = torch.tensor([[0.0, 500.0, -500.0], [0.0, 0.0, 0.0], [-90.0, 90.0, 0.0]], dtype=dtype)
    scores = scores.expand(2, 2, 3, 3).clone().requires_grad_()
    permitted = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    permitted[0, :, 1] = False
    support = DenseSupport(permitted)
    gold = torch.eye(3).flip(0).bool().expand(2, 3, 3)
    found = amount(name, dense(support.softmax(scores).to(dtype), support), gold)
    assert found.total.dtype == torch.float32
    assert found.total.isfinite()
    found.mean.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[0, :, 1].any()


@every_penalty
def test_nothing_to_penalise(name: str) -> None:
    """No query at all, and only queries without keys: a zero that does not spread."""
    for w, support in (
        (torch.zeros(2, 2, 0, 3, requires_grad=True), DenseSupport()),
        (torch.zeros(1, 2, 2, 3, requires_grad=True), DenseSupport(torch.zeros(1, 1, 1, 3, dtype=torch.bool))),
    ):
        found = amount(name, dense(w, support), torch.ones(w.shape[0], *w.shape[2:], dtype=torch.bool))
        assert found.count == 0
        assert found.mean.item() == 0.0
        found.mean.backward()
        assert w.grad is not None
        assert not w.grad.any()


def sparse_maps() -> Iterator[tuple[AttentionMap, AttentionMap, Tensor, Tensor]]:
    """Maps of edges beside the dense map under the same mask, and gold for either."""
    for seed, (queries, keys) in enumerate(((5, 5), (4, 6))):
        generator = torch.Generator().manual_seed(seed)
        mask = torch.rand(queries, keys, generator=generator) < 0.5
        mask[1] = False
        target, source = mask.nonzero(as_tuple=True)
        support = EdgeSupport.from_edges(torch.stack([source, target]), queries, keys)
        shape = Shape(batch=1, queries=queries, keys=keys)
        attend, tensors = site("scaled dot", "softmax", shape), inputs(shape)
        nodes = {name: x[0].transpose(0, 1) for name, x in tensors.items()}
        gold = torch.rand(queries, keys, generator=generator) < 0.5
        with record(attend) as by_edge:
            attend(nodes["query"], nodes["key"], nodes["value"], support)
        with record(attend) as whole:
            attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport(mask[None, None]))
        yield by_edge[""], whole[""], gold[support.target.long(), support.source.long()], gold[None]


@pytest.mark.parametrize("name", [name for name in PENALTIES if name not in ("coverage", "locality")])
def test_edges_are_penalised_as_the_dense_map_under_their_mask(name: str) -> None:
    for by_edge, whole, edge_gold, gold in sparse_maps():
        found, expected = amount(name, by_edge, edge_gold), amount(name, whole, gold)
        assert found.count == expected.count
        torch.testing.assert_close(found.total, expected.total, rtol=0, atol=1e-12)


RESTRICTED = {
    "window": lambda: SlidingWindow(radius=2),
    "local": lambda: LocalM(radius=2),
}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("pattern", RESTRICTED)
def test_sparse_patterns_are_penalised_as_the_dense_map_under_their_mask(name: str, pattern: str) -> None:
    shape = Shape(queries=9, keys=9)
    tensors = inputs(shape)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    attend = Attention(Dot(), Softmax(), restrict=RESTRICTED[pattern]())
    with record(attend) as maps:
        attend(tensors["query"], tensors["key"], tensors["value"], DenseSupport.from_key_mask(mask))
    found, gold = maps[""], torch.ones(2, 9, 9, dtype=torch.bool)
    assert not isinstance(found.support, DenseSupport | list | None)
    if name in ("coverage", "locality") and pattern != "local":
        with pytest.raises(ValueError, match="depends on the order"):
            amount(name, found, gold)
        return
    whole = found.support.to_dense(found.weights, 9, 9)
    permitted = found.support.to_dense(torch.ones_like(found.weights), 9, 9) > 0
    expected = amount(name, dense(whole, DenseSupport(permitted)), gold)
    flat = torch.ones(2, *found.weights.shape[2:], dtype=torch.bool)
    single = amount(name, found, gold if pattern == "local" else flat)
    assert single.count == expected.count
    torch.testing.assert_close(single.total, expected.total, rtol=0, atol=1e-12)


def test_of_a_draw_its_probabilities_are_penalised() -> None:
    """Whatever is drawn has no entropy."""
    probabilities = A[None, None]
    drawn_weights = torch.nn.functional.one_hot(probabilities.argmax(-1), 6).double()
    found = AttentionMap("a", drawn_weights, AXES, DenseSupport(), (0,), probabilities=probabilities)
    assert float(EntropyPenalty()(found).total) == pytest.approx(5 * 0.6390 + 0.5004, abs=5e-4)


def test_kept_heads_have_their_own_masks() -> None:
    shape = Shape()
    attend, tensors, (support, _) = site("dot", "softmax", shape), inputs(shape), masked("any", shape)
    with record(attend) as whole, record(attend, heads=[2]) as one:
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    expected = EntropyPenalty()(whole[""].head(2))
    assert EntropyPenalty()(one[""]).count == expected.count
    torch.testing.assert_close(EntropyPenalty()(one[""]).total, expected.total)
    parts = [EntropyPenalty()(whole[""].head(h)) for h in range(3)]
    every = EntropyPenalty()(whole[""])
    assert sum(each.count for each in parts) == every.count
    torch.testing.assert_close(sum(each.total for each in parts), every.total)  # type: ignore[arg-type]
    assert EntropyPenalty()(whole[""].mean_heads()).count > 0


def test_what_cannot_be_penalised_is_said() -> None:
    ((by_edge, *_), *_) = sparse_maps()
    for penalty in (Coverage(), Locality()):
        with pytest.raises(ValueError, match="depends on the order of queries and needs a dense map"):
            penalty(by_edge)
    with pytest.raises(ValueError, match="compares heads, and a has one"):
        HeadSimilarity()(dense(A[None, None]))
    with pytest.raises(ValueError, match=r"a has pairs \(1, 6, 6\), and the gold attention is \(5, 6\)"):
        GuidanceSquared()(dense(A[None, None]), torch.ones(5, 6).bool())
    with pytest.raises(ValueError, match=r"a has 1 x 6 queries, and the mask of real queries is \(1, 5\)"):
        EntropyPenalty()(dense(A[None, None]), torch.ones(1, 5).bool())
    gate = AttentionMap("gate", torch.ones(2, 3), ("batch", "channel"), None, ())
    with pytest.raises(ValueError, match="gate has the axes batch, channel"):
        EntropyPenalty()(gate)
    with pytest.raises(ValueError, match="width is to be a number above 0"):
        Locality(width=0.0)


@pytest.mark.parametrize("kind", MASKS)
def test_passing_is_the_probability_of_no_stop(kind: str) -> None:
    """- log(1 - sum_j a_tj), one query after the other; a weight of one has a finite cost and gradient."""
    shape = Shape()
    scores, support, allowed, _ = drawn(kind, shape)
    weights = support.softmax(scores) * torch.rand(shape.batch, shape.heads, shape.queries, 1).double()
    real = torch.tensor([[True, True, False, True, True], [True, False, False, False, False]])
    found = NoStopPenalty()(dense(weights, support), real)
    total, count = 0.0, 0
    for b, h, t in itertools.product(range(shape.batch), range(shape.heads), range(shape.queries)):
        if real[b, t] and allowed[b, h, t].any():
            total, count = total - math.log(1 - sum(weights[b, h, t].tolist())), count + 1
    assert found.count == count
    assert float(found.total.detach()) == pytest.approx(total)
    whole = torch.eye(6).double().requires_grad_()
    (gradient,) = torch.autograd.grad(NoStopPenalty()(dense(whole[None, None])).total, whole)
    assert gradient.isfinite().all()
