"""Explains answers: all questions of a split as a table, and both directions of attention of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import (
    Axis,
    ExplainedExample,
    LabelledAttention,
    MapOptions,
    SiteAxes,
    Table,
    one_a_label,
    picture_name,
)
from zoo.maps.plots import short
from zoo.tasks.answering.attention_targets import CELLS, ScoredMap, pointing_hits, site_at_level
from zoo.tasks.answering.batch import (
    ReadableExtractiveQABatch,
    ReadableNLIBatch,
    ReadableQABatch,
    ReadableTextBatch,
    ReadableVQABatch,
)
from zoo.tasks.answering.perturbation import PerturbableQuestion
from zoo.tasks.answering.plots import affinity_sheet, picture_and_words, text_map
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.images.cell_maps import box_mask, upsample_cells
from zoo.tasks.prediction_order import spread
from zoo.tasks.seq2seq.word_alignment import heaviest_links

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.extractive_qa import ExtractiveQA
    from zoo.tasks.answering.nli import NLIClassifier
    from zoo.tasks.answering.task import AnsweringTask
    from zoo.tasks.answering.vqa import VQAClassifier

PICTURE = "picture"
"""Name of the map of a picture in its own size."""
AFFINITY = "both.affinity"
"""The sites of this name, one at each level of the question, have signed numbers: no weights."""
MEANS = ("both.alone", CELLS, "both.second")
"""Names of the maps that are the means of those of the levels."""
_SAID = 6
"""Maximum number of words that are named in a sentence."""

ReadableBatch = TypeVar("ReadableBatch", bound=ReadableQABatch)
TextBatchType = TypeVar("TextBatchType", bound=ReadableTextBatch)


class ExplainedAnswer(ExplainedExample, Generic[ReadableBatch]):
    """A question, the model's answer, and how question and picture or passage attended to each other.

    Args:
        module: The task.
        batch: Batch of one question.
        output: What the net gave for it.
        recorded: Recording of the pass.
        scored: The map that is scored; None if the attention has no weights.
    """

    def __init__(
        self,
        module: AnsweringTask[ReadableBatch, Any],
        batch: ReadableBatch,
        *,
        output: Any,
        recorded: Recording,
        scored: AttentionMap | None,
    ) -> None:
        columns = module.predict(output, batch)
        self.batch, self.found, self.scored = batch, recorded, module.scored.name
        self.prediction, self.probability = columns["prediction"][0], columns["probability"][0]
        self.weights: Float[Tensor, "q k"] | None = None
        if scored is not None:
            self.weights = scored.dense()[0].float().mean(0).cpu()
        gold = module.scored_gold(batch)
        self.gold = None if gold is None else gold[0].cpu()

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def about(self) -> Mapping[str, Any]:
        written = self.batch.written[0]
        facts = {"question": written.question, "prediction": self.prediction, "probability": self.probability}
        facts |= {"answer": written.answer} if written.answer else {}
        return facts | ({"kind": self.batch.kinds[0]} if self.batch.kinds[0] else {})

    @property
    def description(self) -> str:
        """The heaviest pairs of the map that is scored: 'dog < hund .97'; of a picture row and column in pixels."""
        if self.weights is None:
            return "no map: the attention of this model has no weights"
        queries, keys = self.find_labels(self.scored)
        weights = self.weights
        pairs = sorted(heaviest_links(weights), key=lambda pair: -float(weights[pair[0], pair[1]]))[:_SAID]
        return ", ".join(f"{queries[q]} < {self.name_key(k, keys[k])} {number(float(weights[q, k]))}" for q, k in pairs)

    @property
    def words(self) -> Sequence[str]:
        answer = f"{self.prediction} ({number(self.probability)})"
        return [f"{self.id}: {self.batch.written[0].question} | {answer}; {self.description}"]

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        import pandas as pd

        rows = [row for site in self.linked_sites if site in made for row in self._link_rows(made[site])]
        if rows:
            yield Table("links", [pd.DataFrame(rows)])

    def find_gold(self, site: str) -> Bool[Tensor, "q k"] | None:
        return self.gold if site in self.sites_with_gold else None

    @property
    def linked_sites(self) -> Mapping[str, SiteAxes]:
        """The sites between question and picture or passage, with their axes."""
        return {site.pattern.replace("*", ""): site for site in self.sites}

    @property
    def sites_with_gold(self) -> set[str]:
        """The sites whose gold is known."""
        return {self.scored}

    def find_labels(self, site: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the labels of the queries and of the keys of a site between question and picture or passage."""
        axes = self.linked_sites[site]
        return self.axes[axes.query].labels, self.axes[axes.key].labels

    def name_key(self, key: int, label: str) -> str:
        """Returns what a key of the map that is scored is called in a sentence."""
        return label

    @property
    def title(self) -> str:
        """Question and answer, for a picture."""
        written = self.batch.written[0]
        answer = f" (given: {short(written.answer, 20)})" if written.answer else ""
        return f"{short(written.question, 60)} {short(self.prediction, 24)}{answer}"

    def _link_rows(self, site_map: LabelledMap) -> list[dict[str, Any]]:
        """Returns each query's heaviest key.

        id, site, place, word, key_place, key, weight and, where it is known, gold.
        """
        weights, (queries, keys) = site_map.head(), self.find_labels(site_map.site)
        rows = []
        for query, key in heaviest_links(weights):
            row = {"id": self.id, "site": site_map.site, "place": query, "word": queries[query], "key_place": key}
            row |= {"key": keys[key], "weight": float(weights[query, key])}
            if site_map.gold is not None and site_map.gold[query].any():
                row["gold"] = bool(site_map.gold[query, key])
            rows.append(row)
        return rows


class ExplainedPictureAnswer(ExplainedAnswer[ReadableVQABatch]):
    """A question about a picture, at each level of the question, and as the means over the levels.

    Args:
        module: The task.
        batch, output, recorded, scored: See `ExplainedAnswer`.
    """

    sites = (
        SiteAxes("both*.alone", "whole", "question"),
        SiteAxes("both*.first", "whole", "cells"),
        SiteAxes("both*.second", "whole", "question"),
    )

    def __init__(self, module: VQAClassifier, batch: ReadableVQABatch, **recorded: Any) -> None:
        super().__init__(module, batch, **recorded)
        self.grid, self.levels = module.grid, module.levels
        self.written = batch.written[0]

    @property
    def about(self) -> Mapping[str, Any]:
        return {**super().about, "seen": list(map(float, self.written.original.seen)), "grid": list(self.grid)}

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        rows, columns = self.grid
        return {
            "whole": Axis("query", ["whole question"]),
            "question": Axis("word of the question", self.written.question_pieces),
            "cells": Axis("cell: row, column", [f"{row},{column}" for row in range(rows) for column in range(columns)]),
        }

    def derived_maps(self) -> Iterator[LabelledAttention]:
        means = (ScoredMap(name, self.levels).read(self.found) for name in MEANS)
        yield from (self.label_site(mean, self.axes) for mean in means if mean is not None)
        if self.weights is not None:
            drawn = self.written.original.read()
            heat = upsample_cells(self.weights, self.grid, drawn.seen, drawn.shape)
            yield LabelledAttention(AttentionMap(PICTURE, heat, ("batch", "height", "width"), None, heads=()))

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name, drawn, gold = picture_name(self.id, number), self.written.original.read(), None
        if self.batch.regions is not None:
            gold = torch.zeros(drawn.shape, dtype=torch.bool)
            for box in self.batch.regions[0].cpu():
                gold |= box_mask(box, drawn.seen, drawn.shape)
        picture: dict[str, Any] = {"pixels": drawn.pixels, "seen": drawn.seen, "gold": gold}
        heat = None if self.weights is None else self.weights.view(*self.grid)
        site_of_words = self.scored.removesuffix("first") + "second"
        words = made[site_of_words].head()[0] if site_of_words in made else None
        pieces = self.written.question_pieces
        yield name, picture_and_words(heat=heat, words=pieces, weights=words, title=self.title, **picture)
        for site, level in self._affinities.items():
            if site in made:
                signed = made[site].head().view(-1, *self.grid)
                title = f"{level}, {self.title}"
                yield f"{name}_affinity_{level}", affinity_sheet(pieces, signed, title=title, **picture)

    @property
    def linked_sites(self) -> Mapping[str, SiteAxes]:
        """The sites between question and picture, those of levels behind their means."""
        means = super().linked_sites
        at_levels = {site_at_level(name, level): axes for level in self.levels for name, axes in means.items()}
        return {**means, **at_levels}

    @property
    def sites_with_gold(self) -> set[str]:
        """The mean of the levels, and the levels, which look at the same."""
        return {CELLS, *(site_at_level(CELLS, level) for level in self.levels)}

    def label_site(self, recorded: AttentionMap, axes: Mapping[str, Axis]) -> LabelledAttention:
        if recorded.site in self._affinities:
            (noun, words), (noun_of_cells, cells) = axes["question"], axes["cells"]
            labels, nouns = {"query": words, "key": cells}, {"query": noun, "key": noun_of_cells}
            return LabelledAttention.from_weights(recorded.site, recorded.weights[0], labels, nouns)
        return super().label_site(recorded, axes)

    def name_key(self, key: int, label: str) -> str:
        """Returns the middle of a cell in the picture's pixels: row,column."""
        top, left, height, width = self.written.original.seen
        row, column = divmod(key, self.grid[1])
        return f"{top + (row + 0.5) / self.grid[0] * height:.0f},{left + (column + 0.5) / self.grid[1] * width:.0f}"

    @property
    def _affinities(self) -> dict[str, str]:
        """The level of each site with signed numbers."""
        return {site_at_level(AFFINITY, level): level for level in self.levels}


class ExplainedTextAnswer(ExplainedAnswer[TextBatchType]):
    """A question about a text.

    Args:
        module: The task.
        batch, output, recorded, scored: See `ExplainedAnswer`.
    """

    question_noun: ClassVar[str]
    """Noun for the text whose words have the axis "question"."""
    passage_noun: ClassVar[str]
    """Noun for the text whose words have the axis "passage"."""

    def __init__(self, module: AnsweringTask[TextBatchType, Any], batch: TextBatchType, **recorded: Any) -> None:
        super().__init__(module, batch, **recorded)
        self.written = batch.written[0]

    @property
    def about(self) -> Mapping[str, Any]:
        return {**super().about, "passage": self.written.passage}

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        return {
            "whole": Axis("query", ["whole question"]),
            "question": Axis(f"word of the {self.question_noun}", self.written.question_pieces),
            "passage": Axis(f"word of the {self.passage_noun}", self.written.passage_pieces),
        }

    @property
    def marks(self) -> list[tuple[str, tuple[int, int]]]:
        """Parts of the passage that a drawing marks, each with its name."""
        return []

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name, marks = picture_name(self.id, number), self.marks
        for site, query, key in self.sites:
            if site in made:
                marked = {end: marks for end, axis in (("query", query), ("key", key)) if axis == "passage"}
                yield f"{name}_{site.replace('.', '_')}", text_map(made[site], title=self.title, marks=marked)


class ExplainedPassageAnswer(ExplainedTextAnswer[ReadableExtractiveQABatch]):
    """A question whose answer is a part of a passage. For the arguments see `ExplainedAnswer`."""

    question_noun, passage_noun = "question", "passage"
    sites = (SiteAxes("flow.first", "passage", "question"), SiteAxes("flow.second", "whole", "passage"))

    @property
    def marks(self) -> list[tuple[str, tuple[int, int]]]:
        """The given answer, if it is known."""
        if not self.batch.is_known[0]:
            return []
        first, last = self.batch.spans[0].tolist()
        return [("given answer", (first, last))]


class ExplainedInference(ExplainedTextAnswer[ReadableNLIBatch]):
    """A hypothesis and its premise. For the arguments see `ExplainedAnswer`."""

    question_noun, passage_noun = "hypothesis", "premise"
    sites = (SiteAxes("both.first", "passage", "question"), SiteAxes("both.second", "question", "passage"))


class AnswerExplainer(DatasetExplainer, Generic[ReadableBatch]):
    """`answers` has a row for each question of the test split, or of the user's own table; `links` one for each word of
    those that are drawn, and each direction."""

    noun, table = "question", "answers"
    example: ClassVar[type[ExplainedAnswer[Any]]]
    """The class of the examples that are drawn."""
    module: AnsweringTask[ReadableBatch, Any]

    def __init__(self, module: AnsweringTask[ReadableBatch, Any], data: AnswerData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.records, options)
        self._points: list[float] = []

    def sample(self, count: int) -> list[int]:
        records = self.records
        numbers = records.numbers(self.split)
        if records.kinds is None:
            return spread(numbers, count)
        known = {kind: number for number, kind in enumerate(dict.fromkeys(records.kinds))}
        return [int(numbers[at]) for at in one_a_label([known[records.kinds[number]] for number in numbers])[:count]]

    def examples(self) -> Iterator[ExplainedExample]:
        for position in self.positions:
            batch = self.batch(position)
            with torch.inference_mode(), self.record_sites() as recorded:
                output, scored = self.module.forward_with_map(batch)
            yield self.example(self.module, batch, output=output, recorded=recorded, scored=scored)

    def make_perturbable(self, position: int) -> list[PerturbableQuestion[Any]]:
        return [self.module.perturb(self.batch(position))]

    def truth(self) -> dict[str, float | None]:
        return {"pointing": sum(self._points) / len(self._points)} if self._points else {}

    @property
    def truth_label(self) -> str:
        return f"{self.split} questions, {self.module.scored.name}"

    def columns(self, batch: ReadableBatch) -> dict[str, list[Any]]:
        """Returns id, split, label, prediction, probability, loss, kind and question."""
        output, scored = self.module.forward_with_map(batch)
        columns = self.module.columns(output, batch)
        columns |= {"kind": list(batch.kinds), "question": [written.question for written in batch.written]}
        gold = self.module.scored_gold(batch)
        if scored is not None and gold is not None:
            self._points += pointing_hits(scored, gold).tolist()
        return columns | ({} if scored is None else self.map_columns(scored))

    def map_columns(self, scored: AttentionMap) -> dict[str, list[Any]]:
        """Returns columns of the map that is scored."""
        return {}


class PictureExplainer(AnswerExplainer[ReadableVQABatch]):
    """The maps of questions about pictures."""

    example = ExplainedPictureAnswer
    module: VQAClassifier

    def __init__(self, module: VQAClassifier, data: AnswerData, options: MapOptions) -> None:
        super().__init__(module, data, options)
        sites = dict(self.net.named_modules())
        self.scored = [*(name for name in MEANS if site_at_level(name, module.levels[0]) in sites), PICTURE]

    def map_columns(self, scored: AttentionMap) -> dict[str, list[Any]]:
        """Returns the heaviest cell."""
        weight, cell = scored.dense().float().mean(1)[:, 0].max(1)
        across = self.module.grid[1]
        return {"row": (cell // across).tolist(), "column": (cell % across).tolist(), "weight": weight.tolist()}


class PassageExplainer(AnswerExplainer[ReadableExtractiveQABatch]):
    """The maps of questions about passages."""

    example = ExplainedPassageAnswer
    module: ExtractiveQA


class PremiseExplainer(AnswerExplainer[ReadableNLIBatch]):
    """The maps of hypotheses and premises."""

    example = ExplainedInference
    module: NLIClassifier
