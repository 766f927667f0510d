"""Visual question answering: the answer of a set to a question about a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool
from torch import Tensor, nn

from zoo.nn.images.image_input import cells_of
from zoo.optim import OptimizerConfig
from zoo.tasks.answering.attention_targets import CELLS, MapLevel, choose_level
from zoo.tasks.answering.batch import ReadableVQABatch
from zoo.tasks.answering.models.coattention import Level
from zoo.tasks.answering.task import AnswerClassifier
from zoo.types import PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.answering.explanation import PictureExplainer
    from zoo.tasks.answering.perturbation import PerturbablePicture


@validate_ranges
class VQAClassifier(AnswerClassifier[ReadableVQABatch]):
    """Answers questions about pictures; the loss is cross-entropy. The map that is scored has the cells of a picture.

    Args:
        net: `(words, answers, height, width) -> Module`.
        optimization: Optimizer, schedule, frozen layers and rates.
        words, answers: Sizes of the vocabulary and of the set of answers, which the data provides.
        height, width: Size of the pictures, likewise.
        smoothing: Share of the target probability that is spread evenly over all answers in training.
        explain: The level of the question whose map is scored: "word", "phrase" or "question", or "mean" of all,
            the default.
    """

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        answers: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        smoothing: Probability = 0.0,
        explain: MapLevel | None = None,
    ) -> None:
        network: Any = net(words=words, answers=answers, height=height, width=width)
        scored = choose_level(CELLS, network.levels, explain)
        super().__init__(net=network, scored=scored, optimization=optimization, smoothing=smoothing)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells of a picture."""
        network: Any = self.net
        grid: tuple[int, int] = network.picture.grid
        return grid

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of a question at which it and its picture attend to each other."""
        network: Any = self.net
        levels: tuple[Level, ...] = network.levels
        return levels

    def scored_gold(self, batch: ReadableVQABatch) -> Bool[Tensor, "b 1 k"] | None:
        return None if batch.regions is None else cells_of(batch.regions, self.grid).any(1, keepdim=True)

    def perturb(self, batch: ReadableVQABatch) -> PerturbablePicture:
        from zoo.tasks.answering.perturbation import PerturbablePicture

        return PerturbablePicture(self, batch)

    def maps(self, data: Any, options: MapOptions) -> PictureExplainer:
        from zoo.tasks.answering.explanation import PictureExplainer

        return PictureExplainer(self, data, options)
