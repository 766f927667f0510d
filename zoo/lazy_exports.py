"""Imports each public name of a package when it is first used.

A package whose names other modules import, such as `zoo.attention`, imports them under `TYPE_CHECKING`, for the type
checker and editors, and `import_lazily` reads them there:

    if TYPE_CHECKING:
        from zoo.attention.attention import Attention
    else:
        __getattr__ = import_lazily(__name__, __file__)

`exports` is for packages whose names are used by configurations alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str, names_by_module: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], list[str]]:
    """Returns the `__getattr__` and the `__all__` of a package (PEP 562).

    Configurations and checkpoints use public names alone, so that files can move.

    Args:
        package: The `__name__` of the package.
        names_by_module: Module -> the names that it defines.
    """
    modules = {name: f"{package}.{module}" for module, names in names_by_module.items() for name in names}
    return _make_getter(package, modules), sorted(modules)


def import_lazily(package: str, file: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package that imports its public names under `TYPE_CHECKING`.

    Args:
        package: The `__name__` of the package.
        file: Its `__file__`, whose source says which module has a name.
    """
    return _make_getter(package, read_homes(Path(file)))


def read_homes(file: Path) -> dict[str, str]:
    """Reads where the names are defined that a file imports under `TYPE_CHECKING`."""
    blocks = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    imports = [statement for block in blocks for statement in block.body if isinstance(statement, ast.ImportFrom)]
    return {name.name: statement.module or "" for statement in imports for name in statement.names}


def _make_getter(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    def get_export(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        member = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, member)
        return member

    return get_export
