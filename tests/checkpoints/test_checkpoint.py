"""The checkpoint: whole, plain, safe, and enough on its own."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import re
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo
from zoo.attention import Uniform
from zoo.checkpoints import checkpoint
from zoo.errors import CheckpointError, ConfigError
from zoo.tasks.base import Task

PLAIN = (dict, list, tuple, str, int, float, bool, type(None), torch.Tensor, OrderedDict)


class Hostile:
    """A pickle that would make a file where the test can see it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def best(tiny_run: Path) -> Path:
    return tiny_run / "checkpoints" / "best.ckpt"


@pytest.fixture
def content(best: Path) -> dict[str, Any]:
    return checkpoint.read(best)


def values(node: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    yield where, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{where}.{key} (key)", key
            yield from values(value, f"{where}.{key}")
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from values(value, f"{where}.{number}")


def refused(path: Path, *said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path)
    message = str(caught.value)
    assert str(path) in message
    assert [part for part in said if part not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
def test_everything_in_it_is_of_a_plain_type(tiny_run: Path, name: str) -> None:
    whole = torch.load(tiny_run / "checkpoints" / name, weights_only=True)
    assert [(where, type(value)) for where, value in values(whole) if type(value) not in PLAIN] == []


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
def test_reading_it_needs_torch_alone(tiny_run: Path, name: str) -> None:
    """The opcodes of the pickle import nothing of this project or of Lightning."""
    with zipfile.ZipFile(tiny_run / "checkpoints" / name) as archive:
        (member,) = [each for each in archive.namelist() if each.endswith("data.pkl")]
        code = archive.read(member)
    asked = {argument.split()[0] for opcode, argument, _ in pickletools.genops(code) if opcode.name == "GLOBAL"}
    assert asked <= {"torch", "torch._utils", "collections"}
    assert not any(opcode.name == "STACK_GLOBAL" for opcode, _, _ in pickletools.genops(code))


def test_what_it_says_of_itself(tiny_run: Path, content: dict[str, Any], tiny: list[str]) -> None:
    about = content["zoo"]
    assert (about["format"], about["version"], about["model"]) == (6, zoo.__version__, "gat")
    assert about["config"]["overrides"] == [*tiny, "run_dir=run"]
    assert about["sizes"] == {"features": 12, "classes": 3}
    assert about["data"]["labels"] == ["class 0", "class 1", "class 2"]
    assert about["data"]["features"] == [f"feature {number}" for number in range(12)]
    result = json.loads((tiny_run / "metrics.json").read_text())
    assert about["metrics"] == {key: result[key] for key in about["metrics"]}
    assert {f"{split}/accuracy" for split in ("train", "val", "test")} < set(about["metrics"])


def test_round_trip(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "new" / "folder" / "copy.ckpt"
    checkpoint.write(path, content)
    again = checkpoint.read(path)
    assert again["zoo"] == content["zoo"]
    assert again["state_dict"].keys() == content["state_dict"].keys()
    assert all(torch.equal(again["state_dict"][name], weight) for name, weight in content["state_dict"].items())
    assert path.stat().st_mode & 0o777 == 0o644


def test_load_gives_the_trained_module(cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.training import evaluation

    trained: list[Any] = []
    evaluate = evaluation.evaluate
    monkeypatch.setattr(evaluation, "evaluate", lambda *given: trained.append(given) or evaluate(*given))
    assert cli("train", *tiny, "run_dir=run").code == 0
    _, module, loader, _ = trained[0]
    (batch,) = loader
    loaded = zoo.load("run/checkpoints/best.ckpt")
    assert not loaded.training
    with torch.inference_mode():
        assert torch.equal(loaded(batch), module.eval()(batch))
    assert loaded.about["path"] == "run/checkpoints/best.ckpt"
    assert loaded.predict_step(batch)["prediction"] == module.predict_step(batch)["prediction"]


@pytest.mark.parametrize("fails", ["torch.save", "os.fsync", "os.replace"])
def test_a_failure_while_writing_leaves_the_old_file(
    fails: str, tmp_path: Path, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    checkpoint.write(path, content)
    before = path.read_bytes()

    def broken(*arguments: Any) -> None:
        if fails == "torch.save":
            arguments[1].write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fails, broken)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(path, {**content, "state_dict": {}})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_it_has_its_name_only_when_it_is_on_the_disk(
    tmp_path: Path, content: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for module, name in ((torch, "save"), (os, "fsync"), (os, "replace")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, real=real, name=name: done.append(name) or real(*given))
    checkpoint.write(tmp_path / "last.ckpt", content)
    assert done == ["save", "fsync", "replace", "fsync"]  # the last is of the folder


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.99])
def test_a_truncated_file(best: Path, tmp_path: Path, part: float) -> None:
    path = tmp_path / "best.ckpt"
    path.write_bytes(best.read_bytes()[: int(part * best.stat().st_size)])
    refused(path, "is not a checkpoint, or was cut short", "bytes")


def test_damaged_inside(best: Path, tmp_path: Path) -> None:
    path = tmp_path / "best.ckpt"
    with zipfile.ZipFile(best) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if not name.endswith("data/0"):
                new.writestr(name, old.read(name))
    refused(path, "cannot be read: it is damaged, or holds other things than weights and plain values")


def test_a_foreign_pickle_is_not_executed(tmp_path: Path, content: dict[str, Any]) -> None:
    trap = tmp_path / "trap"
    for number, foreign in enumerate([Hostile(trap), {**content, "extra": Hostile(trap)}, [Hostile(trap)]]):
        path = tmp_path / f"{number}.ckpt"
        torch.save(foreign, path)
        refused(path, "cannot be read")
    (tmp_path / "plain.ckpt").write_bytes(pickle.dumps(Hostile(trap)))
    refused(tmp_path / "plain.ckpt", "is not a checkpoint")
    assert not trap.exists()
    pickle.loads((tmp_path / "plain.ckpt").read_bytes())  # the trap would have worked
    assert trap.is_dir()


@pytest.mark.parametrize(
    ("foreign", "said"),
    [
        ({}, "it has no 'zoo' section"),
        ([1, 2], "it has no 'zoo' section"),
        (torch.zeros(3), "it has no 'zoo' section"),
        ({"state_dict": {"weight": torch.zeros(3)}}, "it has no 'zoo' section"),
        ({"zoo": 1, "state_dict": {}}, "it has no 'zoo' section"),
        ({"zoo": {}, "state_dict": {}}, "its format is None"),
        ({"zoo": {"format": "1"}, "state_dict": {}}, "its format is '1'"),
        ({"zoo": {"format": 1}}, "it has no 'zoo' section"),
        ({"zoo": {"format": 1, "model": "gat"}, "state_dict": {}}, "lacks version, config, data, sizes, metrics"),
        ({"zoo": {"format": 7, "version": "9.1"}, "state_dict": {}}, "format 7, written by version 9.1"),
        ({"zoo": {"format": 99}, "state_dict": {}}, "upgrade with pip install -U attention-zoo"),
    ],
)
def test_other_files_of_torch(tmp_path: Path, foreign: Any, said: str) -> None:
    path = tmp_path / "other.ckpt"
    torch.save(foreign, path)
    refused(path, said)


@pytest.mark.parametrize("key", ["version", "model", "config", "data", "sizes", "metrics"])
def test_a_missing_part_is_named(tmp_path: Path, content: dict[str, Any], key: str) -> None:
    path = tmp_path / "part.ckpt"
    about = {name: value for name, value in content["zoo"].items() if name != key}
    checkpoint.write(path, {**content, "zoo": about})
    refused(path, f"its 'zoo' section lacks {key}")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, content: dict[str, Any], cli: Any, value: float) -> None:
    name, weight = next((name, each) for name, each in content["state_dict"].items() if each.is_floating_point())
    weight.view(-1)[0] = value
    path = tmp_path / "bad.ckpt"
    torch.save(content, path)
    said = f"{path} has no usable weights: 1 of the {weight.numel():,} numbers of {name} are NaN or infinite"
    with pytest.raises(CheckpointError, match=re.escape(said)):
        zoo.load(path)
    for command in (["predict", path], ["evaluate", path], ["maps", path, "--out", tmp_path / "maps"]):
        done = cli(*command)
        assert (done.code, said in done.err) == (2, True), done.err


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder", "checkpoints/best.ckpt")
    refused(tmp_path / "no.ckpt", "there is no checkpoint")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: weights.pop("net.layers.0.bias"), "it lacks net.layers.0.bias"),
        (lambda weights: weights.update({"net.extra": torch.zeros(1)}), "it has net.extra besides"),
        (lambda weights: weights.update({"net.layers.0.bias": torch.zeros(3)}), "net.layers.0.bias is (3,), the model"),
        (lambda weights: [weights.pop(name) for name in list(weights)], "and 5 more"),
    ],
)
def test_weights_of_another_model(tmp_path: Path, content: dict[str, Any], change: Any, said: str) -> None:
    change(content["state_dict"])
    checkpoint.write(tmp_path / "other.ckpt", content)
    refused(tmp_path / "other.ckpt", "is of another model", said)


@pytest.mark.parametrize(
    ("place", "key"),
    [(("model",), "_target_"), (("model", "net"), "_target_"), (("model", "net", "attend", "score"), "_target_")],
)
@pytest.mark.parametrize(
    "target", ["os.system", "torch.load", "torch.hub.load", "builtins.eval", "zoo.training.run.train"]
)
def test_a_hostile_configuration_is_refused_before_anything_is_built(
    tmp_path: Path, content: dict[str, Any], place: tuple[str, ...], key: str, target: str, monkeypatch: Any
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("hydra.utils.instantiate", lambda *arguments, **_: calls.append(arguments))
    node = content["zoo"]["config"]
    for part in place:
        node = node[part]
    node[key] = target
    path = tmp_path / "hostile.ckpt"
    checkpoint.write(path, content)
    refused(path, f"{'.'.join(place)}: {target!r} may not be built")
    assert calls == []


@pytest.mark.parametrize("command", ["evaluate", "predict", "maps"])
def test_hostile_data_is_refused_by_every_command(
    cli: Any, tmp_path: Path, content: dict[str, Any], command: str
) -> None:
    content["zoo"]["config"]["data"] = {"_target_": "os.mkdir", "path": str(tmp_path / "trap")}
    checkpoint.write(tmp_path / "hostile.ckpt", content)
    done = cli(command, "hostile.ckpt", "--out", "out")
    assert done.code == 2
    assert "data: 'os.mkdir' may not be built" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.ckpt"]


def test_an_unknown_option_of_a_newer_version(tmp_path: Path, content: dict[str, Any]) -> None:
    content["zoo"]["config"]["model"]["net"]["experts"] = 8
    checkpoint.write(tmp_path / "newer.ckpt", content)
    refused(tmp_path / "newer.ckpt", "does not describe a model of this version", "model.net has no option 'experts'")


def test_create_a_model_by_name() -> None:
    module = zoo.create("gat", attention="uniform", features=7, classes=4, model__net__dim=16, model__net__heads=2)
    assert isinstance(module, Task)
    first, last = module.net.layers
    assert tuple(first.source.weight.shape) == (7, 2, 16)
    assert tuple(last.source.weight.shape) == (32, 1, 4)
    assert isinstance(first.attend.normalizer, Uniform)


def test_create_takes_the_sizes_of_the_data() -> None:
    module = zoo.create("gatv2")
    weight = next(parameter for name, parameter in module.named_parameters() if name.endswith("source.weight"))
    assert len(weight) == 32


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "gta"}, "there is no model 'gta'"),
        ({"model": "gat", "attention": "uniforn"}, "Did you mean 'uniform'?"),
        ({"model": "gat", "model__net__din": 4}, "there is no option 'model.net.din'"),
        ({"model": "gat", "features": 4}, "model needs classes"),
    ],
)
def test_create_refuses_what_does_not_exist(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        zoo.create(**options)


def test_a_checkpoint_is_all_that_is_needed(best: Path, cli: Any, tmp_path: Path) -> None:
    shutil.copy(best, tmp_path / "mine.ckpt")
    done = cli("predict", "mine.ckpt", "--out", "out.csv")
    assert done.code == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 241
