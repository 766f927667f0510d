"""CTC by the sum over all paths, and the search that joins it to attention against all texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, product
from typing import Any

import pytest
import torch
from listener_cases import FEATURES, LENGTHS, frames
from torch import Tensor

from zoo.attention import Additive, AttentionFactory, Softmax
from zoo.decoding import BeamSearch, Ensemble, WeightedSum, force_decode
from zoo.nn import Bahdanau
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.tasks.speech import ListenAttendSpell, PyramidalRNNEncoder
from zoo.tasks.speech.models.ctc import JointDecoder, count_needed, places_of
from zoo.tasks.speech.models.ctc_prefixes import CTCOutput, CTCPrefixes

TOKENS = (4, 5, 6)
SYMBOLS = 7
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def heard(*lengths: int, seed: int = 0, spread: float = 2.0) -> CTCOutput:
    """Log-probabilities with NaN behind the end of each recording, of which nothing may be read."""
    logits = spread * torch.randn(len(lengths), max(lengths), SYMBOLS, generator=torch.Generator().manual_seed(seed))
    logits[..., [END, BEGIN, 1]] = -60.0  # symbols that are never in a text
    found = logits.double().log_softmax(-1)
    return CTCOutput(found, torch.tensor(lengths))


def by_paths(log_probability: Tensor) -> dict[tuple[int, ...], float]:
    """The probability of each text: the sum over all paths that become it without blanks and repetitions."""
    found: dict[tuple[int, ...], float] = {}
    for path in product((PAD, *TOKENS), repeat=len(log_probability)):
        text = tuple(symbol for symbol, _ in groupby(path) if symbol != PAD)
        probability = sum(float(log_probability[place, symbol]) for place, symbol in enumerate(path))
        found[text] = found.get(text, 0.0) + float(torch.tensor(probability, dtype=torch.float64).exp())
    return found


def texts(longest: int) -> Iterator[tuple[int, ...]]:
    for length in range(longest + 1):
        yield from product(TOKENS, repeat=length)


def net(**options: Any) -> Any:
    torch.manual_seed(0)
    made = ListenAttendSpell(
        features=FEATURES,
        tokens=SYMBOLS,
        attend=AttentionFactory(score=Additive, normalizer=Softmax),
        listener=partial(PyramidalRNNEncoder, hidden=4, joined=(1, 2)),
        decoder=partial(Bahdanau, dim=4, hidden=6, compared=5),
        ctc=True,
        **options,
    )
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made.double().eval()


def test_prefixes_are_sums_over_all_paths() -> None:
    """Watanabe et al. 2017, eq. 21-23: the probability of a beginning is that of all texts that begin in this way."""
    given = heard(5, 3, 1)
    probabilities = [by_paths(rows[:length]) for rows, length in zip(*given, strict=True)]
    scorer = CTCPrefixes(blank=PAD, end=END)
    state = scorer.start(given)
    for text in [(4,), (4, 4), (5, 4, 4), (4, 5, 6)]:
        state = scorer.start(given)
        for place in range(len(text) + 1):
            read = BEGIN if place == 0 else text[place - 1]
            scores, state = scorer.step(torch.full((3, 1), read), state)
            for number, all_texts in enumerate(probabilities):
                begun = _begins(all_texts, text[:place])
                if not begun:
                    assert scores[number].eq(-torch.inf).all()
                    continue
                for token in TOKENS:
                    expected = torch.tensor(_begins(all_texts, (*text[:place], token)) / begun, dtype=torch.float64)
                    torch.testing.assert_close(scores[number, 0, token].exp(), expected, **CLOSE)
                ends = torch.tensor(all_texts.get(text[:place], 0.0) / begun, dtype=torch.float64)
                torch.testing.assert_close(scores[number, 0, END].exp(), ends, **CLOSE)
                assert scores[number, 0, PAD] == -torch.inf


def _begins(probabilities: dict[tuple[int, ...], float], beginning: tuple[int, ...]) -> float:
    return sum(p for text, p in probabilities.items() if text[: len(beginning)] == beginning)


def test_scores_of_a_text_sum_to_the_loss() -> None:
    """Of many places, against torch: the differences telescope."""
    given = heard(60, 41, seed=3, spread=6.0)
    targets = Targets.pad([[4, 4, 5, 6, 6, 6, 4], [5, 4, 5, 5]])
    found = force_decode(
        CTCPrefixes(blank=PAD, end=END), given, torch.full((2,), BEGIN), [[*t, END] for t in targets.texts()]
    )
    expected = torch.nn.functional.ctc_loss(
        given.log_probability.transpose(0, 1), targets.tokens, given.lengths, targets.lengths - 1, reduction="none"
    )
    torch.testing.assert_close(-found.sum(1), expected, rtol=1e-9, atol=1e-9)


def test_hypotheses_and_sentences_keep_their_states() -> None:
    given = heard(6, 4, seed=1)
    scorer = CTCPrefixes(blank=PAD, end=END)
    _, state = scorer.step(torch.full((2, 1), BEGIN), scorer.start(given))
    state = scorer.reorder(state, torch.zeros(2, 2, dtype=torch.long))
    _, state = scorer.step(torch.tensor([[4, 5], [6, 4]]), state)
    scores, _ = scorer.step(torch.tensor([[5, 5], [5, 4]]), state)
    turned = scorer.reorder(scorer.select(state, torch.tensor([1, 0, 1])), torch.tensor([[1, 0]] * 3))
    found, _ = scorer.step(torch.tensor([[4, 5], [5, 5], [4, 5]]), turned)
    torch.testing.assert_close(found, scores[[1, 0, 1]].flip(1), **CLOSE)


def test_the_joint_search_finds_the_best_of_all_texts() -> None:
    """The score of a text is (1 - w) log p_attention + w log p_CTC, compared over every text of up to four tokens."""
    made, source, weight = net(), frames((8, 5)), 0.4
    begin = torch.full((2,), BEGIN)
    joint = JointDecoder(made, weight)
    search = BeamSearch(width=150, best=3)
    with torch.no_grad():
        encoded = made.encode(source)
        every = list(texts(4))
        scored = []
        for text in every:
            attended = force_decode(made, encoded, begin, [[*text, END]] * 2).sum(1)
            losses = made.ctc.loss(made.ctc(encoded), Targets.pad([text] * 2))
            scored.append((1 - weight) * attended - weight * losses)
        found = search(_only(joint), source, begin, end=END, longest=5)
    for number, hypotheses in enumerate(found):
        best = sorted(range(len(every)), key=lambda each, of=number: -float(scored[each][of]))[:3]  # type: ignore[misc]
        assert [each.tokens for each in hypotheses if each.ended] == [every[each] for each in best]
        for each, text in zip(hypotheses, best, strict=True):
            assert each.score == pytest.approx(float(scored[text][number]), abs=1e-9)


def _only(decoder: JointDecoder) -> Any:
    """The decoder with nothing but the tokens of this test."""
    step = decoder.step

    def limited(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        scores, state = step(tokens, state)
        never = [number for number in range(SYMBOLS) if number not in (*TOKENS, END)]
        return scores.index_fill(2, torch.tensor(never), -torch.inf), state

    decoder.step = limited  # type: ignore[method-assign]
    return decoder


def test_the_loss_is_that_of_each_recording_alone() -> None:
    made, source = net(), frames(LENGTHS)
    written: list[Sequence[int]] = [[4, 5], [6], [5], [4], [], [6, 5, 4], [5]]
    together = made.ctc.loss(made.ctc(made.encode(source)), Targets.pad(written))
    for number, text in enumerate(written):
        alone = made.ctc.loss(made.ctc(made.encode(source.select(torch.tensor([number])))), Targets.pad([text]))
        torch.testing.assert_close(alone, together[number : number + 1], **CLOSE)
    together.sum().backward()
    assert all(p.grad.isfinite().all() for p in made.ctc.parameters())


def test_stops_are_the_ends_of_tokens_on_the_best_path() -> None:
    """Against all paths; a text without tokens has no stops, and neither have ends and padding."""
    made, source = net(), frames((10, 7, 9, 4))
    written: list[Sequence[int]] = [[4, 4], [6, 5], [5], []]
    encoded, targets = made.encode(source), Targets.pad(written)
    found, (log_probability, lengths) = made.ctc.stops(made.ctc(encoded), targets), made.ctc(encoded)
    log_probability = log_probability.detach()
    assert found.shape == (*targets.tokens.shape, log_probability.shape[1])
    for number, text in enumerate(written):
        expected = torch.zeros_like(found[number])
        if text:
            path = _best_path(log_probability[number, : lengths[number]], text)
            runs = [(symbol, len(list(run))) for symbol, run in groupby(path)]
            ends = torch.tensor([size for _, size in runs]).cumsum(0) - 1
            at = ends[torch.tensor([symbol != PAD for symbol, _ in runs])]
            expected[torch.arange(len(text)), at] = log_probability[number, at, torch.tensor(text)].exp().float()
        torch.testing.assert_close(found[number], expected)


def _best_path(log_probability: Tensor, text: Sequence[int]) -> tuple[int, ...]:
    """The most probable of all paths that become a text."""
    paths = product((PAD, *set(text)), repeat=len(log_probability))
    fitting = [path for path in paths if [symbol for symbol, _ in groupby(path) if symbol != PAD] == list(text)]
    return max(fitting, key=lambda path: float(log_probability[torch.arange(len(path)), list(path)].sum()))


def test_texts_that_are_too_long_are_known_by_their_lengths() -> None:
    made, source = net(), frames((8, 8, 8, 8))
    targets = Targets.pad([[4, 5, 6, 4], [4, 4, 5], [4, 4, 5, 5], [4, 5, 6, 5, 4]])
    encoded = made.encode(source)
    assert count_needed(targets).tolist() == [4, 4, 6, 5]
    losses = made.ctc.loss(made.ctc(encoded), targets)
    assert (
        losses.isinf().tolist() == (count_needed(targets) > places_of(encoded)).tolist() == [False, False, True, True]
    )


def test_the_loss_is_computed_in_single_precision_under_autocast() -> None:
    made, source = net().float(), frames((8, 5))
    source = type(source)(source.features.float(), source.lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert made.ctc(made.encode(source)).log_probability.dtype == torch.float32


def test_an_ensemble_adds_scores_as_they_are() -> None:
    given = heard(5, seed=2)
    scorer = CTCPrefixes(blank=PAD, end=END)
    both = Ensemble([scorer, scorer], WeightedSum((0.25, 0.5)))
    begin = torch.full((1, 1), BEGIN)
    alone, _ = scorer.step(begin, scorer.start(given))
    found, _ = both.step(begin, both.start(given))
    torch.testing.assert_close(found, 0.75 * alone, **CLOSE)
    assert both.is_scored
    with pytest.raises(ValueError, match="weights is to be a list, each a number above 0"):
        WeightedSum((1.0, 0.0))
