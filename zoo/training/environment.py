"""The environment of a result: versions of packages, and the commit of a checkout."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

from zoo import __version__

_ROOT = Path(__file__).resolve().parents[2]


def get_versions() -> dict[str, str]:
    packages = ("torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "hydra-core", "numpy")
    return {"attention-zoo": __version__} | {name: version(name) for name in packages}


def find_commit(root: Path = _ROOT) -> str | None:
    """Returns the commit of a checkout, with "+changes" if files differ from it; None if there is no checkout.

    Results that have been measured since are no change: they are not code, and a run writes them for the next one.

    Args:
        root: Folder of the checkout. Default: the one that this code is in; an installed package is in none.
    """
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    code = ["--", ".", ":(exclude)results/*/*.json"]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        status = subprocess.run([*git, "status", "--porcelain", "-uno", *code], capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if status.stdout.strip() else "")
