"""Renames the parts of configurations from before format 3, which named modules, to their public names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo.forms import MalformedError

DEEPEST = 64
"""Levels of nesting that a checkpoint may have."""
_MODULES = {
    "zoo.tasks.graph": "data module net",
    "zoo.tasks.vision": "cct data module resnet swin torchvision_cnn transforms vit",
    "zoo.tasks.recommendation": "click data din losses next_item protocol sasrec",
}
"""Package -> modules that are no longer part of its public names."""
_PUBLIC = {f"{package}.{module}.": f"{package}." for package, modules in _MODULES.items() for module in modules.split()}
_PUBLIC |= dict.fromkeys(("zoo.callbacks.", "zoo.loggers.", "zoo.optimisation."), "zoo.training.")
_PREFIX = "|".join([*map(re.escape, _PUBLIC), r"zoo\.attention\.[a-z_]+\."])
_OLD = re.compile(rf"(?<![\w.])(?:{_PREFIX})(?=[A-Za-z]\w*(?![\w.]))")


def renamed(node: Any, depth: int = 0) -> Any:
    """A configuration in which every part has its public name, also inside overrides."""
    if depth > DEEPEST:
        raise MalformedError(f"a configuration is nested more than {DEEPEST} levels deep")
    if isinstance(node, str):
        return _OLD.sub(lambda found: _PUBLIC.get(found[0], "zoo.attention."), node)
    if isinstance(node, Mapping):
        return {key: renamed(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [renamed(value, depth + 1) for value in node]
    return node
