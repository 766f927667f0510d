"""One run: training, evaluating and resuming it, with its processes, callbacks and loggers."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "callbacks.ema": ["EMA"],
        "callbacks.checkpointing": ["CheckpointAndStop"],
        "loggers": ["MetricsFile", "tensorboard", "wandb"],
    },
)
