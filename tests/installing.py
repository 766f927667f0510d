"""Installing a package from its sources, as pip does, without a network and without a build backend."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

OUTSIDE = Path(__file__).parent / "outside_package"


def install(sources: Path, site: Path) -> None:
    """Puts the packages of a project into a folder of installed packages, with what its pyproject.toml says of it."""
    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for package in sources.glob("*/__init__.py"):
        shutil.copytree(package.parent, site / package.parent.name, ignore=shutil.ignore_patterns("__pycache__"))
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project.get("entry-points", {}).items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_for_the_session() -> None:
    """Installs `outside_package`, for this process and for those that it starts; they find it there already."""
    if any("zoo_recall" in os.listdir(each) for each in sys.path if os.path.isdir(each)):
        return
    site = Path(tempfile.mkdtemp(prefix="zoo-outside-"))
    install(OUTSIDE, site)
    sys.path.append(str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
