"""Corpus scores: those of sacrebleu, jiwer and rouge-score, and the sums of parts are those of the whole."""

from __future__ import annotations

import itertools
import json
import math
import random
from functools import reduce

import jiwer
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import DataError
from zoo.text import BLEU, CER, CHRF, ROUGE, WER, CaptionROUGE, CIDEr, Frequencies, Perplexity, Score, add_sums

WORDS = ["the", "The", "dog", "dog,", "läuft", "runs", "12.5", "doesn't", "€", "."]
SENTENCE = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=8)
OVERLAPS = [BLEU(), BLEU(lowercase=True, tokenize="intl"), CHRF(), CHRF(word_order=2)]
FREQUENCIES = Frequencies.from_corpus([["the dog runs", "a dog ."], ["the dog"], ["läuft ."], ["runs runs"]])
SCORES: list[Score] = [*OVERLAPS, WER(), CER(), ROUGE(), CaptionROUGE(), CIDEr(FREQUENCIES)]


def sums_of(score: Score, pairs: list[tuple[str, str]]) -> list[float]:
    return score.statistics([hypothesis for hypothesis, _ in pairs], [[reference] for _, reference in pairs])


@given(pairs=PAIRS, cut=st.integers(0, 8), which=st.integers(0, len(SCORES) - 1))
def test_sums_of_parts_are_those_of_the_whole(pairs: list[tuple[str, str]], cut: int, which: int) -> None:
    score = SCORES[which]
    whole = sums_of(score, pairs)
    assert len(whole) == score.size
    assert all(type(each) is float for each in whole)
    parts = add_sums(sums_of(score, pairs[:cut]), sums_of(score, pairs[cut:]))
    assert parts == pytest.approx(whole, rel=1e-12)
    one_by_one = reduce(add_sums, (sums_of(score, [pair]) for pair in pairs), [0.0] * score.size)
    expected = score.compute(whole)
    assert score.compute(one_by_one) == pytest.approx(expected, nan_ok=True, rel=1e-12)
    assert score.compute(json.loads(json.dumps(parts))) == pytest.approx(expected, nan_ok=True, rel=1e-12)


@given(
    pairs=st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=6),
)
def test_bleu_and_chrf_are_those_of_sacrebleu(pairs: list[tuple[str, list[str]]]) -> None:
    texts, references = [text for text, _ in pairs], [each for _, each in pairs]
    streams = list(itertools.zip_longest(*references))
    peers = [
        (OVERLAPS[0], "bleu", sacrebleu.BLEU()),
        (OVERLAPS[0], "bleu_1", sacrebleu.BLEU(max_ngram_order=1)),
        (OVERLAPS[0], "bleu_2", sacrebleu.BLEU(max_ngram_order=2)),
        (OVERLAPS[1], "bleu", sacrebleu.BLEU(lowercase=True, tokenize="intl")),
        (OVERLAPS[2], "chrf", sacrebleu.CHRF()),
        (OVERLAPS[3], "chrf", sacrebleu.CHRF(word_order=2)),
    ]
    for score, name, peer in peers:
        sums = score.statistics(texts, references)
        found = score.compute(sums)[name]
        if not any(sums):
            assert math.isnan(found)
        else:
            assert found == pytest.approx(peer.corpus_score(texts, streams).score, abs=1e-9)


def test_signatures_say_what_sacrebleu_says() -> None:
    assert OVERLAPS[0].signature() == f"case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert "case:lc" in OVERLAPS[1].signature()
    assert "nw:2" in OVERLAPS[3].signature()
    assert len({score.signature() for score in SCORES}) == len(SCORES)


@given(pairs=PAIRS)
def test_error_rates_are_those_of_jiwer(pairs: list[tuple[str, str]]) -> None:
    texts, references = [text for text, _ in pairs], [reference for _, reference in pairs]
    for score, name, peer in ((WER(), "wer", jiwer.process_words), (CER(), "cer", jiwer.process_characters)):
        found = score.compute(sums_of(score, pairs))
        expected = peer(references, texts)
        if not expected.hits + expected.substitutions + expected.deletions:
            assert math.isnan(found[name])
            continue
        assert found[name] == pytest.approx(getattr(expected, name))
        parts = [found[f"{name}_{each}"] for each in ("substitutions", "deletions", "insertions")]
        assert sum(parts) == pytest.approx(found[name])
        assert parts[1] * (expected.hits + expected.substitutions + expected.deletions) == pytest.approx(
            expected.deletions
        )


def test_error_rates_by_hand() -> None:
    assert WER().statistics(["a x c d", ""], [["a b c"], ["e f"]]) == [2, 1, 2, 1]
    assert WER().compute([2, 1, 2, 1]) == {
        "wer": 0.8,
        "wer_substitutions": 0.2,
        "wer_deletions": 0.4,
        "wer_insertions": 0.2,
    }


def test_rouge_by_hand() -> None:
    found = ROUGE().compute(ROUGE().statistics(["The cat sat."], [["the cat, it sat down"]]))
    assert found == {
        "rouge_1": pytest.approx(6 / 8),
        "rouge_2": pytest.approx(2 / 6),
        "rouge_l": pytest.approx(6 / 8),
    }
    nearest = ROUGE().compute(ROUGE().statistics(["über den Fluß"], [["nothing", "Über den FLUSS"]]))
    assert nearest["rouge_1"] == pytest.approx(4 / 6)


def test_rouge_is_that_of_rouge_score_on_english() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = random.Random(0)
    words = ["the", "cat", "sat", "on", "a", "mat", "don't", "it's", "U.S.", "well-known", "3.5", "_x_"]
    for _ in range(200):
        text, *references = (" ".join(draw.choices(words, k=draw.randint(0, 12))) for _ in range(3))
        found = ROUGE().compute(ROUGE().statistics([text], [references]))
        expected = scorer.score_multi(references, text)
        assert list(found.values()) == pytest.approx([expected[name].fmeasure for name in expected])


def test_perplexity() -> None:
    score = Perplexity()
    assert score.compute(add_sums([math.log(8.0), 1], [math.log(2.0), 1]))["perplexity"] == pytest.approx(4.0)
    assert math.isnan(score.compute([0.0, 0.0])["perplexity"])
    assert score.compute([1e6, 1.0])["perplexity"] == math.inf


@pytest.mark.parametrize("score", SCORES, ids=lambda score: type(score).__name__)
def test_nothing_is_no_number_and_misfits_are_refused(score: Score) -> None:
    assert score.statistics([], []) == [0.0] * score.size
    assert all(map(math.isnan, score.compute([0.0] * score.size).values()))
    with pytest.raises(DataError):
        score.statistics(["a"], [])
    with pytest.raises(DataError):
        score.statistics(["a"], [[]])
