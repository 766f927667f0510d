"""Speech: what was said in a recording, and when."""

from zoo.lazy import exports

__getattr__, __all__ = exports(__name__, {})
