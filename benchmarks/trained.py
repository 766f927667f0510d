"""A trained model and its data set, for figures that are measured on its checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zoo
from zoo.config.instantiate import build


def parsed(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Any]:
    """Adds what all of these benchmarks ask for, and returns the options with the model in evaluation mode."""
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--root", type=Path, help="folder of the published data")
    parser.add_argument("--out", type=Path, help="a JSON file of all figures")
    options = parser.parse_args()
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    return options, zoo.load(options.checkpoint).eval()


def data_of(about: Mapping[str, Any], root: Path | None, **changed: Any) -> Any:
    """Returns the checkpoint's own data, read with its vocabulary.

    Args:
        about: What the checkpoint says of its run.
        root: Folder of the published data. Default: as in training.
        changed: Options that differ from those of the training.
    """
    given = {} if root is None else {"root": str(root)}
    data: Any = build({**about["config"]["data"], **changed, **given}, "data")
    data.restore(about["data"])
    data.setup()
    return data
