"""The code that made a result: versions of packages, and the commit of a checkout."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

from zoo import __version__


def versions() -> dict[str, str]:
    packages = ("torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "hydra-core", "numpy")
    return {"attention-zoo": __version__} | {name: version(name) for name in packages}


def commit_of_checkout() -> str | None:
    """The commit of the checkout that this code is in; None for an installed package."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    git = ["git", "-C", str(here)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changed.strip() else "")
