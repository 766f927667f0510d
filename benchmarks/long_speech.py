"""Error rates of a recogniser on recordings that are longer than those that it was trained on.

    python benchmarks/long_speech.py runs/.../checkpoints/best.ckpt --digits 7 20 60 --out long.json

The checkpoint's own data set is read with so many digits (`fsdd_strings`) or letters (`planted_tones`) in every
recording, with the vocabulary and features of the checkpoint. `--split val` reads recordings on which the search and
the window of location-aware attention may be chosen.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from trained import data_of, parsed

from zoo.attention import LocationAware
from zoo.decoding import GNMTLength
from zoo.io import write_text
from zoo.training import evaluation
from zoo.training.environment import find_commit
from zoo.training.setup import make_command_trainer

_LIMITS = (("fewest", "most"), ("shortest", "longest"))
"""Options of data sets for the least and the greatest number of parts of a recording."""
_PARTS = ("", "_low", "_high", "_substitutions", "_deletions", "_insertions")
_SHOWN = (*(f"wer{part}" for part in _PARTS), "cer", "unended", "monotonicity")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=int, nargs="+", default=[7, 20, 60], metavar="N", help="digits or letters")
    parser.add_argument("--held-out", type=int, default=100, metavar="N", help="recordings of each length")
    parser.add_argument("--beam", type=int, metavar="N", help="width of the search; default: that of the checkpoint")
    parser.add_argument("--alpha", type=float, metavar="A", help="exponent of the length in the ranking of the search")
    parser.add_argument(
        "--window", type=int, nargs="*", metavar="N", help="keys behind and ahead that attention sees; none: all keys"
    )
    parser.add_argument("--split", choices=("val", "test"), default="test")
    options, module = parsed(parser)
    _change(module, options)
    found = []
    for count in options.digits:
        data = _data(module.about, count, options.held_out, options.root)
        metrics = evaluation.evaluate(make_command_trainer(), module, data.loader(options.split), options.split)
        found.append({"digits": count, **metrics})
        shown = (f"{name} {metrics[f'{options.split}/{name}']:.4f}" for name in _SHOWN)
        print(f"{count:4d}  " + "  ".join(shown), flush=True)
    if options.out is not None:
        names = module.about["config"]["names"]
        about = {"model": names, "protocol": module.protocol(), "seed": module.about["config"]["seed"]}
        about |= {"held_out": options.held_out, "lengths": found, "command": _command(options)}
        about |= {"commit": find_commit()}
        write_text(options.out, json.dumps(about, indent=2) + "\n")


def _change(module: Any, options: argparse.Namespace) -> None:
    """Changes how the model writes, as far as the options say."""
    search = module.writing.search
    if options.beam is not None:
        search = replace(search, width=options.beam)
    if options.alpha is not None:
        search = replace(search, ranking=replace(search.ranking, length=GNMTLength(options.alpha)))
    module.writing = replace(module.writing, search=search)
    if options.window is not None:
        score = module.net.decoder.attention.attend.score
        if not isinstance(score, LocationAware) or len(options.window) not in (0, 2):
            raise SystemExit("--window takes two numbers, or none, and a model with location-aware attention")
        score.behind, score.ahead = options.window or (None, None)


def _command(options: argparse.Namespace) -> str:
    """Returns the command as a user would type it, without local folders."""
    words = ["python benchmarks/long_speech.py runs/.../checkpoints/best.ckpt --digits", *map(str, options.digits)]
    words += ["--held-out", str(options.held_out)]
    words += [] if options.beam is None else ["--beam", str(options.beam)]
    words += [] if options.alpha is None else ["--alpha", f"{options.alpha:g}"]
    words += [] if options.window is None else ["--window", *map(str, options.window)]
    return " ".join(words if options.split == "test" else [*words, "--split", options.split])


def _data(about: dict[str, Any], count: int, held_out: int, root: Path | None) -> Any:
    """Returns the data of a checkpoint, with so many parts in every recording."""
    node = about["config"]["data"]
    limits = next((names for names in _LIMITS if set(names) <= node.keys()), None)
    if limits is None:
        raise SystemExit(f"{node['_target_']} has no option for the length of its recordings; use fsdd_strings")
    none = {name: 1 for name in ("strings", "utterances") if name in node}
    return data_of(about, root, **dict.fromkeys(limits, count), **none, held_out=held_out)


if __name__ == "__main__":
    main()
