"""A model zoo of attention, by domain.

import zoo

module = zoo.load("runs/gat-planted_graph/.../checkpoints/best.ckpt")
module = zoo.create("gat", attention="uniform")
"""

from typing import TYPE_CHECKING

from zoo.lazy_exports import exports

if TYPE_CHECKING:
    from zoo.checkpoints.checkpoint import create as create
    from zoo.checkpoints.checkpoint import load as load

__version__ = "0.1.0"
__getattr__, __all__ = exports(__name__, {"checkpoints.checkpoint": ["create", "load"]})
__all__ += ["__version__"]
