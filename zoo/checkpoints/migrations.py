"""Formats of checkpoints: migrates older ones to the present one, and checks every part of the content."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor, strided

from zoo.config import legacy_names
from zoo.validation import ANY, COUNT, Predicate, ValidationError, abbreviate, validate

FORMAT = 4

_MOST_PARTS = 1_000_000
_LEAST_LIMIT = 1 << 20
_LEAVES = {str, int, float, bool, type(None), Tensor}
_CONTAINERS = {dict, list, tuple, OrderedDict}


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
    """The options of a network of the size `mini`, with those that the name had in format 1."""
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
    about = {**content["zoo"], "format": 4}
    if "config" in about:
        about["config"] = legacy_names.upgrade_config(about["config"])
    for part in ("state_dict", "trained"):
        if isinstance(weights := content.get(part), dict):
            content = {**content, part: {_rename_weight(name): weight for name, weight in weights.items()}}
    states = content.get("callbacks")
    if isinstance(states, dict):
        states = {_CALLBACKS_OF_3.get(name, name): state for name, state in states.items()}
        kept = states.get("CheckpointAndStop")
        if isinstance(kept, dict) and "waited" in kept:
            renamed = {"epochs_without_improvement" if key == "waited" else key: value for key, value in kept.items()}
            states["CheckpointAndStop"] = renamed
        content = {**content, "callbacks": states}
    return {**content, "zoo": about}


def _rename_weight(name: Any) -> Any:
    return _OLD_WEIGHT.sub("normalizer", name) if isinstance(name, str) else name


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _from_0, 1: _from_1, 2: _from_2, 3: _from_3}
"""Format -> the function that makes the next format of it."""


def migrate(content: dict[str, Any]) -> dict[str, Any]:
    """Migrates a content to the present format."""
    while (number := content["zoo"]["format"]) < FORMAT:
        if number not in MIGRATIONS:
            raise ValidationError(f"format {number} is not known")
        content = MIGRATIONS[number](content)
    return content


def drop_unused_weights(content: Mapping[str, Any], known: Collection[str]) -> dict[str, Tensor]:
    """The weights without those of an older format that had no effect and that the model no longer has.

    Args:
        known: The names of the model's weights.
    """
    unread = set(content["zoo"].get("unread", ())) - set(known)
    return {name: weight for name, weight in content["state_dict"].items() if name not in unread}


_ABOUT = {
    "version": str,
    "model": str,
    "config": {"model": dict, "data": dict, "names": {str: (str, None)}, "overrides": [str]},
    "data": {str: ANY},
    "sizes": {str: Predicate("a number of things", COUNT.holds)},
    "metrics": {str: float},
    "unread?": [str],
}

_DONE = {"ready": COUNT, "completed": COUNT}
_PROGRESS = {"total": _DONE, "current": _DONE}
_BATCHES = {f"{when}": {**_DONE, "started": COUNT, "processed": COUNT} for when in ("total", "current")}
_OPTIMIZER = {"step": _PROGRESS, "zero_grad": _PROGRESS}
_RELEASE = Predicate(
    "a release of Lightning 2", lambda each: type(each) is str and bool(re.fullmatch(r"2\.[\w.+]+", each))
)
_PLACE = {"epoch": COUNT, "position": COUNT}
_RESUMABLE = {
    "epoch": COUNT,
    "global_step": COUNT,
    "pytorch-lightning_version": _RELEASE,
    "zoo": {"config": {"init": (str, None), "penalty?": dict}},
    "loops": {
        "fit_loop": {
            "state_dict": {"combined_loader?": [_PLACE]},
            "epoch_loop.state_dict": {"_batches_that_stepped": COUNT},
            "epoch_loop.batch_progress": {**_BATCHES, "is_last_batch": bool},
            "epoch_loop.scheduler_progress": _PROGRESS,
            "epoch_loop.automatic_optimization.state_dict": dict,
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": {"step": _PROGRESS, "zero_grad": _PROGRESS}
            },
            "epoch_loop.manual_optimization.state_dict": dict,
            "epoch_loop.manual_optimization.optim_step_progress": _PROGRESS,
            "epoch_loop.val_loop.state_dict": dict,
            "epoch_loop.val_loop.batch_progress": {**_BATCHES, "is_last_batch": bool},
            "epoch_progress": _BATCHES,
        }
    },
    "callbacks": {
        "CheckpointAndStop": {
            "best_scores": {str: float},
            "epochs_without_improvement": COUNT,
            "seconds": float,
            "best_step": (COUNT, None),
        },
        "EMA?": {"updates": COUNT},
        "DataWaitTimer?": {"seconds": float},
    },
    "trained?": {str: Tensor},
    "optimizer_states": [{"state": {int: {str: ANY}}, "param_groups": [{"params": [COUNT]}]}],
    "lr_schedulers": [{str: ANY}],
    "exactly": {
        "generators": [{"torch": Tensor, "cuda": [Tensor], "python": [ANY], "numpy": {"keys": Tensor}}],
        "epoch_metrics": [
            {
                "sums": {str: {"value": Tensor, "count": (Tensor, None)}},
                "metrics": {str: {"updates": COUNT, "state": {str: ([Tensor], Tensor)}}},
            }
        ],
        "place": _PLACE,
    },
}
"""The content of a last.ckpt beside its weights. `exact_state.check` checks the parts that depend on the run."""


def check(content: Mapping[str, Any]) -> None:
    """Checks the types of all parts of a content."""
    about = content["zoo"]
    validate(about, _ABOUT, "zoo")
    validate(content, {"epoch?": COUNT, "global_step?": COUNT}, "content")
    _check_plain(about, "zoo")
    _check_plain({key: value for key, value in content.items() if key not in ("zoo", "state_dict")}, "content")
    for name, weight in content["state_dict"].items():
        if not isinstance(name, str) or not name.isprintable():
            raise ValidationError(f"a weight is called {abbreviate(name)}, which is not a name")
        if not isinstance(weight, Tensor) or weight.layout != strided or weight.device.type != "cpu":
            raise ValidationError(f"the weight {name!r} is not a plain tensor")


def check_resumable(content: Mapping[str, Any]) -> None:
    """Checks that a content, which `check` has passed, can be continued."""
    validate(content, _RESUMABLE, "content")
    exactly, weights = content["exactly"], content["state_dict"]
    if not 0 < len(exactly["generators"]) == len(exactly["epoch_metrics"]):
        raise ValidationError("content.exactly has not one state of the generators and of the metrics for each process")
    for name, weight in content.get("trained", {}).items():
        if name not in weights or weight.shape != weights[name].shape:
            raise ValidationError(f"content.trained.{name} is not of the shape of that weight")


def check_sizes(about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuses numbers in a configuration that as sizes would make a model far larger than its weights."""
    most = max(_LEAST_LIMIT, sum(weight.numel() for weight in weights.values()))
    waiting: list[tuple[str, Any]] = [("sizes", about["sizes"]), ("config.model", about["config"]["model"])]
    while waiting:
        where, each = waiting.pop()
        if type(each) is int and abs(each) > most:
            raise ValidationError(f"{where} is {each:,}, and the weights are {most:,} numbers at most")
        if isinstance(each, Mapping):
            waiting += [(f"{where}.{key}", value) for key, value in each.items()]
        elif isinstance(each, list | tuple):
            waiting += [(f"{where}.{number}", value) for number, value in enumerate(each)]


def _check_plain(node: Mapping[str, Any], root: str) -> None:
    """Checks that all values are of plain types, all keys texts or whole numbers, and the nesting is limited."""
    waiting: list[tuple[int, Any]] = [(0, node)]
    seen = 0
    while waiting:
        depth, each = waiting.pop()
        seen += 1
        if depth > legacy_names.DEEPEST:
            raise ValidationError(f"{root} is nested more than {legacy_names.DEEPEST} levels deep")
        if seen > _MOST_PARTS:
            raise ValidationError(f"{root} has more than {_MOST_PARTS:,} parts")
        if isinstance(each, Mapping):
            for key in each:
                if type(key) not in (str, int) or not str(key).isprintable():
                    raise ValidationError(
                        f"{root} has a key {abbreviate(key)}, which is neither a name nor a whole number"
                    )
        values = each.values() if isinstance(each, Mapping) else each
        for kind in set(map(type, values)) - _LEAVES - _CONTAINERS:
            raise ValidationError(f"{root} holds a {kind.__name__}")
        waiting += [(depth + 1, value) for value in values if type(value) in _CONTAINERS]
