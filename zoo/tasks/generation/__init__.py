"""What domains share whose models write texts: the target side of a batch, its language, and the net's interface."""

from zoo.lazy import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "scheduled": ["ScheduledSampling"],
        "writing": ["Longest"],
    },
)
