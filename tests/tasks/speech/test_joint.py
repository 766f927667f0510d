"""A recogniser with a CTC branch: its loss, its search, and texts that no path can spell."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from recogniser_cases import batch, language, recogniser, utterance

from zoo.attention import Additive, AttentionFactory, Monotonic, MonotonicChunkwise, ScorePair, Softmax, record
from zoo.decoding import force_decode
from zoo.errors import ConfigError, DataError
from zoo.tasks.seq2seq.decoding_options import choose_decoding
from zoo.tasks.seq2seq.text_codec import BEGIN, END
from zoo.tasks.speech.batch import SpeechBatch
from zoo.tasks.speech.models.ctc import JointDecoder

EXPECTED = {"offset": 0.0, "noise": 0.0, "inference": "expected"}
GUIDED = {
    "softmax": AttentionFactory(score=Additive, normalizer=Softmax),
    "monotonic": AttentionFactory(score=Additive, normalizer=partial(Monotonic, advance=1, **EXPECTED)),
    "mocha": AttentionFactory(
        score=partial(ScorePair, monotonic=Additive, chunk=Additive),
        normalizer=partial(MonotonicChunkwise, chunk=3, **EXPECTED),
    ),
}


def test_the_loss_is_the_weighted_mean_of_both() -> None:
    """Watanabe et al. 2017, eq. 13; each a mean over the tokens of the batch."""
    module, alone, made = recogniser(ctc=0.3), recogniser(), batch()
    alone.load_state_dict({name: x for name, x in module.state_dict().items() if ".ctc." not in name})
    logged = {}
    module.log = lambda name, value, **_: logged.update({name: float(value)})  # type: ignore[method-assign, assignment]
    alone.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    spelled = float(alone.training_step(made, 0).detach())
    found = module.training_step(made, 0)
    assert float(found.detach()) == pytest.approx(0.7 * spelled + 0.3 * logged["train/ctc"])
    assert logged["train/loss"] == pytest.approx(spelled)
    assert made.targets is not None
    losses = module.net.ctc.loss(module.net.ctc(module.net.encode(made.source)), made.targets)  # type: ignore[operator, union-attr]
    assert logged["train/ctc"] == pytest.approx(float(losses.sum().detach()) / int(made.targets.lengths.sum()))
    found.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", GUIDED)
def test_attention_is_guided_by_the_best_path(name: str) -> None:
    """The cross-entropy with the places at which each token is last, times the mean probability of a token there.

    Attention that moves forwards is to stop at these places, wherever MoChA's chunks are, and to pass all at the end.
    """
    module, made = recogniser(attend=GUIDED[name], ctc=0.3, guidance=0.5), batch()
    assert made.targets is not None
    logged = {}
    module.log = lambda name, value, **_: logged.update({name: float(value)})  # type: ignore[method-assign, assignment]
    found = module.training_step(made, 0)
    stops = module.net.ctc.stops(module.net.ctc(module.net.encode(made.source)), made.targets)  # type: ignore[operator, union-attr]
    with record(module.net, layers=["decoder.attention.attend"]) as maps:
        module(made)
    steps = [step.weights if name == "softmax" else step.alignment for step in maps["decoder.attention.attend"].steps()]
    alignment = torch.cat(steps, 2)[:, 0].tolist()  # type: ignore[arg-type]
    costs = [-math.log(alignment[recording][token][place]) for recording, token, place in stops.nonzero().tolist()]
    lengths = made.targets.lengths.tolist()
    assert len(costs) == sum(lengths) - len(made)  # each token but the ends
    expected = sum(costs) / len(costs)
    if name != "softmax":  # ends count as much as all other tokens
        ends = [-math.log(1 - sum(rows[length - 1])) for rows, length in zip(alignment, lengths, strict=True)]
        expected += sum(ends) / len(ends)
    assert logged["train/guidance"] == pytest.approx(expected * float(stops.sum()) / len(costs), rel=1e-6)
    apart = 0.7 * logged["train/loss"] + 0.3 * logged["train/ctc"]
    assert float(found.detach()) == pytest.approx(apart + 0.5 * logged["train/guidance"])
    found.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_the_search_asks_both() -> None:
    module, made = recogniser(ctc=0.5, joint=0.4).eval(), batch()
    spelled = recogniser(ctc=0.5).eval()
    spelled.load_state_dict(module.state_dict())
    best = [each[0] for each in module.write(made)]
    decoder, begin = JointDecoder(module.net, 0.4), torch.full((len(made),), BEGIN)
    scores = force_decode(decoder, made.source, begin, [each.target(END) for each in best]).sum(1)
    torch.testing.assert_close(scores, torch.tensor([each.score for each in best]).double(), rtol=1e-6, atol=1e-6)
    assert [each[0].score for each in spelled.write(made)] != [each.score for each in best]
    assert module.protocol().endswith(", CTC 0.4")
    samples = choose_decoding(module.writing, sample=True, seed=1)
    assert [x[0].tokens for x in module.write(made, samples)] == [x[0].tokens for x in spelled.write(made, samples)]


def test_texts_end_where_guided_attention_passes_all_places() -> None:
    """And only there, in every search; without guidance the end is a token like others."""
    hard = AttentionFactory(score=Additive, normalizer=partial(Monotonic, advance=1, offset=0.5))
    guided, made = recogniser(attend=hard, ctc=0.3, guidance=0.5).eval(), batch()
    free = recogniser(attend=hard, ctc=0.3).eval()
    free.load_state_dict(guided.state_dict())
    for joint in (0.0, 0.3):
        guided.joint = free.joint = joint
        for width in (1, 3):
            writing = choose_decoding(guided.writing, beam=width)
            best = [each[0] for each in guided.write(made, writing)]
            weights = guided.force_decode(made, best).weights
            assert weights is not None
            for text, steps in zip(best, weights, strict=True):
                stopped = [bool(step.sum() > 0) for step in steps[: len(text.target(END))]]
                assert text.ended
                assert stopped == [True] * len(text.tokens) + [False]
            assert [each[0].tokens for each in free.write(made, writing)] != [each.tokens for each in best]


@pytest.mark.parametrize("option", ["joint", "guidance"])
def test_what_needs_a_branch_is_refused_without_one(option: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.{option}=0\.3 needs a CTC branch"):
        recogniser(**{option: 0.3})


def test_a_transcript_that_no_path_can_spell_is_named() -> None:
    of = language()
    long = utterance(2, of, gold=False)
    long = type(long)(long.features[:5], long.target, "short.wav", "train", None, long.written)
    made = SpeechBatch.collate([utterance(0, of, gold=False), long], of)
    with pytest.raises(DataError, match=r"transcript of short\.wav needs 4 places .* makes 3: CTC"):
        recogniser(ctc=0.3).float().training_step(made, 0)


def test_fine_tuning_matches_the_branch_by_its_tokens() -> None:
    names = recogniser(ctc=0.3).vocabularies()["target_tokens"]
    assert names["net.ctc.head.weight"] == names["net.ctc.head.bias"] == 0
