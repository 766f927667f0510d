"""Where configurations come from: this project, and installed packages that add domains to it.

A package says in its pyproject.toml that it does:

    [project.entry-points."attention_zoo.domains"]
    recall = "zoo_recall"

Its public names (`zoo_recall.__all__`) may then be a `_target_`, and the YAML files under `zoo_recall/conf/` stand in
the same groups as ours. To find them nothing of the package is imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.config.groups import GROUPS
from zoo.errors import ConfigError, did_you_mean, quote_value

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

ENTRY_POINTS = "attention_zoo.domains"
_KNOWN = {each.partition(".")[0] for group in GROUPS.values() for each in group.allowed_prefixes}
"""The packages of which this project's own configurations have parts."""

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
    """Every installed package that declares an entry point, in the order of their names."""
    return _find_packages(tuple(sys.path))


def find_package(target: str) -> Package | None:
    """The installed package of which a dotted name is a member, public or not."""
    module = target.rpartition(".")[0]
    return next((each for each in find_packages() if each.name == module), None)


def explain_missing(target: Any) -> str | None:
    """What to do about a dotted name of a package that is not installed; None for all other names."""
    package = target.rpartition(".")[0] if isinstance(target, str) else ""
    first = package.partition(".")[0]
    if (
        not package.isprintable()
        or first in ("", *_KNOWN, *sys.stdlib_module_names)
        or find_package(target) is not None
    ):
        return None
    return f"No installed package adds {package!r} to the zoo: if you trust it, install the one that does"


def find_folders() -> tuple[Path, ...]:
    """The folders with configurations: this project's first."""
    return _find_folders(CONF, find_packages())


def make_search_path() -> list[str]:
    """The override that tells Hydra of the configurations of installed packages, if there are any."""
    _, *added = find_folders()
    return [f"hydra.searchpath=[{','.join(quote_value(f'file://{folder}') for folder in added)}]"] if added else []


def find_choices(group: str) -> dict[str, Path]:
    """Name -> file, of every choice of a group."""
    return dict(sorted((path.stem, path) for folder in find_folders() for path in (folder / group).glob("*.yaml")))


@functools.cache
def _find_packages(path: tuple[str, ...]) -> tuple[Package, ...]:
    section = f"[{ENTRY_POINTS}]".encode()
    declared = (file for folder in path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(section in file.read_bytes() for file in declared):
        return ()
    from importlib import metadata  # takes longer to import than everything else that a mistyped option needs

    found: dict[str, Package] = {}
    for each in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda each: each.module):
        distribution = f"{each.dist.name} {each.dist.version}" if each.dist is not None else each.name
        found.setdefault(each.module, Package(each.module, distribution, _find_conf(each.module)))
    return tuple(found.values())


def _find_conf(package: str) -> Path | None:
    """The folder of configurations beside a package's `__init__`."""
    spec = _find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return next((Path(each) / "conf" for each in places or () if (Path(each) / "conf").is_dir()), None)


def _find_spec(package: str) -> ModuleSpec | None:
    """Where a package is, without an import: that of `a.b` would import `a`."""
    import importlib.util
    from importlib.machinery import PathFinder

    first, *others = package.split(".")
    spec, name = importlib.util.find_spec(first), first
    for each in others:
        name = f"{name}.{each}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations) if spec is not None else None
    return spec


@functools.cache
def _find_folders(ours: Path, added: Collection[Package]) -> tuple[Path, ...]:
    """Refuses a choice of which there are two, and a group that does not exist."""
    if not added:
        return (ours,)
    owners = dict.fromkeys(_iter_files(ours), "this project")
    for package in added:
        for path in _iter_files(package.conf) if package.conf is not None else ():
            if path.parts[0] not in GROUPS:
                where = f"{package.distribution} is installed, and its file conf/{path} is in no group"
                raise ConfigError(f"{where}. {did_you_mean(path.parts[0], GROUPS)}")
            if path in owners:
                both = f"{owners[path]} and {package.distribution}, which is installed, both have a file conf/{path}"
                raise ConfigError(f"{both}; rename one of them, or uninstall the package")
            owners[path] = package.distribution
    return (ours, *(each.conf for each in added if each.conf is not None))


def _iter_files(folder: Path) -> Iterator[Path]:
    """The configurations of a folder, by their paths in it."""
    return (path.relative_to(folder) for path in sorted(folder.rglob("*.yaml")))
