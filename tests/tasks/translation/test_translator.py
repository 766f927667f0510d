"""The loss, the figures and the map of translations, against loops."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import sacrebleu
import torch
from translation_cases import TARGETS, Knowing, Small, languages, pair, pairs, translator

from zoo.decoding import BeamSearch, Constraints, GNMTLength, Hypothesis, Ranking
from zoo.errors import ConfigError
from zoo.tasks.seq2seq import MaxLength, ScheduledSampling
from zoo.tasks.seq2seq.scheduled_sampling import mix_predictions
from zoo.tasks.seq2seq.text_codec import END, TextCodec
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding, force_decode_texts
from zoo.tasks.translation import Translator
from zoo.tasks.translation.batch import Languages, TranslationBatch
from zoo.tasks.translation.metrics import count_omitted, count_reordered, one_off
from zoo.text import Words


def quiet(module: Translator) -> dict[str, Any]:
    logged: dict[str, Any] = {}
    module.log = lambda name, value, **_: logged.update({name: value})  # type: ignore[method-assign, assignment]
    module.log_dict = lambda metrics, **_: logged.update(metrics)  # type: ignore[method-assign, assignment]
    return logged


def figures(module: Translator, *batches: TranslationBatch) -> dict[str, float]:
    found = quiet(module.eval())
    module.on_test_epoch_start()
    for number, batch in enumerate(batches):
        module.test_step(batch, number)
    module.on_test_epoch_end()
    return {name: float(metric.compute()) for name, metric in found.items()}


def test_the_loss_is_smoothed_cross_entropy_of_the_real_tokens() -> None:
    module, batch = translator(smoothing=0.1).eval(), pairs()
    quiet(module)
    assert batch.targets is not None
    chances = module(batch).log_softmax(-1)
    total, count = 0.0, 0
    for number, text in enumerate(batch.targets.texts()):
        for step, token in enumerate([*text, END]):
            row = chances[number, step]
            total -= 0.9 * row[token].item() + 0.1 * row.mean().item()
            count += 1
    assert count == sum(len(text.split()) + 1 for text in TARGETS)
    assert module.training_step(batch, 0).item() == pytest.approx(total / count, abs=1e-12)


def test_figures_of_a_test_do_not_depend_on_its_batches() -> None:
    whole = figures(translator(), pairs())
    parts = figures(translator(), pairs([3]), pairs([0, 2]), pairs([1]))
    assert parts == pytest.approx(whole, abs=1e-6)
    assert whole["test/perplexity"] == pytest.approx(math.exp(whole["test/loss"]), rel=1e-5)


def test_scores_are_those_of_sacrebleu() -> None:
    said = ["a dog runs there .", "two small dogs run there", "dog dog", "a man and a man and a dog"]
    module = translator(Knowing)
    module.net.texts = tuple(languages().target.encode(text)[1] for text in said)  # type: ignore[assignment]
    batch = pairs()
    found = figures(module, batch)
    assert module.write(batch)[1][0].ended
    references = [["a dog runs .", "two small dogs run there", "dog", "a man and a dog"]]
    written = [text for [text] in module.texts(batch, module.write(batch))]
    assert written == ["a dog runs there.", "two small dogs run there", "dog dog", "a man and a man and a dog"]
    assert found["test/bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, references).score, abs=1e-4)
    assert found["test/chrf"] == pytest.approx(sacrebleu.corpus_chrf(written, references).score, abs=1e-4)
    # of 4 + 4 + 1 + 7 pairs of neighbours, "a man", "man and" and "and a" come once more than in the reference
    assert found["test/repetition"] == pytest.approx(3 / 16)
    assert found["test/omission"] == 0.0
    module.validation_step(batch, 0)
    assert float(module.validated["bleu"].compute()) == pytest.approx(found["test/bleu"])
    assert "case:mixed|eff:no|tok:13a" in module.protocol()


@pytest.mark.parametrize("given", ["it 's a well-known dog , there !", "it's a well - known dog, there!"])
def test_a_faultless_translation_scores_100_however_its_reference_is_spaced(given: str) -> None:
    target = TextCodec.from_counts(Words(), Counter(Words().encode(given).names))
    of, tokens = Languages(languages().source, target), target.encode(given)[1]
    sample = pair(0, of, links=None)
    batch = TranslationBatch.collate(
        [replace(sample, target=tokens, written=replace(sample.written, references=[given]))], target
    )  # type: ignore[type-var]
    module, nothing = translator(rouge=True), ForcedDecoding(torch.zeros(1, len(tokens) + 1).double(), None)
    module.figures.add(batch, [Hypothesis(tuple(tokens), -1.0, -1.0, True)], nothing, nothing)
    found = {name: float(metric.compute()) for name, metric in module.figures.find_counted().items()}
    assert found["test/bleu"] == pytest.approx(100.0)
    assert found["test/chrf"] == pytest.approx(100.0)
    assert found["test/rouge_l"] == pytest.approx(1.0)


def test_rouge_is_computed_on_request() -> None:
    module = translator(Knowing, rouge=True)
    said = ["a dog runs", "two small dogs run there", "dog", "and a man"]
    module.net.texts = tuple(languages().target.encode(text)[1] for text in said)  # type: ignore[assignment]
    found = figures(module, pairs())
    assert found["test/rouge_1"] == pytest.approx((1.0 + 1.0 + 1.0 + 2 * 0.6 / 1.6) / 4)
    assert found["test/rouge_2"] == pytest.approx((1.0 + 1.0 + 0.0 + 2 * 1.0 * 0.5 / 1.5) / 4)
    assert "rouge: F1" in module.protocol()
    assert "test/rouge_1" not in figures(translator(), pairs([0]))


def test_measures_of_alignments() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    gold = torch.tensor([[True, False, False], [False, True, False], [False, True, True], [False, False, False]])
    assert one_off(weights, gold).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert count_reordered([(0, 2), (1, 0), (2, 1)]) == (1, 2)
    assert count_reordered([]) == (0, 0)
    links = [(0, 0), (1, 0), (2, 1), (3, 2)]
    reference = ["a", "b", "c", "c"]
    assert count_omitted(links, reference, ["b", "c"]) == (1, 3)
    assert count_omitted(links, reference, ["a", "c", "c", "x"]) == (0, 3)
    assert count_omitted([(0, 0), (0, 1)], ["a"], ["a"]) == (0, 2)  # two words that become one


def test_data_without_gold_has_no_truth() -> None:
    found = figures(translator(), pairs(links=None))
    assert not any(name.startswith("truth/") for name in found)
    assert "test/omission" not in found
    assert "test/uncovered" in found


def test_the_scored_map_is_that_of_the_references_and_ignores_company() -> None:
    module, batch = translator().eval(), pairs()
    together = module.explain(batch).weights[:, 0]
    assert batch.targets is not None
    for number in range(4):
        alone = module.explain(pairs([number])).weights[0, 0]
        torch.testing.assert_close(together[number, : alone.shape[0], : alone.shape[1]], alone, rtol=0.0, atol=1e-12)
    for each in module.invariants(batch):
        torch.testing.assert_close(each.kept(module(batch)), each.kept(module(each.batch)), rtol=0.0, atol=1e-12)


def test_weights_of_a_pass_step_by_step_are_those_of_one_at_once() -> None:
    module, batch = translator().eval(), pairs()
    texts = [(7, 8, END), (END,), (4, 5, 6, 7, END), (9,)]
    found = force_decode_texts(module.net, batch.source, texts)
    assert found.weights is not None
    assert found.weights.shape == (4, 5, 5)
    torch.testing.assert_close(found.weights[0].sum(-1), torch.ones(5, dtype=torch.float64))
    assert found.log_probability[1, 1:].tolist() == [0.0] * 4


def test_with_no_token_of_its_own_a_scheduled_decoder_reads_the_targets() -> None:
    module, batch = translator().eval(), pairs()
    assert batch.targets is not None
    read = batch.targets.read
    torch.testing.assert_close(
        mix_predictions(module.net, batch.source, read, 0.0), module(batch), rtol=0.0, atol=1e-12
    )
    own = mix_predictions(module.net, batch.source, read, 1.0)
    torch.testing.assert_close(own[:, 0], module(batch)[:, 0], rtol=0.0, atol=1e-12)
    assert not torch.allclose(own[:, 1:], module(batch)[:, 1:])


def test_scheduled_sampling_grows_and_trains() -> None:
    schedule = ScheduledSampling(share=0.5, steps=10)
    assert [schedule(step) for step in (0, 5, 10, 99)] == [0.0, 0.25, 0.5, 0.5]
    module = translator(scheduled=replace(schedule, steps=1))
    quiet(module)
    module.trainer = type("Trainer", (), {"global_step": 1})()  # type: ignore[assignment]
    module.training_step(pairs(), 0).backward()
    assert all(p.grad is not None for p in module.parameters())


def test_the_options_of_the_search_are_in_the_protocol() -> None:
    ranking = Ranking(GNMTLength(0.2), coverage=0.2)
    search = BeamSearch(width=3, ranking=ranking, constraints=Constraints(shortest=2, unrepeated=3))
    module = translator(search=search, longest=MaxLength(2.0, 5)).eval()
    said = module.protocol()
    for part in (
        "beam 3",
        "GNMTLength(alpha=0.2)",
        "coverage 0.2",
        "shortest 2",
        "no 3 tokens twice",
        "2 x source + 5",
    ):
        assert part in said
    for [best] in module.write(pairs()):
        assert 2 <= len(best.tokens) <= 15
        assert not {0, 2} & set(best.tokens)


def test_coverage_needs_a_net_that_knows_it() -> None:
    class Forgetful(Small):
        coverage = property()  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="does not know what it has covered"):
        translator(Forgetful, search=BeamSearch(ranking=Ranking(coverage=0.2)))


def test_a_text_without_translation_is_predicted_and_not_tested() -> None:
    module, of = translator().eval(), languages()
    batch = TranslationBatch.collate([replace(pair(0, of), target=None)], of.target)
    columns = module.predict_step(batch)
    assert columns["loss"] == [None]
    assert columns["label"] == [""]
    with pytest.raises(ConfigError, match="has no translation"):
        module.test_step(batch, 0)
    given = pairs([0])
    known = module.predict_step(given)
    assert known["label"] == TARGETS[:1]
    assert given.targets is not None
    chances = module(given)[0].log_softmax(-1).gather(1, given.targets.tokens.T)
    assert known["loss"] == pytest.approx([-chances.mean().item()])


def test_names_of_penalties_are_those_of_sites() -> None:
    module, batch = translator(), pairs()
    (site,) = module.gold_attention(batch)
    assert site == "net.attend.attend"
    assert torch.equal(module.query_masks(batch)[site], batch.targets.is_real)  # type: ignore[union-attr]


def test_a_hypothesis_is_a_target_with_its_end() -> None:
    assert Hypothesis((4, 5), 0.0, 0.0, True).target(END) == (4, 5, END)
