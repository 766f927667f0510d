"""`zoo maps` and `zoo evaluate --worst` for recommenders, from the checkpoint alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from recommendation_run_cases import SAMPLES, checkpoint

import zoo.maps
from zoo.attention import record
from zoo.checkpoints import checkpoint as files
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch


@pytest.mark.parametrize("model", ["sasrec", "din"])
def test_a_folder_of_maps(cli: Any, tmp_path: Path, model: str) -> None:
    done = cli("maps", checkpoint(model), "--out", "maps", "--ids", "ben,ada")
    assert done.code == 0, done.err
    assert "12 users in users.csv" in done.out
    out = tmp_path / "maps"
    assert sorted(path.name for path in (out / "pictures").iterdir()) == ["1_ben.png", "2_ada.png", "by_distance.png"]
    said = (out / "words.txt").read_text().splitlines()
    assert said[0].startswith("ben chose ")
    assert [line[:4] for line in said[1:4]] == ["  1.", "  2.", "  3."]
    users = pd.read_csv(out / "users.csv")
    assert len(users) == 12
    assert ((users["share"] > 0) & (users["share"] <= 1)).all()
    distances = pd.read_csv(out / "by_distance.csv")
    first = distances[distances["layer"] == 0]
    assert first["queries"].is_monotonic_decreasing
    maps = zoo.maps.load(out)
    assert list(maps) == ["ben", "ada"]
    lifts = maps["ben"]["recommendations"]
    assert lifts.weights.shape[1] == 3
    assert len(lifts.labels["query"]) == 3


def test_the_arrays_are_those_of_the_full_pass(cli: Any, tmp_path: Path) -> None:
    assert cli("maps", checkpoint(), "--out", "maps", "--data", SAMPLES / "histories.csv", "--ids", "mia").code == 0
    maps = zoo.maps.load(tmp_path / "maps")
    assert next(iter(maps)) == "mia"
    module: Any = files.load(checkpoint())
    numbers = {name: at for at, name in enumerate(module.about["data"]["items"])}
    items = torch.tensor([numbers[name] for name in ("oat-milk", "rye-bread", "butter", "honey")])
    with torch.inference_mode(), record(module.net) as found:
        module.net(_history(items))
    for site, each in found.items():
        one = maps["mia"][site]
        torch.testing.assert_close(one.weights, each.weights[0])
        assert one.labels["query"] == ["Oat milk", "Rye bread", "Butter", "Honey"]
    scored = maps["mia"]["layer 1"]
    torch.testing.assert_close(scored.weights[0, 0], found["layers.1.mixer.attend"].weights[0, 0, -1])
    assert maps.to_pandas(["mia"])["weight"].notna().all()


def _history(items: torch.Tensor) -> SequenceBatch:
    none, length = torch.full_like(items, -1), torch.tensor([len(items)])
    known = Catalogue([], None, items[:0])
    return SequenceBatch(items, length, none, none[:1], items[:0], length * 0, ("mia",), ("",), known)


def test_gold_is_scored(cli: Any, tmp_path: Path) -> None:
    """The truth score equals that of the run; by occlusion, which needs no attention."""
    few = ["data.users=40", "data.items=40", "data.reach=5", "data.shortest=10", "data.longest=12", "data.length=12"]
    tiny = ["model.net.dim=8", "model.explain=occlusion", "data.max_epochs=1", "logger=csv", "threads=1"]
    assert cli("train", "model=sasrec", *few, *tiny, "run_dir=run").code == 0
    done = cli("maps", "run/checkpoints/best.ckpt", "--out", "maps", "--pictures", "0")
    assert done.code == 0, done.err
    truth = json.loads((tmp_path / "maps" / "scores.json").read_text())["truth"]["pointing_accuracy"]
    users = pd.read_csv(tmp_path / "maps" / "users.csv")
    assert truth == pytest.approx(users["points_at_gold"].mean())
    measured = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert truth == pytest.approx(measured["truth/pointing_accuracy"], abs=1e-6)


def test_without_weights_there_is_no_map(cli: Any, tmp_path: Path) -> None:
    done = cli(
        "maps",
        checkpoint("sasrec", "attention=recurrent", "model.net.relative=null"),
        "--out",
        "maps",
        "--pictures",
        "1",
    )
    assert done.code == 0, done.err
    assert "layers.0.mixer has no map: a recurrent layer passes on a state" in done.out
    assert not (tmp_path / "maps" / "by_distance.csv").exists()
    maps = zoo.maps.load(tmp_path / "maps")
    assert list(maps[next(iter(maps))]) == ["recommendations"]


def test_the_worst_users(cli: Any) -> None:
    done = cli("evaluate", checkpoint(), "--worst", 2)
    assert done.code == 0, done.err
    assert "the 2 worst of test" in done.out
    assert "(item " in done.out or "nothing in particular" in done.out


def test_a_user_that_is_not_there(cli: Any) -> None:
    done = cli("maps", checkpoint(), "--out", "maps", "--ids", "bem")
    assert (done.code, done.out) == (2, "")
    assert "there is no user 'bem'. Did you mean 'ben'?" in done.err
    assert cli("maps", checkpoint(), "--out", "maps", "--layers", "7").code == 2
