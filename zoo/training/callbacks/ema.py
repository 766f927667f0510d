"""An exponential moving average of the weights, which is validated, kept as the best, and tested."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from zoo.errors import ConfigError
from zoo.types import Probability, validate_ranges


@validate_ranges
class EMA(pl.Callback):
    """Averages the weights after each step: average <- d average + (1 - d) weights.

    Validation uses the average, and the `state_dict` of every checkpoint holds it; `last.ckpt` also holds the trained
    weights. Buffers, such as the statistics of batch norm, are those of training.

    Args:
        decay: d. The average is over about 1 / (1 - d) steps.
        warmup: Limits d to (1 + t) / (10 + t) at update t, so that the first weights soon lose their influence.
    """

    def __init__(self, *, decay: Probability = 0.999, warmup: bool = True) -> None:
        self.decay = decay
        self.warmup = warmup
        self.updates = 0
        self._weights: dict[str, Tensor] = {}
        self._trained: dict[str, Tensor] = {}
        """The trained weights while the module holds the average."""
        self._step = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if "FSDP" in type(trainer.strategy).__name__:
            raise ConfigError("callbacks=ema averages whole weights and cannot serve trainer=fsdp; take trainer=ddp")
        parameters = dict(pl_module.named_parameters())
        if not self._weights:
            self._weights = {name: p.detach().clone() for name, p in parameters.items()}
        self._weights = {name: value.to(parameters[name].device) for name, value in self._weights.items()}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._step = trainer.global_step

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if trainer.global_step == self._step:  # gradients are being accumulated
            return
        self._step = trainer.global_step
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warmup else self.decay
        self.updates += 1
        for name, parameter in pl_module.named_parameters():
            self._weights[name].lerp_(parameter, 1 - decay)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._trained = {name: p.detach().clone() for name, p in pl_module.named_parameters()}
            _copy(self._weights, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._trained:
            _copy(self._trained, pl_module)
            self._trained = {}

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.on_validation_end(trainer, pl_module)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, content: dict[str, Any]) -> None:
        state_dict = content["state_dict"]
        content["state_dict"] = {**state_dict, **{n: w for n, w in self._weights.items() if n in state_dict}}
        content["trained"] = {name: state_dict[name] for name in self._weights if name in state_dict}

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, content: dict[str, Any]) -> None:
        if "trained" not in content:
            raise ConfigError("callbacks=ema: the run was begun without an average; leave it out to continue it")
        self._weights = {name: content["state_dict"][name].clone() for name in content["trained"]}
        _copy(content["trained"], pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.updates = state_dict["updates"]

    def averaged_state_dict(self, module: pl.LightningModule) -> dict[str, Tensor]:
        """Returns the module's `state_dict` with the averaged weights."""
        state_dict = module.state_dict()
        return {**state_dict, **{name: value for name, value in self._weights.items() if name in state_dict}}


def get_averaged_weights(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Tensor]:
    """Returns the weights to keep and evaluate: the average if there is one, else the module's own."""
    averages = [callback for callback in getattr(trainer, "callbacks", ()) if isinstance(callback, EMA)]
    if averages:
        return averages[0].averaged_state_dict(module)
    if "FSDP" in type(trainer.strategy).__name__:  # each process has a part, which Lightning gathers
        state_dict: dict[str, Tensor] = trainer.strategy.lightning_module_state_dict()
        return state_dict
    return module.state_dict()


@torch.no_grad()
def _copy(weights: dict[str, Tensor], module: pl.LightningModule) -> None:
    for name, parameter in module.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
