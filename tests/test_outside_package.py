"""`outside_package` is installed, and no line here knows of it: it does all that a domain of this project does."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from zoo.checkpoints import checkpoint

FEW = ["data.count=600", "data.words=8", "data.facts=4", "data.max_epochs=4", "logger=csv"]
OWN = """\
id,split,facts,question
a,train,w0=w1 w2=w3,w0
b,val,w2=w7 w5=w2 w1=w3,w2
c,test,w2=w1 new=w0,new
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run. Tests read it and write nothing there."""
    from zoo.cli.main import main

    folder = tmp_path_factory.mktemp("outside")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "model=recall", *FEW, "run_dir=run"]) == 0
    return folder / "run"


def figures(run: Path) -> dict[str, float]:
    return {k: v for k, v in json.loads((run / "metrics.json").read_text()).items() if "/" in k}


def test_it_learns_where_to_look_and_its_control_does_not(trained: Path, cli: Any) -> None:
    found = figures(trained)
    assert found["test/accuracy"] == found["truth/pointing_accuracy"] == 1.0
    assert cli("train", "model=recall", "attention=uniform", *FEW, "run_dir=control").code == 0
    assert figures(Path("control"))["test/accuracy"] < 0.6


def test_evaluate_predict_and_maps(trained: Path, cli: Any) -> None:
    best = trained / "checkpoints" / "best.ckpt"
    done = cli("evaluate", best, "--worst", "2", "--out", "metrics.json")
    assert done.code == 0, done.err
    assert json.loads(Path("metrics.json").read_text())["test/accuracy"] == figures(trained)["test/accuracy"]
    assert "question w" in done.out
    assert cli("predict", best, "--out", "said.csv").code == 0
    with Path("said.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [str(number) for number in range(600)]
    done = cli("maps", best, "--out", "maps", "--ids", "7,3", "--faithfulness")
    assert done.code == 0, done.err
    assert "truth/pointing_accuracy 1.0000" in done.out
    maps = zoo.maps.load("maps")
    assert list(maps) == ["7", "3"]
    assert "faithfulness over 2 questions" in done.out
    assert "the answer depends on the facts that the map ranks first" in done.out
    assert sorted(path.name for path in Path("maps/pictures").iterdir()) == ["1_7.png", "2_3.png"]


def test_own_data_and_what_is_wrong_with_it(trained: Path, cli: Any) -> None:
    best = trained / "checkpoints" / "best.ckpt"
    Path("own.csv").write_text(OWN.replace("new", "w4"))
    assert [line.split(",")[3] for line in cli("predict", best, "own.csv").out.splitlines()[1:]] == ["w1", "w7", "w0"]
    Path("own.csv").write_text(OWN)
    done = cli("predict", best, "own.csv")
    assert done.code == 2
    assert "the model was trained on other words than this data has (8 against 7)" in done.err
    Path("own.csv").write_text(OWN.replace("w1=w3,w2", "w1=w3,w4"))
    done = cli("check", "model=recall", "data=fact_table", "data.table=own.csv")
    assert done.code == 2
    assert "own.csv, line 3, column 'question': no fact is about 'w4'" in done.err


def test_a_run_goes_on_where_it_was_stopped(trained: Path, cli: Any) -> None:
    assert cli("train", "model=recall", *FEW, "data.max_epochs=2", "run_dir=run").code == 0
    assert cli("train", "resume=run/checkpoints/last.ckpt", "data.max_epochs=4").code == 0
    ours, theirs = (checkpoint.read(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (Path("run"), trained))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_fine_tuning_keeps_the_words_that_both_know(trained: Path, cli: Any) -> None:
    Path("own.csv").write_text(OWN)
    data = ["data=fact_table", "data.table=own.csv", "data.max_epochs=1", "optimizer.lr=0"]
    done = cli("train", f"init={trained / 'checkpoints' / 'best.ckpt'}", *data, "run_dir=fine", "logger=csv")
    assert done.code == 0, done.err
    before, after = (zoo.load(run / "checkpoints" / "best.ckpt") for run in (trained, Path("fine")))
    old, new = before.about["data"]["words"], after.about["data"]["words"]
    assert new == ["new", "w0", "w1", "w2", "w3", "w5", "w7"]
    rows = before.net.words.weight[[old.index(word) for word in new[1:]]]
    assert torch.equal(after.net.words.weight[1:], rows)


def test_python(trained: Path) -> None:
    module = zoo.load(trained / "checkpoints" / "best.ckpt")
    assert type(module).__name__ == "Recall"
    assert type(zoo.create("recall", words=5)) is type(module)
    assert type(zoo.create("recall", attention="gatv2", words=5).net.look.attend.score).__name__ == "GATv2"
    assert type(zoo.create("vit", attention="distance").net.layers[0].mixer.attend.score).__name__ == "Distance"


def test_a_sweep_starts_processes_that_find_it(cli: Any) -> None:
    done = cli("train", "-m", "model=recall", *FEW, "data.max_epochs=1", "seed=1", "hydra.sweep.dir=sweep")
    assert done.code == 0, done.err
    with Path("sweep/summary.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["n"] == "1"


def test_what_hydra_shows_and_a_report_before_training(cli: Any) -> None:
    shown = cli("train", "model=recall", "--cfg", "job")
    assert shown.code == 0
    assert "_target_: zoo_recall.Recall\n" in shown.out
    done = cli("check", "model=recall", *FEW)
    assert done.code == 0, done.err
    assert "nothing was trained" in done.out
