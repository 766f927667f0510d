"""Composing: what wins over what, and a refusal of everything that does not exist."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

import zoo
from zoo.config import compose as config
from zoo.errors import ConfigError, did_you_mean


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=gta"], "there is no model 'gta'. Did you mean 'gat'?"),
        (["model=gat", "data=planted_grph"], "there is no data 'planted_grph'. Did you mean 'planted_graph'?"),
        (["model=gat", "attention=unifrom"], "there is no attention 'unifrom'. Did you mean 'uniform'?"),
        (["model=gat", "optimizer=adamm"], "there is no optimizer 'adamm'. Did you mean 'adam'?"),
        (["model=gat", "trainer=x"], "there is no trainer 'x'. There is: auto, cpu, "),
        (["experiment=gat_croa"], "there is no experiment 'gat_croa'. Did you mean 'gat_cora'?"),
        (["model=gat", "optimizer.lrr=1"], "there is no option 'optimizer.lrr'. Did you mean 'optimizer.lr'?"),
        (["model=gat", "lr=1"], "there is no option 'lr'. Did you mean"),
        (["model=gat", "model.net.head=1"], "there is no option 'model.net.head'. Did you mean 'model.net.heads'?"),
        (["model=gat", "sed=1"], "there is no option 'sed'. Did you mean 'seed'?"),
        (["model=gat", "data.max_epoch=1"], "Did you mean 'data.max_epochs'?"),
        (["model=gat", "optimizer=sgd", "optimizer.betas=[0, 1]"], "there is no option 'optimizer.betas'"),
        (["model=gat", "+extra=1"], "'+extra=1': options can be changed, not added or removed; write extra=VALUE"),
        (["model=gat", "++seed=1"], "write seed=VALUE"),
        (["model=gat", "~data"], "'~data': options can be changed, not added or removed"),
        (["model=gat", "seed"], "'seed' is not an option: write key=value"),
        ([], "say which model: model=NAME. There is: "),
        (["data=cora"], "say which model: model=NAME."),
        (["model=gat", "run_dir=a(b)"], "'run_dir=a(b)' cannot be read; put a value with special characters in quotes"),
        (["model=gat", "run_dir=größe"], "'run_dir=größe' cannot be read"),
        (["model=gat", "seed=${nothing}"], "nothing"),
        (["model=gat", "hydra.run.dir=here"], "hydra.run.dir=here: Hydra only composes here; write run_dir=PATH"),
        (["model=gat", "hydra/launcher=joblib"], "it is an option of a sweep; add -m, or leave it out"),
        (["model=gat", "hydra.job.chdir=true"], "Hydra only composes here, and nothing would come of it"),
        (["model=gat", "run_dir="], "run_dir is empty (an unset shell variable?): write run_dir=PATH"),
        (["model=gat", "init="], "init is empty"),
        (["model=gat", "resume=''"], "resume is empty"),
        (["model=gat", "paths.runs="], "paths.runs is empty"),
        (["experiment=gat_cora", "callbacks.checkpoint.monitors={val/f1: max}"], "callbacks.checkpoint.monitors"),
    ],
)
def test_what_does_not_exist_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.compose(overrides)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert "+" not in message.replace(str(overrides), "").replace("'+extra=1'", "").replace("'++seed=1'", "")


@pytest.mark.parametrize(
    ("overrides", "key", "expected"),
    [
        (["model=gat"], "data", "planted_graph"),
        (["model=gat"], "attention", "gat"),
        (["model=gatv2"], "attention", "gatv2"),
        (["experiment=gat_cora"], "data", "cora"),
        (["experiment=gat_cora"], "model", "gat"),
        (["experiment=gat_cora", "model=gatv2"], "model", "gatv2"),
        (["experiment=gat_cora", "data=citeseer"], "data", "citeseer"),
        (["data=citeseer", "experiment=gat_cora"], "data", "citeseer"),
        (["attention=uniform", "model=gat"], "attention", "uniform"),
        (["experiment=gat_cora", "attention=degree"], "attention", "degree"),
    ],
)
def test_the_command_line_wins_over_the_experiment_and_that_over_the_model(
    overrides: list[str], key: str, expected: str
) -> None:
    assert config.compose(overrides)["names"][key] == expected


def test_options_win_in_the_same_order() -> None:
    plain, recipe = config.compose(["model=gat"]), config.compose(["experiment=gat_cora"])
    assert (plain["attention"]["dropout"], recipe["attention"]["dropout"]) == (0.0, 0.6)
    assert recipe["model"]["net"]["attend"]["dropout"] == 0.6
    changed = config.compose(["attention.dropout=0.1", "experiment=gat_cora", "optimizer.lr=0.5"])
    assert changed["model"]["net"]["attend"]["dropout"] == 0.1
    assert changed["model"]["optimization"]["optimizer"]["lr"] == 0.5
    assert changed["callbacks"]["checkpoint"]["patience"] == 100


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("optimization.lr_multipliers={net.layers.0: 0.1}", {"net.layers.0": 0.1}),
        ("optimization.unfreeze={5: [net.layers.0]}", {5: ["net.layers.0"]}),
        ("optimization.freeze=[net.layers.0]", ["net.layers.0"]),
        ("callbacks.checkpoint.monitors={val/loss: min}", {"val/loss": "min"}),
    ],
)
def test_lists_and_mappings_can_be_given_on_the_command_line(override: str, found: Any) -> None:
    node: Any = config.compose(["model=gat", override])
    for part in override.partition("=")[0].split("."):
        node = node[part]
    assert node == found


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a b", "a b"),
        ("'a b'", "a b"),
        ('"a, b"', "a, b"),
        (r"'it\'s'", "it's"),
        ("'a(1)=[2]'", "a(1)=[2]"),
        ("/tmp/x-1_y.z", "/tmp/x-1_y.z"),
        ("null", None),
        ("'größe'", "größe"),
    ],
)
def test_values_with_spaces_and_quotes(written: str, read: str | None) -> None:
    assert config.compose(["model=gat", f"run_dir={written}"])["run_dir"] == read


def test_the_resolved_configuration_is_plain() -> None:
    found = config.compose(["experiment=gat_cora", "seed=3"])

    def check(node: Any) -> None:
        assert type(node) in (dict, list, str, int, float, bool, type(None))
        for key, value in node.items() if type(node) is dict else enumerate(node) if type(node) is list else ():
            assert type(key) in (str, int)
            check(value)

    check(found)
    assert yaml.safe_load(yaml.safe_dump(found)) == found == json.loads(json.dumps(found))
    assert "${" not in json.dumps(found)
    assert "hydra" not in found
    assert found["overrides"] == ["experiment=gat_cora", "seed=3"]


def test_the_environment_names_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    assert config.compose(["model=gat", "data=cora"])["data"]["root"] == str(tmp_path)
    monkeypatch.delenv("ZOO_DATA")
    assert config.compose(["model=gat", "data=cora"])["data"]["root"] == "data"
    assert config.compose(["model=gat", "data=cora", "paths.data=elsewhere"])["data"]["root"] == "elsewhere"


def test_inside_another_hydra_application(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("answer: 42\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        outer = GlobalHydra.instance().hydra
        module = zoo.create("gat", attention="uniform", features=5, classes=3)
        assert sum(1 for _ in module.parameters()) > 0
        with pytest.raises(ConfigError):
            zoo.create("gat", attention="nonsense", features=5, classes=3)
        assert GlobalHydra.instance().hydra is outer
        assert compose("mine").answer == 42
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (["model=gat", "model.net.dim=4", "data=cora", "seed=1"], ["model=gat", "model.net.dim=4"]),
        (["experiment=gat_cora", "attention=uniform", "optimizer.lr=1"], ["experiment=gat_cora", "attention=uniform"]),
        (["attention.dropout=0.5", "run_dir=x", "model=gatv2"], ["attention.dropout=0.5", "model=gatv2"]),
    ],
)
def test_a_recipe_is_what_the_model_is(overrides: list[str], kept: list[str]) -> None:
    assert config.get_model_overrides({"overrides": overrides}) == kept


def test_what_is_continued_forgets_where_it_started() -> None:
    overrides = ["model=gat", "init=a.ckpt", "run_dir=x", "seed=1", "resume=b.ckpt", "data.max_epochs=5"]
    assert config.get_resume_overrides({"overrides": overrides}) == ["model=gat", "seed=1", "data.max_epochs=5"]


def test_the_last_value_counts() -> None:
    assert config.get_value(["init=a", "seed=1", "init='b c'"], "init") == "b c"
    assert config.get_value(["seed=1"], "init") is None


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("gta", ["gat", "gatv2"], "Did you mean 'gat'?"),
        ("val", ["vax", "vae"], "Did you mean 'vax' or 'vae'?"),
        ("x", ["gat", "gatv2"], "There is: gat, gatv2."),
        ("x", [], "There is none."),
    ],
)
def test_nearest(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known) == said


@pytest.mark.parametrize("count", [31, 4000])
def test_nearest_never_lists_thousands(count: int) -> None:
    said = did_you_mean("?", [f"{number:05}" for number in range(count)])
    assert said.startswith("There is: 00000, 00001")
    assert said.endswith(f"00029 and {count - 30:,} more.")


def test_a_path_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell replaces `~` at the beginning of a word, which is the key."""
    monkeypatch.setenv("HOME", "/home/her")
    given = ["run_dir=~/run", "data.nodes='~/n.csv'", "data.files=[~/a.csv,~/b.csv]", "name=a~/b", "~data=~/x", "x=~"]
    assert config.expand_experiments(given) == [
        "run_dir=/home/her/run",
        "data.nodes='/home/her/n.csv'",
        "data.files=[/home/her/a.csv,/home/her/b.csv]",
        "name=a~/b",
        "~data=/home/her/x",
        "x=~",
    ]


def test_a_group_is_in_the_configuration_only_where_the_model_refers_to_it() -> None:
    gat, sasrec = config.compose(["model=gat"]), config.compose(["model=sasrec"])
    assert not {"loss", "gate"} & set(gat)
    assert gat["names"]["loss"] is gat["names"]["gate"] is None
    assert "gate" not in sasrec
    assert sasrec["loss"] == sasrec["model"]["loss"]


def test_a_replaced_optimizer_with_the_rate_of_another_is_a_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"optimizer=sgd has the learning rate 0\.0015 of adamw.* is 0\.1\. Set optimizer\.lr"
    ):
        config.compose(["model=resnet", "optimizer=sgd"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.compose(["model=resnet", "optimizer=sgd", "optimizer.lr=0.05"])
        config.compose(["model=resnet", "optimizer=adamw"])
