"""Searches over networks: batches, padding, states that follow hypotheses, n-best, ensembles and forced passes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from decoder_cases import BEGIN, END, KINDS, Table, begins, made, sources, table
from hypothesis import given
from hypothesis import strategies as st
from tiers import every_pair
from torch.utils.flop_counter import FlopCounterMode

from zoo.attention import record
from zoo.decoding import (
    BeamSearch,
    Constraints,
    Ensemble,
    GNMTLength,
    Hypothesis,
    Ranking,
    Sampling,
    force_decode,
    greedy,
    mean_log_probability,
    mean_probability,
)

every_kind = pytest.mark.parametrize("kind", KINDS)
LENGTHS = [5, 2, 7, 1, 3, 6]
LIMITS = [9, 4, 9, 6, 1, 7]
NGRAMS = Constraints(shortest=2, unrepeated=2, never=(BEGIN,))


def alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(each.tokens, each.ended) for each in found] == [(each.tokens, each.ended) for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5, rel=1e-6)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5, rel=1e-6)


def searches(kind: str) -> dict[str, Any]:
    coverage = 0.2 if kind in ("recurrent", "location") else 0.0
    rule = Ranking(length=GNMTLength(), coverage=coverage)
    return {
        "beam": BeamSearch(width=4, best=3, ranking=rule, constraints=NGRAMS),
        "greedy": BeamSearch(width=1, ranking=rule),
        "sampling": Sampling(draws=3, temperature=1.3, top_k=8, top_p=0.95, constraints=NGRAMS),
    }


def generate(search: Any, decoder: Any, source: Any, which: list[int]) -> list[list[Hypothesis]]:
    more = {"seeds": which} if isinstance(search, Sampling) else {}
    limits = [LIMITS[number] for number in which]
    return search(decoder, source, begins(len(which)), end=END, longest=limits, **more)


@every_pair(kind=KINDS, name=["beam", "greedy", "sampling"], dtype=[torch.float64, torch.float32])
def test_a_sentence_has_the_same_hypotheses_in_any_batch(kind: str, name: str, dtype: torch.dtype) -> None:
    """Alone, in any order, among any others, with and without padding."""
    decoder, source, search = made(kind).to(dtype), sources(LENGTHS), searches(kind)[name]
    object.__setattr__(source, "x", source.x.to(dtype))
    together = generate(search, decoder, source, list(range(6)))
    assert len({each.tokens for hypotheses in together for each in hypotheses}) > 6 or name == "greedy"
    for batch in ([[0], [1], [2], [3], [4], [5]], [[4, 2], [5, 1, 0, 3]], [[5, 4, 3, 2, 1, 0]], [[3, 3, 3]]):
        for which in batch:
            for found, number in zip(generate(search, decoder, source[which], which), which, strict=True):
                alike(found, together[number])


def by_hand(decoder: Any, source: Any, limit: int, width: int, alpha: float) -> tuple[tuple[int, ...], float]:
    """The beam search of one sentence in which every hypothesis is read again from its start, at each step."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        candidates = []
        for text, total in live:
            state = decoder.start(source)
            for token in (BEGIN, *text):
                logits, state = decoder.step(torch.tensor([[token]]), state)
            log_p = logits[0, 0].log_softmax(-1).tolist()
            candidates += [((*text, token), total + each) for token, each in enumerate(log_p)]
        candidates.sort(key=lambda each: -each[1])
        taken = candidates[: width - len(ended)]
        ended += [(total / ((5 + length) / 6) ** alpha, text) for text, total in taken if text[-1] == END]
        live = [each for each in taken if each[0][-1] != END]
    score, text = max(ended) if ended else max((total / ((5 + limit) / 6) ** alpha, text) for text, total in live)
    return text, score


@every_kind
def test_states_follow_their_hypotheses(kind: str) -> None:
    decoder, source = made(kind, seed=1), sources(LENGTHS)
    search = BeamSearch(width=3, ranking=Ranking(length=GNMTLength(alpha=0.9)))
    found = search(decoder, source, begins(6), end=END, longest=5)
    with torch.no_grad():
        for number, [hypothesis] in enumerate(found):
            text, score = by_hand(decoder, source[[number]], 5, 3, 0.9)
            assert hypothesis.target(END) == text
            assert hypothesis.score == pytest.approx(score, abs=1e-9)


@every_kind
def test_more_hypotheses_begin_with_the_best(kind: str) -> None:
    decoder, source = made(kind), sources(LENGTHS)
    many = BeamSearch(width=5, best=5)(decoder, source, begins(6), end=END, longest=8)
    for few, found in zip(BeamSearch(width=5)(decoder, source, begins(6), end=END, longest=8), many, strict=True):
        assert few == found[:1]
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert len({each.tokens for each in found}) == len(found)


def test_sums_are_not_of_half_precision() -> None:
    half, single = table(2, 6, 5, 0), table(2, 6, 5, 0)
    half.logits = half.logits.bfloat16()
    single.logits = half.logits.float()
    found, expected = (
        BeamSearch(width=3, best=3)(each, torch.arange(2), begins(2), end=END, longest=6) for each in (half, single)
    )
    assert found == expected


@given(
    seed=st.integers(0, 2**31),
    which=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    width=st.integers(1, 5),
    data=st.data(),
)
def test_the_company_of_a_sentence_changes_nothing(seed: int, which: list[int], width: int, data: Any) -> None:
    decoder, search = table(6, 7, 6, seed), BeamSearch(width=width, best=data.draw(st.integers(1, width)))
    limits = [1 + (seed + number) % 7 for number in range(6)]
    together = search(decoder, torch.arange(6), begins(6), end=END, longest=limits)
    longest = [limits[number] for number in which]
    assert search(decoder, torch.tensor(which), begins(len(which)), end=END, longest=longest) == [
        together[number] for number in which
    ]


def test_finished_sentences_are_not_computed() -> None:
    decoder = table(4, 30, 6, 0)
    decoder.logits[..., END] = -50.0
    for sentence, length in enumerate((3, 30, 8, 3)):
        decoder.logits[sentence, length - 1, :, END] = 50.0
    BeamSearch(width=3)(decoder, torch.arange(4), begins(4), end=END, longest=30)
    assert decoder.rows == [(4, 1), *[(4, 3)] * 2, *[(2, 3)] * 5, *[(1, 3)] * 22]


def test_places_of_ended_hypotheses_are_not_computed() -> None:
    decoder = table(1, 6, 6, 0)
    decoder.logits[..., END] = -50.0
    decoder.logits[0, 0, :, 2] = 5.0
    decoder.logits[0, 1, 2, END] = 50.0
    [found] = BeamSearch(width=4, best=4)(decoder, torch.arange(1), begins(1), end=END, longest=6)
    assert decoder.rows == [(1, 1), (1, 4), *[(1, 3)] * 4]
    assert [each.tokens for each in found] == [(2,)]


def test_the_cost_is_linear_in_the_length_of_the_text() -> None:
    decoder, source, search = (
        made("recurrent"),
        sources(LENGTHS),
        BeamSearch(width=4, constraints=Constraints(never=(END,))),
    )
    products = []
    for longest in (10, 20, 30):
        with FlopCounterMode(display=False) as counter:
            search(decoder, source, begins(6), end=END, longest=longest)
        products.append(counter.get_total_flops())
    assert products[2] - products[1] == products[1] - products[0] > 0


@given(seed=st.integers(0, 2**31), count=st.integers(1, 3), shortest=st.integers(0, 6))
def test_constraints_hold(seed: int, count: int, shortest: int) -> None:
    decoder = table(2, 8, 5, seed)
    rules = Constraints(shortest=shortest, unrepeated=count, never=(3,))
    for search in (BeamSearch(width=4, best=4, constraints=rules), Sampling(draws=4, constraints=rules)):
        more = {"seeds": [seed, seed + 1]} if isinstance(search, Sampling) else {}
        for hypotheses in search(decoder, torch.arange(2), begins(2), end=END, longest=8, **more):
            for each in hypotheses:
                runs = [each.tokens[at : at + count] for at in range(len(each.tokens) - count + 1)]
                assert len(set(runs)) == len(runs)
                assert 3 not in each.tokens
                assert END not in each.tokens
                assert len(each.tokens) >= shortest or not each.ended
                assert len(each.target(END)) <= 8


# The forced pass


@every_kind
def test_the_forced_pass_gives_the_score_of_a_search(kind: str) -> None:
    decoder, source = made(kind), sources(LENGTHS)
    found = [each for [each] in BeamSearch(width=4)(decoder, source, begins(6), end=END, longest=8)]
    targets = [each.target(END) for each in found]
    log_p = force_decode(decoder, source, begins(6), targets)
    assert log_p.shape == (6, max(map(len, targets)))
    torch.testing.assert_close(
        log_p.sum(1), torch.tensor([each.log_probability for each in found], dtype=torch.float64)
    )
    for row, target in zip(log_p, targets, strict=True):
        assert (row[: len(target)] < 0).all()
        assert (row[len(target) :] == 0).all()
    log_p.sum().backward()
    assert all(parameter.grad is not None for parameter in decoder.parameters())


def test_a_whole_pass_equals_steps() -> None:
    decoder, source, targets = made("transformer"), sources([4, 2]), [[3, 5, 2, 0], [4]]

    class ByStep:
        start, step, reorder, select = decoder.start, decoder.step, decoder.reorder, decoder.select

    whole, steps = (force_decode(each, source, begins(2), targets) for each in (decoder, ByStep()))
    torch.testing.assert_close(whole, steps, rtol=0.0, atol=1e-12)
    assert force_decode(decoder, source, begins(2), [[], []]).shape == (2, 0)
    with pytest.raises(ValueError, match="there are 2 sentences and 1 targets"):
        force_decode(decoder, source, begins(2), [[1]])


class Tracking:
    """Keeps the weights of all steps of each hypothesis of one sentence, and reorders them with the beams."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.weights: dict[tuple[int, ...], torch.Tensor] = {}

    def start(self, source: Any) -> Any:
        return self.decoder.start(source), [()]

    def step(self, tokens: torch.Tensor, state: Any) -> Any:
        logits, after = self.decoder.step(tokens, state[0])
        texts = [(*text, token) for text, token in zip(state[1], tokens[0].tolist(), strict=True)]
        for text, row in zip(texts, after.memory.attention.weights[0, 0], strict=True):
            earlier = self.weights.get(text[:-1], row[None, :][:0])
            self.weights[text] = torch.cat([earlier, row[None]])
        return logits, (after, texts)

    def reorder(self, state: Any, beams: torch.Tensor) -> Any:
        return self.decoder.reorder(state[0], beams), [state[1][each] for each in beams[0].tolist()]

    def select(self, state: Any, sentences: torch.Tensor) -> Any:
        return self.decoder.select(state[0], sentences), state[1]


@pytest.mark.parametrize("kind", ["recurrent", "location"])
def test_maps_of_the_winner_are_recorded_from_the_forced_pass(kind: str) -> None:
    """They are the weights that a search tracks; the first rows of a recording of the search are those of others."""
    decoder, off = made(kind, seed=3), []
    rules = Constraints(shortest=5, unrepeated=2)
    search = BeamSearch(width=4, ranking=Ranking(length=GNMTLength(alpha=1.0)), constraints=rules)
    for seed in range(8):
        source, tracking = sources([6], seed=seed), Tracking(decoder)
        with record(decoder) as of_search:
            [[winner]] = search(tracking, source, begins(1), end=END, longest=9)
        target = winner.target(END)
        with record(decoder) as maps:
            force_decode(decoder, source, begins(1), [target])
        found = maps["attention.attend"].weights[:, 0, 0, 0]
        assert found.shape == (len(target), 6)
        torch.testing.assert_close(found, tracking.weights[(BEGIN, *target[:-1])], rtol=0.0, atol=1e-12)
        first_rows = of_search["attention.attend"].weights[: len(target), 0, 0, 0]
        off.append((first_rows - found).abs().max().item())
    assert max(off) > 0.1


# Ensembles


def test_an_ensemble_averages() -> None:
    first, second = table(2, 4, 5, 0), table(2, 4, 5, 1)
    both = torch.stack([first.logits, second.logits]).log_softmax(-1)
    for combine, combined in (
        (mean_probability, both.exp().mean(0).log()),
        (mean_log_probability, both.mean(0).log_softmax(-1)),
    ):
        ensemble = Ensemble([first, second], combine)
        search = BeamSearch(width=4, best=4)
        found = search(ensemble, torch.arange(2), begins(2), end=END, longest=4)
        expected = search(Table(combined), torch.arange(2), begins(2), end=END, longest=4)
        for one, other in zip(found, expected, strict=True):
            alike(one, other)
    assert first.logits.argmax(-1).ne(second.logits.argmax(-1)).any()


def test_decoders_of_every_kind_make_an_ensemble() -> None:
    members, source = [made(kind) for kind in KINDS], sources(LENGTHS)
    ensemble = Ensemble(members)
    search = BeamSearch(width=3)
    together = search(ensemble, source, begins(6), end=END, longest=6)
    for number in range(6):
        alike(search(ensemble, source[[number]], begins(1), end=END, longest=6)[0], together[number])
    log_p = force_decode(ensemble, source, begins(6), [each.target(END) for [each] in together])
    assert log_p[0].sum().item() == pytest.approx(together[0][0].log_probability)
    covering = Ensemble(members[:2])
    total = covering.coverage(covering.step(begins(6)[:, None], covering.start(source))[1])
    assert total[1, 0].tolist()[2:] == [1.0] * 5
    with pytest.raises(ValueError, match="coverage penalty needs the method `coverage` of Transformer, which has none"):
        BeamSearch(ranking=Ranking(coverage=1.0))(ensemble, source, begins(6), end=END, longest=6)
    alone = BeamSearch(width=3)(Ensemble(members[:1]), source, begins(6), end=END, longest=6)
    for one, other in zip(alone, BeamSearch(width=3)(members[0], source, begins(6), end=END, longest=6), strict=True):
        alike(one, other)


def test_members_that_do_not_fit_are_refused() -> None:
    ensemble = Ensemble([table(1, 3, 4, 0), table(1, 3, 5, 0)])
    with pytest.raises(ValueError, match=r"the members of an ensemble share a vocabulary; theirs have \[4, 5\] tokens"):
        greedy(ensemble, torch.arange(1), begins(1), end=END, longest=3)
    with pytest.raises(ValueError, match="an ensemble needs a member"):
        Ensemble([])


def test_no_more_than_torch_is_imported() -> None:
    """Neither Lightning nor Hydra, and of this project the core alone."""
    code = (
        "import sys, zoo.decoding as d; [getattr(d, name) for name in d.__all__]\n"
        "print([m for m in ('pytorch_lightning', 'lightning', 'hydra', 'omegaconf') if m in sys.modules])\n"
        "print(sorted({'.'.join(m.split('.')[:2]) for m in sys.modules if m.startswith('zoo.')}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["[]", "['zoo.attention', 'zoo.decoding', 'zoo.lazy_exports', 'zoo.types']"]


class Fixed:
    """The same logits at every step."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def start(self, source: torch.Tensor) -> torch.Tensor:
        return source

    def step(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.logits[state].unsqueeze(1).expand(-1, tokens.shape[1], -1), state

    def reorder(self, state: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
        return state

    def select(self, state: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
        return state[sentences]


@pytest.mark.parametrize("words", [128 * 5, 128 * 20, 128 * 20 + 7])
@pytest.mark.parametrize("count", [1, 5])
def test_the_most_probable_of_a_large_vocabulary_are_found(words: int, count: int) -> None:
    logits = torch.randn(3, words, generator=torch.Generator().manual_seed(0))
    logits[0, 8:] = -torch.inf
    logits[1, -1] = 9.0
    search = BeamSearch(width=count, best=count, constraints=Constraints(never=(END,)))
    found = search(Fixed(logits), torch.arange(3), begins(3), end=END, longest=1)
    logits = logits.log_softmax(-1)
    logits[:, END] = -torch.inf
    for each, row in zip(found, logits, strict=True):
        best = row.topk(count)
        assert [text.tokens for text in each] == [(token,) for token in best.indices.tolist()]
        assert [text.log_probability for text in each] == pytest.approx(best.values.tolist(), abs=1e-6)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_without_probabilities_are_refused_wherever_they_stand(count: int, bad: float) -> None:
    logits = torch.zeros(2, 3000)
    logits[1, 2000] = bad
    with pytest.raises(ValueError, match="no probabilities at step 1"):
        BeamSearch(width=count)(Fixed(logits), torch.arange(2), begins(2), end=END, longest=3)
