"""What a part of attention can do is a type: wrong and missing facts are errors where a class is defined."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    Attention,
    BigBird,
    Concat,
    Cosine,
    Degree,
    DenseSupport,
    Dot,
    FourierMixer,
    General,
    LinearAttention,
    LocalM,
    LocalP,
    LocationAware,
    Monotonic,
    MonotonicChunkwise,
    Normalizer,
    Position,
    PreparedKeys,
    Restriction,
    Rotary,
    ScaledDot,
    Score,
    ScorePair,
    SlidingWindow,
    Softmax,
    Traits,
    Use,
    check,
)


def scores(self: Score, query: Tensor, key: Tensor, support: DenseSupport, state: object = None) -> Tensor:
    return support.dot(query, key)


def weights(self: Normalizer, scores: Tensor, support: DenseSupport, state: object = None) -> Tensor:
    return support.softmax(scores)


def narrowed(self: Restriction, query: Tensor, key: Tensor, support: DenseSupport) -> DenseSupport:
    return support


@pytest.mark.parametrize(
    ("base", "body", "message"),
    [
        (Score, {"traits": {"stateful": True}}, r"Mine.traits must be Traits\(...\), not dict"),
        (Score, {"stateful": True}, r"Mine.stateful is a trait: write traits = Traits\(stateful=...\)"),
        (Score, {"traits": Traits(needs_weights=True)}, "Mine is a Score, which has no trait needs_weights"),
        (ScaledDot, {"traits": Traits(content_based=False)}, "Mine is a ScaledDot, which has no trait content_based"),
        (Position, {"traits": Traits(stateful=True)}, "Mine is a Position, which has no trait stateful"),
        (Normalizer, {"traits": Traits(rotation_invariant=True)}, "which has no trait rotation_invariant"),
        (Normalizer, {"traits": Traits(hard=True)}, "Mine lacks the method draw"),
        (Normalizer, {"draw": lambda self, weights, support: weights}, r"Mine lacks traits = Traits\(hard=True\)"),
        (Normalizer, {"traits": Traits(streaming=True)}, "Mine lacks the method is_waiting"),
        (Restriction, {"traits": Traits(layouts=(DenseSupport,))}, r"does not say which support .*output_layout"),
        (Score, {"forward": lambda self, query, key: key}, r"forward is called with \(query, key, support, state\)"),
    ],
)
def test_a_wrong_or_missing_fact_cannot_be_defined(base: type, body: dict[str, object], message: str) -> None:
    forward = {Score: scores, Normalizer: weights, Restriction: narrowed}.get(base)
    methods = {} if forward is None else {"forward": forward}
    with pytest.raises(TypeError, match=message):
        type(base)("Mine", (base,), {**methods, **body})


def test_a_misspelt_trait_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="statefull"):
        Traits(statefull=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="parallel=False needs stateful=True"):
        Traits(parallel=False)


def test_a_class_without_traits_has_the_defaults() -> None:
    class Mine(Score):
        def forward(self, query: Tensor, key: Tensor, support: DenseSupport, state: object = None) -> Tensor:
            return support.dot(query, key)

    assert Mine.traits == Traits()
    attend = Attention(Mine(), Softmax())
    assert attend.is_content_based
    assert attend.is_parallel
    assert not attend.is_stateful
    x = torch.randn(1, 1, 3, 2)
    assert attend(x, x, x, DenseSupport())[0].shape == (1, 1, 3, 2)


def test_a_subclass_keeps_the_reasons_of_its_base() -> None:
    class Scaled(Position):
        traits = Traits(needs_weights=True)

    assert Use.CROSS in Scaled.traits.unsupported
    assert Use.CROSS in Rotary.traits.unsupported
    assert General.traits == Traits()
    assert ScaledDot.traits == Dot.traits == Traits(rotation_invariant=True)


def test_a_part_of_another_kind_is_refused() -> None:
    make = inspect.unwrap(Attention.__init__)  # tests check types at every call; users have this sentence
    for parts, message in (
        ((nn.Linear(2, 2), Softmax(), None), r"Linear is no Score: derive it from zoo\.attention\.Score"),
        ((Dot(), Dot(), None), "Dot is no Normalizer"),
        ((Dot(), Softmax(), Softmax()), "Softmax is no Restriction"),
    ):
        with pytest.raises(TypeError, match=message):
            make(Attention.__new__(Attention), *parts[:2], restrict=parts[2])


@pytest.mark.parametrize(
    ("part", "use", "message"),
    [
        (Rotary(dim=4), Use.CROSS, "Rotary depends on the distance .*; a decoder attends from one sequence to another"),
        (Degree(), Use.CROSS, "Degree works on the edges of one graph, .*; a decoder attends"),
        (LocalP(dim=4, heads=1), Use.CAUSAL, "LocalP predicts a position in the whole source"),
        (BigBird(), Use.STEPWISE, "BigBird needs the whole sequence at once"),
        (FourierMixer(), Use.CAUSAL, "FourierMixer sees the whole sequence at once"),
        (FourierMixer(length=8), Use.PADDED, "FourierMixer transforms the padded length"),
        (LinearAttention(), Use.DECODING, "LinearAttention has no weights over a source.*: a decoder needs another"),
        (LinearAttention(), Use.MASKED_QUERIES, "sums the keys once .*, and padded queries of a decoder see none"),
        (Monotonic(heads=1), Use.SIMULTANEOUS, "Monotonic computes the weights of a query from those .*; a decoder"),
    ],
)
def test_one_check_refuses_what_cannot_serve_a_use(part: nn.Module, use: Use, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(nn.ModuleList([nn.Linear(1, 1), part]), use | Use.PADDED, "a decoder")


def test_check_takes_what_serves_all_uses() -> None:
    every = Use.CAUSAL | Use.STEPWISE | Use.PADDED | Use.CROSS | Use.DECODING | Use.SIMULTANEOUS | Use.MASKED_QUERIES
    check(Attention(ScaledDot(), Softmax()), every)
    check(Attention(ScaledDot(), Softmax(), restrict=LocalM(radius=1)), every)
    check(Attention(ScaledDot(), Softmax(), restrict=SlidingWindow(radius=1)), ~Use.CROSS)
    check(FourierMixer(length=8), Use.CAUSAL)


def test_traits_may_depend_on_arguments() -> None:
    assert Monotonic(heads=1).traits.streaming
    assert not Monotonic(heads=1, inference="expected").traits.streaming
    assert MonotonicChunkwise(heads=1, chunk=3).lookback == 2
    both = ScorePair(monotonic=LocationAware, chunk=Additive, dim=4, heads=1)
    assert (both.traits.stateful, both.traits.parallel, both.traits.rotation_invariant) == (True, False, False)
    assert ScorePair(monotonic=Dot, chunk=Dot, dim=4, heads=1).traits.rotation_invariant
    assert not ScorePair(monotonic=Dot, chunk=Dot, dim=6, heads=1).traits.rotation_invariant
    assert not ScorePair.traits.stateful
    assert copy.deepcopy(both).traits == both.traits


@pytest.mark.parametrize(
    "score",
    [
        General(dim=2, heads=1),
        Concat(dim=2, heads=1),
        Cosine(heads=1),
        ScorePair(monotonic=Dot, chunk=Cosine, dim=2, heads=1),
    ],
)
def test_keys_that_were_not_prepared_are_refused(score: Score) -> None:
    query, key = torch.randn(2, 1, 1, 3, 2).unbind(0)
    name = type(score).__name__
    with pytest.raises(ValueError, match=rf"{name} takes prepared keys: score\(query, score.prepare\(key\), support\)"):
        score(query, key, DenseSupport())
    assert score(query, score.prepare(key), DenseSupport()).shape[-2:] == (3, 3)


def test_a_score_of_ones_own_prepares_keys() -> None:
    class Negated(Dot):
        def prepare(self, key: Tensor) -> PreparedKeys:
            return PreparedKeys(-key)

    class Forgetful(Dot):
        def prepare(self, key: Tensor) -> Tensor:
            return -key

    query, key, value = torch.randn(3, 2, 3, 4, 5, dtype=torch.float64).unbind(0)
    context, _ = Attention(Negated(), Softmax())(query, key, value, DenseSupport())
    expected, _ = Attention(Dot(), Softmax())(query, -key, value, DenseSupport())
    torch.testing.assert_close(context, expected)
    with pytest.raises(TypeError, match=r"Forgetful.prepare must return PreparedKeys\(...\), which forward takes"):
        Attention(Forgetful(), Softmax())(query, key, value, DenseSupport())
