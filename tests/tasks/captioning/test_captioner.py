"""The task: captions, their figures, and where words look."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from captioning_cases import CAPTIONS, captioner, doubled, language, pictures, recurrent, transformer

from zoo.decoding.hypothesis import Hypothesis
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding
from zoo.text import BLEU, CHRF, CaptionROUGE, CIDEr, Frequencies, Words


def hypothesis(text: str) -> Hypothesis:
    tokens = tuple(language().encode(text)[1])
    return Hypothesis(tokens, -1.0, -1.0, True)


def test_figures_are_those_of_the_scores_over_all_references() -> None:
    module, batch = captioner(), pictures()
    texts = ["one ring in red", "a red cross above a ring", "a cross", "a ring"]
    written = [hypothesis(text) for text in texts]
    assert batch.targets is not None
    steps = batch.targets.tokens.shape[1]
    nothing = ForcedDecoding(torch.full((4, steps), -0.5).double(), None)
    module.figures.add(batch, written, nothing, nothing)
    found = {name: float(metric.compute()) for name, metric in module.figures.find_counted().items()}
    for score in (BLEU(tokenize="none"), CHRF(), CaptionROUGE(), CIDEr(Frequencies.from_corpus(CAPTIONS))):
        for name, value in score.compute(score.statistics(texts, CAPTIONS)).items():
            assert found[f"test/{name}"] == pytest.approx(value, rel=1e-6), name
    assert found["test/exact_match"] == 0.5
    assert found["test/loss"] == pytest.approx(0.5)
    assert "truth/pointing" not in found


def test_pointing_is_of_the_words_that_speak_of_a_place() -> None:
    module, batch = captioner(), pictures([0, 2])
    assert batch.targets is not None
    weights = torch.zeros(2, batch.targets.tokens.shape[1], 16)
    weights[:, 0, 15] = 1.0  # "a" speaks of no place
    weights[:, 1, 0] = 1.0  # in the box, which has the cells 0 and 4
    weights[0, 2, 3] = 1.0
    nothing = ForcedDecoding(torch.zeros(weights.shape[:2]).double(), None)
    module.figures.add(batch, [hypothesis("a")] * 2, nothing, replace_weights(nothing, weights))
    assert float(module.figures.find_counted()["truth/pointing"].compute()) == pytest.approx(2 / 3)


def replace_weights(of: ForcedDecoding, weights: torch.Tensor) -> ForcedDecoding:
    return of._replace(weights=weights)


@pytest.mark.parametrize("net", [recurrent, transformer])
def test_a_step_evaluates_writes_and_explains(net: object) -> None:
    module, batch = captioner(net).eval(), doubled(pictures())
    assert module.training_step(batch, 0).isfinite()
    module.test_step(batch, 0)
    assert float(module.figures.find_counted()["test/cider"].compute()) >= 0.0
    found = module.explain(batch)
    assert found.weights.shape == (4, 1, batch.targets.tokens.shape[1], 16)  # type: ignore[union-attr]
    gold = module.gold(batch)
    assert gold is not None
    assert gold[0].sum(1).tolist() == [0, 2, 2, 0, 0, 0, 0, 0][: gold.shape[1]]
    columns = module.predictor(n_best=2)(batch)
    assert list(columns) == ["example", "id", "split", "reference", "rank", "caption", "score", "probability"]
    counts = Counter(columns["example"])
    assert list(counts) == [0, 1, 2, 3]
    assert set(counts.values()) <= {1, 2}  # fewer than asked for where fewer texts have ended
    for each in module.invariants(batch):
        torch.testing.assert_close(each.kept(module(each.batch)), each.kept(module(batch)))


def test_references_with_spaces_before_punctuation_score_as_those_without() -> None:
    texts = ["a ring, red, in a (blue) cross.", "a cross: a ring!"]
    spaced = ["a ring , red , in a ( blue ) cross .", "a cross : a ring !"]
    of = TextCodec.from_counts(Words(lower=True), Counter(Words().encode(" ".join(texts)).names))
    found = []
    for given in (texts, spaced):
        batch = pictures([0, 2], frequencies=Frequencies.from_corpus([of.respell(text)] for text in given))
        written = tuple(replace(each, references=[text]) for each, text in zip(batch.written or (), given, strict=True))
        module = captioner()
        steps = torch.full((2, batch.targets.tokens.shape[1]), -0.5).double()  # type: ignore[union-attr]
        said = [Hypothesis(tuple(of.encode(text)[1]), -1.0, -1.0, True) for text in (texts[0], "a cross: the ring!")]
        figures = module.figures
        figures.add(
            replace(batch, language=of, written=written), said, ForcedDecoding(steps, None), ForcedDecoding(steps, None)
        )
        found.append({name: float(metric.compute()) for name, metric in figures.find_counted().items()})
    assert found[0] == found[1]
    assert found[0]["test/exact_match"] == 0.5
    assert found[0]["test/bleu"] > 70.0


def test_without_frequencies_there_is_no_cider() -> None:
    module, batch = captioner().eval(), replace(doubled(pictures()), frequencies=None)
    module.test_step(batch, 0)
    assert "test/cider" not in module.figures.find_counted()


def test_words_of_a_caption_are_drawn_anew_under_another_seed() -> None:
    module, batch = captioner().eval(), doubled(pictures())
    drawn = [module.predictor(sample=True, n_best=3, seed=seed)(batch)["caption"] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len(set(drawn[0])) > len(batch)
