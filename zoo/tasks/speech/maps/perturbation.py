"""Recordings without some of their parts, and how probable their transcript then is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.decoding.teacher_forcing import force_decode
from zoo.errors import ConfigError
from zoo.maps.perturbation import Perturbable
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.gradients import inputs_of
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.speech.batch import Frames, SpeechBatch

if TYPE_CHECKING:
    from zoo.tasks.speech.task import Recogniser

_FRAMES = 2**14
"""Maximum number of frames in one batch of variants."""


class PerturbableRecording(Perturbable):
    """A recording whose inputs are the parts that its listener makes places of; the answer is the transcript.

    The features of a part that is left out become their means over the recording, so that all others stay where they
    are. The probability is the geometric mean over the tokens of the transcript that the model wrote of the whole
    recording. The map's value of a part is the sum of its weights.

    Args:
        module: The recogniser.
        batch: Batch of one recording.
    """

    noun = "place"

    def __init__(self, module: Recogniser, batch: SpeechBatch) -> None:
        self.module, self.source, self.stride = module, batch.source, module.stride
        best = module.write(batch)[0][0]
        self.answer = best.target(END)
        found = module.forced(batch, [best]).weights
        if found is None:
            raise ConfigError("--faithfulness: this model has no map of its source")
        self.attention = found[0, : len(best.tokens)].double().sum(0)
        self.frames = int(batch.source.lengths[0])
        self.means = batch.source.features[0, : self.frames].mean(0)

    @torch.no_grad()
    def score(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        frames = keep.to(self.means.device).repeat_interleave(self.stride, 1)[:, : self.frames]
        parts = torch.split(frames, max(1, _FRAMES // self.frames))
        return torch.cat([self._log_probability(self._copies(part)).exp() for part in parts])

    def gradient(self) -> Float[Tensor, " n"]:
        with torch.enable_grad(), inputs_of(self.module.net) as found:
            (gradient,) = torch.autograd.grad(self._log_probability(self.source).sum(), found)
        product = (gradient.double() * found[0].detach()).sum(-1).flatten()[: self.frames]
        places = torch.arange(self.frames, device=product.device) // self.stride
        return product.new_zeros(len(self.attention)).index_add(0, places, product).abs()

    def _log_probability(self, source: Frames) -> Float[Tensor, " b"]:
        targets = [self.answer] * len(source)
        return force_decode(self.module.net, source, begins(source), targets).double().mean(1)

    def _copies(self, keep: Bool[Tensor, "v t"]) -> Frames:
        """Returns a recording for each variant."""
        copies = self.source.select(torch.zeros(len(keep), dtype=torch.long, device=self.means.device))
        return replace(copies, rows=torch.where(keep.unsqueeze(-1), copies.features, self.means))
