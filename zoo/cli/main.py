"""The command line: zoo train | check | baseline | list | evaluate | predict | maps."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoo import memory
from zoo.config import compose, plugins
from zoo.console import name_streams
from zoo.errors import ConfigError, InterruptedRunError, ZooError, escape_control, truncate

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
    from zoo.cli.arguments import make_parser, parse_arguments

    if not arguments:
        make_parser().print_help()
        return 2
    options = parse_arguments(arguments)
    options.command(options)
    return 0


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
        from zoo.cli import catalog

        print("\n".join([usage, "", *catalog.describe_options(overrides)]))
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
