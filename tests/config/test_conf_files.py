"""Every file under conf/, found by glob: what is added there is tested without being listed here."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from conf_cases import with_bases
from omegaconf import DictConfig, ListConfig, OmegaConf
from small_data import small
from tiers import all_slow_but
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.attention import sites
from zoo.checkpoints import checkpoint
from zoo.config import compose, instantiate, plugins
from zoo.config.groups import INJECTED, LISTED, MECHANISMS
from zoo.config.plugins import iter_files
from zoo.errors import CheckpointError, ConfigError

FILES = sorted(path for folder in plugins.find_folders() for path in folder.rglob("*.yaml"))
MODELS, ATTENTION, EXPERIMENTS = (
    list(compose.describe_choices(group)) for group in ("model", "attention", "experiment")
)
BASES = "_base"
"""The folder of what several files of a group share; nothing in it can be chosen."""
MODEL = "gat"
PLACEHOLDER = "given"
SIZES = {"channels": 3, "height": 224, "width": 224}
"""Sizes that cannot be 8."""
ENORMOUS = 1_000_000
MOST_OPERATIONS, MOST_BYTES = 20_000, 2**24
"""Limits of refusing a checkpoint: operations of torch, and the memory of one tensor."""


def combinations() -> list[dict[str, str]]:
    """Every choice of every other group, at least once."""
    groups = {group: list(compose.describe_choices(group)) for group in LISTED}
    own = ("model", "experiment", *MECHANISMS)
    others = {group: names for group, names in groups.items() if group not in own}
    most = max(len(names) for names in others.values())
    return [{group: names[number % len(names)] for group, names in others.items()} for number in range(most)]


@functools.cache
def composed(*overrides: str) -> dict[str, Any]:
    return compose.compose(list(overrides))


@functools.cache
def tree(*overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return compose.compose_unresolved(overrides)


def with_mechanism(model: str, group: str, name: str) -> dict[str, Any]:
    """What Hydra composes of `model=... group=...`, faster: a mechanism is a node of its own that models refer to."""
    taker = next(each for each in MODELS if composed(f"model={each}")["names"][group] is not None)
    node = tree(f"model={taker}", f"{group}={name}")[0][group]
    own, choices = tree(f"model={model}")
    overrides = [f"model={model}", f"{group}={name}"]
    return compose.to_plain_dict(OmegaConf.create({**own, group: node}), {**choices, group: name}, overrides)


def filled(group: str, name: str) -> list[str]:
    """Overrides for what a file leaves to the user."""
    node = OmegaConf.load(plugins.find_choices(group)[name])
    assert isinstance(node, DictConfig)
    return [f"{group}.{key}={PLACEHOLDER}" for key in node if OmegaConf.is_missing(node, key)]


def sizes(node: Mapping[str, Any]) -> dict[str, int]:
    """A size for everything that a model is to be told by its data."""
    parameters = inspect.signature(instantiate.resolve_target(node["_target_"], "model")).parameters
    needed = [name for name, each in parameters.items() if name not in node and each.default is each.empty]
    return {name: SIZES.get(name, 8) for name in needed}


def built(model: Mapping[str, Any]) -> Any:
    with torch.device("meta"):
        return instantiate.build(model, "model", **sizes(model))


def leaves(node: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}{key}.")
    elif prefix:
        yield prefix.rstrip(".")


class Limited(TorchDispatchMode):
    """Fails the test at an operation too many, or at a tensor too large."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            pytest.fail(f"more than {MOST_OPERATIONS} operations, the last {func}")
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and not each.is_meta and each.untyped_storage().nbytes() > MOST_BYTES:
                pytest.fail(f"{func} made a tensor of {tuple(each.shape)}")
        return made


def numbers(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the place of every whole number."""
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ():
        if type(value) is int:
            yield (*above, key)
        yield from numbers(value, (*above, key))


def test_there_are_files() -> None:
    assert len(FILES) > 20
    assert "gat" in MODELS
    assert "uniform" in ATTENTION


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_opens_with_a_sentence(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    first = lines[1] if lines[0].startswith("# @package") else lines[0]
    assert first.startswith("# ")
    assert len(first.split()) >= 3
    if path.parent.name == BASES:
        assert path.stem not in compose.describe_choices(path.parent.parent.name)
    elif path.parent != plugins.CONF:
        assert compose.describe_choices(path.parent.name)[path.stem] == first[2:].strip()


@pytest.mark.parametrize("group", ["data", "trainer"])
def test_a_base_serves_several_files_and_can_not_be_chosen(group: str) -> None:
    bases = {path for path in FILES if path.parent == plugins.CONF / group / BASES}
    files = [path for path in FILES if path.is_relative_to(plugins.CONF / group)]
    users = {base: [path for path in files if path != base and base in iter_files(path)] for base in bases}
    assert bases
    assert [base.stem for base in bases if len(users[base]) < 2] == []
    for base in bases:
        with pytest.raises(ConfigError, match=f"there is no {group}"):
            compose.compose([f"model={MODEL}", f"{group}={BASES}/{base.stem}"])


@pytest.mark.parametrize("model", MODELS)
def test_a_model_composes_with_its_own_data_and_is_built(model: str) -> None:
    chosen = composed(f"model={model}")
    assert chosen["names"]["model"] == model
    module = built(chosen["model"])
    assert all(parameter.is_meta for parameter in module.parameters())
    assert sites(module) or chosen["names"]["gate"] == "none"  # the control
    data = instantiate.build(composed(f"model={model}", *small(model))["data"], "data")
    needed, given = set(sizes(chosen["model"])), set(data.sizes())
    parameters = inspect.signature(instantiate.resolve_target(chosen["model"]["_target_"], "model")).parameters
    assert needed <= given
    assert all(parameters[name].default is not inspect.Parameter.empty for name in given - needed)
    assert set(module.vocabularies()) <= set(data.state())


@pytest.mark.parametrize("model", MODELS)
def test_a_model_refers_to_its_mechanisms(model: str) -> None:
    for group in MECHANISMS:
        own, name = (
            composed(f"model={model}")["names"][group],
            list(compose.describe_choices(group))[MODELS.index(model) % 3],
        )
        if own is not None:
            assert with_mechanism(model, group, name) == composed(f"model={model}", f"{group}={name}")


@pytest.mark.parametrize("group", MECHANISMS)
def test_a_mechanism_is_refused_by_a_model_that_has_no_place_for_it(group: str) -> None:
    """Whichever mechanism it is: each model is given one of them."""
    without = [model for model in MODELS if composed(f"model={model}")["names"][group] is None]
    assert without
    for number, model in enumerate(without):
        names = list(compose.describe_choices(group))
        with pytest.raises(ConfigError, match=f"this model has no {group}"):
            compose.compose([f"model={model}", f"{group}={names[number % len(names)]}"])


# slow tier: `captioner` has the same places for mechanisms, and its encoder is built in a tenth of the time
@pytest.mark.parametrize("model", all_slow_but(set(MODELS) - {"captioner_backbone"}, MODELS))
def test_every_mechanism_is_in_every_model_or_refused_in_a_sentence(model: str) -> None:
    for group in MECHANISMS:
        if composed(f"model={model}")["names"][group] is not None:
            for name in compose.describe_choices(group):
                is_in_or_refused(model, group, name)


def is_in_or_refused(model: str, group: str, name: str) -> None:
    own = composed(f"model={model}")["names"][group]
    chosen = with_mechanism(model, group, name)
    assert chosen["names"][group] == name
    module, refusal = None, ""
    try:
        module = built(chosen["model"])
    except ConfigError as error:
        refusal = str(error)
    if module is None:
        assert refusal.startswith("model")
        assert "\n" not in refusal
        assert name not in ("uniform", own)
        assert (group, name) != ("gate", "none")
        return
    node = chosen[group]
    part = node.get("score", node.get("site", node.get("mixer", node)))
    assert part["_target_"].rpartition(".")[2] in {type(each).__name__ for each in module.modules()}


def refused_or_built(chosen: Mapping[str, Any], options: Iterable[tuple[Any, ...]], told: Iterable[str] = ()) -> None:
    """Enlarges each option of a model, and each size that it is told, in a checkpoint."""
    known = sizes(chosen["model"])
    weights = {
        name: torch.zeros(each.shape, dtype=each.dtype) for name, each in built(chosen["model"]).state_dict().items()
    }
    about = {"config": chosen, "sizes": known, "data": {}}
    for place in [*(("config", "model", *each) for each in options), *(("sizes", each) for each in told)]:
        enlarged = copy.deepcopy(about)
        functools.reduce(operator.getitem, place[:-1], enlarged)[place[-1]] = ENORMOUS
        with Limited(), contextlib.suppress(CheckpointError):
            checkpoint.build_module({"zoo": enlarged, "state_dict": weights}, "a checkpoint")


@pytest.mark.parametrize("model", MODELS)
def test_a_number_in_a_checkpoint_costs_nothing(model: str) -> None:
    chosen = composed(f"model={model}")
    refused_or_built(chosen, numbers(chosen["model"]), sizes(chosen["model"]))


@pytest.mark.parametrize(("group", "name"), [(g, name) for g in MECHANISMS for name in compose.describe_choices(g)])
def test_a_number_of_a_mechanism_in_a_checkpoint_costs_nothing(group: str, name: str) -> None:
    for model in MODELS:
        if composed(f"model={model}")["names"][group] is None:
            continue
        chosen = with_mechanism(model, group, name)
        with contextlib.suppress(ConfigError):
            built(chosen["model"])
            refused_or_built(chosen, set(numbers(chosen["model"])) - set(numbers(composed(f"model={model}")["model"])))
            return
    pytest.fail(f"no model takes {name}")


@pytest.mark.parametrize("choice", combinations(), ids=lambda choice: " ".join(choice.values()))
def test_every_other_choice_composes_and_its_options_exist(choice: dict[str, str]) -> None:
    given = [override for group, name in choice.items() for override in filled(group, name)]
    chosen = composed(f"model={MODEL}", *(f"{group}={name}" for group, name in choice.items()), *given)
    assert {group: chosen["names"][group] for group in choice} == choice
    assert set(chosen["trainer"]) - {"max_restarts"} <= set(inspect.signature(pl.Trainer).parameters)
    for group, additions in INJECTED.items():  # the run's own
        for part, node in chosen[group].items():
            instantiate.check(node, f"{group}.{part}", additions)
    instantiate.check(chosen["data"], "data")
    made = instantiate.build(chosen["optimization"], "optimization")
    optimizer = made.optimizer([torch.nn.Parameter(torch.zeros(2))])
    assert optimizer.defaults["lr"] == chosen["optimizer"]["lr"]
    assert made.scheduler.kind == chosen["scheduler"]["kind"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_target_may_be_built(path: Path) -> None:
    def visit(node: Any, where: str) -> None:
        if isinstance(node, DictConfig | ListConfig):
            for key in node if isinstance(node, DictConfig) else range(len(node)):
                # interpolations lead to nodes of other files, which are visited there
                if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
                    visit(node[key], f"{where}.{key}")
            if isinstance(node, DictConfig) and "_target_" in node:
                found = instantiate.resolve_target(node["_target_"], where)
                known = set(inspect.signature(found).parameters) | {"_target_", "_partial_"}
                assert {str(key) for key in node} <= known, where

    visit(with_bases(path), path.stem)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.filterwarnings("ignore:optimizer=sgd has the learning rate")  # without the recipe's own rate
def test_an_experiment_names_its_command_and_only_options_that_exist(name: str) -> None:
    path = plugins.find_choices("experiment")[name]
    assert f"python train.py experiment={name}" in compose.describe_choices("experiment")[name]
    node = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(node, dict)
    given = node.pop("defaults")
    defaults = {k.removeprefix("override /"): v for each in given if isinstance(each, dict) for k, v in each.items()}
    parents = [f"experiment={each}" for each in given if isinstance(each, str)]
    before = composed(*parents, *(f"{group}={value}" for group, value in defaults.items()))
    after = composed(f"experiment={name}")
    assert {group: after["names"][group] for group in defaults} == defaults
    free = (
        "callbacks.checkpoint.monitors.",
        "optimization.lr_multipliers.",
        "optimization.unfreeze.",
    )  # whose keys are the user's
    known = set(leaves(before))
    # a part may be put where there was none, or taken away
    known |= {key for key in leaves(node) if any(each.startswith(f"{key}.") for each in known)}
    known |= {key for key in leaves(node) if key.rpartition(".")[0] in known}
    assert [key for key in leaves(node) if key not in known and not key.startswith(free)] == []
    module = built(after["model"])
    assert sites(module) or after["names"]["gate"] == "none"
    assert (
        after["callbacks"]["checkpoint"].get("monitors") is None
        or module.primary in after["callbacks"]["checkpoint"]["monitors"]
    )
