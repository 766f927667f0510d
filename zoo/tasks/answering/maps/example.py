"""One question that is drawn: its answer, and both directions of attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import ExplainedExample, LabelledAttention, Table, picture_name
from zoo.maps.plots import short
from zoo.tasks.answering.attention_targets import SCORED, at_level, gold_of, mean_of_levels, scored_site
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.models.coattention import Level
from zoo.tasks.answering.plots import affinity_sheet, picture_and_words, text_map
from zoo.tasks.images.cell_maps import at_own_size, box_mask
from zoo.tasks.seq2seq.word_alignment import heaviest_links

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "picture"
"""Name of the map of a picture in its own size."""
AFFINITY = "both.affinity"
"""The sites of this name, one at each level of the question, have signed numbers: no weights."""
MEANS = ("both.alone", "both.first", "both.second")
"""Names of the maps that are the means of those of the levels."""
_OF_QUESTION = "whole question"
_SAID = 6
"""At most so many words are named in a sentence."""


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
        self.axes = self._axes()

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
    def said(self) -> str:
        """The heaviest pairs of the map that is scored: 'dog < hund .97'; of a picture row and column in pixels."""
        if self.weights is None:
            return "no map: the attention of this model has no weights"
        queries, keys = self.axes[self.scored]
        weights = self.weights
        pairs = sorted(heaviest_links(weights), key=lambda pair: -float(weights[pair[0], pair[1]]))
        names = [(queries[q], self._place(k) if self.subject == "picture" else keys[k], (q, k)) for q, k in pairs]
        return ", ".join(f"{one} < {other} {number(float(weights[at]))}" for one, other, at in names[:_SAID])

    @property
    def words(self) -> Sequence[str]:
        answer = f"{self.prediction} ({number(self.probability)})"
        return [f"{self.id}: {self.written.question} | {answer}; {self.said}"]

    def maps(self) -> Iterator[LabelledAttention]:
        for found in self.found.values():
            yield self._of_site(found)
        if self.levels:
            means = (mean_of_levels(name, self.found, self.levels) for name in MEANS)
            yield from (self._of_site(each) for each in means if each is not None)
        if self.written.original is not None and self.weights is not None:
            assert self.grid is not None
            drawn = self.written.original.drawn()
            heat = at_own_size(self.weights, self.grid, drawn.seen, drawn.shape)
            yield LabelledAttention(AttentionMap(PICTURE, heat, ("batch", "height", "width"), None, heads=()))

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        if self.written.original is not None:
            yield from self._of_picture(made, name)
            return
        marks = self._marks()
        for site in self.axes:
            if site in made:
                marked = {axis: marks for axis in ("query", "key") if self._is_passage(site, axis)}
                yield f"{name}_{site.replace('.', '_')}", text_map(made[site], title=self._title, marks=marked)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        import pandas as pd

        rows = [row for site in self.axes if site in made for row in self._links(made[site])]
        if rows:
            yield Table("links", [pd.DataFrame(rows)])

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

    def _axes(self) -> dict[str, tuple[list[str], list[str]]]:
        """Returns the labels of queries and keys of each site between question and picture or passage."""
        asked, whole = self.written.question_pieces, [_OF_QUESTION]
        if self.grid is not None:
            cells = [f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])]
            axes = {"both.alone": (whole, asked), "both.first": (whole, cells), "both.second": (whole, asked)}
            return axes | {at_level(name, level): axes[name] for level in self.levels for name in axes}
        told = self.written.passage_pieces
        if self.subject == "passage":
            return {"flow.first": (told, asked), "flow.second": (whole, told)}
        return {"both.first": (told, asked), "both.second": (asked, told)}

    def _of_site(self, found: AttentionMap) -> LabelledAttention:
        """A map of a site, with the words or cells that its queries and keys stand for."""
        nouns = {"query": "word of the question", "key": "cell: row, column"}
        if found.site in self._affinities:
            cells = self.axes["both.first"][1]
            labels = {"query": self.written.question_pieces, "key": cells}
            return LabelledAttention.of_weights(found.site, found.weights[0], labels, nouns)
        if found.site not in self.axes:
            return LabelledAttention(found)
        queries, keys = self.axes[found.site]
        nouns = {axis: self._noun(found.site, axis) for axis in ("query", "key")}
        gold = self.gold if found.site in self._known else None
        return LabelledAttention(found, {"query": queries, "key": keys}, nouns, gold)

    def _noun(self, site: str, axis: str) -> str:
        labels = self.axes[site][axis == "key"]
        if labels == [_OF_QUESTION]:
            return "query"
        if self.subject == "picture" and site.endswith(".first"):
            return "cell: row, column"
        asked = "hypothesis" if self.subject == "premise" else "question"
        return f"word of the {self.subject if self._is_passage(site, axis) else asked}"

    def _is_passage(self, site: str, axis: str) -> bool:
        """Whether an axis has the words of the passage or premise."""
        return (site, axis) in {
            "passage": {("flow.first", "query"), ("flow.second", "key")},
            "premise": {("both.first", "query"), ("both.second", "key")},
        }.get(self.subject, set())

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
        drawn, gold = original.drawn(), None
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
        weights, (queries, keys) = found.head(), self.axes[found.site]
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
