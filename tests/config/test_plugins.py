"""Packages that are installed beside this one: what they add, what is refused, and what they are not in the way of."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installing import install

from zoo.checkpoints import checkpoint
from zoo.config import compose, instantiate, plugins
from zoo.errors import CheckpointError, ConfigError

Add = Callable[..., None]
RECALL = "zoo_recall"


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """`add("name", {"conf/model/x.yaml": "..."})` installs such a package, for this test."""

    def made(name: str, files: dict[str, str], *, declares: str | None = None) -> None:
        sources = tmp_path / "sources" / name
        for path, text in {"__init__.py": "", **files}.items():
            file = sources / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        entry = f'[project.entry-points."{plugins.ENTRY_POINTS}"]\nx = "{declares or name}"\n'
        about = f'[project]\nname = "the-{name}"\nversion = "2.0"\n'
        (sources / "pyproject.toml").write_text(about + (entry if declares != "" else ""), encoding="utf-8")
        site = tmp_path / "site packages" / name
        install(sources, site)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return made


def test_its_configurations_are_listed_among_ours(cli: Any) -> None:
    done = cli("list")
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines() if line.startswith("  "))
    assert lines["recall"].startswith("Associative recall")
    assert lines["planted_facts"] == compose.describe_choices("data")["planted_facts"]
    assert lines["planted_facts"].startswith("Generated facts")
    assert list(compose.describe_choices("attention")) == sorted(compose.describe_choices("attention"))
    assert "distance" in compose.describe_choices("attention")


def test_an_optimizer_without_a_rate_and_a_trainer_without_epochs_compose(add: Add) -> None:
    trainer = "# One\naccelerator: cpu\ndevices: 1\nprecision: 32-true\ngradient_clip_val: null\n"
    optimizer = "# Two\n_target_: torch.optim.Rprop\n_partial_: true\n"
    add("plain", {"conf/optimizer/plain.yaml": optimizer, "conf/trainer/bare.yaml": trainer})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        composed = compose.compose(["model=gat", "optimizer=plain", "trainer=bare"])
    assert composed["data"]["max_epochs"] == compose.compose(["model=gat"])["data"]["max_epochs"]


def test_a_name_is_offered_where_one_is_near() -> None:
    with pytest.raises(ConfigError, match=r"there is no model 'recal'. Did you mean 'recall'"):
        compose.compose(["model=recal"])


def test_an_experiment_of_its_own_is_checked_like_ours(add: Add) -> None:
    text = "# @package _global_\n# x\ndefaults:\n  - override /model: recall\n\nmodel:\n  net:\n    {}: 4\n"
    add("more", {"conf/experiment/good.yaml": text.format("dim"), "conf/experiment/bad.yaml": text.format("dimm")})
    assert compose.compose(["experiment=good"])["model"]["net"]["dim"] == 4
    with pytest.raises(ConfigError, match=r"bad\.yaml, line 8: there is no option 'model\.net\.dimm'"):
        compose.compose(["experiment=bad"])


def test_two_of_one_name_are_refused_in_one_sentence(add: Add, cli: Any) -> None:
    add("mine", {"conf/model/gat.yaml": "# mine\n"})
    done = cli("list", "model")
    assert done.code == 2
    assert done.err == (
        "zoo: this project and the-mine 2.0, which is installed, both have a file conf/model/gat.yaml; "
        "rename one of them, or uninstall the package\n"
    )


def test_two_packages_with_one_name(add: Add) -> None:
    add("one", {"conf/data/same.yaml": "# one\n"})
    add("two", {"conf/data/same.yaml": "# two\n"})
    with pytest.raises(ConfigError, match=r"the-one 2\.0 and the-two 2\.0, .* both have a file conf/data/same\.yaml"):
        compose.compose(["model=gat"])


def test_a_folder_that_is_no_group(add: Add) -> None:
    add("mine", {"conf/models/x.yaml": "# x\n"})
    said = r"the-mine 2\.0 .* conf/models/x\.yaml is in no group\. Did you mean 'model'"
    with pytest.raises(ConfigError, match=said):
        compose.compose(["model=gat"])


BROKEN = "# @package _global_\n# Broken model\ndefaults:\n  - override /data: cora\n\nmodel:\n  _target_: broken.Net\n"


@pytest.mark.parametrize("text", ["import nothing_of_this_name", "1 / 0", "def broken(:", "import sys; sys.exit(3)"])
def test_a_package_that_cannot_be_imported_is_named_when_it_is_asked_for(add: Add, cli: Any, text: str) -> None:
    add("broken", {"__init__.py": text, "conf/model/broken_one.yaml": BROKEN})
    add("gone", {}, declares="not_there_at_all")
    assert "Broken model" in cli("list").out
    assert compose.compose(["model=gat"])["names"]["model"] == "gat"
    assert instantiate.resolve_target("zoo_recall.Recall", "model", is_root=True).__name__ == "Recall"
    done = cli("train", "model=broken_one")
    assert done.code == 2
    said = "zoo: model: 'broken.Net' (of the installed package the-broken 2.0) cannot be imported: "
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1


def test_public_names_alone_may_be_built_and_only_where_they_belong() -> None:
    assert instantiate.resolve_target(f"{RECALL}.RecallNet", "model.net").__name__ == "RecallNet"
    assert instantiate.resolve_target(f"{RECALL}.planted_facts", "data", is_root=True).__name__ == "planted_facts"
    assert instantiate.resolve_target(f"{RECALL}.Distance", "attention.score").__name__ == "Distance"
    for name in ("nothing", "__getattr__", "exports", "data", "_read_tables"):
        with pytest.raises(ConfigError, match=r"may not be built|cannot be imported"):
            instantiate.resolve_target(f"{RECALL}.{name}", "data", is_root=True)
    for place, name in (
        ("data", "data.RecallData"),
        ("model", "task.Recall"),
        ("model", "RecallNet"),
        ("data", "Recall"),
        ("model.net", "planted_facts"),
        ("attention.score", "planted_facts"),
        ("loss", "fact_table"),
        ("callbacks.checkpoint", "RecallNet"),
        ("optimizer", "RecallNet"),
        ("logger.csv", "Recall"),
    ):
        with pytest.raises(ConfigError, match="may not be built"):
            instantiate.resolve_target(f"{RECALL}.{name}", place, is_root="." not in place)


@pytest.mark.parametrize("name", ["taken", "Path", "helper"])
def test_what_it_only_imports_or_does_not_export_may_not_be_built(add: Add, name: str) -> None:
    text = "from os import system as taken\nfrom pathlib import Path\ndef helper(): ...\n__all__ = ['taken', 'Path']\n"
    add("mine", {"__init__.py": text})
    with pytest.raises(ConfigError, match=r"may not be built; it is not one of the parts that the-mine 2\.0 exports"):
        instantiate.resolve_target(f"mine.{name}", "attention.score")


@pytest.fixture
def theirs(add: Add, tiny_run: Path, tmp_path: Path) -> Path:
    """A checkpoint whose model is of a package that can be imported, which writes a file then, and declares nothing."""
    text = f"open({str(tmp_path / 'imported')!r}, 'w').close()\nclass Net: ...\n"
    add("stranger", {"__init__.py": text}, declares="")
    content = checkpoint.read(tiny_run / "checkpoints" / "last.ckpt")
    content["zoo"]["config"]["model"]["_target_"] = "stranger.Net"
    path = tmp_path / "theirs" / "checkpoints" / "last.ckpt"
    checkpoint.write(path, content)
    return path


@pytest.mark.parametrize("command", [["evaluate", "{}"], ["train", "init={}"], ["train", "resume={}"]])
def test_a_package_that_a_checkpoint_merely_names_is_not_imported(
    cli: Any, theirs: Path, tmp_path: Path, command: list[str]
) -> None:
    done = cli(*(each.format(theirs) for each in command))
    assert done.code == 2
    assert "'stranger.Net'" in done.err
    assert "No installed package adds 'stranger' to the zoo: if you trust it, install the one that does" in done.err
    assert done.err.count("\n") == 1
    assert "stranger" not in sys.modules
    assert not (tmp_path / "imported").exists()


def test_load_says_which_package_is_missing(theirs: Path) -> None:
    with pytest.raises(CheckpointError, match="No installed package adds 'stranger' to the zoo"):
        checkpoint.load(theirs)


LISTING = (
    "from zoo.cli.main import main; main(['list', 'model']); "
    "print({'zoo_recall', 'torch', 'importlib.metadata'} & set(sys.modules), file=sys.stderr)"
)


@pytest.mark.parametrize(("site", "imported"), [("", "{'importlib.metadata'}"), ("zoo-outside-", "set()")])
def test_to_find_packages_nothing_of_them_is_imported(site: str, imported: str) -> None:
    """Where there are none, the module that reads what is installed is not needed either."""
    code = f"import sys; sys.path = [each for each in sys.path if not {site!r} or {site!r} not in each]; {LISTING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ("recall" in done.stdout) == (not site)
    assert done.stderr == f"{imported}\n"
