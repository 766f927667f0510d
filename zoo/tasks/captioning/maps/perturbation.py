"""Pictures without some of their cells, and how probable their caption then is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.decoding.teacher_forcing import force_decode
from zoo.errors import ConfigError
from zoo.maps.perturbation import Perturbable
from zoo.nn.images.image_input import ImageInput
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.gradients import inputs_of
from zoo.tasks.seq2seq.text_codec import END

if TYPE_CHECKING:
    from zoo.tasks.captioning.task import Captioner

_NUMBERS = 2**21
"""Maximum number of channel values in one batch of variants."""


class PerturbableImage(Perturbable):
    """A picture whose inputs are the cells that the net attends to; the answer is the caption that it wrote of all.

    Its probability is the geometric mean over its tokens, so that it does not depend on the length. The map's value of
    a cell is the sum of its weights. Pixels of a cell that is left out have the mean colour, features their mean over
    the picture.

    Args:
        module: The captioner.
        batch: Batch of one picture.
    """

    noun = "cell"

    def __init__(self, module: Captioner, batch: CaptionBatch) -> None:
        self.module, self.source = module, batch.source
        best = module.write(batch)[0][0]
        self.answer = best.target(END)
        found = module.forced(batch, [best]).weights
        if found is None:
            raise ConfigError("--faithfulness: this model has no map of its picture")
        self.attention = found[0].sum(0)

    @torch.no_grad()
    def score(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        of_one = self.source.pixels if self.source.features is None else self.source.features
        assert of_one is not None
        parts = torch.split(keep.to(of_one.device), max(1, _NUMBERS // of_one.numel()))
        return torch.cat([self._log_probability(self._without(part)).exp() for part in parts])

    def gradient(self) -> Float[Tensor, " n"]:
        with torch.enable_grad(), inputs_of(self.module.net) as found:
            (gradient,) = torch.autograd.grad(self._log_probability(self.source).sum(), found)
        return (gradient.double() * found[0].detach()).sum(-1).flatten().abs()

    def _log_probability(self, source: ImageInput) -> Float[Tensor, " b"]:
        targets = [self.answer] * len(source)
        return force_decode(self.module.net, source, begins(source), targets).double().mean(1)

    def _without(self, keep: Bool[Tensor, "v n"]) -> ImageInput:
        """Returns the picture for each variant, with the cells that it keeps."""
        if self.source.features is not None:
            features = self.source.features
            kept = torch.where(keep.unsqueeze(-1), features, features.mean(1, keepdim=True))
            return replace(self.source, features=kept)
        assert self.source.pixels is not None
        grid = keep.view(-1, 1, *self.module.grid).to(self.source.pixels.dtype)
        shown = F.interpolate(grid, self.source.pixels.shape[2:], mode="nearest")
        return replace(self.source, pixels=self.source.pixels * shown)  # 0 is the mean colour
