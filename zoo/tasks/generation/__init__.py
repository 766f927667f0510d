"""For all domains whose models write texts: the target side of a batch, its language, decoders, a net."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "decoders.bahdanau": ["Bahdanau"],
        "decoders.luong": ["InputFeeding", "Luong"],
        "reward": ["Reward"],
        "scheduled": ["ScheduledSampling"],
        "writing": ["Longest"],
    },
)
