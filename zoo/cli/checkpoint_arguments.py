"""Options that a command has for the model of one checkpoint: they are known once the checkpoint is."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import CheckpointError, ConfigError
from zoo.tasks.command_options import CommandOption


def find_checkpoint(arguments: Sequence[str]) -> Path | None:
    """The checkpoint among the arguments of a command, wherever it stands among the options and their values."""
    plain = [Path(each).expanduser() for each in arguments if each and not each.startswith("-")]
    signs: tuple[Callable[[Path], bool], ...] = (
        lambda each: each.is_file() and zipfile.is_zipfile(each),  # a pipe is not looked into
        lambda each: each.suffix == ".ckpt",
    )
    for sign in signs:
        for each in plain:
            if sign(each):
                return each
    return plain[0] if plain else None


def get_options(about: Mapping[str, Any], command: str, path: Path) -> list[CommandOption]:
    """Those that the model of a checkpoint and its data add to a command.

    Args:
        about: What the checkpoint says of itself.
        command: evaluate, predict or maps.
        path: Of the checkpoint.
    """
    from zoo.config import instantiate  # torch comes with it

    config = about["config"]
    try:
        task, data = (instantiate.resolve_class(config[part].get("_target_"), part) for part in ("model", "data"))
    except ConfigError as error:
        raise CheckpointError(
            f"{path}: its configuration does not describe a model of this version: {error}"
        ) from error
    if command != "predict":
        return [*task.decoding_options, *data.input_options]
    written = [] if data.written is None else [data.written]
    return [*written, *task.predict_options, *data.input_options]


def make_unknown_option_error(option: str, command: str, model: str, own: Sequence[CommandOption]) -> ConfigError:
    """Says that a command has no such option for a model, and which it has for it."""
    names = [f"--{each.name}" for each in own]
    has = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "none"
    name = option.partition("=")[0]
    shown = f"those that zoo {command} --help shows"
    return ConfigError(f"{name}: zoo {command} has no such option for {model}, which adds {has} to {shown}")
