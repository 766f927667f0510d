"""Runs beside those of every domain: tables, guidance, fine-tuning, predictions with times."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_cases import DOMAINS, figures

from zoo.checkpoints import checkpoint

TINY = DOMAINS["speech"].tiny


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("speech")


def test_a_run_leaves_its_figures_and_tables(trained: Path) -> None:
    found = figures(trained)
    for name in ("wer", "cer"):
        assert found[f"test/{name}_low"] <= found[f"test/{name}"] <= found[f"test/{name}_high"]
    for name in ("within_2_frames", "pointing", "mass", "silence"):
        assert 0 <= found[f"truth/{name}"] <= 1
    assert min(found["truth/start_ms"], found["truth/end_ms"]) >= 0
    for name in ("by_length", "by_snr"):
        with open(trained / f"test_{name}.csv", newline="") as file:
            assert sum(int(row["utterances"]) for row in csv.DictReader(file)) == 10
    assert "cer: characters" in (trained / "metrics.json").read_text()


@pytest.mark.slow
def test_planted_tones_need_attention(cli: Any) -> None:
    """Half of the planted data, which is enough to tell attention from its control."""
    for name, more in (("own", []), ("uniform", ["attention=uniform"])):
        data = ["data.utterances=1000", "data.held_out=100"]
        done = cli("train", "model=las", *data, *more, "trainer=cpu", "threads=1", f"run_dir={name}")
        assert done.code == 0, done.err
    own, uniform = figures(Path("own")), figures(Path("uniform"))
    assert own["test/cer"] <= 0.2
    assert own["truth/within_2_frames"] >= 0.8
    assert uniform["test/cer"] >= own["test/cer"] + 0.2


def test_the_preflight_finds_nothing(cli: Any) -> None:
    done = cli("train", *TINY, "check=true")
    assert done.code == 0, done.err
    assert "do not depend on other recordings of the batch and padding" in done.out
    assert "do not depend on later tokens" in done.out


def test_alignments_that_are_given_train_the_map(cli: Any) -> None:
    guided = ["penalty.guidance_cross_entropy=1.0", "penalty.locality=1.0", "trainer.log_every_n_steps=1"]
    done = cli("train", *TINY, *guided, "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    logged = Path("run/metrics.csv").read_text()
    assert "train/penalty_guidance_cross_entropy" in logged
    assert "train/penalty_locality" in logged


def test_without_attention_there_are_error_rates_and_no_times(cli: Any) -> None:
    options = [each for each in TINY if not each.startswith("attention.")]
    done = cli("train", *options, "attention=none", "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    found = figures(Path("run"))
    assert "test/cer" in found
    assert not any(name.startswith("truth/") for name in found)
    for option in (["--times"], ["--times-out", "words.ctm"]):
        done = cli("predict", "run/checkpoints/best.ckpt", *option)
        assert (done.code, f"{option[0]}: this model has no attention" in done.err) == (2, True)


def test_predictions_say_when_words_were_spoken(cli: Any, trained: Path) -> None:
    best = trained / "checkpoints" / "best.ckpt"
    done = cli("predict", best, "--times", "--times-out", "times.csv", "--n-best", "2")
    assert done.code == 0, done.err
    found = list(csv.DictReader(io.StringIO(done.out)))
    columns = ["score", "probability", "times"]
    assert list(found[0]) == ["id", "split", "seconds", "reference", "rank", "transcript", *columns]
    with open("times.csv", newline="") as file:
        words = [row for row in csv.DictReader(file) if row["unit"] == "word"]
    firsts = [row for row in found if row["rank"] == "1"]
    assert len(words) == sum(len(row["transcript"].split()) for row in firsts)
    assert list(dict.fromkeys(row["id"] for row in words)) == [row["id"] for row in firsts if row["transcript"].split()]
    for row in words:
        assert float(row["start"]) <= float(row["end"])
    assert cli("predict", best, "--times-out", "words.txt").code == 2
    done = cli("predict", best, "--times-out", "words.ctm")
    assert done.code == 0, done.err
    assert "times" not in done.out.splitlines()[0]
    lines = Path("words.ctm").read_text().splitlines()
    assert len([line for line in lines if not line.startswith(";;")]) <= len(words)


def test_fine_tuning_to_another_alphabet_keeps_the_listener(cli: Any, trained: Path) -> None:
    """Rows of letters are kept by name, and what is frozen does not change."""
    before = checkpoint.read(trained / "checkpoints" / "best.ckpt")
    start = [f"init={trained}/checkpoints/best.ckpt", "optimization.freeze=[net.encoder]"]
    data = [each for each in TINY if each.startswith(("data.", "trainer", "logger"))]
    other = ["data=planted_tones", "data.letters=5", "data.seed=1", "data.max_epochs=1"]
    done = cli("train", *start, *data, *other, "run_dir=own")
    assert done.code == 0, done.err
    after = checkpoint.read("own/checkpoints/best.ckpt")
    listened = [name for name in before["state_dict"] if name.startswith("net.encoder.")]
    assert listened
    for name in listened:
        assert torch.equal(after["state_dict"][name], before["state_dict"][name]), name
    letters = [each["zoo"]["data"]["target_tokens"] for each in (before, after)]
    assert set(letters[0]) < set(letters[1])
    assert "target_tokens" in done.out
    head = [each["state_dict"]["net.head.weight"] for each in (before, after)]
    assert head[1].shape[0] == len(letters[1]) > head[0].shape[0]
