"""Extractive question answering: the part of a passage that answers a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.optim import OptimizerConfig
from zoo.tasks.answering.attention_targets import ScoredMap
from zoo.tasks.answering.batch import ReadableExtractiveQABatch
from zoo.tasks.answering.spans import best_spans, span_losses
from zoo.tasks.answering.task import AnsweringTask
from zoo.tasks.baselines import HELD_OUT, Baseline
from zoo.text.metrics.squad import normalize_answer, word_f1
from zoo.types import PositiveInt, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.explanation import PassageExplainer
    from zoo.tasks.answering.perturbation import PerturbableText

SpanLogits = tuple[Tensor, Tensor]
"""Logits (b,n) of the first and of the last token of answers."""
QUESTION_WORDS = ScoredMap("flow.first")
"""The map from the words of a passage to those of its question."""


@validate_ranges
class ExtractiveQA(AnsweringTask[ReadableExtractiveQABatch, SpanLogits]):
    """Cross-entropy of the first and the last token of answers; exact match and F1 of the most probable spans.

    The map that is scored has the words of the question for each word of the passage.

    Args:
        net: `(words) -> Module` whose result are the logits of the first and of the last token.
        optimization: Optimizer, schedule, frozen layers and rates.
        words: Size of the vocabulary, which the data provides.
        longest: The most tokens of an answer; null: no limit.
    """

    primary = "val/f1"
    headline: ClassVar[tuple[str, ...]] = ("f1", "exact_match", "loss")
    measures = ("exact_match", "f1")

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        longest: PositiveInt | None = None,
    ) -> None:
        super().__init__(net=net(words=words), scored=QUESTION_WORDS, optimization=optimization)
        self.longest = longest

    def compute_losses(
        self, output: SpanLogits, targets: Int[Tensor, "b 2"], *, smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        return span_losses(*output, targets)

    def select_output(self, output: SpanLogits, mask: Bool[Tensor, " b"]) -> SpanLogits:
        return output[0][mask], output[1][mask]

    def choose_answers(self, output: SpanLogits) -> Int[Tensor, "b 2"]:
        return best_spans(*output, longest=self.longest)[0]

    def compute_log_probability(self, output: SpanLogits, answer: Int[Tensor, "2"]) -> Float[Tensor, " b"]:
        first, last = (logits.double().log_softmax(-1)[:, place] for logits, place in zip(output, answer, strict=True))
        return first + last

    def measure(self, output: SpanLogits, batch: ReadableExtractiveQABatch) -> dict[str, Float[Tensor, " b"]]:
        predictions = self.predict(output, batch)["prediction"]
        pairs = [(text, written.answer) for text, written in zip(predictions, batch.written, strict=True)]
        exact = [float(normalize_answer(text) == normalize_answer(answer)) for text, answer in pairs]
        overlap = [word_f1(text, answer) for text, answer in pairs]
        return {"exact_match": torch.tensor(exact), "f1": torch.tensor(overlap)}

    def predict(self, output: SpanLogits, batch: ReadableExtractiveQABatch) -> dict[str, list[Any]]:
        spans, probabilities = best_spans(*output, longest=self.longest)
        texts = [written.text_between(*span) for written, span in zip(batch.written, spans.tolist(), strict=True)]
        return {"prediction": texts, "probability": probabilities.tolist()}

    def scored_gold(self, batch: ReadableExtractiveQABatch) -> Bool[Tensor, "b n m"] | None:
        return None if batch.gold is None else batch.gold.mT

    def perturb(self, batch: ReadableExtractiveQABatch) -> PerturbableText:
        from zoo.tasks.answering.perturbation import PerturbableText

        return PerturbableText(self, batch, part="question")

    def maps(self, data: Any, options: MapOptions) -> PassageExplainer:
        from zoo.tasks.answering.explanation import PassageExplainer

        return PassageExplainer(self, data, options)

    def baselines(self, data: AnswerData) -> Sequence[Baseline]:
        records = data.content.records

        def measure() -> dict[str, float]:
            counts = Counter(records.answers[number] for number in records.numbers("train"))
            most = max(counts, key=lambda answer: (counts[answer], answer))
            metrics: dict[str, float] = {}
            for split in HELD_OUT:
                answers = [records.answers[number] for number in records.numbers(split) if records.answers[number]]
                if answers:
                    exact = sum(normalize_answer(answer) == normalize_answer(most) for answer in answers)
                    metrics[f"{split}/exact_match"] = exact / len(answers)
                    metrics[f"{split}/f1"] = sum(word_f1(most, answer) for answer in answers) / len(answers)
            return metrics

        return [Baseline("the most frequent answer", measure, is_cheap=True)]
