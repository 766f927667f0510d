"""Natural language inference: whether a hypothesis follows from a premise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool
from torch import Tensor, nn

from zoo.optim import OptimizerConfig
from zoo.tasks.answering.attention_targets import ScoredMap
from zoo.tasks.answering.batch import ReadableNLIBatch
from zoo.tasks.answering.task import AnswerClassifier
from zoo.types import PositiveFloat, PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.answering.explanation import PremiseExplainer
    from zoo.tasks.answering.perturbation import PerturbableText

PREMISE_WORDS = ScoredMap("both.second")
"""The map from the words of a hypothesis to those of its premise."""


@validate_ranges
class NLIClassifier(AnswerClassifier[ReadableNLIBatch]):
    """Says whether a hypothesis follows from a premise; the loss is cross-entropy.

    The map that is scored has the words of the premise for each word of the hypothesis.

    Args:
        net: `(words, answers) -> Module`.
        optimization: Optimizer, schedule, frozen layers and rates.
        words, answers: Sizes of the vocabulary and of the set of labels, which the data provides.
        smoothing: Share of the target probability that is spread evenly over all labels in training.
        vectors: File of word vectors to start training from, or `corpus`: see `AnsweringTask`.
        spread: Root mean square of their entries. Default: that of random vectors, because the dot products of smaller
            ones tell a word less well from those that resemble it. None: as in the file.
    """

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        answers: PositiveInt,
        smoothing: Probability = 0.0,
        vectors: str | None = None,
        spread: PositiveFloat | None = 1.0,
    ) -> None:
        super().__init__(
            net=net(words=words, answers=answers),
            scored=PREMISE_WORDS,
            optimization=optimization,
            smoothing=smoothing,
            vectors=vectors,
            spread=spread,
        )

    @property
    def input_columns(self) -> Sequence[str]:
        return ("premise", "hypothesis")

    @property
    def reference_column(self) -> str:
        return "label"

    def text_columns(self, batch: ReadableNLIBatch) -> dict[str, list[str]]:
        return {"premise": [written.passage for written in batch.written], **super().text_columns(batch)}

    def scored_gold(self, batch: ReadableNLIBatch) -> Bool[Tensor, "b m n"] | None:
        return batch.gold

    def perturb(self, batch: ReadableNLIBatch) -> PerturbableText:
        from zoo.tasks.answering.perturbation import PerturbableText

        return PerturbableText(self, batch, part="passage")

    def maps(self, data: Any, options: MapOptions) -> PremiseExplainer:
        from zoo.tasks.answering.explanation import PremiseExplainer

        return PremiseExplainer(self, data, options)
