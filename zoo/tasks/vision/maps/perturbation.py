"""Pictures without some of their cells, which are filled with the mean colour of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.maps.perturbation import Perturbable
from zoo.nn.images.image_input import keep_cells
from zoo.tasks.vision.batch import ImageBatch

if TYPE_CHECKING:
    from zoo.tasks.vision.task import ImageClassifier

_NUMBERS = 2**22
"""Maximum number of channel values in one batch of variants."""


class PerturbableImage(Perturbable):
    """A picture whose inputs are the cells of the scored map (Zeiler & Fergus 2014, section 4.2, by cells).

    Args:
        module: Classifier.
        batch: Batch of one picture.
    """

    noun = "cell"
    max_size = _NUMBERS

    def __init__(self, module: ImageClassifier, batch: ImageBatch) -> None:
        self.module, self.batch, self.size = module, batch, batch.pixels.numel()
        found = module.explanation(batch.pixels)
        self.grid = found.heat.shape[1], found.heat.shape[2]
        self.attention = found.heat.flatten()
        self.answer = int(found.logits[0].argmax())

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        return self._log_probability(keep_cells(self.batch.pixels, keep, self.grid)).exp()

    def gradient(self) -> Float[Tensor, " n"]:
        pixels = self.batch.pixels.detach().clone().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self._log_probability(pixels).sum(), pixels)
        product = (gradient.double() * pixels.detach()).sum(1, keepdim=True)
        return F.adaptive_avg_pool2d(product, self.grid).flatten().abs()

    def _log_probability(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
        logits: Tensor = self.module(self.batch.replace_pixels(pixels))
        return logits.double().log_softmax(-1)[:, self.answer]
