"""Where the figures of a benchmark go."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.disk import write_text


def command() -> str:
    """As one would write it, without this machine's folders and without where the figures go."""
    data, words = os.environ.get("ZOO_DATA"), [word for word in sys.argv if not word.startswith("--out=")]
    return " ".join(["python", *("$ZOO_DATA" if word == data else word for word in words)])


def file(result: Mapping[str, Any], path: Path | None) -> None:
    """As JSON, if there is a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(result, indent=2) + "\n")
