"""Where the figures of a benchmark go."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from zoo.attention.kernels.processor import PROCESSOR


def command() -> str:
    """As one would write it, without this machine's folders and without where the figures go."""
    data, words = os.environ.get("ZOO_DATA"), [word for word in sys.argv if not word.startswith("--out=")]
    return " ".join(["python", *("$ZOO_DATA" if word == data else word for word in words)])


def file(result: Mapping[str, Any], path: Path | None) -> None:
    """Says on what processor the figures were measured; with it, as JSON, if there is a path."""
    measured_on = {"name": PROCESSOR.name, "flags": PROCESSOR.flags, "threads": torch.get_num_threads()}
    print(f"{PROCESSOR.name} ({', '.join(PROCESSOR.flags)}), {measured_on['threads']} threads")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**result, "processor": measured_on}, indent=2) + "\n", encoding="utf-8")
