"""The maps of questions: all of a split as a table, and some of them drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from zoo.maps.explainer import ExplainedExample, MapOptions, one_a_label
from zoo.tasks.answering.attention_targets import at_level, gold_of, looked, pointing_hits, scored_site
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.maps.example import MEANS, PICTURE, ExplainedAnswer
from zoo.tasks.answering.maps.perturbation import PerturbableQuestion
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.prediction_order import spread

if TYPE_CHECKING:
    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.task import Answerer


class AnswerExplainer(DatasetExplainer):
    """`answers` has a row for each question of the test split, or of the user's own table; `links` one for each word of
    those that are drawn, and each direction."""

    noun, table = "question", "answers"
    module: Answerer

    def __init__(self, module: Answerer, data: AnswerData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.asked, options)
        sites = dict(self.net.named_modules())
        means = [name for name in MEANS for level in self.levels[:1] if at_level(name, level) in sites]
        self.scored = [*means, PICTURE] if module.subject == "picture" else []
        self._points: list[float] = []

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of a question at which it and its picture attend to each other."""
        return tuple(getattr(self.net, "levels", ()))

    def typical(self, count: int) -> list[int]:
        asked = self.records
        numbers = asked.numbers(self.split)
        if asked.kinds is None:
            return spread(numbers, count)
        known = {kind: number for number, kind in enumerate(dict.fromkeys(asked.kinds))}
        return [int(numbers[at]) for at in one_a_label([known[asked.kinds[number]] for number in numbers])[:count]]

    def examples(self) -> Iterator[ExplainedExample]:
        for which in self.chosen:
            batch = self.batch(which)
            with torch.inference_mode(), self.recording() as found:
                given, seen = looked(self.net, batch, self.module.subject, self.module.level)
            columns = self.module.columns(given, batch)
            said = {name: columns[name][0] for name in ("prediction", "probability")}
            about: dict[str, Any] = {"about": self.module.subject, "grid": self.module.grid, "levels": self.levels}
            yield ExplainedAnswer(batch, level=self.module.level, found=found, seen=seen, **about, **said)

    def occludable(self, position: int) -> list[PerturbableQuestion]:
        return [PerturbableQuestion(self.module, self.batch(position))]

    def truth(self) -> dict[str, float | None]:
        return {"pointing": sum(self._points) / len(self._points)} if self._points else {}

    @property
    def truth_of(self) -> str:
        return f"{self.split} questions, {scored_site(self.module.subject, self.module.level)}"

    def columns(self, batch: QABatch) -> dict[str, list[Any]]:
        """Returns id, split, label, prediction, probability, loss, kind and question; of pictures the heaviest cell."""
        given, seen = looked(self.net, batch, self.module.subject, self.module.level)
        assert batch.written is not None
        columns = self.module.columns(given, batch)
        columns |= {"kind": list(batch.kinds), "question": [each.question for each in batch.written]}
        gold = gold_of(batch, self.module.subject, self.module.grid)
        if seen is not None and gold is not None:
            self._points += pointing_hits(seen, gold).tolist()
        if seen is not None and self.module.grid is not None:
            weight, cell = seen.dense().float().mean(1)[:, 0].max(1)
            across = self.module.grid[1]
            columns |= {"row": (cell // across).tolist(), "column": (cell % across).tolist(), "weight": weight.tolist()}
        return columns
