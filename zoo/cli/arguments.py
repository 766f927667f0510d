"""The arguments of commands, but for those that Hydra reads: their parser, and the options that a checkpoint adds."""

from __future__ import annotations

import argparse
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo import __version__
from zoo.cli.catalog import print_choices
from zoo.config.groups import GROUPS, LISTED
from zoo.data.encodings import ENCODINGS
from zoo.errors import CheckpointError, ConfigError, escape_control
from zoo.tasks.command_options import BATCH_OPTIONS, CommandOption

_CHECKPOINT_COMMANDS = ("evaluate", "predict", "maps")
_BUDGET = 2**30


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of a command, and as `command` the function that runs it."""
    if arguments[0] in _CHECKPOINT_COMMANDS:
        return _parse_with_checkpoint(arguments)
    return make_parser().parse_args(arguments)


def _parse_with_checkpoint(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses a command whose options are known once its checkpoint is. Errors in the other options come before."""
    path, parser = _find_checkpoint(arguments[1:]), make_parser()
    if path is None or not {"-h", "--help"} & set(arguments):
        options_so_far, _ = parser.parse_known_args(arguments)
        path = path or options_so_far.checkpoint
    from zoo.checkpoints import checkpoint

    content = checkpoint.read(path)
    metadata = content["zoo"]
    model_options = _get_model_options(metadata, arguments[0], path)
    parser = make_parser(model_options, metadata["model"])
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        if argument.startswith("-"):
            raise _make_unknown_option_error(argument, arguments[0], metadata["model"], model_options)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.known = ["on-bad-row", "encoding", *(option.name for option in (*BATCH_OPTIONS, *model_options))]
    options.content = content  # the command lets go of the weights once they are in the model
    return options


def make_parser(model_options: Sequence[CommandOption] = (), model: str = "") -> argparse.ArgumentParser:
    """Returns the parser of all commands but train and check, whose options Hydra reads.

    Args:
        model_options: Options that a model adds to the commands on its checkpoints.
        model: Its name.
    """
    parser = argparse.ArgumentParser(prog="zoo", description="A model zoo, by domain, of what attention is used for.")
    parser.add_argument("--version", action="version", version=f"zoo {__version__}")
    commands = parser.add_subparsers(title="commands", required=True)
    commands.add_parser("train", help="train a model: zoo train model=gat (the same as python train.py model=gat)")

    commands.add_parser("check", help="all that is wrong with options and data, and one batch: zoo check model=gat ...")

    commands.add_parser("baseline", help="what simple answers reach on data: zoo baseline data=text_table ...")

    groups = "\n".join(f"  {name:<12}{GROUPS[name].description}" for name in LISTED)
    listing = commands.add_parser(
        "list",
        help="what there is: models, data, attention, ...",
        epilog=f"groups:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    listing.add_argument("group", nargs="?", help="one of those below; all if not given")
    listing.set_defaults(command=lambda options: print_choices(options.group))

    evaluating = commands.add_parser("evaluate", help="the metrics of a checkpoint")
    _add_checkpoint(evaluating)
    evaluating.add_argument("--split", choices=("train", "val", "test"), default="test")
    evaluating.add_argument("--worst", type=int, default=0, metavar="N", help="the N worst examples, with their maps")
    evaluating.add_argument(
        "--out", type=_parse_path, help="also write the metrics to this JSON file, and tables beside it"
    )
    evaluating.set_defaults(command=_make_command("evaluate"))

    predicting = commands.add_parser("predict", help="answers for new examples, or for those of the training data")
    _add_checkpoint(predicting)
    predicting.add_argument(
        "--split", choices=("train", "val", "test", "all"), default="all", help="predict these alone"
    )
    predicting.add_argument(
        "--out", type=_parse_path, help="a .csv, .tsv, .jsonl or .txt file; the terminal if not given"
    )
    predicting.add_argument(
        "--format",
        choices=("text", "csv", "tsv", "jsonl"),
        help="of the output: text has a line of answers for each example; default: by the ending of --out",
    )
    predicting.set_defaults(command=_make_command("predict"))

    mapping = commands.add_parser("maps", help="attention maps: arrays, tables, pictures, scores")
    _add_checkpoint(mapping)
    mapping.add_argument("--out", type=_parse_path, required=True, help="the folder to write")
    mapping.add_argument("--heads", choices=("each", "mean"), default="each")
    mapping.add_argument("--layers", help="numbers or patterns of attention sites, separated by commas")
    mapping.add_argument(
        "--budget", type=int, default=_BUDGET, metavar="BYTES", help="of the maps of one example (default: 1 GiB)"
    )
    mapping.add_argument("--ids", help="examples to draw and describe, separated by commas")
    mapping.add_argument("--pictures", type=int, default=4, metavar="N", help="pictures to draw if no ids are given")
    mapping.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="most rows of a graph's tables (default: 2,000,000, and all edges of nodes that --ids names)",
    )
    mapping.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of tables")
    mapping.add_argument(
        "--faithfulness",
        type=int,
        nargs="?",
        const=100,
        metavar="N",
        help="measure whether the scored map says what answers depend on, for N examples (100) or those of --ids; "
        "with --pictures=0, nothing else",
    )
    mapping.add_argument("--overwrite", action="store_true", help="replace the maps that are in --out")
    mapping.set_defaults(command=_make_command("maps"))
    for command in (evaluating, predicting, mapping):
        if model_options:
            group = command.add_argument_group(f"options of {escape_control(model)}")
            for option in model_options:
                group.add_argument(f"--{option.name}", **option.keywords())
        if not model:
            command.epilog = "With a checkpoint, --help also shows the options of its model and data."
    return parser


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=_parse_path, help="such as runs/.../checkpoints/best.ckpt")
    input_help = "your own data in the form the model was trained on; if not given, the data it was trained on"
    parser.add_argument("input", type=_parse_path, nargs="*", help=input_help)
    parser.add_argument("--data", type=_parse_path, nargs="+", default=[], help="the same, by name")
    parser.add_argument(
        "--on-bad-row", choices=("error", "skip"), help="bad rows of your data: stop, or leave them out and count them"
    )
    parser.add_argument(
        "--encoding", choices=ENCODINGS, metavar="NAME", help="of your tables and texts, such as cp1252; default: utf-8"
    )
    for option in BATCH_OPTIONS:
        parser.add_argument(f"--{option.name}", **option.keywords())
    parser.add_argument("--root", type=_parse_path, help="where data sets are; default: $ZOO_DATA, or as in training")


def _parse_path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("it is empty (an unset shell variable?)")
    return Path(os.path.expanduser(text))


def _make_command(name: str) -> Callable[[argparse.Namespace], None]:
    def run(options: argparse.Namespace) -> None:
        from zoo.cli import commands

        commands.run_command(getattr(commands, name), options)

    return run


def _find_checkpoint(arguments: Sequence[str]) -> Path | None:
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


def _get_model_options(metadata: Mapping[str, Any], command: str, path: Path) -> list[CommandOption]:
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


def _make_unknown_option_error(
    option: str, command: str, model: str, model_options: Sequence[CommandOption]
) -> ConfigError:
    """Returns an error that says which options a command has for a model instead of an unknown one."""
    names = [f"--{entry.name}" for entry in model_options]
    listing = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "none"
    name = option.partition("=")[0]
    common = f"those that zoo {command} --help shows"
    return ConfigError(f"{name}: zoo {command} has no such option for {model}, which adds {listing} to {common}")
