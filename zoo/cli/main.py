"""The command line: zoo train | check | baseline | list | evaluate | predict | maps."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import __version__, memory
from zoo.config import compose, plugins
from zoo.config.groups import GROUPS, LISTED
from zoo.console import name_streams
from zoo.data.encodings import ENCODINGS
from zoo.errors import ConfigError, InterruptedRunError, ZooError, did_you_mean, escape_control, truncate
from zoo.tasks.command_options import BATCH_OPTIONS

if TYPE_CHECKING:
    from zoo.tasks.command_options import CommandOption

_CHECKPOINT_COMMANDS = ("evaluate", "predict", "maps")
_BUDGET = 2**30
_VALUED_FLAGS = ("--cfg", "-c", "--info", "-i", "--package", "-p")
_TRAIN_USAGE = "usage: python train.py model=NAME [key=value ...]        (or zoo train ...)"
_CHECK_USAGE = """\
usage: zoo check model=NAME [key=value ...]              (or python train.py ... check=true)

Says what the data hold and everything that is wrong with them and with the options, computes one batch, and trains
nothing. It takes the options of zoo train:"""
_BASELINE_USAGE = """\
usage: zoo baseline data=NAME [key=value ...]

Measures simple answers on the splits and by the metrics of a training run, in seconds: TF-IDF with logistic regression
for texts with labels, the most frequent label or text, popularity, a copy of the source. It prints them, and writes
baseline.json to run_dir. It takes the options of zoo train; the model decides what is measured, and may be left out:"""
_TRAIN_HELP = """\
  model=NAME        what to train; zoo list shows all names
  data=NAME         on what, if not on the model's own default data
  attention=NAME    another mechanism
  gate=NAME         another gate, in convolutional networks
  experiment=NAME   a published recipe, which names its model and data; or a file of your own, mine.yaml
  init=CKPT         start from trained weights; labels and features are matched by name;
                    init=torchvision:resnet50: from published ones
  resume=CKPT       continue a run from its last.ckpt; resume=auto: the newest unfinished run of these options,
                    or that of run_dir; a new run if there is none
  check=true        look for everything that is wrong with options and data, try one batch, train nothing
  run_dir=PATH      where the run goes; runs/<model>-<data>/<time> if not given
  key=value         any other option, such as data.max_epochs=50 or optimizer.lr=0.01

  --help            after model=NAME: all options of that model, with what they mean
  --cfg job         shows the options of a run with their values, and trains nothing
  -m                runs every combination of values with commas: seed=0,1,2"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. A ZooError prints one message and gives exit code 2, an interruption 130."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    with _format_warnings(), name_streams():
        return _main(arguments)


def _main(arguments: list[str]) -> int:
    try:
        try:
            return _dispatch(arguments)
        finally:  # argparse exits
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has seen enough
        return 0
    except UnicodeEncodeError as error:
        characters = error.object[error.start : error.end]
        return _fail(f"{error.encoding}, the encoding of the output, lacks {characters!r}; set PYTHONIOENCODING=utf-8")
    except ZooError as error:
        if os.environ.get("ZOO_DEBUG") == "1":
            raise
        return _fail(str(error), 130 if isinstance(error, InterruptedRunError) else 2)
    except Exception as error:
        # a file that cannot be read or written is the user's affair, not a fault of the program
        names_a_file = isinstance(error, OSError) and error.filename is not None
        if os.environ.get("ZOO_DEBUG") == "1" or not (names_a_file or memory.is_out_of_memory(error)):
            raise
        if isinstance(error, OSError) and names_a_file:
            return _fail(f"{error.filename}: {error.strerror}")
        return _fail(str(memory.explain(error, _advise_on_memory(arguments))))
    except KeyboardInterrupt:
        return _fail("stopped", 130)


def _fail(message: str, code: int = 2) -> int:
    """Prints a message; returns the exit code."""
    with suppress(OSError):  # nobody reads what is said
        print(f"zoo: {message}", file=sys.stderr, flush=True)
    return code


def _advise_on_memory(arguments: list[str]) -> str:
    """Returns what to lower where the memory does not suffice for a command."""
    if arguments[:1] == ["maps"]:
        return "lower --budget, name fewer examples with --ids, or shorten them"
    if arguments[0] not in ("train", "check"):
        return "lower --batch-size, give fewer inputs at a time, or shorter ones"
    try:
        _, overrides = split_flags(arguments[1:])
        return memory.advise(compose.compose(compose.expand_experiments(add_checkpoint_overrides(overrides)))["data"])
    except (ZooError, MemoryError):
        return memory.advise(())


def _dispatch(arguments: list[str]) -> int:
    for name in ("ZOO_DATA", "ZOO_CACHE"):
        if name in os.environ:
            os.environ[name] = os.path.expanduser(os.environ[name])
    if arguments[:1] == ["train"]:
        return train(arguments[1:])
    if arguments[:1] == ["check"]:
        return train([*arguments[1:], "check=true"])
    if arguments[:1] == ["baseline"]:
        return _baseline(arguments[1:])
    return _run(arguments)


@contextmanager
def _format_warnings() -> Iterator[None]:
    """Prints warnings of this package without the line of code that raises them, inside its context."""
    default_format = warnings.formatwarning

    def format_warning(message: Any, category: Any, filename: str, *rest: Any, **named: Any) -> str:
        if Path(filename).is_relative_to(Path(__file__).parents[1]):
            return f"zoo: {truncate(escape_control(message))}\n"
        return default_format(message, category, filename, *rest, **named)

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = default_format


def train(overrides: list[str]) -> int:
    """Composes with Hydra, then trains. `--help`, `--cfg job` and `-m` are Hydra's."""
    flags, overrides = split_flags(overrides)
    wants_help = bool({"-h", "--help"} & set(flags))
    usage = f"{_CHECK_USAGE if 'check=true' in overrides else _TRAIN_USAGE}\n\n{_TRAIN_HELP}"
    if wants_help and set(overrides) <= {"check=true"}:
        print(usage)
        return 0
    overrides = compose.expand_experiments(add_checkpoint_overrides(overrides))
    if wants_help:
        from zoo.config import help

        print("\n".join([usage, "", *help.describe_options(overrides)]))
        return 0
    if not flags and (compose.get_value(overrides, "check") or "").lower() == "true":
        from zoo.training import preflight

        preflight.show(overrides)
        return 0
    if set(flags) in ({"-m"}, {"--multirun"}):
        from zoo.sweeps import sweep

        return sweep.run(overrides)
    if not flags:
        config = compose.compose(overrides)  # mistyped options are reported before slow imports
        from zoo.training import run
        from zoo.training.run_config import RunConfig

        run.train(RunConfig(config))
        return 0
    compose.check_overrides([override for override in overrides if not override.startswith("hydra")])
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    failure: list[ZooError] = []

    def task(config: Any) -> None:
        choices = HydraConfig.get().runtime.choices
        tasks = list(HydraConfig.get().overrides.task)
        try:
            from zoo.training import run
            from zoo.training.run_config import RunConfig

            run.train(RunConfig(compose.to_plain_dict(config, choices, tasks)))
        except ZooError as error:
            failure.append(error)

    sys.argv = [sys.argv[0], *flags, *overrides, *plugins.make_search_path()]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come out of it, to be reported as all others are
    try:
        hydra.main(version_base="1.3", config_path=str(plugins.CONF), config_name="train")(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error).strip().splitlines()[0]) from error
    if failure:
        raise failure[0]
    return 0


def _baseline(overrides: list[str]) -> int:
    """Measures simple answers on the data of a command that would train a model."""
    if {"-h", "--help"} & set(overrides):
        print(f"{_BASELINE_USAGE}\n\n{_TRAIN_HELP}")
        return 0
    from zoo.training import baselines

    baselines.run(compose.expand_experiments(overrides))
    return 0


def split_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the flags, each with its value (`--cfg job`), and the overrides."""
    flags: list[str] = []
    overrides: list[str] = []
    previous = ""
    for argument in arguments:
        is_flag = argument.startswith("-") or (previous in _VALUED_FLAGS and "=" not in argument)
        (flags if is_flag else overrides).append(argument)
        previous = argument
    return flags, overrides


def add_checkpoint_overrides(overrides: list[str]) -> list[str]:
    """Adds the overrides of the checkpoint that a run starts from, if the command names no model."""
    keys = {override.partition("=")[0] for override in overrides}
    origin = compose.get_value(overrides, "resume") or compose.get_value(overrides, "init")
    if origin == "auto":  # a new run begins in an empty directory, and needs a model
        last_checkpoint = Path(compose.get_value(overrides, "run_dir") or ".") / "checkpoints" / "last.ckpt"
        origin = str(last_checkpoint) if "run_dir" in keys and last_checkpoint.exists() else None
    if origin in (None, "null") or keys & {"model", "experiment"}:
        return overrides
    from zoo.checkpoints import checkpoint, untrusted
    from zoo.checkpoints.finetune import is_published
    from zoo.config import instantiate

    if is_published(origin):
        raise ConfigError(f"init={origin}: say for which model: model=NAME")

    config = checkpoint.read(origin)["zoo"]["config"]
    instantiate.check_installed(config)
    resumes = compose.get_value(overrides, "resume") is not None
    stored_overrides = compose.get_resume_overrides(config) if resumes else compose.get_model_overrides(config)
    untrusted.check_overrides(stored_overrides, keys)
    return [*stored_overrides, *overrides]


def _run(arguments: list[str]) -> int:
    parser = argument_parser()
    if not arguments:
        parser.print_help()
        return 2
    if arguments[0] in _CHECKPOINT_COMMANDS:
        return _run_on_checkpoint(parser, arguments)
    options = parser.parse_args(arguments)
    options.command(options)
    return 0


def _run_on_checkpoint(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Runs a command whose options are known once its checkpoint is. Errors in the other options come before."""
    from zoo.cli import checkpoint_arguments

    path = checkpoint_arguments.find_checkpoint(arguments[1:])
    if path is None or not {"-h", "--help"} & set(arguments):
        options_so_far, _ = parser.parse_known_args(arguments)
        path = path or options_so_far.checkpoint
    from zoo.checkpoints import checkpoint

    content = checkpoint.read(path)
    metadata = content["zoo"]
    model_options = checkpoint_arguments.get_options(metadata, arguments[0], path)
    parser = argument_parser(model_options, metadata["model"])
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        if argument.startswith("-"):
            raise checkpoint_arguments.make_unknown_option_error(
                argument, arguments[0], metadata["model"], model_options
            )
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.known = ["on-bad-row", "encoding", *(option.name for option in (*BATCH_OPTIONS, *model_options))]
    options.content = content
    del content, metadata  # the command lets go of the weights once they are in the model
    options.command(options)
    return 0


def argument_parser(model_options: Sequence[CommandOption] = (), model: str = "") -> argparse.ArgumentParser:
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
    listing.set_defaults(command=_print_choices)

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


def _print_choices(options: argparse.Namespace) -> None:
    if options.group is not None and options.group not in LISTED:
        raise ConfigError(f"there is no group {options.group!r}. {did_you_mean(options.group, LISTED)}")
    for group in (options.group,) if options.group else LISTED:
        choices = compose.describe_choices(group)
        width = max(map(len, choices), default=0)
        print(f"{group}=")
        for name, sentence in choices.items():
            print(f"  {name:<{width}}  {sentence}")
        if group == "attention":
            from zoo.cli import mechanism_catalog

            print("\n".join(mechanism_catalog.table()))
