"""What a run leaves behind, that it can be done again, and that the test set has no say in it."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.processes import WORKER
from zoo.training import run_dir as run_directory

FILES = {"config.yaml", "metrics.csv", "metrics.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt"}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def weights(run_dir: Path | str, name: str = "best") -> dict[str, torch.Tensor]:
    return checkpoint.read(Path(run_dir) / "checkpoints" / f"{name}.ckpt")["state_dict"]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_files(tiny_run: Path) -> None:
    assert files(tiny_run) == FILES


def test_tensorboard_beside_it_by_default(cli: Any, tiny: list[str]) -> None:
    assert cli("train", *tiny[:-1], "run_dir=run", "data.max_epochs=1").code == 0
    found = files(Path("run"))
    (events,) = found - FILES - {"tensorboard/hparams.yaml"}
    assert re.fullmatch(r"tensorboard/events\.out\.tfevents\..*", events)


def test_the_configuration_is_the_resolved_one(tiny_run: Path, tiny: list[str]) -> None:
    found = yaml.safe_load((tiny_run / "config.yaml").read_text())
    decided = {"run_dir": str(tiny_run), "threads": 1}  # by the run: small data need no more threads
    assert found == compose.compose([*tiny, "run_dir=run"]) | decided
    assert found == checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")["zoo"]["config"]


def test_the_last_word(tiny_run: Path) -> None:
    found = json.loads((tiny_run / "metrics.json").read_text())
    measures = {f"{split}/{name}" for split in ("train", "val", "test") for name in ("accuracy", "f1_macro", "loss")}
    facts = {"parameters", "seconds", "epochs", "best_epoch", "samples_per_second", "seed", "versions", "commit"}
    assert 0 <= found["data_wait"] < 1  # a share of the time, and of a run as short as this one next to nothing
    assert measures | facts | {"truth/edge_auc"} <= set(found)
    assert all(0 <= found[name] <= 1 for name in measures if not name.endswith("loss"))
    assert found["parameters"] == sum(each.numel() for each in weights(tiny_run).values())
    assert (found["epochs"], found["seed"]) == (4, 0)
    assert found["versions"]["torch"] == version("torch")
    rounding = 0.0005  # of the seconds written, much of a run as short as this one
    slowest, fastest = (4 * 144 / (found["seconds"] + error) for error in (rounding, -rounding))
    assert slowest - 0.1 <= found["samples_per_second"] <= fastest + 0.1


def test_metrics_by_step(cli: Any, tiny: list[str]) -> None:
    """Training every ten steps, validation every epoch, each epoch once; nothing of the test set."""
    assert cli("train", *tiny, "data.max_epochs=21", "run_dir=run").code == 0
    found = rows(Path("run"))
    assert list(found[0]) == ["step", "epoch", "val/loss", "val/accuracy", "train/loss"]
    assert [int(row["epoch"]) for row in found if row["val/loss"]] == list(range(21))
    assert [int(row["step"]) for row in found if row["train/loss"]] == [9, 19]
    best = json.loads(Path("run/metrics.json").read_text())
    accuracies = [float(row["val/accuracy"]) for row in found if row["val/accuracy"]]
    assert best["val/accuracy"] == pytest.approx(max(accuracies), abs=1e-6)
    assert accuracies[best["best_epoch"]] == max(accuracies)


def test_the_closing_table_and_the_commands_to_try_next(cli: Any, tiny: list[str]) -> None:
    done = cli("train", *tiny, "attention.score.slope=0.1", "attention.dropout=0.1", "run_dir=my run")
    assert done.code == 0
    assert "gat on planted_graph, attention=gat" in done.out
    table = {line.split()[1]: line for line in done.out.splitlines() if line.startswith("│") and len(line.split()) > 3}
    found = json.loads(Path("my run/metrics.json").read_text())
    numbers = [f"{found[f'{split}/accuracy']:.4f}" for split in ("train", "val", "test")]
    gap = f"{found['train/accuracy'] - found['val/accuracy']:+.4f}"
    assert re.findall(r"[-+.\d]+", table["accuracy"]) == [*numbers, gap]
    assert f"{found['truth/edge_auc']:.4f}" in table["truth/edge_auc"]
    assert "my run: config.yaml, metrics.json, metrics.csv, checkpoints/" in done.out
    commands = [line.split("   #")[0] for line in done.out.splitlines() if line.startswith(("  zoo ", "  python "))]
    assert [command.split()[:2] for command in commands] == [
        ["zoo", "evaluate"],
        ["zoo", "maps"],
        ["zoo", "predict"],
        ["python", "train.py"],
    ]
    for command in commands[:3]:
        assert cli(*shlex.split(command)[1:]).code == 0
    overrides = shlex.split(commands[3])[2:]
    compose.check_overrides(overrides)
    assert overrides == [*tiny, "attention.dropout=0.1", "attention=uniform"]


def test_progress_is_a_line_an_epoch(cli: Any, tiny: list[str]) -> None:
    done = cli("train", *tiny, "run_dir=run")
    shown = [line for line in done.err.splitlines() if line.startswith("epoch")]
    assert re.match(r"epoch +1/4  step +1 .*train/loss \d\.\d{4} .*val/accuracy \d\.\d{4}", shown[0])
    assert re.match(r"epoch +4/4  step +4 ", shown[-1])
    assert len(shown) == len(done.err.splitlines())  # no remark of Lightning's


def test_runs_of_one_second_have_names_of_their_own(cli: Any, tiny: list[str], monkeypatch: Any) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Frozen:
            return cls(2030, 1, 2, 3, 4, 5)

    monkeypatch.setattr("zoo.io.datetime", Frozen)
    for _ in range(2):
        assert cli("train", *tiny, "data.max_epochs=1").code == 0
    parent = Path("runs/gat-planted_graph")
    assert {path.name for path in parent.iterdir()} == {"2030-01-02_03-04-05", "2030-01-02_03-04-05_2"}
    assert all(files(path) == FILES for path in parent.iterdir())
    resolved = compose.compose(tiny)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: run_directory.resolve_run_dir(resolved), range(16)))
    assert len(set(found)) == 16


def test_a_directory_that_holds_a_run_is_refused(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    before = {path: path.read_bytes() for path in tiny_run.rglob("*") if path.is_file()}
    done = cli("train", *tiny, "seed=5", f"run_dir={tiny_run}")
    assert done.code == 2
    assert f"{tiny_run} holds a run already" in done.err
    assert f"resume={tiny_run}/checkpoints/last.ckpt" in done.err
    assert {path: path.read_bytes() for path in tiny_run.rglob("*") if path.is_file()} == before


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_without_its_last_checkpoint_is_not_replaced(
    cli: Any, tiny: list[str], tiny_run: Path, tmp_path: Path
) -> None:
    """Neither by a new run, nor by one that was told to go on, nor by another run that goes on."""
    shutil.copytree(tiny_run, "mine")
    Path("mine/checkpoints/last.ckpt").unlink()
    before = content_of(Path("mine"))
    for options in ([], ["resume=auto"], ["seed=5"], [f"resume={tiny_run}/checkpoints/last.ckpt"], ["check=true"]):
        done = cli("train", *tiny, *options, "run_dir=mine")
        assert done.code == 2
        assert f"{tmp_path}/mine holds a run already; give another run_dir" in done.err
        assert f"init={tmp_path}/mine/checkpoints/best.ckpt" in done.err
        assert content_of(Path("mine")) == before


@pytest.mark.parametrize("mark", ["config.yaml", "metrics.json", "metrics.csv", "checkpoints/mine.ckpt"])
def test_what_marks_a_run_protects_it(cli: Any, tiny: list[str], mark: str) -> None:
    path = Path("run", mark)
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    done = cli("train", *tiny, "run_dir=run", "resume=auto")
    assert (done.code, files(Path("run"))) == (2, {mark})
    assert "run holds a run already" in done.err
    assert path.read_text() == "mine"


def test_a_run_that_was_killed_before_it_had_a_checkpoint(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    """Begins anew, with the same options and where it was asked to continue."""
    assert cli("train", *tiny, "run_dir=run").code == 0
    shutil.rmtree("run/checkpoints")
    Path("run/metrics.json").unlink()
    before = content_of(Path("run"))
    assert set(before) == {"config.yaml", "metrics.csv"}
    assert "begin it anew with resume=auto run_dir=" in cli("train", *tiny, "run_dir=run").err
    assert "give another run_dir" in cli("train", *tiny, "run_dir=run", "resume=auto", "seed=1").err
    assert content_of(Path("run")) == before
    assert cli("train", *tiny, "run_dir=run", "resume=auto").code == 0
    assert equal(weights("run"), weights(tiny_run))


def test_a_run_goes_on_in_no_directory_of_another(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    assert cli("train", *tiny, "data.max_epochs=1", "seed=3", "run_dir=other").code == 0
    before = content_of(Path("other"))
    done = cli("train", f"resume={tiny_run}/checkpoints/last.ckpt", "run_dir=other")
    assert done.code == 2
    assert re.search(
        r"holds a run already; continue it with resume=\S+/other/checkpoints/last\.ckpt, or give", done.err
    )
    assert content_of(Path("other")) == before


def test_a_checkpoint_outside_of_a_run_needs_a_directory(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    """It does not go on in the folder above."""
    Path("downloads").mkdir()
    shutil.copy(tiny_run / "checkpoints" / "last.ckpt", "downloads")
    done = cli("train", "resume=downloads/last.ckpt")
    assert done.code == 2
    assert "say where the run goes on: run_dir=PATH" in done.err
    assert files(Path()) == {"downloads/last.ckpt"}


@pytest.mark.parametrize("trainer", ["cpu", "ddp_cpu"])
def test_a_start_that_is_refused_writes_nothing(cli: Any, tiny: list[str], tiny_run: Path, trainer: str) -> None:
    """Where a run is at work, by one process or several, as in a directory that is refused for what it holds."""
    shutil.copytree(tiny_run, "run")
    before = content_of(Path("run"))
    options = [*tiny, f"trainer={trainer}", "seed=7", "run_dir=run"]
    for shared in (False, True):
        with run_directory.lock(Path("run"), shared=shared):
            done = cli("train", *options, "resume=auto")
            assert (done.code, content_of(Path("run"))) == (2, before)
            assert f"another process is at work on this run (process {os.getpid()}: " in done.err
    assert "holds a run already" in cli("train", *options).err
    assert content_of(Path("run")) == before


def test_a_hold_that_is_shared(tmp_path: Path) -> None:
    """By the process that starts others and the first of these, and with nobody else."""
    with run_directory.lock(tmp_path, shared=True):
        with run_directory.lock(tmp_path, shared=True):
            assert run_directory.is_locked(tmp_path)
        assert run_directory.is_locked(tmp_path)
    assert not run_directory.is_locked(tmp_path)


def test_an_empty_directory_is_taken(cli: Any, tiny: list[str]) -> None:
    Path("mine").mkdir()
    assert cli("train", *tiny, "data.max_epochs=1", "run_dir=mine").code == 0
    assert files(Path("mine")) == FILES


def test_the_same_seed_gives_the_same_weights_and_another_does_not(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        options = ["attention.dropout=0.5", "model.net.dropout=0.5", f"seed={seed}", f"run_dir={name}"]
        assert cli("train", *tiny, *options).code == 0
    assert equal(weights("a"), weights("b"))
    assert equal(weights("a", "last"), weights("b", "last"))
    assert not equal(weights("a"), weights("c"))
    assert rows(Path("a")) == rows(Path("b"))
    assert not equal(weights("a"), weights(tiny_run))  # the dropout has an effect


def test_evaluate_gives_the_figures_of_the_run_exactly(cli: Any, tiny_run: Path) -> None:
    result = json.loads((tiny_run / "metrics.json").read_text())
    for split in ("train", "val", "test"):
        best = tiny_run / "checkpoints" / "best.ckpt"
        assert cli("evaluate", best, "--split", split, "--out", f"{split}.json").code == 0
        found = json.loads(Path(f"{split}.json").read_text())
        assert found == {key: value for key, value in result.items() if key in found}
        expected = {f"{split}/accuracy", f"{split}/f1_macro", f"{split}/loss"}
        assert set(found) == expected | ({"truth/edge_auc"} if split == "test" else set())


def test_best_is_the_epoch_that_the_monitor_chose_and_last_the_last(cli: Any, tiny: list[str]) -> None:
    """A monitor that prefers a high loss stops at once and keeps the first epoch."""
    monitor = ["callbacks.checkpoint.monitors={val/loss: max}", "callbacks.checkpoint.patience=3"]
    assert cli("train", *tiny, "data.max_epochs=50", *monitor, "run_dir=run").code == 0
    found = json.loads(Path("run/metrics.json").read_text())
    assert (found["best_epoch"], found["epochs"]) == (0, 4)
    assert not equal(weights("run", "best"), weights("run", "last"))
    assert cli("train", *tiny, "data.max_epochs=1", "run_dir=one").code == 0
    assert equal(weights("run", "best"), weights("one", "last"))


def test_the_test_set_has_no_say(cli: Any) -> None:
    """Other labels for the test nodes: the same weights from the same epoch, and other figures."""
    random = torch.Generator().manual_seed(0)
    x, label = torch.randn(60, 3, generator=random), torch.randint(0, 2, (60,), generator=random)
    for name in ("a", "b"):
        lines = ["id,label,split,x,y,z"]
        for node in range(60):
            split = ("train", "train", "val", "test")[node % 4]
            flipped = name == "b" and split == "test"
            shown = int(label[node]) ^ int(flipped)
            lines.append(f"n{node},{'red' if shown else 'blue'},{split}," + ",".join(f"{v:.4f}" for v in x[node]))
        Path(f"{name}.csv").write_text("\n".join(lines))
    Path("edges.csv").write_text("source,target\n" + "\n".join(f"n{i},n{(i * 7 + 1) % 60}" for i in range(60)))
    results = []
    for name in ("a", "b"):
        data = ["data=graph_files", f"data.nodes={name}.csv", "data.edges=edges.csv", "data.max_epochs=15"]
        assert cli("train", "model=gat", *data, "logger=csv", f"run_dir={name}").code == 0
        results.append(json.loads(Path(name, "metrics.json").read_text()))
    assert equal(weights("a"), weights("b"))
    assert results[0]["best_epoch"] == results[1]["best_epoch"]
    for key, value in results[0].items():
        if key.startswith(("train/", "val/")):
            assert results[1][key] == value
    assert results[0]["test/accuracy"] == pytest.approx(1 - results[1]["test/accuracy"])
    assert results[0]["test/loss"] != results[1]["test/loss"]


@pytest.mark.parametrize(
    "bad",
    [
        ["seed=-1"],
        ["seed=often"],
        ["threads=0"],
        ["threads=many"],
        ["data.nodes=10"],
        ["model.explain_layer=2"],
        ["model.explain_layer=-3"],
        ["model.net.layers=0"],
        ["attention.dropout=1.0"],
        ["trainer.precision=half"],
        ["trainer.accelerator=abacus"],
        ["optimizer.lr=fast"],
        ["callbacks.checkpoint.monitors={val/loss: least}"],
    ],
)
def test_a_run_that_cannot_begin_leaves_nothing(cli: Any, tiny: list[str], tmp_path: Path, bad: list[str]) -> None:
    done = cli("train", *tiny, *bad)
    assert done.code == 2
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err)
    assert list(tmp_path.iterdir()) == []


def test_metrics_that_are_not_measured(cli: Any, tiny: list[str]) -> None:
    done = cli("train", *tiny, "callbacks.checkpoint.monitors={val/acuracy: max}")
    assert done.code == 2
    assert "'val/acuracy' is not measured. Did you mean 'val/accuracy'?" in done.err
    done = cli("train", *tiny, "scheduler=plateau", "scheduler.monitor=val/los", "scheduler.mode=min")
    assert done.code == 2
    assert "val/los which is not available" in done.err


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"trainer.devices": 2, "run_dir": "elsewhere", "threads": 7}, True),
        ({"penalty": None, "names.penalty": None}, True),  # a group that a release has added since
        ({"optimization.layer_decay": None}, True),  # an option that a release has added since
        ({"loss": {"_target_": "zoo.tasks.recommendation.losses.BCE"}}, True),  # a group of no use to the model
        ({"model._target_": "zoo.tasks.graph.module.NodeClassifier"}, True),
        ({"model._target_": "zoo.tasks.graph.GraphAttentionNet"}, False),
        ({"data.nodes": 241}, False),
        ({"data.nodes": None}, False),  # one of the two commands gave it
        ({"data": None, "names.data": None}, False),  # as above
        ({"seed": 1}, False),
        ({"optimization.lr_multipliers": {"net": 0.1}}, False),
        ({"data.hidden": 3, "overrides": ["model=gat", "data.hidden=3"]}, False),  # given there, and unknown here
        ({"loss": {"negatives": 2}, "overrides": ["model=gat", "loss=bce", "loss.negatives=2"]}, False),
        ({"overrides": None}, False),
    ],
)
def test_a_run_is_known_by_what_matters_to_it(
    tmp_path: Path, tiny: list[str], change: dict[str, Any], same: bool
) -> None:
    """An option that one of two configurations has alone matters only if it was given; None takes it out."""
    composed = compose.compose(tiny)
    other = copy.deepcopy(composed)
    for name, value in change.items():
        *above, key = name.split(".")
        node = other
        for each in above:
            node = node[each]
        if value is None:
            del node[key]
        else:
            node[key] = value
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(other))
    assert run_directory.is_same(composed, path) == same


@pytest.mark.parametrize("content", [None, "a: [", "- 1", "\0", "overrides: 3"])
def test_what_is_no_configuration_is_that_of_no_run(tmp_path: Path, tiny: list[str], content: str | None) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_text(content)
    assert not run_directory.is_same(compose.compose(tiny), path)


def test_workers_of_a_killed_launcher_are_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They save before they end, and have the lock until then."""
    code = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH); time.sleep(1)"
    no_process = str(1 << 22)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path), WORKER, "config.yaml", no_process]):
        while not run_directory.is_locked(tmp_path):
            time.sleep(0.01)
        with run_directory.lock(tmp_path):
            assert "waits for workers whose launcher was killed (process " in capsys.readouterr().err
