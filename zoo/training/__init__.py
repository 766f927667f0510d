"""One run: training, evaluating and resuming it, with its processes, optimiser, callbacks and loggers."""

from zoo.lazy import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "callbacks.average": ["Average"],
        "callbacks.keeper": ["Keeper"],
        "loggers": ["MetricsFile", "tensorboard", "wandb"],
        "optimisation": ["Optimisation", "Schedule"],
    },
)
