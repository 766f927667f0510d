"""Runs beside those of every domain: figures, guidance, fine-tuning, back-translation."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_cases import DOMAINS, figures

from zoo.checkpoints import checkpoint

TINY = DOMAINS["translation"].tiny


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("translation")


def test_a_run_leaves_its_figures_and_bleu_by_length(trained: Path) -> None:
    found = figures(trained)
    for name in ("bleu", "chrf"):
        assert 0 <= found[f"test/{name}"] <= 100
    for name in ("repetition", "omission", "uncovered", "reordered"):
        assert 0 <= found[f"test/{name}"] <= 1
    for name in ("pointing", "one_off", "alignment_error"):
        assert 0 <= found[f"truth/{name}"] <= 1
    with open(trained / "test_bleu_by_length.csv", newline="") as file:
        assert sum(int(row["pairs"]) for row in csv.DictReader(file)) == 20
    assert "beam 2" in (trained / "metrics.json").read_text()


def test_the_preflight_finds_nothing(cli: Any) -> None:
    done = cli("train", *TINY, "check=true")
    assert done.code == 0, done.err
    assert "do not depend on other texts of the batch and padding" in done.out
    assert "do not depend on later tokens" in done.out
    assert "output layer:" in done.out


def test_guidance_trains_the_map(cli: Any) -> None:
    guided = ["penalty.guidance_cross_entropy=1.0", "penalty.layers=['*.cross.attend']", "trainer.log_every_n_steps=1"]
    done = cli("train", *TINY, *guided, "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    assert "train/penalty_guidance_cross_entropy" in Path("run/metrics.csv").read_text()


RECURRENT = ["model=nmt", *(each for each in TINY if each.startswith(("data.", "trainer", "logger")))]
NARROW = ["model.net.encoder.dim=8", "model.net.encoder.hidden=8", "decoder.dim=8", "decoder.hidden=16"]


def test_a_recurrent_decoder_is_guided_and_penalised_step_by_step(cli: Any) -> None:
    penalties = ["penalty.guidance_cross_entropy=1.0", "penalty.coverage=1.0", "trainer.log_every_n_steps=1"]
    done = cli("train", *RECURRENT, *NARROW, "attention=coverage", *penalties, "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    logged = Path("run/metrics.csv").read_text()
    assert "train/penalty_guidance_cross_entropy" in logged
    assert "train/penalty_coverage" in logged
    assert 0 <= figures(Path("run"))["truth/alignment_error"] <= 1


def test_without_attention_there_are_figures_and_no_alignment(cli: Any) -> None:
    done = cli("train", *RECURRENT, *NARROW, "attention=none", "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    found = figures(Path("run"))
    assert "test/omission" in found
    assert not any(name.startswith("truth/") or name == "test/uncovered" for name in found)
    done = cli("predict", "run/checkpoints/best.ckpt", "--text", "dog", "--alignments")
    assert (done.code, "this model has no attention to its source" in done.err) == (2, True)
    done = cli("train", *RECURRENT, *NARROW, "attention=none", "model.search.ranking.coverage=0.2")
    assert (done.code, "does not know what it has covered" in done.err) == (2, True)


def test_summaries_have_rouge(cli: Any) -> None:
    planted = ["data=planted_summaries", "data.documents=40", "data.held_out=10", "data.sentences=3"]
    small = ["trainer=cpu", "logger=csv", "data.max_epochs=1", "data.batch_size=20"]
    done = cli("train", "model=nmt", *planted, *small, *NARROW, "model.rouge=true", "run_dir=run")
    assert done.code == 0, done.err
    found = figures(Path("run"))
    assert all(0 <= found[f"test/rouge_{name}"] <= 1 for name in ("1", "2", "l"))
    assert "rouge: F1" in Path("run/metrics.json").read_text()


def test_fine_tuning_to_another_target_language_keeps_the_encoder(cli: Any, trained: Path) -> None:
    """Rows of source words are kept by name, and what is frozen does not change."""
    before = checkpoint.read(trained / "checkpoints" / "best.ckpt")
    one, two, three, *_ = before["zoo"]["data"]["source_tokens"][4:]
    Path("source.txt").write_text(f"{one} {two}\n{two} {three} {one}\n{three} unheard {one}\n" * 8)
    Path("target.txt").write_text("Hund sieht\nsieht Katze Hund\nKatze Vogel Hund\n" * 8)
    own = ["data=text_pairs", "data.source_file=source.txt", "data.target_file=target.txt", "data.batch_size=8"]
    start = [f"init={trained}/checkpoints/best.ckpt", "optimization.freeze=[net.encoder,net.source_words]"]
    done = cli("train", *start, *own, "callbacks=default", "data.max_epochs=1", "run_dir=own")
    assert done.code == 0, done.err
    after = checkpoint.read("own/checkpoints/best.ckpt")
    for name, weight in before["state_dict"].items():
        if name.startswith("net.encoder."):
            assert torch.equal(after["state_dict"][name], weight), name
    assert {"Hund", "sieht"} < set(after["zoo"]["data"]["target_tokens"])
    assert "source_tokens" in done.out
    for word in (one, two, three):
        rows = [each["zoo"]["data"]["source_tokens"].index(word) for each in (before, after)]
        old, new = (each["state_dict"]["net.source_words.weight"] for each in (before, after))
        assert torch.equal(old[rows[0]], new[rows[1]])


def test_predictions_train_a_model_of_the_other_direction(cli: Any, trained: Path) -> None:
    """Back-translation (Sennrich et al. 2016): the rows of `zoo predict` are training pairs."""
    Path("texts.txt").write_text("dog sees cat\nold king sees dog\ncat hates bird\n" * 4)
    done = cli("predict", str(trained / "checkpoints" / "best.ckpt"), "texts.txt", "--sample", "--out", "back.csv")
    assert done.code == 0, done.err
    own = ["data=text_pairs", "data.table=back.csv", "data.source=translation", "data.target=text"]
    small = [each for each in TINY if not each.startswith("data.")]
    with pytest.warns(UserWarning, match="'id', 'reference', 'score', 'probability' are not used"):
        done = cli("train", *small, *own, "data.batch_size=8", "data.max_epochs=1", "run_dir=back")
    assert done.code == 0, done.err
