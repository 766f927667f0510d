"""Composes overrides into one resolved configuration of plain values, and refuses options that do not exist."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config import plugins
from zoo.config.groups import GROUPS, LISTED, MECHANISMS
from zoo.config.legacy_names import iter_keys, suggest_key
from zoo.errors import ConfigError, did_you_mean, warn

if TYPE_CHECKING:
    from omegaconf import DictConfig

_MAX_DEPTH = 20
"""The most levels of brackets in an override."""
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


def describe_choices(group: str) -> dict[str, str]:
    """Returns the first sentence of the file of every choice of a group, by name."""
    return {name: _read_first_sentence(path) for name, path in plugins.find_choices(group).items()}


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the resolved configuration of these overrides, with checked keys.

    It also works inside another Hydra application.
    """
    from zoo.config import checks

    config = compose_unchecked(overrides)
    for problem in checks.iter_key_errors(config):
        raise problem
    _warn_about_foreign_rate(config)
    return config


def _warn_about_foreign_rate(config: Mapping[str, Any]) -> None:
    """Warns where the command replaces the optimizer, and keeps a learning rate that was chosen for another."""
    overrides = config["overrides"]
    name = get_value(overrides, "optimizer")
    if name is None or get_value(overrides, "optimizer.lr") is not None:
        return
    choices = tuple(override for override in overrides if override.partition("=")[0] in GROUPS.keys() - {"optimizer"})
    default = _resolve_choices(choices)["optimizer"]
    rate, own_rate = config["optimizer"].get("lr"), _read_own_rate(name)
    if name != default and own_rate is not None and rate != own_rate:
        warn(
            f"optimizer={name} has the learning rate {rate:g} of {default}, which the model or recipe sets; that of "
            f"conf/optimizer/{name}.yaml is {own_rate:g}. Set optimizer.lr"
        )


def _read_own_rate(optimizer: str) -> float | None:
    """Returns the learning rate in the file of an optimizer, if it has one."""
    import yaml

    path = plugins.find_choices("optimizer")[optimizer]
    rate = yaml.safe_load(path.read_text(encoding="utf-8")).get("lr")
    return None if rate is None else float(rate)


def compose_unchecked(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the resolved configuration of these overrides, whose values are not checked yet."""
    for override in overrides:
        if override.startswith(("hydra.", "hydra/")):
            raise ConfigError(f"{override}: {_explain_hydra_override(override)}")
    check_overrides(overrides)
    composed = _compose(tuple(overrides))
    return to_plain_dict(composed, composed.hydra.runtime.choices, overrides)


def check_overrides(overrides: Sequence[str]) -> None:
    """Refuses a choice or key that does not exist, and names the nearest one, before Hydra runs."""
    for problem in partition_overrides(overrides)[1]:
        raise problem


def partition_overrides(overrides: Sequence[str]) -> tuple[list[str], list[ConfigError]]:
    """Returns the valid overrides, and an error for each of the others."""
    problems: list[ConfigError] = []
    pairs: list[tuple[str, str, str]] = []
    for override in overrides:
        try:
            key, value = _split(override)
            if key in GROUPS:
                _check_choices(key, value)
            pairs.append((override, key, value))
        except ConfigError as error:
            problems.append(error)
    choices = [f"{key}={value.split(',')[0]}" for _, key, value in pairs if key in GROUPS]
    if not any(pair.startswith(("model=", "experiment=")) for pair in choices):
        if not problems:
            problems.append(
                ConfigError(f"say which model: model=NAME. There is: {', '.join(describe_choices('model'))}.")
            )
        return [], problems
    try:
        for name in {choice.partition("=")[2] for choice in choices if choice.startswith("experiment=")} - {"null"}:
            _check_experiment(name, tuple(choice for choice in choices if not choice.startswith("experiment=")))
    except ConfigError as error:
        return [], [*problems, error]
    known_keys = find_known_keys(tuple(choices))
    unused_groups = find_unused_groups(compose_tree(tuple(choices))["model"])
    valid = []
    for override, key, _ in pairs:
        if key.split(".")[0] in unused_groups:
            problems.append(ConfigError(f"{override}: this model has no {key.split('.')[0]} that could be chosen"))
        elif key not in GROUPS and key not in known_keys and not key.startswith("hydra"):
            problems.append(ConfigError(f"there is no option {key!r}. {suggest_key(key, known_keys)}"))
        else:
            valid.append(override)
    return valid, problems


def expand_experiments(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides with an experiment replaced by its content, where that is needed.

    It is for a user's own file (`experiment=mine.yaml`), and for a recipe whose data or mechanism the command replaces
    (`experiment=las_fsdd_strings data=audio_manifest`): options that only the recipe's choice has are dropped, with a
    warning that names them. `~/` becomes the user's home also inside a word, where shells leave it.
    """
    for override in overrides:
        check_depth(override)
    overrides = [_expand_user(override) for override in overrides]
    name = get_value(overrides, "experiment")
    if name is None:
        return overrides
    from zoo.config import experiment_files

    path = Path(name) if experiment_files.is_user_file(name) else plugins.find_choices("experiment").get(name)
    if path is None:
        return overrides
    other_overrides = [override for override in overrides if not override.startswith("experiment=")]
    pairs = (override.partition("=")[::2] for override in other_overrides)
    typed_choices = {key: value.strip("'\"") for key, value in pairs if key in GROUPS and "," not in value}
    replacement = _adapt_recipe(name, path, typed_choices)
    if replacement is None:  # every option of the recipe has its place
        if not experiment_files.is_user_file(name):
            return overrides
        choices = [f"{group}={choice}" for group, choice in typed_choices.items()]
        replacement = experiment_files.to_overrides(path, choices, _check_and_compose)
    return [*map(_expand_user, replacement), *other_overrides]


def _adapt_recipe(name: str, path: Path, typed_choices: Mapping[str, str]) -> list[str] | None:
    """Returns the overrides of a recipe with other choices than its own; None if they fit all its options."""
    from zoo.config import experiment_files

    if not typed_choices.keys() - {"model"}:
        return None
    recipe = experiment_files.read_recipe(path)
    choices = {**recipe.choices, **typed_choices}
    if "model" not in choices:
        return None
    for choice in choices.items():
        _check_choices(*choice)
    own_choices = {**recipe.choices, "model": choices["model"]}
    defaults = _resolve_choices(tuple(f"{group}={choice}" for group, choice in own_choices.items()))
    replaced_groups = {
        group for group, choice in typed_choices.items() if group != "model" and choice != defaults.get(group)
    }
    if not replaced_groups:
        return None
    own_tree, new_tree = (
        compose_tree(tuple(f"{group}={choice}" for group, choice in selection.items()))
        for selection in (own_choices, choices)
    )
    adapted, dropped_keys = experiment_files.drop_foreign_options(recipe, own_tree, new_tree, replaced_groups)
    if not dropped_keys:
        return None
    replacements = ", ".join(
        f"{group}={typed_choices[group]}" for group in sorted({key.split(".")[0] for key in dropped_keys})
    )
    warn(f"experiment={name} with {replacements}: these options of the recipe are left out: {', '.join(dropped_keys)}")
    return adapted


def compose_unresolved(overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the composed tree with its interpolations, without Hydra's section, and the choice of each group."""
    composed = _compose(tuple(overrides))
    tree = _to_plain_tree(composed)
    return {key: value for key, value in tree.items() if key != "hydra"}, dict(composed.hydra.runtime.choices)


def to_plain_dict(composed: DictConfig, choices: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the resolved configuration without Hydra's section, with the names of choices and the overrides."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    own_config = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    try:
        resolved = OmegaConf.to_container(own_config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    assert isinstance(resolved, dict)
    for name in ("run_dir", "init", "resume", *(f"paths.{folder}" for folder in resolved["paths"])):
        if OmegaConf.select(own_config, name) == "":
            raise ConfigError(f"{name} is empty (an unset shell variable?): write {name}=PATH, or leave it out")
    if (epochs := resolved["trainer"].pop("max_epochs", None)) is not None:  # of data, unless the trainer's was given
        resolved["data"]["max_epochs"] = epochs
    unused_groups = find_unused_groups(_to_plain_tree(own_config)["model"])
    names = {group: None if group in unused_groups else choices.get(group) for group in LISTED}
    used_options = {str(key): value for key, value in resolved.items() if key not in unused_groups}
    return {**used_options, "names": names, "overrides": list(overrides)}


def get_model_overrides(config: Mapping[str, Any]) -> list[str]:
    """Returns the overrides that fine-tuning takes from a trained model: its own, without those of its data."""
    groups = ("model", *MECHANISMS, "experiment")
    overrides = [override for override in _get_stored_overrides(config) if _split(override)[0].split(".")[0] in groups]
    for override in overrides:
        if "${" in override:
            raise ConfigError(f"the checkpoint was trained with {override!r}, which is not looked up for a stranger")
    return overrides


def get_resume_overrides(config: Mapping[str, Any]) -> list[str]:
    """Returns the overrides of a run that is resumed: all but its origin and its directory."""
    excluded = ("init", "resume", "run_dir", "check")
    return [override for override in _get_stored_overrides(config) if _split(override)[0] not in excluded]


def _get_stored_overrides(config: Mapping[str, Any]) -> list[str]:
    """Returns the overrides of a checkpoint. It may come from a stranger: options of Hydra are refused, and so are
    experiment files, whose content a run stores."""
    from zoo.config import experiment_files

    for override in config["overrides"]:
        key, _, value = override.partition("=")
        if key.startswith("hydra") or (key == "experiment" and experiment_files.is_user_file(value)):
            raise ConfigError(f"the checkpoint was trained with {override!r}, which is not taken from a file")
    return list(config["overrides"])


def get_value(overrides: Sequence[str], key: str) -> str | None:
    """Returns the last value that overrides give to a key, if any."""
    values = [override[len(key) + 1 :] for override in overrides if override.startswith(f"{key}=")]
    return values[-1].strip("'\"") if values else None


@functools.lru_cache(maxsize=1)  # choices without other overrides are composed to check them, and then again
def _compose(overrides: tuple[str, ...]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(plugins.CONF), version_base="1.3"):
            return hydra_compose("train", overrides=[*overrides, *plugins.make_search_path()], return_hydra_config=True)
    except OverrideParseException as error:
        advice = "put a value with special characters in quotes: \"key='value'\""
        raise ConfigError(f"{error.override!r} cannot be read; {advice}") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_clean_hydra_message(error)) from error
    finally:
        GlobalHydra.instance().clear()
        GlobalHydra.instance().hydra = outer


def _clean_hydra_message(error: Exception) -> str:
    """Returns Hydra's message without its internals and its advice to add keys, which is not possible here."""
    advice = ("To append to your config", "full_key:", "object_type=")
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(advice))


@functools.cache
def find_known_keys(choices: tuple[str, ...]) -> frozenset[str]:
    """Returns every key that can be given together with these choices."""
    return frozenset(iter_keys(compose_tree(choices)))


@functools.cache
def compose_tree(choices: tuple[str, ...]) -> dict[str, Any]:
    """Returns the unchecked tree of these choices, with its interpolations."""
    return _to_plain_tree(_compose(choices))


@functools.cache
def _resolve_choices(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Returns the choice of each group."""
    return compose_unresolved(overrides)[1]


def _check_and_compose(choices: tuple[str, ...]) -> dict[str, Any]:
    for choice in choices:
        _check_choices(*choice.split("=", 1))
    return compose_tree(choices)


def _to_plain_tree(composed: DictConfig) -> dict[str, Any]:
    from omegaconf import OmegaConf

    tree = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


@functools.cache
def _check_experiment(name: str, choices: tuple[str, ...]) -> None:
    """Refuses an experiment with unknown keys, which Hydra would add."""
    from zoo.config import experiment_files

    experiment_files.to_overrides(plugins.find_choices("experiment")[name], choices, compose_tree)


def _explain_hydra_override(override: str) -> str:
    """Returns a sentence that says why a run does not take an option of Hydra."""
    if override.startswith("hydra.run.dir="):
        return "Hydra only composes here; write run_dir=PATH"
    if override.startswith(("hydra/launcher", "hydra/sweeper", "hydra.launcher", "hydra.sweep")):
        return "it is an option of a sweep; add -m, or leave it out"
    return "Hydra only composes here, and nothing would come of it; leave it out"


def check_depth(override: str) -> None:
    """Refuses an override whose value is nested so deeply that no parser gets to its end."""
    depth = deepest = 0
    for character in _QUOTED.sub("", override):
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        key = override.partition("=")[0]
        raise ConfigError(f"{key}: its value is nested {deepest:,} levels deep, and {_MAX_DEPTH} are the most")


def _expand_user(override: str) -> str:
    key, separator, value = override.partition("=")
    home = os.path.expanduser("~")
    return f"{key}{separator}" + re.sub(r"(?<![^\[{,:=\s'\"])~(?=/)", lambda _: home, value)


def _split(override: str) -> tuple[str, str]:
    check_depth(override)
    key, separator, value = override.partition("=")
    if key.startswith(("+", "~")):
        raise ConfigError(f"{override!r}: options can be changed, not added or removed; write {key.lstrip('+~')}=VALUE")
    if not separator:
        raise ConfigError(f"{override!r} is not an option: write key=value")
    return key, value


def _check_choices(group: str, value: str) -> None:
    choices = plugins.find_choices(group)
    for name in re.split(r"\s*,\s*", value.strip("'\"")):
        if name not in choices and not (name == "null" and GROUPS[group].is_optional):
            raise ConfigError(f"there is no {group} {name!r}. {did_you_mean(name, choices)}")


def find_unused_groups(model: Any) -> set[str]:
    """Returns the groups of mechanisms to which nothing in a model's options refers."""
    return {group for group in MECHANISMS if f"${{{group}}}" not in _collect_texts(model)}


def _collect_texts(node: Any) -> set[str]:
    if isinstance(node, Mapping):
        return {text for value in node.values() for text in _collect_texts(value)}
    return {node} if isinstance(node, str) else set()


def _read_first_sentence(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("#") and "@package" not in line:
                return line.lstrip("# ").strip()
    return ""
