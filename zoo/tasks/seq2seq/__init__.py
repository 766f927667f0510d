"""For all domains whose models write texts: the target side of a batch, its language, the task, its options."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "decoding_config": ["MaxLength"],
        "reinforce": ["ReinforceLoss"],
        "scheduled_sampling": ["ScheduledSampling"],
    },
)
