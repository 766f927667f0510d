"""Formats of checkpoints: migrates older ones to the present one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor

from zoo.config import legacy_names
from zoo.validation import ValidationError

FORMAT = 6

_UNREAD_IN_1 = re.compile(
    r"\.mixer\.(back|out_back)\b|\.mixer\.(query|key)\.|\.position\.table$|\.layers\.\d+\.target\b"
)
"""Weights of format 1 that had no effect: of the backward pass in causal mixers, and of queries, keys and positions
in mechanisms that compare nothing."""
_MINI_IN_1: dict[str, dict[str, Any]] = {
    "zoo.tasks.vision.cct.CCT": {"kernel": 3, "convolutions": 2},
    "zoo.tasks.vision.swin.Swin": {"layers": [2, 4]},
}
"""Options that the size `mini` had in format 1 and no longer has."""


_OLD_WEIGHT = re.compile(r"(?<=\.)normalise(?=\.)")
"""The part of a weight's name that is `normalizer` since format 4."""
_CALLBACKS_OF_3 = {"Keeper": "CheckpointAndStop", "Average": "EMA", "Waiting": "DataWaitTimer"}
"""The names that callbacks had up to format 3."""


def _from_0(content: dict[str, Any]) -> dict[str, Any]:
    """Format 0, from before the first release, had the sizes among the data, and no metrics."""
    about = dict(content["zoo"])
    data = dict(about.get("data") or {})
    about["sizes"] = about.get("sizes", data.pop("sizes", None))
    return {**content, "zoo": {"version": "0.0", "metrics": {}, **about, "data": data, "format": 1}}


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had weights that no output depended on, and sizes whose names have another meaning today.

    Models no longer have these weights: `drop_unused_weights` leaves them out. Options behind a name are written out.
    """
    unread = [name for name in content["state_dict"] if isinstance(name, str) and _UNREAD_IN_1.search(name)]
    about = {**content["zoo"], "format": 2, "unread": unread}
    config = about.get("config")
    model = config.get("model") if isinstance(config, dict) else None
    if isinstance(config, dict) and isinstance(model, dict) and model.get("size") == "mini":
        about["config"] = {**config, "model": {**model, "net": _expand_mini(model.get("net"))}}
    return {**content, "zoo": about}


def _expand_mini(net: Any) -> Any:
    """Returns the options of a network of the size `mini`, with those that the name had in format 1."""
    meant = _MINI_IN_1.get(str(net.get("_target_")), {}) if isinstance(net, dict) else {}
    return {**net, **{name: value for name, value in meant.items() if net.get(name) is None}} if meant else net


def _from_2(content: dict[str, Any]) -> dict[str, Any]:
    """Format 2 named parts by their modules; now their packages export them, so that files may move.

    A configuration also had groups for which its model has no place.
    """
    about = {**content["zoo"], "format": 3}
    config = about.get("config")
    if isinstance(config, dict) and isinstance(config.get("names"), dict):
        used = {key: value for key, value in config.items() if config["names"].get(key, "") is not None}
        about["config"] = legacy_names.upgrade_targets(used)
    return {**content, "zoo": about}


def _from_3(content: dict[str, Any]) -> dict[str, Any]:
    """Format 3 had other public names, under some of which callbacks keep their states."""
    content = _upgrade_names(content, 4)
    for part in ("state_dict", "trained"):
        if isinstance(weights := content.get(part), dict):
            content = {**content, part: {_rename_weight(name): weight for name, weight in weights.items()}}
    states = content.get("callbacks")
    if isinstance(states, dict):
        states = {_CALLBACKS_OF_3.get(name, name): state for name, state in states.items()}
        checkpointing = states.get("CheckpointAndStop")
        if isinstance(checkpointing, dict) and "waited" in checkpointing:
            renamed = {
                "epochs_without_improvement" if key == "waited" else key: value for key, value in checkpointing.items()
            }
            states["CheckpointAndStop"] = renamed
        content = {**content, "callbacks": states}
    return content


def _from_4(content: dict[str, Any]) -> dict[str, Any]:
    """Format 4 had the section `optimization` under a British name."""
    return _upgrade_names(content, 5)


def _from_5(content: dict[str, Any]) -> dict[str, Any]:
    """Format 5 had other public names of domains, and no package `zoo.nn`."""
    return _upgrade_names(content, 6)


def _upgrade_names(content: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns a content of this format, whose configuration has the names of today."""
    about = {**content["zoo"], "format": number}
    if "config" in about:
        about["config"] = legacy_names.upgrade_config(about["config"])
    return {**content, "zoo": about}


def _rename_weight(name: Any) -> Any:
    return _OLD_WEIGHT.sub("normalizer", name) if isinstance(name, str) else name


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = dict(
    enumerate((_from_0, _from_1, _from_2, _from_3, _from_4, _from_5))
)
"""Format -> the function that makes the next format of it."""


def migrate(content: dict[str, Any]) -> dict[str, Any]:
    """Migrates a content to the present format."""
    while (number := content["zoo"]["format"]) < FORMAT:
        if number not in MIGRATIONS:
            raise ValidationError(f"format {number} is not known")
        content = MIGRATIONS[number](content)
    return content


def drop_unused_weights(content: Mapping[str, Any], known: Collection[str]) -> dict[str, Tensor]:
    """Drops the weights of an older format that had no effect and that the model no longer has.

    Args:
        known: The names of the model's weights.
    """
    unread = set(content["zoo"].get("unread", ())) - set(known)
    return {name: weight for name, weight in content["state_dict"].items() if name not in unread}
