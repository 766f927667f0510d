"""Captioning as a user runs it: pictures in a folder become captions, sheets, and words that are learned later."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from zoo import maps
from zoo.nn import BackboneEncoder
from zoo.nn.images.image_input import ImageInput
from zoo.tasks.images.synthetic_scenes import draw_scenes

TINY = [
    *("model=captioner", "data.pictures=32", "data.held_out=8", "data.most=1", "data.max_epochs=1"),
    *("data.batch_size=16", "model.net.encoder.channels=[4,4]", "model.net.encoder.dim=4", "model.search.width=1"),
    *("decoder.dim=4", "decoder.hidden=6", "decoder.compared=4", "trainer=cpu", "logger=csv", "threads=1"),
    "model.longest.constant=5",  # a sheet has a picture for each word, and one that has not learned to end writes on
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, one of another shape."""
    photos = tmp_path / "photos"
    photos.mkdir()
    first, second = draw_scenes([1, 2]).pixels.transpose(0, 2, 3, 1)
    Image.fromarray(first).save(photos / "a.png")
    Image.fromarray(np.concatenate([second, second[:, :12]], 1)).save(photos / "b.png")
    return photos


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_becomes_captions_sheets_and_maps(cli: Any, folder: Path) -> None:
    assert cli("train", *TINY, "run_dir=run").code == 0
    best = "run/checkpoints/best.ckpt"
    assert cli("predict", best, folder, "--out", "out.csv").code == 0
    found = rows("out.csv")
    assert [row["id"] for row in found] == [str(folder / name) for name in ("a.png", "b.png")]
    assert list(found[0]) == ["id", "split", "reference", "caption", "score", "probability"]

    done = cli("predict", best, folder, "--n-best", 2, "--explain", "sheets", "--out", "out.jsonl")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [line["rank"] for line in lines] == [1, 2, 1, 2]
    assert sorted(line["sheet"] for line in lines) == sorted(path.name for path in Path("sheets").iterdir())
    refused = cli("predict", best, folder, "--explain", "sheets", "--out", "again.csv")
    assert refused.code == 2
    assert "--explain sheets: pictures are written to a new or an empty folder" in refused.err

    assert cli("maps", best, "--data", folder, "--out", "maps", "--pictures", 2).code == 0
    of_words = rows("maps/words.csv")
    assert {row["id"] for row in of_words} <= {row["id"] for row in found}
    loaded = maps.load("maps")
    sizes = {each.weights.shape for example in loaded.values() for each in example.values() if each.is_gate}
    assert sizes <= {(48, 48), (48, 60)}


def test_new_words_are_learned_beside_the_old_ones(cli: Any) -> None:
    assert cli("train", *TINY, "run_dir=run").code == 0
    done = cli("train", *TINY, "data.most=3", "data.seed=1", "init=run/checkpoints/best.ckpt", "run_dir=more")
    assert done.code == 0, done.err
    assert "target_tokens" in done.out


def test_a_model_without_attention_explains_nothing(cli: Any, folder: Path) -> None:
    assert cli("train", *TINY, "attention=none", "run_dir=run").code == 0
    done = cli("predict", "run/checkpoints/best.ckpt", folder, "--explain", "sheets")
    assert done.code == 2
    assert "--explain: this model has no attention to its picture" in done.err


RANDOM = pytest.mark.filterwarnings("ignore:.*are random and are never trained")


def test_a_frozen_backbone_without_weights_is_named(cli: Any) -> None:
    options = ["model=captioner_backbone", "data.pictures=8", "data.held_out=4", "data.batch_size=4", "trainer=cpu"]
    said = "weights of net.encoder.backbone are random and are never trained, .*init=efficientnet:lite0.*tuned_from"
    with pytest.warns(UserWarning, match=said):
        assert cli("check", *options).code == 0
    assert cli("check", *options, "model.net.encoder.tuned_from=stem").code == 0


# slow tier: runs a large encoder three times; the test after it reads kept features once
@pytest.mark.slow
@RANDOM
def test_a_frozen_backbone_reads_each_picture_once_for_all_runs(cli: Any) -> None:
    frozen = [
        *("model=captioner_backbone", "data.pictures=20", "data.held_out=6", "data.most=1", "data.max_epochs=2"),
        *("data.batch_size=10", "decoder.dim=4", "decoder.hidden=6", "decoder.compared=4", "model.search.width=1"),
        *("model.net.encoder.dim=4", "trainer=cpu", "logger=csv", "threads=1", "paths.cache=cache"),
    ]
    done = cli("train", *frozen, "run_dir=run")
    assert done.code == 0, done.err
    (kept,) = Path("cache/features").glob("*.safetensors")
    written = kept.stat().st_mtime_ns
    best = "run/checkpoints/best.ckpt"
    weights = torch.load(best, weights_only=True)["state_dict"]
    counts = [value for name, value in weights.items() if name.endswith("num_batches_tracked")]
    assert counts
    assert not any(counts)

    reported = json.loads(Path("run/metrics.json").read_text())
    done = cli("evaluate", best, "--out", "found.json")
    assert done.code == 0, done.err
    found = json.loads(Path("found.json").read_text())
    assert found["test/loss"] == pytest.approx(reported["test/loss"], abs=1e-3)

    assert cli("train", *frozen, "run_dir=again").code == 0
    assert [each.stat().st_mtime_ns for each in Path("cache/features").glob("*.safetensors")] == [written]
    again = json.loads(Path("again/metrics.json").read_text())
    assert again["test/loss"] == reported["test/loss"]


@RANDOM
def test_training_reads_kept_features_also_with_a_schedule_that_counts_batches(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []
    annotations = BackboneEncoder.annotations

    def noted(self: BackboneEncoder, source: ImageInput) -> Any:
        read.append(source.features is not None)
        return annotations(self, source)

    monkeypatch.setattr(BackboneEncoder, "annotations", noted)
    tiny = [each for each in TINY if not each.startswith(("model=", "model.net.encoder."))]
    few = ["data.pictures=8", "data.held_out=4", "data.batch_size=4"]
    done = cli(
        "train", "model=captioner_backbone", "scheduler=cosine", *tiny, "model.net.encoder.dim=4", *few, "run_dir=run"
    )
    assert done.code == 0, done.err
    assert len(read) > 4
    assert all(read)
