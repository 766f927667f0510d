"""Speech recognition: the loss of given transcripts, and error rates of those that the model writes on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from zoo.attention.ranges import Count, Rate
from zoo.decoding.beam import BeamSearch
from zoo.tasks.generation.net import GeneratingNet
from zoo.tasks.generation.scheduled import ScheduledSampling
from zoo.tasks.generation.targets import real
from zoo.tasks.generation.task import DEFAULT_SEARCH, WritingTask
from zoo.tasks.generation.writing import Longest
from zoo.tasks.speech.figures import Figures
from zoo.tasks.speech.nets.rows import shortened
from zoo.text import CER, WER
from zoo.training.optimisation import Optimisation

DEFAULT_LONGEST = Longest(factor=0.25, constant=10)
"""Of frames of 10 ms: 25 tokens a second, and 10."""


class Recogniser(WritingTask):
    """Cross-entropy of the tokens of given transcripts; the error rates of those that the model writes on its own.

    The best weights are those of the lowest character error rate in validation.

    Args:
        net: `(features, tokens) -> GeneratingNet` with `stride`, the number of frames of a place that it attends to.
        optimisation: Optimiser, schedule, frozen layers and rates.
        features, tokens: From the data: width of a frame, and size of the vocabulary.
        smoothing, search, scheduled: See `WritingTask`.
        longest: Limit of the number of tokens of a transcript, by the number of frames of its recording.
    """

    primary = "val/cer"
    primary_mode = "min"
    headline = ("wer", "cer", "perplexity", "loss")
    source_noun, text_noun = "recording", "transcript"

    def __init__(
        self,
        *,
        net: Callable[..., GeneratingNet],
        optimisation: Optimisation,
        features: Count,
        tokens: Count,
        smoothing: Rate = 0.1,
        search: BeamSearch = DEFAULT_SEARCH,
        longest: Longest = DEFAULT_LONGEST,
        scheduled: ScheduledSampling | None = None,
    ) -> None:
        made: Any = net(features=features, tokens=tokens)
        wer, cer = WER(), CER()
        super().__init__(
            net=made,
            optimisation=optimisation,
            validated={"wer": wer, "cer": cer},
            figures=Figures(wer, cer, made.stride),
            smoothing=smoothing,
            search=search,
            longest=longest,
            scheduled=scheduled,
        )
        self.wer, self.cer = wer, cer
        self.stride: int = made.stride

    def places(self, batch: Any) -> Bool[Tensor, "b k"]:
        """Returns the mask of the places that the listener makes of the frames."""
        lengths = shortened(batch.source.lengths, self.stride)
        return real(lengths, int(lengths.max()) if len(lengths) else 0)

    def gold(self, batch: Any) -> Bool[Tensor, "b n k"] | None:
        """Returns the mask of the places in which each token was spoken, if it is known."""
        found: Tensor | None = batch.gold_places(self.stride, self.places(batch).shape[1])
        return found
