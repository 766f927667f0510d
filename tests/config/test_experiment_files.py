"""Strict configuration: experiment files, the user's own ones, and the help that lists all options."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from zoo.checkpoints import checkpoint
from zoo.cli import catalog, main
from zoo.config import compose, plugins
from zoo.errors import ConfigError, ProblemsError
from zoo.training import summary

MINE = """# mine
defaults:
  - override /model: gat
  - override /attention: uniform
data:
  max_epochs: 7
  cue: 'dynamic'
optimizer.lr: 0.25
optimizer:
  betas: [0.5, 0.75]
callbacks:
  checkpoint:
    monitors: {val/loss: min, val/accuracy: max}
run_dir: it's a 'place' with $ and größe
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.yaml"


SAID = {
    written: [f"mine.yaml, line 2: {each} is read as {number}" for each, number in numbers]
    for written, numbers in {
        "010": [("010", 8)],
        "1:30": [("1:30", 90)],
        "1:30.5": [("1:30.5", 90.5)],
        "[1e-3, 010, on]": [("010", 8)],
        "{a: 1e-3, b: [no, 1:30]}": [("1:30", 90)],
    }.items()
}
"""What is said of numbers that people do not read as YAML does."""


def test_a_file_of_ones_own(mine: Path) -> None:
    mine.write_text(MINE, encoding="utf-8")
    overrides = compose.expand_experiments(["experiment=mine.yaml", "data.max_epochs=3", "seed=5"])
    assert not any("mine.yaml" in each for each in overrides)
    found = compose.compose(overrides)
    assert (found["names"]["model"], found["names"]["attention"], found["names"]["experiment"]) == (
        "gat",
        "uniform",
        None,
    )
    assert (found["data"]["max_epochs"], found["data"]["cue"], found["seed"]) == (3, "dynamic", 5)
    assert found["optimizer"]["lr"] == 0.25
    assert found["optimizer"]["betas"] == [0.5, 0.75]
    assert found["callbacks"]["checkpoint"]["monitors"] == {"val/loss": "min", "val/accuracy": "max"}
    assert found["run_dir"] == "it's a 'place' with $ and größe"
    assert compose.compose(found["overrides"])["data"] == found["data"]


def test_the_command_line_chooses_over_the_file(mine: Path) -> None:
    mine.write_text("model: gat\noptimizer: sgd\n")
    found = compose.compose(compose.expand_experiments(["experiment='mine.yaml'", "model=gatv2"]))
    assert (found["names"]["model"], found["names"]["optimizer"]) == ("gatv2", "sgd")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: gat\ndata:\n  nodez: 3\n", "mine.yaml, line 3: there is no option 'data.nodez'. Did you mean"),
        ("model: gat\nsed: 3\n", "mine.yaml, line 2: there is no option 'sed'. Did you mean 'seed'?"),
        ("model: gat\noptimizer: {lr: 1, beta: 2}\n", "mine.yaml, line 2: there is no option 'optimizer.beta'."),
        ("model: gta\n", "there is no model 'gta'. Did you mean 'gat'?"),
        ("seed: 1\n", "mine.yaml: it does not say which model"),
        ("defaults: [{/modle: gat}]\n", "mine.yaml, line 1: there is no group 'modle'"),
        ("model: gat\nseed: [1\n", "mine.yaml, line 3: this is not YAML"),
        ("- 1\n", "mine.yaml: an experiment is made of lines"),
        ("model: gat\nseed: !!python/object/apply:os.system [ls]\n", "line 2: this is not a plain value"),
        ("model: gat\nrun_dir: !!python/object/apply:pathlib.Path [a]\n", "mine.yaml, line 2: PosixPath('a') is not a"),
        (
            "model: gat\nrun_dir: !!python/object/apply:pathlib.Path [1]\n",
            "mine.yaml, line 2: this is not a plain value",
        ),
        ("model: gat\nseed: 1\nseed: 2\n", "mine.yaml, line 3: 'seed' stands in line 2 already"),
        ("model: gat\ndata.cue: a\ndata: {cue: b}\n", "mine.yaml, line 3: 'data.cue' stands in line 2 already"),
        ("model: gat\noptimizer:\n  _target_: os.system\n", ""),
        ("model: gat\n? [a, b]\n: 1\n", "mine.yaml, line 2: a key is the name of an option, not a list"),
        ("model: gat\noptimizer:\n  ? {a: b}\n  : 1\n", "mine.yaml, line 3: a key is the name of an option, not a map"),
        ("model: gat\noptimizer.lr: {[a]: 1}\n", "mine.yaml, line 2: a key is the name of an option, not a list"),
        ("model: gat\nnull: 1\n", "mine.yaml, line 2: there is no option 'null'"),
        ("model: gat\n1: 2\n", "mine.yaml, line 2: there is no option '1'"),
        (
            "defaults:\n- model: gat\n- ? [a]\n  : gat\n",
            "mine.yaml, line 3: a key is the name of an option, not a list",
        ),
        ("model: gat\ndefaults:\n- [a]\n", "mine.yaml, line 3: write such a line as '- override /model: gat'"),
        ("model: gat\ndefaults: {a: b}\n", "mine.yaml, line 2: 'defaults' is a list of lines"),
        (
            f"model: gat\n#{'x' * (1 << 18)}\n",
            "mine.yaml cannot be read: it has 262,157 bytes, and 262,144 are the most\n",
        ),
    ],
)
def test_what_is_wrong_with_a_file(mine: Path, cli: Any, text: str, said: str) -> None:
    mine.write_text(text)
    done = cli("train", "experiment=mine.yaml")
    assert done.code == 2
    assert said in done.err
    assert [path.name for path in mine.parent.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    "written",
    [
        *(
            "1e-3",
            "1E5",
            "-1e+3",
            "010",
            "08",
            "0x10",
            "1:30",
            "1:30.5",
            "00:01:30:00",
            "1_000",
            ".5",
            "-.5",
            "1.",
            "+5",
        ),
        *("2020-01-01", "2020-01-01 10:00:00", "on", "no", "~", "null", "inf", ".inf", "text", "'1e-3'", '"a\\nb"'),
        *("[1e-3, 010, on]", "{a: 1e-3, b: [no, 1:30]}", "[]"),
    ],
)
def test_a_value_is_what_it_is_in_a_file_of_hydra(mine: Path, written: str) -> None:
    mine.write_text(f"model: gat\nrun_dir: {written}\n")
    hydras = OmegaConf.to_container(OmegaConf.load(mine))
    assert isinstance(hydras, dict)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = compose.compose_unchecked(compose.expand_experiments(["experiment=mine.yaml"]))["run_dir"]
    assert [str(each.message).partition(" (")[0] for each in said] == SAID.get(written, [])
    assert (type(found), found) == (type(hydras["run_dir"]), hydras["run_dir"])


def test_a_rate_in_powers_of_ten(mine: Path) -> None:
    mine.write_text("model: gat\noptimizer.lr: 1e-3\noptimizer:\n  weight_decay: 5e-4\n")
    found = compose.compose(compose.expand_experiments(["experiment=mine.yaml"]))["optimizer"]
    assert (found["lr"], found["weight_decay"]) == (0.001, 0.0005)


def test_all_unknown_keys_of_a_file_at_once(mine: Path) -> None:
    mine.write_text("model: gat\nsed: 3\ndata:\n  x: 1\n  y: 1\n")
    with pytest.raises(ProblemsError) as caught:
        compose.expand_experiments(["experiment=mine.yaml"])
    assert len(caught.value.problems) == 3


def test_no_such_file(mine: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml cannot be read"):
        compose.expand_experiments(["experiment=mine.yaml"])


def test_an_experiment_of_this_project_with_an_unknown_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    shutil.copytree(plugins.CONF, tmp_path / "conf")
    path = tmp_path / "conf" / "experiment" / "wrong.yaml"
    path.write_text("# @package _global_\n# x\ndefaults:\n  - override /model: gat\n\noptimizer:\n  lrr: 1\n")
    monkeypatch.setattr(plugins, "CONF", tmp_path / "conf")
    compose.compose_tree.cache_clear()
    compose.find_known_keys.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"wrong\.yaml, line 7: there is no option 'optimizer\.lrr'"):
            compose.compose(["experiment=wrong"])
    finally:
        compose.compose_tree.cache_clear()
        compose.find_known_keys.cache_clear()


@pytest.mark.parametrize("model", list(compose.describe_choices("model")))
def test_help_lists_every_option_of_a_model(model: str, cli: Any) -> None:
    done = cli("train", f"model={model}", "optimizer=sgd", "--help")
    assert done.code == 0
    assert all(word in done.out for word in (f"model={model}", "optimizer.momentum=0.9", "data.max_epochs=", "seed=0"))
    assert "seed of the initialisation and of the order of examples" in done.out
    for line in catalog.describe_options([f"model={model}"])[2:]:
        key = line.strip().partition("=")[0]
        assert key in compose.find_known_keys((f"model={model}",))
    assert cli("train", f"model={model}", "optimizer.momentun=1", "--help").code == 2


def test_help_explains_what_a_file_takes_from_its_bases() -> None:
    lines = catalog.describe_options(["model=vit", "data=cifar10", "trainer=ddp"])
    said = {line.split("=")[0].strip(): line for line in lines}
    assert said["data.validation"].endswith("held out for validation, the same share of every class")
    assert said["data.eval_examples"].endswith("that the final evaluation reads; null: all")
    assert said["data.augmentation.rand_augment"].endswith("RandAugment operations per picture (Cubuk et al. 2020)")
    assert said["data.mean"].endswith("of the 50,000 training pictures, per channel")
    assert said["trainer.devices"].endswith("processes per node")


@pytest.mark.parametrize(
    "arguments", [["model=gat", "optimizer.lrr=1"], ["model=gat", "--help"], ["experiment=gat_cora", "--cfg", "job"]]
)
def test_nothing_heavy_is_imported_for_it(arguments: list[str]) -> None:
    code = (
        "import sys; from zoo.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'pytorch_lightning', 'numpy', 'scipy'} & set(sys.modules); print(heavy or 'light', code)"
    )
    command = [sys.executable, "-c", code, "train", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].startswith("light"), done


OWN_DATA = {
    "graph": "graph_files data.nodes=n.csv data.edges=e.csv",
    "vision": "image_table data.table=t.csv data.height=32 data.width=32",
    "recommendation": "interactions data.table=t.csv",
    "documents": "text_table data.table=t.csv",
    "translation": "text_pairs data.table=t.csv",
    "speech": "audio_manifest data.table=t.csv",
    "captioning": "captions data.table=t.csv",
    "answering": "hypotheses data.table=t.csv",
}
"""Domain -> data of one's own."""


@functools.cache
def composed(name: str) -> dict[str, Any]:
    return compose.compose([name])


def data_of(name: str) -> str:
    """The data that a recipe chooses, or its base; read, as composing all while tests are collected is slow."""
    *parents, last = OmegaConf.load(plugins.find_choices("experiment")[name]).defaults
    found = [
        each["override /data"] for each in (*parents, last) if not isinstance(each, str) and "override /data" in each
    ]
    return found[0] if found else data_of(parents[0] if parents else last)


def one_recipe_a_data_set() -> list[str]:
    return list({data_of(name): name for name in compose.describe_choices("experiment")}.values())


@pytest.mark.parametrize("name", one_recipe_a_data_set())
def test_a_recipe_with_data_of_ones_own(name: str) -> None:
    published = composed(f"experiment={name}")
    assert published["names"]["data"] == data_of(name)
    domain = published["data"]["_target_"].split(".")[2]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = compose.compose(compose.expand_experiments([f"experiment={name}", *f"data={OWN_DATA[domain]}".split()]))
    assert (found["model"], found["optimizer"]) == (published["model"], published["optimizer"])
    assert found["data"]["max_epochs"] == published["data"]["max_epochs"]
    for warning in said:
        assert str(warning.message).startswith(
            f"experiment={name} with data={OWN_DATA[domain].split()[0]}: these options"
        )


@pytest.mark.parametrize("name", compose.describe_choices("experiment"))
@pytest.mark.filterwarnings("ignore:experiment=")
def test_the_suggested_control_of_a_recipe_is_the_control(name: str) -> None:
    """The command that a run ends with replaces the mechanism, whatever options the recipe gives to it."""
    recipe = composed(f"experiment={name}")
    for group, control in summary.CONTROLS.items():
        if recipe["names"][group] not in (None, control):
            found = compose.compose(compose.expand_experiments([f"experiment={name}", f"{group}={control}"]))
            file = OmegaConf.load(plugins.find_choices(group)[control])
            assert set(re.findall(r"zoo\.attention\.\w+", str(found[group]))) == set(
                re.findall(r"zoo\.attention\.\w+", str(file))
            )


def test_options_that_belong_to_the_data_left_out_are_dropped_and_named(mine: Path) -> None:
    given = ["experiment=las_fsdd_strings", "data=audio_manifest", "data.table=t.csv"]
    with pytest.warns(UserWarning, match=r"with data=audio_manifest: .* left out: data\.strings, data\.held_out$"):
        overrides = compose.expand_experiments(given)
    found = compose.compose(overrides)
    assert (found["data"]["tokeniser"], found["data"]["max_epochs"], found["decoder"]["dim"]) == ("words", 18, 32)
    assert compose.compose(found["overrides"])["data"] == found["data"]
    mine.write_text("experiment: las_fsdd_strings\ndata: {strings: 9}\nseed: 7\n")
    with pytest.warns(UserWarning, match=r"left out: data\.strings, data\.held_out$"):
        found = compose.compose(compose.expand_experiments(["experiment=mine.yaml", *given[1:]]))
    assert (found["seed"], found["data"]["max_epochs"]) == (7, 18)


def test_a_misspelt_option_is_not_dropped(mine: Path) -> None:
    mine.write_text("experiment: las_fsdd_strings\ndata: {stringz: 9}\n")
    with pytest.raises(ConfigError, match=r"mine.yaml, line 2: there is no option 'data.stringz'. Did you mean"):
        compose.expand_experiments(["experiment=mine.yaml", "data=audio_manifest", "data.table=t.csv"])


def test_a_recipe_keeps_its_name_where_all_of_its_options_have_a_place() -> None:
    given = ["experiment=gat_cora", "attention=uniform", "data=citeseer"]
    assert compose.expand_experiments(given) == given


def test_fine_tuning_a_recipe_on_data_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`init=` alone takes the options of the model from the checkpoint, also where they come from a recipe."""
    trained = composed("experiment=las_fsdd_strings")
    monkeypatch.setattr(checkpoint, "read", lambda path: {"zoo": {"config": trained}})
    with pytest.warns(UserWarning, match=r"left out: data\.strings, data\.held_out$"):
        overrides = compose.expand_experiments(
            main.add_checkpoint_overrides(["init=some.ckpt", "data=audio_manifest", "data.table=t.csv"])
        )
    found = compose.compose(overrides)
    assert found["model"] == trained["model"]
    assert (found["names"]["data"], found["init"]) == ("audio_manifest", "some.ckpt")


def test_a_checkpoint_names_no_experiment_file(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = {"zoo": {"config": {"overrides": ["experiment=/etc/secret.yaml"]}}}
    monkeypatch.setattr(checkpoint, "read", lambda path: stranger)
    with pytest.raises(ConfigError, match="not taken from a file"):
        main.add_checkpoint_overrides(["init=some.ckpt"])
