"""What watches a training run: keeps weights, averages them, stops, guards against NaN, shows progress."""

from zoo.callbacks.average import Average
from zoo.callbacks.keeper import Keeper
from zoo.callbacks.progress import Progress, Thaw, plain
from zoo.callbacks.stopping import Interruption, NanGuard

__all__ = ["Average", "Interruption", "Keeper", "NanGuard", "Progress", "Thaw", "plain"]
