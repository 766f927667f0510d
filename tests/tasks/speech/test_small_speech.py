"""Defaults for few recordings: what is chosen, that it is said, and what fine-tuning makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recogniser_cases import language, recogniser

from zoo.checkpoints.finetune import load_matching_weights
from zoo.config import compose
from zoo.config.instantiate import build
from zoo.tasks.speech.small_data import FEW_RECORDINGS, choose_ctc, choose_tokeniser

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "speech" / "recordings.csv"


@pytest.mark.parametrize(
    ("transcripts", "kind"),
    [
        (["yes no yes", "no no yes"] * 5, "words"),
        (["yes no yes", "no no yes"] * FEW_RECORDINGS, "characters"),
        ([*["yes no yes"] * 30, "perhaps"], "characters"),
        (["a sentence of its own", "another one"], "characters"),
        ([], "characters"),
    ],
)
def test_words_are_tokens_where_few_transcripts_have_few_different_ones(transcripts: list[str], kind: str) -> None:
    assert choose_tokeniser(transcripts) == kind


def test_a_branch_of_ctc_helps_few_recordings_that_are_spelled() -> None:
    assert [choose_ctc(count) for count in (None, 0, FEW_RECORDINGS - 1, FEW_RECORDINGS)] == [0.0, 0.3, 0.3, 0.0]
    assert choose_ctc(35, words=True) == 0.0
    assert recogniser(recordings=35).ctc == 0.3
    assert recogniser(recordings=35, word_tokens=1).ctc == 0.0
    assert recogniser(recordings=35, ctc=0.0).ctc == recogniser(recordings=500).ctc == recogniser().ctc == 0.0


def test_what_is_chosen_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["model=las", "data=audio_manifest", f"data.table={SAMPLE}", f"paths.cache={tmp_path}"]
    composed = compose.compose(overrides)
    data = build(composed["data"], "data")
    sizes = data.sizes()
    assert sizes["word_tokens"] == 0
    module = build(composed["model"], "model", **sizes)
    module.begin(data)
    assert "training recordings are few, and model.ctc is 0.3: it helps" in capsys.readouterr().err
    assert data.state()["tokeniser"]["kind"] == "characters"
    chosen: Any = build(compose.compose([*overrides, "model.ctc=0.0"])["model"], "model", **sizes)
    chosen.begin(data)
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore:.*transcripts of val and test")
def test_words_have_no_branch(tmp_path: Path) -> None:
    overrides = ["model=las", "data=audio_manifest", f"data.table={SAMPLE}", f"paths.cache={tmp_path}"]
    composed = compose.compose([*overrides, "data.tokeniser=words"])
    sizes = build(composed["data"], "data").sizes()
    assert sizes["word_tokens"] == 1
    assert build(composed["model"], "model", **sizes).ctc == 0.0


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.3), (0.3, 0.0)])
def test_fine_tuning_adds_a_branch_or_leaves_it_out(before: float, after: float) -> None:
    old, new = recogniser(ctc=before), recogniser(ctc=after)
    state = {"target_tokens": [str(number) for number in range(len(language()))]}
    content = {"state_dict": old.state_dict(), "zoo": {"data": state}}
    report = load_matching_weights(new, state, content, "some.ckpt")
    assert all(name.startswith("net.ctc.") for name in report.initialized)
    assert bool(report.initialized) == (after > 0.0)
