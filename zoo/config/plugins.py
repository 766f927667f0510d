"""Finds configurations: those of this project, and those of installed packages that add domains to it.

A package says in its pyproject.toml that it does:

    [project.entry-points."attention_zoo.domains"]
    recall = "zoo_recall"

Its public names (`zoo_recall.__all__`) may then be a `_target_`, and the YAML files under `zoo_recall/conf/` stand in
the same groups as ours. To find them nothing of the package is imported.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.config.groups import GROUPS
from zoo.errors import ConfigError, did_you_mean, quote_value

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

ENTRY_POINTS = "attention_zoo.domains"
_KNOWN = {prefix.partition(".")[0] for group in GROUPS.values() for prefix in group.allowed_prefixes}
"""The packages of which this project's own configurations have parts."""

_BASE = re.compile(r"^  - (?!_self_)([\w/]+)$", re.MULTILINE)
"""A base in the defaults list of a file."""
_PACKAGE = Path(__file__).resolve().parents[1]
# In a wheel the configurations are inside the package; in a checkout they are beside it.
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


class Package(NamedTuple):
    """An installed package that adds to the zoo.

    Args:
        name: As it is imported.
        distribution: As it was installed, with its version.
        conf: Its folder of configurations; None if it has none.
    """

    name: str
    distribution: str
    conf: Path | None


def find_packages() -> tuple[Package, ...]:
    """Returns every installed package that declares an entry point, in the order of their names."""
    return _find_packages(tuple(sys.path))


def find_package(target: str) -> Package | None:
    """Returns the installed package of which a dotted name is a member, public or not."""
    module = target.rpartition(".")[0]
    return next((package for package in find_packages() if package.name == module), None)


def explain_missing(target: Any) -> str | None:
    """Returns what to do about a name of a package that is not installed; None for all other names."""
    package = target.rpartition(".")[0] if isinstance(target, str) else ""
    top_level = package.partition(".")[0]
    if (
        not package.isprintable()
        or top_level in ("", *_KNOWN, *sys.stdlib_module_names)
        or find_package(target) is not None
    ):
        return None
    return f"No installed package adds {package!r} to the zoo: if you trust it, install the one that does"


def find_folders() -> tuple[Path, ...]:
    """Returns the folders with configurations: this project's first."""
    return _find_folders(CONF, find_packages())


def make_search_path() -> list[str]:
    """Returns the override that tells Hydra of the configurations of installed packages, if there are any."""
    _, *plugin_folders = find_folders()
    if not plugin_folders:
        return []
    return [f"hydra.searchpath=[{','.join(quote_value(f'file://{folder}') for folder in plugin_folders)}]"]


def find_choices(group: str) -> dict[str, Path]:
    """Returns the file of every choice of a group, by name."""
    return dict(sorted((path.stem, path) for folder in find_folders() for path in (folder / group).glob("*.yaml")))


def iter_files(path: Path) -> Iterator[Path]:
    """Yields a file of conf/ after the bases that its defaults list names."""
    folders = find_folders()
    group = next(path.parent.relative_to(folder) for folder in folders if path.is_relative_to(folder))
    for base in _BASE.findall(path.read_text(encoding="utf-8")):
        candidates = (folder / group / f"{base}.yaml" for folder in folders)
        yield from iter_files(next(file for file in candidates if file.is_file()))
    yield path


@functools.cache
def _find_packages(path: tuple[str, ...]) -> tuple[Package, ...]:
    section = f"[{ENTRY_POINTS}]".encode()
    entry_point_files = (file for folder in path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(section in file.read_bytes() for file in entry_point_files):
        return ()
    from importlib import metadata  # takes longer to import than everything else that a mistyped option needs

    packages: dict[str, Package] = {}
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.module):
        distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.name
        packages.setdefault(entry.module, Package(entry.module, distribution, _find_conf(entry.module)))
    return tuple(packages.values())


def _find_conf(package: str) -> Path | None:
    """Returns the folder of configurations beside a package's `__init__`."""
    spec = _find_spec(package)
    locations = spec.submodule_search_locations if spec is not None else None
    return next((Path(location) / "conf" for location in locations or () if (Path(location) / "conf").is_dir()), None)


def _find_spec(package: str) -> ModuleSpec | None:
    """Returns where a package is, without an import: that of `a.b` would import `a`."""
    import importlib.util
    from importlib.machinery import PathFinder

    top_level, *submodules = package.split(".")
    spec, name = importlib.util.find_spec(top_level), top_level
    for submodule in submodules:
        name = f"{name}.{submodule}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec is not None else None
    return spec


@functools.cache
def _find_folders(ours: Path, packages: Collection[Package]) -> tuple[Path, ...]:
    """Refuses a choice of which there are two, and a group that does not exist."""
    if not packages:
        return (ours,)
    owners = dict.fromkeys(_iter_files(ours), "this project")
    for package in packages:
        for path in _iter_files(package.conf) if package.conf is not None else ():
            if path.parts[0] not in GROUPS:
                problem = f"{package.distribution} is installed, and its file conf/{path} is in no group"
                raise ConfigError(f"{problem}. {did_you_mean(path.parts[0], GROUPS)}")
            if path in owners:
                problem = f"{owners[path]} and {package.distribution}, which is installed, both have a file conf/{path}"
                raise ConfigError(f"{problem}; rename one of them, or uninstall the package")
            owners[path] = package.distribution
    return (ours, *(package.conf for package in packages if package.conf is not None))


def _iter_files(folder: Path) -> Iterator[Path]:
    """Yields the configurations of a folder, by their paths in it."""
    return (path.relative_to(folder) for path in sorted(folder.rglob("*.yaml")))
