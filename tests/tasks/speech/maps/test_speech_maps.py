"""The folder of `zoo maps` for recordings: tables, scores and pictures; and recordings without some of their parts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recogniser_cases import STRIDE, batch, recogniser, telling
from run_cases import figures

from zoo import maps
from zoo.attention import record
from zoo.tasks.speech.explanation import ALIGNMENT, OF_REFERENCE, ExplainedTranscript, PerturbableRecording
from zoo.tasks.speech.plots import aligned_figure


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_of_a_checkpoint(trained_on: Callable[[str], Path], cli: Any) -> None:
    run = trained_on("speech")
    best = run / "checkpoints" / "best.ckpt"
    done = cli("maps", best, "--out", "maps", "--pictures", 2, "--faithfulness", 2)
    assert done.code == 0, done.err
    table = rows(Path("maps/transcripts.csv"))
    found = figures(run)
    assert len(table) == sum(int(row["utterances"]) for row in rows(Path("maps/by_length.csv"))) == 10
    assert {"reference", "loss", "weight_on_silence", "monotonicity", "diagonality", "coverage", "snr"} <= table[
        0
    ].keys()
    truth = json.loads(Path("maps/scores.json").read_text())["truth"]
    assert truth["within_2_frames"] == pytest.approx(found["truth/within_2_frames"], abs=1e-6)
    assert truth["silence"] == pytest.approx(found["truth/silence"], abs=1e-6)
    assert any(path.name.endswith("_reference.png") for path in Path("maps/pictures").iterdir())
    assert (Path("maps/pictures") / "by_snr.png").exists()
    made = maps.load("maps")
    assert len(made.to_pandas())
    assert cli("evaluate", best, "--worst", "2").code == 0


def heard(said: str) -> ExplainedTranscript:
    module, made = telling(said), batch([0])
    best = module.write(made)[0]
    with torch.no_grad(), record(module.net) as found:
        forced = module.force_decode(made, best)
    return ExplainedTranscript(module, made, found, best[0], forced, module.force_references(made))


def test_a_recording_is_described_by_its_words_in_time() -> None:
    example = heard("ab b")
    named = {each.found.site: each for each in example.maps()}
    places = -(-example.frames // STRIDE)
    assert named[ALIGNMENT].axis_labels["query"] == ["a", "b", " ", "b"]
    assert len(named[ALIGNMENT].axis_labels["key"]) == places
    assert named[ALIGNMENT].axis_labels["key"][1] == "0.02"
    gold = named[OF_REFERENCE].gold
    assert gold is not None
    assert gold[0].nonzero().flatten().tolist() == [1, 2]  # frames 2 to 4, of two frames a place
    assert not gold[2].any()  # a space
    assert example.description.startswith("ab ")
    (times,) = example.tables({})
    (frame,) = times.frames
    assert frame["unit"].tolist() == ["word"] * 2 + ["token"] * 4
    assert "reference" in example.about


def test_an_empty_transcript_has_no_map_of_its_own() -> None:
    example = heard("")
    assert {ALIGNMENT, OF_REFERENCE} & {each.found.site for each in example.maps()} == {OF_REFERENCE}
    assert example.description == ""


def test_the_picture_has_one_axis_of_time() -> None:
    spans = torch.tensor([[2, 5], [5, 5]])
    figure = aligned_figure(torch.randn(9, 4), torch.rand(2, 5), ["a", " "], title="x", hop=0.01, stride=2, spans=spans)
    above, below = figure.axes[:2]
    assert above.get_xlim() == below.get_xlim() == pytest.approx((0.0, 0.09))
    (image,) = below.get_images()
    assert image.get_extent()[:2] == pytest.approx([0.0, 0.1])
    (frame,) = below.patches
    assert (frame.get_x(), frame.get_width()) == pytest.approx((0.02, 0.03))
    empty = aligned_figure(torch.randn(9, 4), torch.rand(0, 5), [], title="x", hop=0.01, stride=2)
    assert len(empty.axes) >= 2


def test_a_part_that_is_left_out_becomes_the_mean() -> None:
    module, made = recogniser().eval(), batch([3])
    example = PerturbableRecording(module, made)
    places = len(example.attention)
    frames = int(made.source.lengths[0])
    keep = torch.ones(2, places, dtype=torch.bool)
    keep[1, 1] = False
    whole, without = example.score(keep).tolist()
    best = module.write(made)[0]
    steps = len(example.answer)
    assert whole == pytest.approx(float(module.force_decode(made, best).log_probability[0, :steps].mean().exp()))
    changed = batch([3])
    mean = changed.source.features[0, :frames].mean(0)
    changed.source.features[0, STRIDE : 2 * STRIDE] = mean
    assert without == pytest.approx(float(module.force_decode(changed, best).log_probability[0, :steps].mean().exp()))


def test_the_gradient_of_a_part_is_that_of_its_frames() -> None:
    module, made = recogniser().eval(), batch([2])
    example = PerturbableRecording(module, made)
    features = made.source.features
    sums, step = [], 1e-6
    with torch.no_grad():
        for frame in range(int(made.source.lengths[0])):
            own = features[0, frame].clone()
            moved = []
            for sign in (1, -1):
                features[0, frame] = own * (1 + sign * step)
                moved.append(float(example._log_probability(made.source)))
            features[0, frame] = own
            sums.append((moved[0] - moved[1]) / (2 * step))
    expected = [abs(sum(sums[at : at + STRIDE])) for at in range(0, len(sums), STRIDE)]
    assert example.gradient().tolist() == pytest.approx(expected, abs=1e-7)
