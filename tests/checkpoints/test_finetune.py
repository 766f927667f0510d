"""Fine-tuning: what is copied by name, what is new, and what stays frozen."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import zoo
from zoo.checkpoints import checkpoint
from zoo.checkpoints.finetune import load_matching_weights
from zoo.config import compose

LABELS, FEATURES = ("blue", "green", "red"), ("x", "y", "z")
NEW_LABELS, NEW_FEATURES = ("black", "blue", "red", "white"), ("z", "w", "x")
NET = ["model.net.dim=4", "model.net.heads=2", "model.net.skip=true", "logger=csv", "data.max_epochs=2"]


gat_alone = pytest.mark.parametrize("trained", ["gat"], indirect=True)


def write(folder: Path, labels: tuple[str, ...], features: tuple[str, ...]) -> list[str]:
    """A graph of 60 nodes on a ring; returns the overrides that read it."""
    folder.mkdir()
    random = torch.Generator().manual_seed(0)
    lines = [",".join(["id", "label", "split", *features])]
    for node in range(60):
        split = ("train", "train", "val", "test")[node // 4 % 4]
        numbers = [f"{value:.3f}" for value in torch.randn(len(features), generator=random)]
        lines.append(",".join([f"n{node}", labels[node % len(labels)], split, *numbers]))
    (folder / "nodes.csv").write_text("\n".join(lines))
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(f"n{i},n{(i + 1) % 60}" for i in range(60)))
    return ["data=graph_files", f"data.nodes={folder}/nodes.csv", f"data.edges={folder}/edges.csv"]


@pytest.fixture(scope="module", params=["gat", "gatv2"])
def trained(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best checkpoint of each model on the first data."""
    from zoo.cli.main import main

    folder = tmp_path_factory.mktemp("trained")
    data = write(folder / "data", LABELS, FEATURES)
    assert main(["train", f"model={request.param}", *data, *NET, f"run_dir={folder}/run"]) == 0
    return folder / "run" / "checkpoints" / "best.ckpt"


@pytest.fixture
def new_data(tmp_path: Path) -> list[str]:
    return write(tmp_path / "data", NEW_LABELS, NEW_FEATURES)


def weights(path: Path | str) -> dict[str, torch.Tensor]:
    return checkpoint.read(path)["state_dict"]


def last(name: str) -> dict[str, torch.Tensor]:
    return weights(Path(name) / "checkpoints" / "last.ckpt")


def test_rows_are_matched_by_name_and_the_rest_is_initialised(cli: Any, trained: Path, new_data: list[str]) -> None:
    still = [*new_data, "optimizer.lr=0.0", "logger=csv", "data.max_epochs=1"]
    done = cli("train", f"init={trained}", *still, "run_dir=fine")
    assert done.code == 0
    about = checkpoint.read(trained)["zoo"]
    fresh = cli("train", f"model={about['model']}", *NET, *still, "run_dir=fresh")
    assert fresh.code == 0
    old, new, initial = weights(trained), last("fine"), last("fresh")
    axes: dict[str, dict[int, str]] = {}
    for vocabulary, parameters in zoo.load(trained).vocabularies().items():
        for name, axis in parameters.items():
            axes.setdefault(name, {})[axis % old[name].dim()] = vocabulary
    names = {"labels": (LABELS, NEW_LABELS), "features": (FEATURES, NEW_FEATURES)}
    assert len(axes) >= 6
    for name, weight in new.items():
        expected = initial[name].clone() if name in axes else old[name]
        for place in torch.cartesian_prod(*(torch.arange(size) for size in weight.shape)).view(-1, weight.dim()):
            source = place.clone()
            for axis, vocabulary in axes.get(name, {}).items():
                before, after = names[vocabulary]
                wanted = after[int(place[axis])]
                source[axis] = before.index(wanted) if wanted in before else -1
            if name in axes and (source >= 0).all():
                expected[tuple(place)] = old[name][tuple(source)]
        assert torch.equal(weight, expected), name
    assert not torch.equal(initial["net.layers.0.source.weight"], new["net.layers.0.source.weight"])


@gat_alone
def test_the_table_says_what_was_kept_new_and_dropped(cli: Any, trained: Path, new_data: list[str]) -> None:
    done = cli("train", f"init={trained}", *new_data, "data.max_epochs=1", "logger=csv")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines() if "│" in line]
    assert f"fine-tuning{trained}" in "".join(done.out.split())  # the title is wrapped
    assert ["features", "2 (z, x)", "1 (w)", "1 (y)"] in rows
    assert ["labels", "2 (blue, red)", "2 (black, white)", "1 (green)"] in rows
    assert f"{len(weights(trained))} weights copied, newly initialised: none" in done.out


@gat_alone
def test_the_same_data_starts_where_the_checkpoint_ended(cli: Any, trained: Path) -> None:
    old = trained.parents[2] / "data"
    data = ["data=graph_files", f"data.nodes={old}/nodes.csv", f"data.edges={old}/edges.csv"]
    done = cli("train", f"init={trained}", *data, "optimizer.lr=0.0", "data.max_epochs=1", "logger=csv", "run_dir=run")
    assert done.code == 0
    assert "3 (blue, green, red) │ 0   │ 0" in done.out
    assert all(torch.equal(last("run")[name], weight) for name, weight in weights(trained).items())


@gat_alone
def test_without_a_model_the_checkpoints_options_are_taken(cli: Any, trained: Path, new_data: list[str]) -> None:
    done = cli("train", f"init={trained}", *new_data, "data.max_epochs=1", "logger=csv", "run_dir=run")
    assert done.code == 0
    before = checkpoint.read(trained)["zoo"]["config"]
    after = yaml.safe_load(Path("run/config.yaml").read_text())
    assert after["model"]["net"] == before["model"]["net"]
    assert after["names"]["model"] == before["names"]["model"]
    assert after["data"]["nodes"] == new_data[1].partition("=")[2]
    assert after["init"] == str(trained)


@gat_alone
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["model.net.dim=8"], "(8,) there and (16,) here; give the options that it was trained with"),
        (["model.net.layers=3"], "net.layers.1."),
        (["model.net.layers=1"], "net.layers."),
        (["model.net.skip=false"], "there is no place here for its net.layers.0.skip.weight, net.layers.1.skip.weight"),
        (["model.net.shared=false"], "it lacks net.layers.0.source.bias, net.layers.0.target.weight"),
    ],
)
def test_another_architecture_is_refused(cli: Any, trained: Path, options: list[str], said: str) -> None:
    old = trained.parents[2] / "data"
    data = ["data=graph_files", f"data.nodes={old}/nodes.csv", f"data.edges={old}/edges.csv"]
    done = cli("train", "model=gat", *NET, *options, f"init={trained}", *data, "run_dir=run")
    assert done.code == 2
    assert f"{trained} is of another model: " in done.err
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not Path("run").exists()


def test_another_model_is_refused(cli: Any, trained: Path, new_data: list[str]) -> None:
    (other,) = {"gat", "gatv2"} - {checkpoint.read(trained)["zoo"]["model"]}
    done = cli("train", f"model={other}", *NET, *new_data, f"init={trained}")
    assert done.code == 2
    assert f"{trained} is of another model: " in done.err


def test_another_mechanism_is_welcome(cli: Any, trained: Path, new_data: list[str]) -> None:
    done = cli("train", f"init={trained}", "attention=uniform", *new_data, "optimizer.lr=0.0", *NET[3:], "run_dir=a")
    assert done.code == 0
    assert "newly initialised: none" in done.out
    assert not any("score" in name for name in last("a"))
    done = cli("train", "init=a/checkpoints/best.ckpt", "attention=additive", *new_data, *NET[3:], "run_dir=b")
    assert done.code == 0
    initialised = "".join(done.out.partition("newly initialised:")[2].partition("gat")[0].split()).split(",")
    scores = {f"net.layers.{layer}.attend.score.vector" for layer in (0, 1)}
    assert {name for name in initialised if ".target." not in name} == scores  # which uniform attention did without


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ([], {"layers.0", "layers.1"}),
        (["optimization.freeze=[net.layers.0]"], {"layers.1"}),
        (["optimization.freeze=['*.1.*']"], {"layers.0"}),
        (["optimization.freeze=[net.layers.0]", "optimization.unfreeze={2: [net.layers.0]}"], {"layers.1"}),
        (["optimization.freeze=[net.layers.0]", "optimization.unfreeze={1: [net.layers.0]}"], {"layers.0", "layers.1"}),
        (["optimization.freeze=[net.layers]", "optimization.unfreeze={0: [net.layers.1]}"], {"layers.1"}),
    ],
)
def test_what_is_frozen_does_not_change(
    cli: Any, tiny: list[str], tiny_run: Path, options: list[str], changed: set[str]
) -> None:
    """Weight decay and momentum would move what is merely without a gradient."""
    origin = tiny_run / "checkpoints" / "best.ckpt"
    decay = ["optimizer.weight_decay=0.1", "data.max_epochs=2"]
    assert cli("train", *tiny, *decay, *options, f"init={origin}", "run_dir=run").code == 0
    old, new = weights(origin), last("run")
    for name in old:
        should_change = any(f"net.{part}." in name for part in changed)
        assert torch.equal(old[name], new[name]) is not should_change, name


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "optimization.freeze=[net.layer.0]",
            "optimization.freeze: no parameter is called 'net.layer.0'. Did you mean",
        ),
        (
            "optimization.lr_multipliers={net.layers.7: 0.1}",
            "optimization.lr_multipliers: no parameter is called 'net.layers.7'",
        ),
        ("optimization.unfreeze={1: [net.head]}", "optimization.unfreeze: no parameter is called 'net.head'"),
        ("optimization.freeze=[net]", "optimization.freeze: in epoch 0 every parameter is frozen"),
        ("optimization.freeze=net", "optimization.freeze='net' does not fit"),
    ],
)
def test_patterns_that_fit_nothing(cli: Any, tiny: list[str], option: str, said: str) -> None:
    done = cli("train", *tiny, option)
    assert done.code == 2
    assert said in done.err


def test_the_suggested_control_starts_from_the_same_weights(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    origin = tiny_run / "checkpoints" / "best.ckpt"
    frozen = ["optimization.freeze=[net.layers.0]", "data.max_epochs=2"]
    done = cli("train", *tiny, *frozen, f"init={origin}", "run_dir=run")
    (control,) = (line for line in done.out.splitlines() if "# the control" in line)
    words = shlex.split(control, comments=True)
    assert words[:2] == ["python", "train.py"]
    assert cli("train", *words[2:], "run_dir=control").code == 0
    old, new = weights(origin), last("control")
    assert not any("score" in name for name in new)
    assert all(torch.equal(old[name], new[name]) for name in new if name.startswith("net.layers.0."))


def test_a_continued_run_suggests_the_control_of_what_it_started_from(
    cli: Any, tiny: list[str], tiny_run: Path
) -> None:
    origin = tiny_run / "checkpoints" / "best.ckpt"
    assert cli("train", *tiny, f"init={origin}", "run_dir=run").code == 0
    done = cli("train", "resume=run/checkpoints/last.ckpt")
    (control,) = (line for line in done.out.splitlines() if "# the control" in line)
    found = compose.compose(shlex.split(control, comments=True)[2:])
    assert found["init"] == str(origin)
    assert found["names"]["attention"] == "uniform"


@pytest.mark.parametrize("first", ["softmax", "uniform"])
def test_dense_models_go_from_one_mechanism_to_another(first: str) -> None:
    second = "uniform" if first == "softmax" else "softmax"
    sizes = {"channels": 3, "height": 16, "width": 16, "classes": 2}
    old, new = (zoo.create("vit", attention=each, **sizes) for each in (first, second))
    state = {"labels": ["a", "b"]}
    report = load_matching_weights(new, state, {"state_dict": old.state_dict(), "zoo": {"data": state}}, "old.ckpt")
    assert torch.equal(new.state_dict()["net.head.weight"], old.state_dict()["net.head.weight"])
    assert all(".query." in name or ".key." in name for name in report.initialized)
