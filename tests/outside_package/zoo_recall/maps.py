"""The maps of questions: each over its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from zoo.extend import (
    Axis,
    ExplainedExample,
    Explainer,
    LabelledMap,
    MapOptions,
    Perturbable,
    Recording,
    SiteAxes,
    describe,
    gradient_at_rows,
    label_map,
    picture_name,
    plots,
)
from zoo_recall.data import Facts, RecallData


class RecallMaps(Explainer):
    """One pass for each question that is drawn; the truth score is of all."""

    noun, truth_of = "question", "all questions, average of the heads"

    def __init__(self, module: Any, data: RecallData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data = module, data

    def names(self) -> list[str]:
        return [each.id for each in self.data.content[1]]

    def examples(self) -> Iterator[ExplainedExample]:
        for which in self.positions:
            batch = self.data.batch([self.data.content[1][which]])
            with torch.inference_mode(), self.record_sites() as found:
                self.module(batch)
            yield MappedQuestion(found, batch)

    def make_perturbable(self, position: int) -> list[Perturbable]:
        return [PerturbableQuestion(self.module, self.data.batch([self.data.content[1][position]]))]

    def truth(self) -> dict[str, float]:
        batches = self.data.loader("all")
        hits = [hit for each in batches for hit in self.module.pointing_at(each).tolist()]
        return {"pointing_accuracy": sum(hits) / len(hits)}

    def describe_chosen(self) -> list[str]:
        return [line for example in self.examples() for line in example.words]


@dataclass(frozen=True)
class MappedQuestion(ExplainedExample):
    found: Recording
    batch: Facts

    @property
    def id(self) -> str:
        return self.batch.examples[0].id

    @property
    def words(self) -> list[str]:
        return [describe.describe(label_map(m.found, m.axis_labels, nouns=m.nouns), 0) for m in self.maps()]

    sites = (SiteAxes("*", "question", "fact"),)

    @property
    def axes(self) -> dict[str, Axis]:
        (asked,) = self.batch.examples
        facts = [f"{key}={value}" for key, value in asked.facts]
        return {"question": Axis("question", [asked.question]), "fact": Axis("fact", facts)}

    def find_gold(self, site: str) -> Tensor | None:
        return self.batch.gold

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Any]]:
        for each in made.values():
            yield picture_name(self.id, number), plots.heat_map(each)


class PerturbableQuestion(Perturbable):
    """A question whose inputs are the facts."""

    noun = "fact"

    def __init__(self, module: Any, batch: Facts) -> None:
        self.module, self.batch = module, batch
        self.attention = module.explain(batch).weights[0, 0, 0]
        self.answer = int(self._log_probabilities(batch.is_fact)[0].argmax())

    def score_batch(self, keep: Tensor) -> Tensor:
        return self._log_probabilities(keep)[:, self.answer].detach().exp()

    def gradient(self) -> Tensor:
        """Adds up key and value of each fact."""

        def passed() -> Tensor:
            return self._log_probabilities(self.batch.is_fact)[0, self.answer]

        return gradient_at_rows(passed, self.module.net.words, self.batch.facts)[0].sum(-1)

    def _log_probabilities(self, is_fact: Tensor) -> Tensor:
        count = len(is_fact)
        facts = self.batch.facts if count == 1 else self.batch.facts.expand(count, -1, -1)
        variants = replace(self.batch, facts=facts, is_fact=is_fact, question=self.batch.question.expand(count, -1))
        return self.module(variants).double().log_softmax(-1)
