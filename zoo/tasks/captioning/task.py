"""Captioning: the loss of given captions, and figures of those that the model writes on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from torch import Tensor

from zoo import distributed
from zoo.attention import sites
from zoo.decoding.beam import BeamSearch
from zoo.errors import ConfigError
from zoo.nn.images.backbone_encoder import BackboneEncoder
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Published
from zoo.tasks.captioning.metrics import CaptionMetrics
from zoo.tasks.captioning.predictions import Captions
from zoo.tasks.captioning.self_critical import SelfCritical
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.decoding_config import MaxLength
from zoo.tasks.seq2seq.decoding_options import WRITING_OPTIONS
from zoo.tasks.seq2seq.reinforce import ReinforceLoss
from zoo.tasks.seq2seq.scheduled_sampling import ScheduledSampling
from zoo.tasks.seq2seq.task import DEFAULT_SEARCH, Seq2SeqTask
from zoo.tasks.vision.models.efficientnet_lite import published_lite0
from zoo.tasks.vision.models.pretrained import load_published
from zoo.types import PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.captioning.datamodule import CaptionData
    from zoo.tasks.captioning.explanation import CaptionExplainer

DEFAULT_LONGEST = MaxLength(factor=0.0, constant=30)
"""The length of a caption does not depend on the size of its picture."""


@validate_ranges
class Captioner(Seq2SeqTask):
    """Cross-entropy of the tokens of given captions; BLEU of those that the model writes on its own.

    Scores are computed of words between spaces, against all captions of a picture.

    Args:
        net: `(tokens, height, width) -> Seq2SeqModel` whose `encoder` is a `ImageEncoder`.
        optimization: Optimizer, schedule, frozen layers and rates.
        tokens, height, width: From the data: size of the vocabulary, and of the pictures.
        smoothing, search, longest, scheduled, reward: See `Seq2SeqTask`.
        self_critical: Whether training raises the CIDEr-D of captions that the model draws, instead of the probability
            of given ones: a second stage, for `init=CKPT` (`SelfCritical`).
    """

    primary = "val/bleu"
    primary_mode = "max"
    primary_worst = 0.0
    headline = ("bleu", "cider", "exact_match", "perplexity", "loss")
    source_noun, text_noun = "picture", "caption"
    frozen_remedy = (
        "init=efficientnet:lite0 (of a net of torchvision, init=torchvision:NAME) gives them ImageNet's, and "
        "model.net.encoder.tuned_from, with the name of a stage such as stem, trains them."
    )

    def __init__(
        self,
        *,
        net: Callable[..., Seq2SeqModel],
        optimization: OptimizerConfig,
        tokens: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        smoothing: Probability = 0.0,
        search: BeamSearch = DEFAULT_SEARCH,
        longest: MaxLength = DEFAULT_LONGEST,
        scheduled: ScheduledSampling | None = None,
        reward: Callable[[], ReinforceLoss] = ReinforceLoss,
        self_critical: bool = False,
    ) -> None:
        made: Any = net(tokens=tokens, height=height, width=width)
        super().__init__(
            net=made,
            optimization=optimization,
            validated=["bleu"],
            figures=CaptionMetrics(made.encoder.grid),
            smoothing=smoothing,
            search=search,
            longest=longest,
            scheduled=scheduled,
            reward=reward,
        )
        self.critic = SelfCritical(self.writing) if self_critical else None
        if self_critical and self.reward is not None:
            raise ConfigError("model.self_critical=true: hard attention learns from another reward; write false")
        self.grid: tuple[int, int] = made.encoder.grid
        """Rows and columns of the cells that the net attends to."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.critic is None:
            return super().training_step(batch, batch_idx)
        if batch.written is None or batch.frequencies is None:
            raise ConfigError("model.self_critical=true compares with all captions of a picture: data.references=true")
        if any(probe.wants_gradient for probe in sites(self).values()):
            raise ConfigError(
                "model.self_critical=true learns from texts that the model draws, and penalties need given ones; write "
                "0 for each, as in penalty.doubly_stochastic=0"
            )
        total, rewards = self.critic(self.net, batch, self.global_step)
        loss = distributed.mean_loss(total, len(batch))
        self.log_training({"train/loss": loss, "train/cider": rewards.mean()}, len(batch))
        return loss

    def configure_optimizers(self) -> Any:
        """Lets the data compute the features of a frozen backbone once: its weights are known, and schedules are about
        to ask for the training batches, to count them."""
        encoder: Any = self.net.encoder
        if isinstance(encoder, BackboneEncoder) and encoder.is_frozen:
            data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            data.see_through(encoder.backbone)
        return super().configure_optimizers()

    def maps(self, data: CaptionData, options: MapOptions) -> CaptionExplainer:
        from zoo.tasks.captioning.explanation import CaptionExplainer

        return CaptionExplainer(self, data, options)

    predict_options = (
        *WRITING_OPTIONS,
        CommandOption(
            name="explain", kind=Path, metavar="FOLDER", help="draw each picture with the place of every word there"
        ),
    )

    def predictor(self, *, explain: Path | None = None, **how: Any) -> Captions:
        """`zoo predict`: the captions of each picture."""
        return Captions(self, self.choose_writing(**how), explain)

    def load_published(self, name: str) -> Published:
        """Returns published weights of the encoder's backbone: `torchvision:MODEL`, or `efficientnet:lite0`."""
        encoder: Any = self.net.encoder
        if not isinstance(encoder, BackboneEncoder):
            raise ConfigError(f"init={name}: published weights are for encoders with a backbone, BackboneEncoder")
        found = published_lite0() if name == "efficientnet:lite0" else load_published(name, encoder.backbone)[0]
        weights = encoder.load_published(found)
        named = {f"net.encoder.{key}": value for key, value in weights.items()}
        return Published(named, {"target_tokens": []}, is_part=True)

    def places(self, batch: Any) -> Bool[Tensor, "b k"]:
        """Returns the mask of the cells of the grid: all of them."""
        return torch.ones(len(batch), math.prod(self.grid), dtype=torch.bool, device=batch.source.lengths.device)

    def gold(self, batch: Any) -> Bool[Tensor, "b n k"] | None:
        """Returns the mask of the cells that each token speaks of, if they are known."""
        found: Tensor | None = batch.gold_cells(self.grid)
        return found
