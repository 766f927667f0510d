"""Explains answers: all questions of a split as a table, and both directions of attention of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
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
from zoo.tasks.answering.attention_targets import (
    SCORED,
    at_level,
    gold_of,
    looked,
    mean_of_levels,
    pointing_hits,
    scored_site,
)
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.models.coattention import Level
from zoo.tasks.answering.perturbation import PerturbableQuestion
from zoo.tasks.answering.plots import affinity_sheet, picture_and_words, text_map
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.images.cell_maps import box_mask, upsample_cells
from zoo.tasks.prediction_order import spread
from zoo.tasks.seq2seq.word_alignment import heaviest_links

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.task import Answerer

PICTURE = "picture"
"""Name of the map of a picture in its own size."""
AFFINITY = "both.affinity"
"""The sites of this name, one at each level of the question, have signed numbers: no weights."""
MEANS = ("both.alone", "both.first", "both.second")
"""Names of the maps that are the means of those of the levels."""
_SAID = 6
"""Maximum number of words that are named in a sentence."""
_SITES = {
    "picture": (
        SiteAxes("both*.alone", "whole", "question"),
        SiteAxes("both*.first", "whole", "cells"),
        SiteAxes("both*.second", "whole", "question"),
    ),
    "passage": (SiteAxes("flow.first", "passage", "question"), SiteAxes("flow.second", "whole", "passage")),
    "premise": (SiteAxes("both.first", "passage", "question"), SiteAxes("both.second", "question", "passage")),
}
"""The sites between the question and what it is about; those of a picture also at each level of the question."""


class ExplainedAnswer(ExplainedExample):
    """A question, the model's answer, and how question and picture or passage attended to each other.

    Args:
        batch: Batch of one question, as people read it.
        about: What it is about: "picture", "passage" or "premise".
        grid: Rows and columns of the cells of a picture.
        levels: Of the question, at which it and the picture attend to each other.
        level: That whose map is scored; None: the mean over the levels, or there are none.
        found: Recording of the pass.
        seen: The map that is scored; None if the attention has no weights.
        prediction, probability: The answer.
    """

    def __init__(
        self,
        batch: QABatch,
        *,
        about: str,
        grid: tuple[int, int] | None,
        levels: Sequence[str],
        level: Level | None,
        found: Recording,
        seen: AttentionMap | None,
        prediction: str,
        probability: float,
    ) -> None:
        assert batch.written is not None
        self.batch, self.subject, self.grid, self.levels, self.found = batch, about, grid, levels, found
        self.scored = scored_site(about, level)
        self.written, self.prediction, self.probability = batch.written[0], prediction, probability
        self.weights = None if seen is None else seen.dense()[0].float().mean(0).cpu()
        gold = gold_of(batch, about, grid)
        self.gold = None if gold is None else gold[0].cpu()
        self.sites = _SITES[about]

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def about(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {
            "question": self.written.question,
            "prediction": self.prediction,
            "probability": self.probability,
        }
        found |= {"answer": self.written.answer} if self.written.answer else {}
        found |= {"kind": self.batch.kinds[0]} if self.batch.kinds[0] else {}
        if self.written.passage is not None:
            found["passage"] = self.written.passage
        if self.written.original is not None:
            found |= {"seen": list(map(float, self.written.original.seen)), "grid": list(self.grid or ())}
        return found

    @property
    def description(self) -> str:
        """The heaviest pairs of the map that is scored: 'dog < hund .97'; of a picture row and column in pixels."""
        if self.weights is None:
            return "no map: the attention of this model has no weights"
        queries, keys = self._labels(self.scored)
        weights = self.weights
        pairs = sorted(heaviest_links(weights), key=lambda pair: -float(weights[pair[0], pair[1]]))
        names = [(queries[q], self._place(k) if self.subject == "picture" else keys[k], (q, k)) for q, k in pairs]
        return ", ".join(f"{one} < {other} {number(float(weights[at]))}" for one, other, at in names[:_SAID])

    @property
    def words(self) -> Sequence[str]:
        answer = f"{self.prediction} ({number(self.probability)})"
        return [f"{self.id}: {self.written.question} | {answer}; {self.description}"]

    def derived_maps(self) -> Iterator[LabelledAttention]:
        if self.levels:
            means = (mean_of_levels(name, self.found, self.levels) for name in MEANS)
            yield from (self.label_site(each, self.axes) for each in means if each is not None)
        if self.written.original is not None and self.weights is not None:
            assert self.grid is not None
            drawn = self.written.original.read()
            heat = upsample_cells(self.weights, self.grid, drawn.seen, drawn.shape)
            yield LabelledAttention(AttentionMap(PICTURE, heat, ("batch", "height", "width"), None, heads=()))

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        if self.written.original is not None:
            yield from self._of_picture(made, name)
            return
        marks = self._marks()
        for site, query, key in self.sites:
            if site in made:
                marked = {end: marks for end, axis in (("query", query), ("key", key)) if axis == "passage"}
                yield f"{name}_{site.replace('.', '_')}", text_map(made[site], title=self._title, marks=marked)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        import pandas as pd

        rows = [row for site in self._linked if site in made for row in self._links(made[site])]
        if rows:
            yield Table("links", [pd.DataFrame(rows)])

    @property
    def _linked(self) -> list[str]:
        """The sites between question and picture or passage, those of levels behind their means."""
        names = [each.pattern.replace("*", "") for each in self.sites]
        return [*names, *(at_level(name, level) for level in self.levels for name in names)]

    def _labels(self, site: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the labels of the queries and of the keys of a site."""
        of_site = self.find_axes(site)
        assert of_site is not None
        return self.axes[of_site.query].labels, self.axes[of_site.key].labels

    @property
    def _affinities(self) -> dict[str, str]:
        """The level of each site with signed numbers."""
        return {at_level(AFFINITY, level): level for level in self.levels}

    @property
    def _known(self) -> set[str]:
        """The sites whose gold is known: the one that is scored, and those that look at the same from other levels."""
        name = SCORED[self.subject]
        return {name, *(at_level(name, level) for level in self.levels)}

    @property
    def _title(self) -> str:
        known = f" (given: {short(self.written.answer, 20)})" if self.written.answer else ""
        return f"{short(self.written.question, 60)} {short(self.prediction, 24)}{known}"

    @cached_property
    def axes(self) -> Mapping[str, Axis]:
        axes = {"whole": Axis("query", ["whole question"])}
        asked = "hypothesis" if self.subject == "premise" else "question"
        axes["question"] = Axis(f"word of the {asked}", self.written.question_pieces)
        if self.grid is not None:
            rows, columns = self.grid
            cells = [f"{row},{column}" for row in range(rows) for column in range(columns)]
            axes["cells"] = Axis("cell: row, column", cells)
        else:
            axes["passage"] = Axis(f"word of the {self.subject}", self.written.passage_pieces)
        return axes

    def label_site(self, recorded: AttentionMap, axes: Mapping[str, Axis]) -> LabelledAttention:
        if recorded.site in self._affinities:
            (noun, asked), (of_cells, cells) = axes["question"], axes["cells"]
            labels, nouns = {"query": asked, "key": cells}, {"query": noun, "key": of_cells}
            return LabelledAttention.from_weights(recorded.site, recorded.weights[0], labels, nouns)
        return super().label_site(recorded, axes)

    def find_gold(self, site: str) -> Bool[Tensor, "q k"] | None:
        return self.gold if site in self._known else None

    def _marks(self) -> list[tuple[str, tuple[int, int]]]:
        """Returns the given answer as a part of the passage, if it is known."""
        spans = self.batch.spans
        if spans is None or int(spans[0].min()) < 0:
            return []
        first, last = spans[0].tolist()
        return [("given answer", (first, last))]

    def _of_picture(self, made: Mapping[str, LabelledMap], name: str) -> Iterator[tuple[str, Figure]]:
        original = self.written.original
        assert original is not None
        assert self.grid is not None
        drawn, gold = original.read(), None
        if self.batch.regions is not None:
            gold = torch.zeros(drawn.shape, dtype=torch.bool)
            for box in self.batch.regions[0].cpu():
                gold |= box_mask(box, drawn.seen, drawn.shape)
        shown: dict[str, Any] = {"pixels": drawn.pixels, "seen": drawn.seen, "gold": gold, "title": self._title}
        heat = None if self.weights is None else self.weights.view(*self.grid)
        beside = self.scored.removesuffix("first") + "second"
        words = made[beside].head()[0] if beside in made else None
        yield name, picture_and_words(heat=heat, words=self.written.question_pieces, weights=words, **shown)
        for site, level in self._affinities.items():
            if site in made:
                signed = made[site].head().view(-1, *self.grid)
                shown["title"] = f"{level}, {self._title}"
                yield f"{name}_affinity_{level}", affinity_sheet(self.written.question_pieces, signed, **shown)

    def _links(self, found: LabelledMap) -> list[dict[str, Any]]:
        """id, site, place, word, key_place, key, weight and, where it is known, gold: each query's heaviest key."""
        weights, (queries, keys) = found.head(), self._labels(found.site)
        rows = []
        for query, key in heaviest_links(weights):
            row = {"id": self.id, "site": found.site, "place": query, "word": queries[query], "key_place": key}
            row |= {"key": keys[key], "weight": float(weights[query, key])}
            if found.gold is not None and found.gold[query].any():
                row["gold"] = bool(found.gold[query, key])
            rows.append(row)
        return rows

    def _place(self, cell: int) -> str:
        """Returns the middle of a cell in the picture's pixels: row,column."""
        assert self.written.original is not None
        assert self.grid is not None
        top, left, height, width = self.written.original.seen
        row, column = divmod(cell, self.grid[1])
        return f"{top + (row + 0.5) / self.grid[0] * height:.0f},{left + (column + 0.5) / self.grid[1] * width:.0f}"


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

    def sample(self, count: int) -> list[int]:
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

    def make_perturbable(self, position: int) -> list[PerturbableQuestion]:
        return [PerturbableQuestion(self.module, self.batch(position))]

    def truth(self) -> dict[str, float | None]:
        return {"pointing": sum(self._points) / len(self._points)} if self._points else {}

    @property
    def truth_label(self) -> str:
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
