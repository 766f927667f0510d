"""A model zoo, by domain, of what attention is used for.

import zoo

module = zoo.load("runs/gat-planted_graph/.../checkpoints/best.ckpt")
module = zoo.create("gat", attention="uniform")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.checkpoints.checkpoint import create as create
    from zoo.checkpoints.checkpoint import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "create", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `create` are imported when they are first used: `import zoo` is instant."""
    if name in ("create", "load"):
        from zoo.checkpoints import checkpoint

        return getattr(checkpoint, name)
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")
