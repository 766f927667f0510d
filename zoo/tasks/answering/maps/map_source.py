"""The maps of questions: all of a split as a table, and some of them drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from zoo.maps.source import MapOptions, MappedExample, MapSource, Table, one_a_label
from zoo.tasks.answering.batch import Questions
from zoo.tasks.answering.looking import SCORED, gold_of, looked, pointed
from zoo.tasks.answering.maps.example import PICTURE, AnsweredQuestion
from zoo.tasks.answering.maps.occlusion import OccludableQuestion
from zoo.tasks.batches import Examples
from zoo.tasks.rows import in_order, in_pieces, spread

if TYPE_CHECKING:
    from zoo.tasks.answering.answerer import Answerer
    from zoo.tasks.answering.data.answer_data import AnswerData


class AnswerMaps(MapSource):
    """`answers` has a row for each question of the test split, or of the user's own table; `links` one for each word of
    those that are drawn, and each direction."""

    noun = "question"

    def __init__(self, module: Answerer, data: AnswerData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data = module, data
        self.split = data.mapped_split
        self.scored = [PICTURE] if module.subject == "picture" else []
        self._points: list[float] = []

    def names(self) -> list[str]:
        return list(self.data.content.asked.ids)

    def typical(self, count: int) -> list[int]:
        asked = self.data.content.asked
        numbers = asked.numbers(self.split)
        if asked.kinds is None:
            return spread(numbers, count)
        known = {kind: number for number, kind in enumerate(dict.fromkeys(asked.kinds))}
        return [int(numbers[at]) for at in one_a_label([known[asked.kinds[number]] for number in numbers])[:count]]

    def measured(self, count: int) -> list[int]:
        return spread(self.data.content.asked.numbers(self.split), count)

    def tables(self) -> Iterator[Table]:
        yield Table("answers", in_pieces(in_order(self._columns, self.data.loader(self.split))))

    def examples(self) -> Iterator[MappedExample]:
        for which in self.chosen:
            batch = self._batch(which)
            with torch.inference_mode(), self.recording() as found:
                given, seen = looked(self.net, batch, self.module.subject)
            columns = self.module.columns(given, batch)
            said = {name: columns[name][0] for name in ("prediction", "probability")}
            yield AnsweredQuestion(
                batch, about=self.module.subject, grid=self.module.grid, found=found, seen=seen, **said
            )

    def occludable(self, position: int) -> list[OccludableQuestion]:
        return [OccludableQuestion(self.module, self._batch(position))]

    def truth(self) -> dict[str, float | None]:
        return {"pointing": sum(self._points) / len(self._points)} if self._points else {}

    @property
    def truth_of(self) -> str:
        return f"{self.split} questions, {SCORED[self.module.subject]}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"questions": len(self.data.examples(self.split).entries), "split": self.split}

    def summary(self, out: str) -> list[str]:
        of = "test questions" if self.split == "test" else "questions"
        return [
            f"{self.about['questions']:,} {of} in answers.{self.options.table_format}, in {out}",
            *super().summary(out),
        ]

    def looks(self) -> list[str]:
        return [example.said for example in self.examples() if isinstance(example, AnsweredQuestion)]

    @cached_property
    def _examples(self) -> Examples:
        return self.data.examples("all")

    def _batch(self, position: int) -> Questions:
        """Returns a batch of one question."""
        found: Questions = self._examples.collate([self._examples.entries[position]])
        return found

    def _columns(self, batch: Questions) -> dict[str, list[Any]]:
        """Returns id, split, label, prediction, probability, loss, kind and question; of pictures the heaviest cell."""
        given, seen = looked(self.net, batch, self.module.subject)
        assert batch.written is not None
        columns = self.module.columns(given, batch)
        columns |= {"kind": list(batch.kinds), "question": [each.question for each in batch.written]}
        gold = gold_of(batch, self.module.subject, self.module.grid)
        if seen is not None and gold is not None:
            self._points += pointed(seen, gold).tolist()
        if seen is not None and self.module.grid is not None:
            weight, cell = seen.dense().float().mean(1)[:, 0].max(1)
            across = self.module.grid[1]
            columns |= {"row": (cell // across).tolist(), "column": (cell % across).tolist(), "weight": weight.tolist()}
        return columns
