"""A beam that is wide enough finds what a comparison of all texts finds, under every ranking and constraint."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from decoder_cases import BEGIN, END, Table, begins, table
from hypothesis import given
from hypothesis import strategies as st

from zoo.decoding import (
    AverageLength,
    BeamSearch,
    Constraints,
    Ensemble,
    GNMTLength,
    Hypothesis,
    NoLength,
    Ranking,
    greedy,
    mean_log_probability,
)

WORDS, STEPS = 3, 4
ALL = sum(WORDS**length for length in range(1, STEPS + 1))
RANKINGS = {
    "none": Ranking(),
    "average": Ranking(length=AverageLength()),
    "gnmt": Ranking(length=GNMTLength(alpha=0.8)),
    "coverage": Ranking(coverage=0.3),
    "gnmt, coverage": Ranking(length=GNMTLength(), coverage=1.0),
    "average, coverage": Ranking(length=AverageLength(), coverage=0.2),
}
every_ranking = pytest.mark.parametrize("name", RANKINGS)
seeds = st.integers(0, 2**31)
LONGEST: dict[str, Any] = {"end": END, "longest": STEPS}
constraints = st.builds(
    Constraints,
    shortest=st.integers(0, STEPS),
    unrepeated=st.sampled_from([None, None, 1, 2]),
    never=st.sampled_from([(), (), (1,), (1, 2)]),
)


def divisor(name: str, length: int) -> float:
    if "average" in name:
        return float(max(1, length))
    alpha = {"gnmt": 0.8, "gnmt, coverage": 0.6}.get(name, 0.0)
    return ((5 + length) / 6) ** alpha


def everything(decoder: Table, sentence: int, name: str, limit: int, rules: Constraints) -> list[Hypothesis]:
    """All texts of a sentence that have ended, best first, or the longest ones if none has."""
    found: list[Hypothesis] = []
    longest = 0
    for length in range(limit + 1):
        for text in itertools.product(range(WORDS), repeat=length):
            is_ended = length > 0 and text[-1] == END
            if END in text[:-1] or not permitted(text, rules):
                continue
            log_p, weights = probability(decoder, sentence, text)
            score = log_p / divisor(name, length)
            score += RANKINGS[name].coverage * sum(math.log(min(max(each, 1e-12), 1.0)) for each in weights.tolist())
            found.append(Hypothesis(text[:-1] if is_ended else text, score, log_p, is_ended))
            longest = max(longest, length)
    ended = [each for each in found if each.ended]
    return sorted(ended or [each for each in found if len(each.tokens) == longest], key=lambda each: -each.score)


def permitted(text: tuple[int, ...], rules: Constraints) -> bool:
    words = text[:-1] if text and text[-1] == END else text
    runs = [] if rules.unrepeated is None else [words[at:][: rules.unrepeated] for at in range(len(words))]
    runs = [run for run in runs if len(run) == rules.unrepeated]
    is_long = not (text and text[-1] == END) or len(words) >= rules.shortest
    return is_long and len(set(runs)) == len(runs) and not set(text) & set(rules.never)


def probability(decoder: Table, sentence: int, text: tuple[int, ...]) -> tuple[float, torch.Tensor]:
    places = 1 if decoder.weights is None else decoder.weights.shape[-1]
    log_p, total = 0.0, torch.zeros(places, dtype=torch.float64)
    for number, (before, word) in enumerate(zip((BEGIN, *text), text, strict=False)):
        log_p += decoder.logits[sentence, number, before].log_softmax(-1)[word].item()
        if decoder.weights is not None:
            total = total + decoder.weights[sentence, number, before]
    return log_p, total


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(each.tokens, each.ended) for each in found] == [(each.tokens, each.ended) for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-9)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)


@every_ranking
@given(seed=seeds, limit=st.integers(1, STEPS), best=st.integers(1, 6), rules=constraints)
def test_a_wide_beam_finds_the_best_of_all_texts(
    name: str, seed: int, limit: int, best: int, rules: Constraints
) -> None:
    decoder = table(3, STEPS, WORDS, seed, places=3 if "coverage" in name else 0)
    search = BeamSearch(width=ALL, best=best, ranking=RANKINGS[name], constraints=rules)
    limits = [limit, STEPS, 2]
    found = search(decoder, torch.arange(3), begins(3), end=END, longest=limits)
    for sentence, hypotheses in enumerate(found):
        same(hypotheses, everything(decoder, sentence, name, limits[sentence], rules)[:best])


class Gate(Table):
    """A text may end after a step if it has covered enough of the first place."""

    def may_end(self, state: Any) -> torch.Tensor:
        return state[2][..., 0] > 0.6


@given(seed=seeds)
def test_a_text_ends_where_its_decoder_lets_it_end(seed: int) -> None:
    plain = table(3, STEPS, WORDS, seed, places=3)
    found = BeamSearch(width=ALL, best=4)(Gate(plain.logits, plain.weights), torch.arange(3), begins(3), **LONGEST)
    mixed = Ensemble([plain, Gate(plain.logits, plain.weights)], mean_log_probability)
    for sentence, (hypotheses, other) in enumerate(
        zip(found, BeamSearch(width=ALL, best=4)(mixed, torch.arange(3), begins(3), **LONGEST), strict=True)
    ):
        texts = everything(plain, sentence, "none", STEPS, Constraints())
        may = [each for each in texts if probability(plain, sentence, each.target(END))[1][0] > 0.6]
        if may:
            same(hypotheses, may[:4])
            same(other, may[:4])
        assert all(each.ended for each in hypotheses) == bool(may)


class Exhausted(Table):
    """A text must end after a step if it has covered enough of the first place, and may not end before."""

    def may_end(self, state: Any) -> torch.Tensor:
        return state[2][..., 0] > 0.6

    must_end = may_end


@given(seed=seeds)
def test_a_text_goes_on_where_its_decoder_has_something_left(seed: int) -> None:
    plain = table(3, STEPS, WORDS, seed, places=3)
    bound = Exhausted(plain.logits, plain.weights)
    found = BeamSearch(width=ALL, best=4)(bound, torch.arange(3), begins(3), **LONGEST)
    mixed = Ensemble([plain, bound], mean_log_probability)
    others = BeamSearch(width=ALL, best=4)(mixed, torch.arange(3), begins(3), **LONGEST)
    for sentence, (hypotheses, other) in enumerate(zip(found, others, strict=True)):

        def is_exhausted(text: tuple[int, ...], of: int = sentence) -> bool:
            return bool(probability(plain, of, text)[1][0] > 0.6)

        every = [each for each in everything(plain, sentence, "none", STEPS, Constraints()) if each.ended]
        texts = [(each, tuple(each.target(END))) for each in every]
        ends = [each for each, text in texts if is_exhausted(text) and not any(map(is_exhausted, parts_of(text)))]
        if ends:
            same(hypotheses, ends[:4])
            same(other, ends[:4])
        assert all(each.ended for each in hypotheses) == bool(ends)


def parts_of(text: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [text[:length] for length in range(1, len(text))]


@every_ranking
@given(seed=seeds, width=st.integers(1, 6), data=st.data())
def test_stopping_early_changes_nothing(name: str, seed: int, width: int, data: Any) -> None:
    """The same hypotheses as a search that goes on until every place is taken or the largest length is reached."""
    steps, best = 8, data.draw(st.integers(1, width))

    class Endless(Ranking):
        def bound(self, log_probability: Any, longest: Any) -> Any:
            return torch.full_like(log_probability, torch.inf).where(log_probability > -torch.inf, -torch.inf)

    decoder, longer = (table(2, steps, 5, seed, places=3 if "coverage" in name else 0) for _ in range(2))
    rule = RANKINGS[name]
    endless = Endless(length=rule.length, coverage=rule.coverage)
    options = {"end": END, "longest": steps}
    found = BeamSearch(width, best, rule)(decoder, torch.arange(2), begins(2), **options)
    assert found == BeamSearch(width, best, endless)(longer, torch.arange(2), begins(2), **options)
    assert len(decoder.rows) <= len(longer.rows)


def test_searches_do_stop_early() -> None:
    logits = torch.zeros(1, 50, 5, 5, dtype=torch.float64)
    logits[:, 2, :, END] = 9.0
    for ranking in (
        Ranking(),
        Ranking(length=GNMTLength(alpha=0.2)),
        Ranking(length=GNMTLength(alpha=0.2), coverage=0.0),
    ):
        decoder = Table(logits)
        BeamSearch(width=4, ranking=ranking)(decoder, torch.arange(1), begins(1), end=END, longest=50)
        assert len(decoder.rows) <= 4


@every_ranking
@given(seed=seeds, limit=st.integers(1, 6), rules=constraints)
def test_one_place_is_greedy(name: str, seed: int, limit: int, rules: Constraints) -> None:
    decoder = table(2, 6, 5, seed, places=3 if "coverage" in name else 0)
    search = BeamSearch(width=1, ranking=RANKINGS[name], constraints=rules)
    found = search(decoder, torch.arange(2), begins(2), end=END, longest=limit)
    taken = greedy(decoder, torch.arange(2), begins(2), end=END, longest=limit, constraints=rules)
    for sentence, ([one], other) in enumerate(zip(found, taken, strict=True)):
        text = by_hand(decoder, sentence, limit, rules)
        assert one.tokens == other.tokens == tuple(each for each in text if each != END)
        assert one.log_probability == other.log_probability == other.score
        assert one.log_probability == pytest.approx(probability(decoder, sentence, tuple(text))[0], abs=1e-9)


def by_hand(decoder: Table, sentence: int, limit: int, rules: Constraints) -> list[int]:
    text: list[int] = []
    while len(text) < limit and END not in text:
        order = decoder.logits[sentence, len(text), (BEGIN, *text)[-1]].argsort(descending=True).tolist()
        allowed = [word for word in order if permitted((*text, word), rules)]
        if not allowed:
            break
        text.append(allowed[0])
    return text


def test_without_an_end_the_best_unfinished_hypotheses_are_returned() -> None:
    decoder = table(2, 5, 4, 0)
    decoder.logits[0, ..., END] = -50.0
    found = BeamSearch(width=3, best=3)(decoder, torch.arange(2), begins(2), end=END, longest=5)
    assert [each.ended for each in found[0]] == [False] * 3
    assert {len(each.tokens) for each in found[0]} == {5}
    assert found[0][0].target(END) == found[0][0].tokens
    scores = [each.score for each in found[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(each.ended and each.target(END) == (*each.tokens, END) for each in found[1])


def test_hypotheses_that_nothing_may_follow() -> None:
    """With one token to use once and no end, the longest that is allowed comes back; nothing at all may be allowed."""
    decoder = table(1, 5, 3, 0)
    options = {"end": END, "longest": 5}
    rules = Constraints(shortest=9, unrepeated=1, never=(2,))
    [[found]] = BeamSearch(width=3, constraints=rules)(decoder, torch.arange(1), begins(1), **options)
    assert (found.tokens, found.ended) == ((1,), False)
    rules = Constraints(never=(0, 1, 2))
    [[found]] = BeamSearch(width=3, constraints=rules)(decoder, torch.arange(1), begins(1), **options)
    assert found == Hypothesis((), 0.0, 0.0, False)
    assert BeamSearch()(decoder, torch.arange(0), begins(0), **options) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamSearch(width=2, best=3), "best must be from 1 to width=2, got 3"),
        (lambda: GNMTLength(alpha=-0.1), "alpha is to be a number of at least 0"),
        (lambda: Ranking(coverage=-1.0), "coverage is to be a number of at least 0"),
        (lambda: Constraints(shortest=-1), "shortest is to be a whole number of at least 0"),
        (lambda: Constraints(unrepeated=0), "unrepeated is to be a whole number of at least 1 or null"),
    ],
)
def test_options_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_decoder_that_cannot_serve_is_refused_in_a_sentence() -> None:
    decoder = table(1, 3, 3, 0)
    options = {"source": torch.arange(1), "begin": begins(1), "end": END}
    decoder.logits[0, 1] = torch.nan
    with pytest.raises(ValueError, match="no probabilities at step 2: they are NaN or infinite"):
        BeamSearch(constraints=Constraints(shortest=3))(decoder, longest=3, **options)
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0"):
        BeamSearch()(decoder, longest=0, **options)

    class Blind:
        start, step, reorder, select = decoder.start, decoder.step, decoder.reorder, decoder.select

    with pytest.raises(ValueError, match="a coverage penalty needs the method `coverage` of Blind, which has none"):
        BeamSearch(ranking=Ranking(coverage=0.2))(Blind(), longest=1, **options)


def test_rules_of_length() -> None:
    length = torch.tensor([0.0, 1.0, 7.0])
    assert NoLength()(length).tolist() == [1.0, 1.0, 1.0]
    assert AverageLength()(length).tolist() == [1.0, 1.0, 7.0]
    assert GNMTLength(alpha=0.5)(length)[2].item() == pytest.approx(math.sqrt(2.0))
