"""Optimizer, schedule, frozen layers and rates by layer, in one object that serves every domain."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import pytorch_lightning as pl
import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from zoo.errors import ConfigError, did_you_mean
from zoo.types import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveFraction, validate_ranges

if TYPE_CHECKING:
    from zoo.tasks.base import Task


__all__ = ["LRSchedule", "OptimizerConfig"]


@validate_ranges
class OptimizerConfig:
    """Builds the optimizer of a module, which calls `configure` in its `configure_optimizers`.

    Args:
        optimizer: `parameters -> Optimizer`.
        scheduler: The schedule of the learning rate; None keeps it constant.
        freeze: Patterns of the names of parameters that are not trained ("net.layers.0.*"; a prefix is enough).
        unfreeze: Epoch -> patterns of the parameters that are trained from then on.
        lr_multipliers: Pattern -> factor on the learning rate; the last pattern that matches a parameter counts.
        layer_decay: Factor on the learning rate from one stage of the model to the one before it, for models that
            have stages; the last stage keeps the rate (Clark et al. 2020, section 3.1: layer-wise learning rates).
        no_weight_decay: Patterns of the names of parameters without weight decay, such as "*.bias".
    """

    def __init__(
        self,
        *,
        optimizer: Callable[..., torch.optim.Optimizer],
        scheduler: LRSchedule | None = None,
        freeze: Sequence[str] = (),
        unfreeze: Mapping[int, Sequence[str]] | None = None,
        lr_multipliers: Mapping[str, NonNegativeFloat] | None = None,
        layer_decay: PositiveFraction = 1.0,
        no_weight_decay: Sequence[str] = (),
    ) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.freeze = tuple(freeze)
        self.unfreeze = {int(epoch): tuple(patterns) for epoch, patterns in (unfreeze or {}).items()}
        self.lr_multipliers = dict(lr_multipliers or {})
        self.layer_decay = layer_decay
        self.no_weight_decay = tuple(no_weight_decay)
        self._never: set[str] | None = None

    def configure(self, module: pl.LightningModule) -> Any:
        """Makes the optimizer of all parameters, also of frozen ones, which get no gradient until they are unfrozen."""
        self.apply_freezing(module, epoch=0)
        for pattern in self.lr_multipliers:
            _match_names(module, pattern, "optimization.lr_multipliers")
        undecayed: set[str] = set()
        for pattern in self.no_weight_decay:
            undecayed |= _match_names(module, pattern, "optimization.no_weight_decay")
        by_depth = self._make_depth_factor(module)
        kinds = {n: (self._find_factor(n) * by_depth(n), n not in undecayed) for n, _ in module.named_parameters()}
        base = self.optimizer([torch.nn.Parameter(torch.zeros(1))]).defaults["lr"]
        groups: list[dict[str, Any]] = []
        for factor, decays in sorted(set(kinds.values()), reverse=True):
            chosen = [p for n, p in module.named_parameters() if kinds[n] == (factor, decays)]
            groups.append({"params": chosen, "lr": base * factor, **({} if decays else {"weight_decay": 0.0})})
        optimizer = self.optimizer(groups)
        if self.scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self.scheduler.configure(optimizer, module)}

    def apply_freezing(self, module: pl.LightningModule, epoch: int) -> None:
        """Sets which parameters are trained in this epoch. Those that a net made without gradients never are."""
        frozen = self.find_frozen(module, epoch)
        if frozen and all(name in frozen for name, _ in module.named_parameters()):
            raise ConfigError(f"optimization.freeze: in epoch {epoch} every parameter is frozen; leave some to train")
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name not in frozen)
        module.train(module.training)  # a frozen batch norm does not gather statistics: see Task.train

    def find_frozen(self, module: pl.LightningModule, epoch: float) -> set[str]:
        """Returns the names of the parameters that are not trained in an epoch."""
        if self._never is None:
            self._never = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
        frozen: set[str] = set()
        for pattern in self.freeze:
            frozen |= _match_names(module, pattern, "optimization.freeze")
        for start, patterns in self.unfreeze.items():
            for pattern in patterns:
                thawed = _match_names(module, pattern, "optimization.unfreeze")
                frozen -= thawed if epoch >= start else set()
        return frozen | self._never

    def _find_factor(self, name: str) -> float:
        return next((f for pattern, f in reversed(self.lr_multipliers.items()) if _matches(name, pattern)), 1.0)

    def _make_depth_factor(self, module: pl.LightningModule) -> Callable[[str], float]:
        """Parameter name -> factor by `layer_decay`. Parameters of no stage, such as positions, belong to the first."""
        if self.layer_decay == 1:
            return lambda name: 1.0
        groups = list(getattr(module, "layer_groups", tuple)())
        if not groups:
            raise ConfigError(
                "optimization.layer_decay: this model has no groups of layers; use optimization.lr_multipliers"
            )

        def factor(name: str) -> float:
            depth = next((number for number, group in enumerate(groups) if _matches(name, group)), 0)
            return self.layer_decay ** (len(groups) - 1 - depth)

        return factor


class GradualUnfreezing(pl.Callback):
    """Unfreezes layers at the start of the epoch that `optimization.unfreeze` gives them."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        cast("Task", pl_module).optimization.apply_freezing(pl_module, trainer.current_epoch)


@validate_ranges
class LRSchedule:
    """A linear warm-up, then a constant rate, cosine decay to `min_lr_ratio`, 1/sqrt(step), or steps at milestones.

    `plateau` multiplies the rate by `gamma` after `patience` epochs in which `monitor` did not improve.

    Args:
        monitor: The metric that `plateau` watches; None for the module's primary metric.
        mode: Whether a higher or lower value of the monitor is better; None for the module's own answer.
        warmup: The number of steps; below 1, a share of all steps.
        milestones: The shares of all steps at which `steps` multiplies the rate by `gamma`.
    """

    def __init__(
        self,
        kind: Literal["constant", "cosine", "inverse_sqrt", "steps", "plateau"] = "constant",
        *,
        warmup: NonNegativeFloat = 0,
        min_lr_ratio: NonNegativeFloat = 0.0,
        gamma: PositiveFloat = 0.5,
        patience: NonNegativeInt = 10,
        monitor: str | None = None,
        mode: Literal["min", "max"] | None = None,
        milestones: Sequence[Fraction] = (),
    ) -> None:
        kinds = ("constant", "cosine", "inverse_sqrt", "steps", "plateau")
        if kind not in kinds:
            raise ConfigError(f"there is no schedule {kind!r}. {did_you_mean(kind, kinds)}")
        if kind == "plateau" and warmup:
            message = "scheduler=plateau takes no warm-up, because its rate follows the monitor and not the step"
            raise ConfigError(f"{message}: write scheduler.warmup=0")
        if warmup >= 1 and warmup != int(warmup):
            raise ConfigError(f"scheduler.warmup={warmup}: write a whole number of steps, or a share of all below 1")
        if any(not 0 < milestone < 1 for milestone in milestones) or (kind == "steps") != bool(milestones):
            raise ConfigError(
                "scheduler=steps takes milestones, shares of all steps such as [0.5, 0.75]; others do not"
            )
        self.kind = kind
        self.milestones = tuple(milestones)
        self.warmup = warmup
        self.min_lr_ratio = min_lr_ratio
        self.gamma = gamma
        self.patience = patience
        self.monitor = monitor
        self.mode = mode

    def configure(self, optimizer: torch.optim.Optimizer, module: pl.LightningModule) -> dict[str, Any]:
        if self.kind == "plateau":
            task = cast("Task", module)
            monitor = self.monitor or task.primary
            mode = self.mode or task.mode_of(monitor)
            if mode is None:
                raise ConfigError(
                    f"scheduler.monitor={monitor}: the model does not say whether more or less of it is better; "
                    f"write scheduler.mode=max or min, or take its primary metric, {task.primary}"
                )
            plateau = ReduceLROnPlateau(optimizer, mode=mode, factor=self.gamma, patience=self.patience)
            return {"scheduler": plateau, "interval": "epoch", "monitor": monitor}
        total = int(module.trainer.estimated_stepping_batches)
        return {"scheduler": LambdaLR(optimizer, lambda step: self.rate(step, total)), "interval": "step"}

    def rate(self, step: int, total: int) -> float:
        """Returns the factor on the learning rate at a step of `total`."""
        warmup = round(self.warmup * total) if self.warmup < 1 else int(self.warmup)
        if step < warmup:
            return (step + 1) / warmup
        if self.kind == "cosine":
            progress = (step - warmup) / max(1, total - warmup)
            return self.min_lr_ratio + (1 - self.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        if self.kind == "inverse_sqrt":
            return math.sqrt(max(1, warmup) / max(1, step + 1, warmup))
        if self.kind == "steps":
            return math.prod(self.gamma for milestone in self.milestones if step >= milestone * total)
        return 1.0


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatch(name, pattern)


def _match_names(module: pl.LightningModule, pattern: str, option: str) -> set[str]:
    names = [name for name, _ in module.named_parameters()]
    matching = {name for name in names if _matches(name, pattern)}
    if not matching:
        raise ConfigError(f"{option}: no parameter is called {pattern!r}. {did_you_mean(pattern, _prefixes(names))}")
    return matching


def _prefixes(names: Iterable[str]) -> set[str]:
    return {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}
