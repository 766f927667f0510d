"""The task of speech recognition: figures against jiwer and loops, whatever the batches are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import jiwer
import pytest
import torch
from recogniser_cases import STRIDE, TEXTS, batch, figures, language, recogniser, telling, utterance

from zoo.attention import NoAttention
from zoo.decoding import BeamSearch
from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.tasks.seq2seq.text_codec import END, TextCodec
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding
from zoo.tasks.speech.alignment_metrics import onsets
from zoo.tasks.speech.batch import SpeechBatch
from zoo.text import Words

SAID = ["ab ba", "b b", "aa", "b a a b a a"]


def test_error_rates_are_those_of_jiwer() -> None:
    module = telling(*SAID)
    found = figures(module, batch())
    words, characters = jiwer.process_words(TEXTS, SAID), jiwer.process_characters(TEXTS, SAID)
    assert found["test/wer"] == pytest.approx(words.wer)
    assert found["test/cer"] == pytest.approx(characters.cer)
    count = sum(map(len, TEXTS))
    assert found["test/cer_deletions"] == pytest.approx(characters.deletions / count)
    assert found["test/cer_insertions"] == pytest.approx(characters.insertions / count)
    assert found["test/wer_low"] <= found["test/wer"] <= found["test/wer_high"]
    module.validation_step(batch(), 0)
    assert float(module.validated["cer"].compute()) == pytest.approx(found["test/cer"])
    assert "cer: characters" in module.protocol()


@pytest.mark.parametrize("given", ["Stop , it 's a well-known song .", "stop, it's a well - known song."])
def test_a_faultless_transcript_has_no_errors_however_it_is_spaced(given: str) -> None:
    of = TextCodec.from_counts(Words(lower=True), Counter(Words(lower=True).encode(given).names))
    module, tokens = recogniser(), of.encode(given)[1]
    read = SpeechBatch.collate([replace(utterance(0, of, gold=False, text=given), target=tokens)], of)
    nothing = ForcedDecoding(torch.zeros(1, len(tokens) + 1).double(), None)
    module.figures.add(read, [Hypothesis(tuple(tokens), -1.0, -1.0, True)], nothing, nothing)
    found = {name: float(metric.compute()) for name, metric in module.figures.find_counted().items()}
    assert (found["test/wer"], found["test/cer"]) == (0.0, 0.0)


def test_the_best_weights_are_those_of_the_lowest_error() -> None:
    assert type(recogniser()).mode_of("val/cer") == "min"


def test_figures_of_a_test_do_not_depend_on_its_batches() -> None:
    module = recogniser()
    whole = figures(module, batch())
    tables = dict(module.tables())
    parts = figures(module, batch([3]), batch([0, 2]), batch([1]))
    assert parts == pytest.approx(whole, abs=1e-6)
    assert module.tables().keys() == tables.keys()
    for name, rows in module.tables().items():
        for row, other in zip(rows, tables[name], strict=True):
            assert row == pytest.approx(other, abs=1e-12, nan_ok=True)
    assert whole["test/perplexity"] == pytest.approx(math.exp(whole["test/loss"]), rel=1e-5)


def test_tables_by_speaker_length_and_noise() -> None:
    module = telling(*SAID)
    figures(module, batch())
    tables = module.tables()
    jo, kim = tables["by_speaker"]
    assert (jo["speaker"], jo["utterances"], kim["speaker"], kim["utterances"]) == ("jo", 2, "kim", 1)
    assert jo["cer"] == pytest.approx(jiwer.cer([TEXTS[0], TEXTS[2]], [SAID[0], SAID[2]]))
    assert kim["wer"] == pytest.approx(jiwer.wer(TEXTS[1], SAID[1]))
    assert jo["cer_low"] <= jo["cer"] <= jo["cer_high"]
    assert [(row["seconds"], row["utterances"]) for row in tables["by_length"]] == [("up to 1", 4)]
    noises = tables["by_snr"]
    assert [row["snr"] for row in noises] == ["0 to 5", "10 to 15", "above 30"]
    assert noises[0]["cer"] == pytest.approx(2.0)
    assert all(0.0 < row["weight_on_silence"] < 1.0 for row in noises)


def test_where_attention_is_against_a_loop() -> None:
    module, made = recogniser().eval(), batch()
    found = figures(module, made)
    weights = module.force_references(made).weights
    assert weights is not None
    away, on_gold, on_silence, points, late = [], [], [], [], []
    for number, text in enumerate(TEXTS):
        frames, at = 3 * len(text.replace(" ", "")) + 3, 2
        spans = []
        for letter in text:
            spans.append((at, at + (letter != " ") * 3))
            at = spans[-1][1]
        places = math.ceil(frames / STRIDE)
        inside = [[a < (j + 1) * STRIDE and j * STRIDE < b for j in range(places)] for a, b in spans]
        sounds = [any(row[j] for row, (a, b) in zip(inside, spans, strict=True) if b > a) for j in range(places)]
        begins = onsets(weights[number, : len(text) + 1, :places], STRIDE, frames).tolist()
        for token, (first, end) in enumerate(spans):
            if first == end:
                continue
            row = weights[number, token, :places].tolist()
            middles = [(j * STRIDE + min((j + 1) * STRIDE, frames)) / 2 for j in range(places)]
            late.append((abs(begins[token] - first), abs(begins[token + 1] - end)))
            centre = sum(a * m for a, m in zip(row, middles, strict=True)) / sum(row)
            away.append(max(0.0, first - centre, centre - end) / STRIDE)
            on_gold.append(sum(a for a, is_in in zip(row, inside[token], strict=True) if is_in))
            points.append(float(inside[token][row.index(max(row))]))
            on_silence.append(sum(a for a, is_sound in zip(row, sounds, strict=True) if not is_sound))
    for name, values in {
        "distance": away,
        "within_2_frames": [float(each <= 2) for each in away],
        "mass": on_gold,
        "pointing": points,
        "silence": on_silence,
        "start_ms": [10 * first for first, _ in late],
        "end_ms": [10 * end for _, end in late],
    }.items():
        assert found[f"truth/{name}"] == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_recordings_without_gold_have_no_truth_and_no_speaker_no_table() -> None:
    module = telling("b aa")
    found = figures(module, batch([3], gold=False))
    assert not any(name.startswith("truth/") for name in found)
    assert {"test/monotonicity", "test/coverage", "test/diagonality"} <= found.keys()
    assert "by_speaker" not in module.tables()
    (noise,) = module.tables()["by_snr"]
    assert math.isnan(noise["weight_on_silence"])


def test_a_transcript_of_spaces_alone_has_no_truth() -> None:
    module, of = recogniser(), language()
    silent = SpeechBatch.collate([utterance(0, of, text=" ")], of)
    found = figures(module, silent)
    assert "test/loss" in found
    assert not [name for name in found if name.startswith("truth/")]


def test_a_model_without_attention_has_error_rates_alone() -> None:
    module = recogniser(attend=lambda dim, heads: NoAttention())
    found = figures(module, batch())
    assert {"test/wer", "test/cer", "test/unended"} <= found.keys()
    assert not {name for name in found if "monoton" in name or name.startswith("truth/")}
    with pytest.raises(ConfigError, match="no map of its source"):
        module.explain(batch())


def test_the_scored_map_and_the_outputs_ignore_company() -> None:
    module, made = recogniser().eval(), batch()
    together = module.explain(made)
    assert together.support.permitted is not None
    for number in range(4):
        alone = module.explain(batch([number])).weights[0, 0]
        rows, places = alone.shape
        torch.testing.assert_close(together.weights[number, 0, :rows, :places], alone, rtol=0.0, atol=1e-12)
        assert int(together.support.permitted[number].sum()) == places
    for each in module.invariants(made):
        torch.testing.assert_close(each.kept(module(made)), each.kept(module(each.batch)), rtol=0.0, atol=1e-12)


def test_penalties_know_the_places_of_the_listener() -> None:
    module, made = recogniser(), batch()
    ((site, gold),) = module.gold_attention(made).items()
    assert site == "net.decoder.attention.attend"
    assert made.targets is not None
    assert gold.shape == (*made.targets.tokens.shape, math.ceil(made.source.features.shape[1] / STRIDE))
    assert torch.equal(module.query_masks(made)[site], made.targets.is_real)


def test_a_transcript_is_no_longer_than_its_recording_allows() -> None:
    module = telling(*["a" * 40] * 4, search=BeamSearch(width=1))
    (first, *_) = module.write(batch())[0]
    assert len(first.tokens) == int(0.25 * 15) + 10
    assert not first.ended
    assert figures(module, batch())["test/unended"] == 1.0


def test_a_recording_without_transcript_is_predicted_and_not_tested() -> None:
    module, of = recogniser().eval(), language()
    made = SpeechBatch.collate([replace(utterance(0, of), target=None, spans=None)], of)
    made = replace(made, source=replace(made.source, rows=made.source.features.double()))
    columns = module.predict_step(made)
    assert columns["loss"] == [None]
    with pytest.raises(ConfigError, match="a recording has no transcript"):
        module.test_step(made, 0)


def test_the_loss_is_smoothed_cross_entropy_of_the_real_tokens() -> None:
    module, made = recogniser(smoothing=0.1).eval(), batch()
    module.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    assert made.targets is not None
    chances, losses = module(made).log_softmax(-1), []
    for number, text in enumerate(made.targets.texts()):
        for step, token in enumerate([*text, END]):
            row = chances[number, step]
            losses.append(-(0.9 * row[token].item() + 0.1 * row.mean().item()))
    assert module.training_step(made, 0).item() == pytest.approx(sum(losses) / len(losses), abs=1e-12)


def test_writing_ends_are_read_in_the_forced_pass() -> None:
    module, made = telling(*SAID), batch()
    best = [each[0] for each in module.write(made)]
    assert best[0].target(END)[-1] == END
    weights = module.force_decode(made, best).weights
    assert weights is not None
    assert weights.shape[1] == max(map(len, SAID)) + 1


def test_what_a_run_has_not_learned_is_said() -> None:
    module = telling(*["ab"] * 4)
    figures(module, batch(), batch([0, 1]))
    collapsed = {"val/alignment_everywhere": 0.995, "val/alignment_one_place": 0.3, "test/cer": 0.6}
    same, alignment, few = module.verdicts(collapsed, examples=35)
    assert same.startswith("The model writes the same transcript for every recording of the test split, 'ab'.")
    assert alignment.startswith("The alignment of net.")
    assert alignment.endswith("Or train with model.ctc=0.3")
    assert few.startswith("35 training recordings are few, and test/cer is 0.60")


def test_a_run_that_has_learned_has_no_verdict() -> None:
    module = telling(*TEXTS)
    figures(module, batch(), batch([0, 1]))
    assert module.verdicts({"val/alignment_everywhere": 0.3, "test/cer": 0.01}, examples=35) == []
