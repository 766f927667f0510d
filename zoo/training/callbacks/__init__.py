"""What watches a training run: keeps weights, averages them, stops, guards against NaN, shows progress."""

from zoo.training.callbacks.average import Average
from zoo.training.callbacks.keeper import Keeper
from zoo.training.callbacks.progress import Progress, Thaw, plain
from zoo.training.callbacks.stopping import Interruption, NanGuard

__all__ = ["Average", "Interruption", "Keeper", "NanGuard", "Progress", "Thaw", "plain"]
