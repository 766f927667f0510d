"""Limits what the configuration of a checkpoint, which may come from a stranger, asks of the machine.

Who starts a command decides what it uses of the machine. From a checkpoint's configuration at most as many processes,
threads and workers are taken as there are processors, or eight; and data is read from files, never from a device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import ConfigError

_LEAST_CAP = 8
_OF_THE_MACHINE = ("trainer.devices", "trainer.num_nodes", "trainer.max_restarts", "threads", "data.num_workers")
_MOST_PIXELS = 1 << 21
"""Pixels of a batch of pictures, whose first layers have 64 numbers for each and more."""
_MOST_HYPOTHESES = 1 << 11
"""Hypotheses of all texts of a batch."""
_FREE = re.compile(r"null|auto|-1|''|\"\"")


def get_resource_cap() -> int:
    """The most processes, threads or workers that a checkpoint may ask for."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(_LEAST_CAP, processors)


def check_overrides(stored: Sequence[str], typed: Collection[str]) -> None:
    """Refuses overrides of a checkpoint that ask for more, unless the command itself gives these options.

    Args:
        stored: The overrides of the checkpoint.
        typed: The keys that the command gives.
    """
    for key, _, value in (each.partition("=") for each in stored):
        if key not in _OF_THE_MACHINE or key in typed or _FREE.fullmatch(value):
            continue
        most = get_resource_cap()
        if not value.isascii() or not value.isdecimal() or len(value) > 9 or int(value) > most:
            raise ConfigError(
                f"the checkpoint was trained with {key}={value}, and {most} are taken from a file at most; "
                f"say yourself how many it may be: {key}=NUMBER"
            )


def cap_data_config(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint's options of data, with a limited number of workers, and of examples in a batch.

    A device or pipe to read is refused.

    Args:
        about: The section `zoo` of the checkpoint.
    """
    config, state = about["config"], about["data"]
    found = dict(config["data"])
    search = config["model"].get("search")
    pixels = _size(state.get("height")) * _size(state.get("width"))
    hypotheses = _size(search.get("width")) if isinstance(search, Mapping) else 1
    if pixels > 1 or hypotheses > 1:
        asked = [found[name] for name in ("eval_batch_size", "batch_size") if type(found.get(name)) is int]
        most = min(_MOST_PIXELS // pixels, _MOST_HYPOTHESES // hypotheses)
        found["eval_batch_size"] = min([max(1, most), *asked[:1]])
    workers = found.get("num_workers")
    if type(workers) is int:
        found["num_workers"] = min(workers, get_resource_cap())
    for key, value in found.items():
        path = Path(value) if isinstance(value, str) and "\0" not in value and len(value) < 4096 else None
        if path is not None and os.path.exists(path) and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"the checkpoint reads its data from data.{key}={value}, which is no file; give a file")
    return found


def _size(value: Any) -> int:
    return value if type(value) is int and value > 0 else 1
