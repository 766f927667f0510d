"""Prints the results of a benchmark, and writes them to a JSON file."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from zoo.attention.cpu import PROCESSOR


def command() -> str:
    """Returns the command as a user would type it, without local folders and without `--out`."""
    data, words = os.environ.get("ZOO_DATA"), [word for word in sys.argv if not word.startswith("--out=")]
    return " ".join(["python", *("$ZOO_DATA" if word == data else shlex.quote(word) for word in words)])


def file(result: Mapping[str, Any], path: Path | None) -> None:
    """Prints the processor of the measurement, and writes results and processor to a JSON file if there is a path."""
    measured_on = {"name": PROCESSOR.name, "flags": PROCESSOR.flags, "threads": torch.get_num_threads()}
    print(f"{PROCESSOR.name} ({', '.join(PROCESSOR.flags)}), {measured_on['threads']} threads")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**result, "processor": measured_on}, indent=2) + "\n", encoding="utf-8")
