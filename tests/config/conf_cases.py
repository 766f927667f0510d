"""Files of conf/ as tests read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from zoo.config.plugins import iter_files


def with_bases(path: Path) -> Any:
    """A file with what it takes from others of its group; the models' defaults are choices of other groups."""
    node = OmegaConf.merge(*map(OmegaConf.load, iter_files(path)))
    if path.parent.name != "model":
        node.pop("defaults", None)
    return node
