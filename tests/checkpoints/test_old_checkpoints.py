"""Checkpoints of earlier formats, kept as files: they measure what they measured when they were written, and go on."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.checkpoints import checkpoint
from zoo.checkpoints.migrations import migrate

FILES = sorted((Path(__file__).parent / "files").glob("format*/*.json"))


@pytest.mark.parametrize("measured", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_checkpoint_evaluates_to_the_same_metrics(measured: Path, cli: Any, tmp_path: Path) -> None:
    done = cli("evaluate", measured.with_suffix(".ckpt"), "--out", "metrics.json")
    assert done.code == 0, done.err
    found, then = (json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "metrics.json", measured))
    assert found["protocol"] == then["protocol"] if "protocol" in then else "protocol" not in found
    for name in set(then) - {"protocol"}:
        assert found[name] == pytest.approx(then[name], rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_of_an_earlier_format_is_continued(number: int, cli: Any) -> None:
    folder = FILES[0].parents[1] / f"format{number}"
    Path("old/checkpoints").mkdir(parents=True)
    for name, file in {"last": "gat.last.ckpt", "best": "gat.ckpt"}.items():
        shutil.copyfile(folder / file, f"old/checkpoints/{name}.ckpt")
    done = cli("train", "resume=old/checkpoints/last.ckpt", "run_dir=run", "data.max_epochs=4")
    assert done.code == 0, done.err
    assert json.loads(Path("run/metrics.json").read_text())["epochs"] == 4
    assert checkpoint.read("run/checkpoints/last.ckpt")["global_step"] == 4


@pytest.mark.parametrize("path", [file.with_suffix(".ckpt") for file in FILES], ids=lambda path: f"{path.parts[-2:]}")
def test_its_configuration_is_that_of_today(path: Path) -> None:
    """Every part has its public name, and a group is there only where the model refers to it."""
    found = checkpoint.read(path)["zoo"]["config"]
    for target in (each for each in _targets(found) if each.startswith("zoo.")):
        package, _, name = target.rpartition(".")
        assert name in importlib.import_module(package).__all__, target
    assert {"attention", "gate", "loss"} & set(found) == {
        group for group in ("attention", "gate", "loss") if found["names"][group] is not None
    }


def _targets(node: Any) -> Any:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "_target_")
        node = list(node.values())
    for each in node if isinstance(node, list) else ():
        yield from _targets(each)


def test_weights_of_normalizers_have_the_name_of_today() -> None:
    offset, other = torch.zeros(1), torch.ones(1)
    old = {"net.attend.normalise.offset": offset, "net.normalised.weight": other}
    content = migrate({"zoo": {"format": 3}, "state_dict": old, "trained": dict(old)})
    today = {"net.attend.normalizer.offset": offset, "net.normalised.weight": other}
    assert content["state_dict"] == content["trained"] == today
    assert "net.attend.normalise.offset" in old  # what was read is not changed


def test_parts_of_format_5_have_their_names_of_today() -> None:
    """Every public name that went is stored by checkpoints of format 5, and stands for one that is exported."""
    from zoo.config.legacy_names import NAMES

    config = {"model": {"net": {"_target_": "zoo.tasks.speech.ListenAttendSpell"}}, "parts": [*NAMES]}
    content = migrate({"zoo": {"format": 5, "config": config}, "state_dict": {}})
    assert content["zoo"]["config"]["parts"] == [*NAMES.values()]
    for name in NAMES.values():
        package, _, export = name.rpartition(".")
        assert export in importlib.import_module(package).__all__ or package == "zoo.optim", name
