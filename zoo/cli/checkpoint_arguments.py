"""Finds the checkpoint among the arguments of a command, and the options that its model and data add."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import CheckpointError, ConfigError
from zoo.tasks.command_options import CommandOption


def find_checkpoint(arguments: Sequence[str]) -> Path | None:
    """Returns the checkpoint among the arguments of a command, wherever it stands among options and their values."""
    paths = [Path(argument).expanduser() for argument in arguments if argument and not argument.startswith("-")]
    conditions: tuple[Callable[[Path], bool], ...] = (
        lambda path: path.is_file() and zipfile.is_zipfile(path),  # a pipe is not looked into
        lambda path: path.suffix == ".ckpt",
    )
    for is_checkpoint in conditions:
        for path in paths:
            if is_checkpoint(path):
                return path
    return paths[0] if paths else None


def get_options(metadata: Mapping[str, Any], command: str, path: Path) -> list[CommandOption]:
    """Returns the options that the model of a checkpoint and its data add to a command.

    Args:
        metadata: What the checkpoint says of itself.
        command: evaluate, predict or maps.
        path: Of the checkpoint.
    """
    from zoo.config import instantiate  # torch comes with it

    config = metadata["config"]
    try:
        task, data = (instantiate.resolve_class(config[part].get("_target_"), part) for part in ("model", "data"))
    except ConfigError as error:
        raise CheckpointError(
            f"{path}: its configuration does not describe a model of this version: {error}"
        ) from error
    if command != "predict":
        return [*task.decoding_options, *data.input_options]
    text_options = [] if data.written is None else [data.written]
    return [*text_options, *task.predict_options, *data.input_options]


def make_unknown_option_error(
    option: str, command: str, model: str, model_options: Sequence[CommandOption]
) -> ConfigError:
    """Returns an error that says which options a command has for a model instead of an unknown one."""
    names = [f"--{entry.name}" for entry in model_options]
    listing = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "none"
    name = option.partition("=")[0]
    common = f"those that zoo {command} --help shows"
    return ConfigError(f"{name}: zoo {command} has no such option for {model}, which adds {listing} to {common}")
