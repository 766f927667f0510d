"""Explains captions: all pictures of a split as a table, and some of them drawn word by word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import Axis, LabelledAttention, MapOptions, Table, picture_name
from zoo.nn.images.image_input import ImageInput, cells_of, keep_cells
from zoo.tasks.captioning.batch import ReadableCaptionBatch
from zoo.tasks.captioning.plots import WordPlace, contact_sheet
from zoo.tasks.images.cell_maps import box_mask, upsample_cells
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.explanation import PerturbableSource, Seq2SeqExample, Seq2SeqExplainer
from zoo.tasks.seq2seq.text_codec import WordSegmentation
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding, merge_by_word
from zoo.tasks.vision.plots import Box

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.captioning.datamodule import CaptionData
    from zoo.tasks.captioning.task import Captioner

WORDS, OF_REFERENCE = "words", "words of the reference"
"""Names of the maps of words and cells: of the caption that the model wrote, and of the given one."""
_NOUNS = {"query": "word", "key": "cell: row, column"}


def site_of_word(place: int) -> str:
    """Returns the name of the map of a word of the caption in the size of the picture; places count from 1."""
    return f"word {place}"


class Words:
    """The words of a text, and where they look.

    Args:
        spelled: The words.
        weights: Weights of the cells, for each token.
        grid: Rows and columns of the cells.
        boxes: For each token the box that it speaks of; None if they are not known.
    """

    def __init__(
        self,
        spelled: WordSegmentation,
        weights: Float[Tensor, "n k"],
        grid: tuple[int, int],
        boxes: Float[Tensor, "m 4"] | None = None,
    ) -> None:
        self.words, self.grid = spelled.words, grid
        self.weights = merge_by_word(weights, spelled.owners, range(weights.shape[1])).float().cpu()
        self.boxes = None if boxes is None else _merge_boxes(boxes.cpu(), spelled)

    @cached_property
    def gold(self) -> Bool[Tensor, "words k"] | None:
        """The cells that each word speaks of."""
        return None if self.boxes is None else cells_of(self.boxes, self.grid)

    def places(self, seen: Box, size: tuple[int, int]) -> list[WordPlace]:
        """Returns each word with its heat and its gold in pixels."""
        found = []
        for place, (word, weights) in enumerate(zip(self.words, self.weights, strict=True)):
            gold = None if self.boxes is None else box_mask(self.boxes[place], seen, size)
            found.append(WordPlace(word, weights.view(*self.grid), gold))
        return found


class ExplainedCaption(Seq2SeqExample):
    """A picture, its caption, and how a forced pass over the caption attended to the picture."""

    sites = Seq2SeqExample.sites[1:]  # the sites of an encoder of pictures are gates, or have queries of their own

    def __init__(
        self,
        module: Captioner,
        batch: ReadableCaptionBatch,
        found: Recording,
        best: Hypothesis,
        written: ForcedDecoding,
        reference: ForcedDecoding | None,
    ) -> None:
        super().__init__(module, batch, found, best, written, reference)
        original = self.as_read.original
        self.drawn, self.seen, self.grid = original.read(), original.seen, module.grid
        self.written = None
        if self.weights is not None:
            self.written = Words(self.language.segment(best.tokens), self.weights, self.grid)
        self.given: Words | None = None
        if self.reference_weights is not None:
            boxes = None if batch.gold is None else batch.gold[0]
            self.given = Words(segment_target(batch, 0), self.reference_weights, self.grid, boxes)

    @property
    def source(self) -> Axis:
        rows, columns = self.grid
        return Axis(_NOUNS["key"], [f"{row},{column}" for row in range(rows) for column in range(columns)])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture in pixels."""
        return self.drawn.size  # type: ignore[no-any-return]

    @property
    def facts(self) -> Mapping[str, Any]:
        height, width = self.size
        return {"height": height, "width": width, "seen": list(map(float, self.seen)), "grid": list(self.grid)}

    @property
    def description(self) -> str:
        """Where each word looks most: row and column of the picture in pixels, and the weight of the cell."""
        if self.written is None:
            return "no map: this model does not attend to its picture, or its attention has no weights"
        return ", ".join(
            f"{row['word']} at {row['y']:.0f},{row['x']:.0f} {number(row['weight'])}"
            for row in self._rows("caption", self.written)
        )

    def derived_maps(self) -> Iterator[LabelledAttention]:
        for name, words in ((WORDS, self.written), (OF_REFERENCE, self.given)):
            if words is not None and words.words:
                labels = {"query": words.words, "key": self.source.labels}
                yield LabelledAttention.from_weights(name, words.weights, labels, _NOUNS, words.gold)
        if self.written is not None and self.written.words:
            for place, weights in enumerate(self.written.weights, start=1):
                site = site_of_word(place)
                heat = upsample_cells(weights.unsqueeze(0), self.grid, self.drawn.seen, self.drawn.shape)
                yield LabelledAttention(AttentionMap(site, heat, ("batch", "height", "width"), None, heads=()))

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        if self.written is not None:
            yield name, self.sheet()
        if self.given is not None and self.given.boxes is not None:
            title = f"given: {self.batch.references[0][0]}"
            yield f"{name}_reference", self._sheet_of(self.given, title)

    def sheet(self) -> Figure:
        """Draws the contact sheet of the caption that the model wrote."""
        return self._sheet_of(self.written, self.text or "(nothing)")

    def _sheet_of(self, words: Words | None, title: str) -> Figure:
        drawn = self.drawn
        places = [] if words is None else words.places(drawn.seen, drawn.shape)
        return contact_sheet(drawn.pixels, places, seen=drawn.seen, title=title, name=self.id)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        import pandas as pd

        for of, words in (("caption", self.written), ("reference", self.given)):
            if words is not None:
                yield Table("words", [pd.DataFrame(self._rows(of, words))])

    def _rows(self, of: str, words: Words) -> list[dict[str, Any]]:
        """id, of, place, word, and its heaviest cell: row and column, its middle y and x in pixels, its weight.

        Where it is known, also whether the cell is one that the word speaks of; None for words that speak of no place.
        """
        top, left, height, width = self.seen
        rows = []
        for place, (word, weights) in enumerate(zip(words.words, words.weights, strict=True)):
            at = int(weights.argmax())
            row, column = divmod(at, self.grid[1])
            found: dict[str, Any] = {"id": self.id, "of": of, "place": place, "word": word, "row": row}
            found |= {"column": column, "y": top + (row + 0.5) / self.grid[0] * height}
            found |= {"x": left + (column + 0.5) / self.grid[1] * width, "weight": float(weights[at])}
            if self.batch.gold is not None:
                gold = None if words.gold is None else words.gold[place]
                found["gold"] = None if gold is None or not gold.any() else bool(gold[at])
            rows.append(found)
        return rows


def _merge_boxes(boxes: Float[Tensor, "m 4"], spelled: WordSegmentation) -> Float[Tensor, "words 4"]:
    """Returns the box of each word: that of its first token with one."""
    found = torch.zeros(len(spelled.words), 4)
    for box, owner in zip(reversed(boxes[: len(spelled.owners)]), reversed(spelled.owners), strict=True):
        if owner >= 0 and box[2] > box[0]:
            found[owner] = box
    return found


class PerturbableImage(PerturbableSource):
    """A picture whose inputs are the cells that the net attends to.

    Pixels of a cell that is left out have the mean colour, features their mean over the picture.
    """

    source: ImageInput
    noun = "cell"
    max_size = 2**21

    def __init__(self, module: Captioner, batch: ReadableCaptionBatch) -> None:
        super().__init__(module, batch)
        self.size = self.source.values.numel()

    def mask(self, keep: Bool[Tensor, "v k"]) -> ImageInput:
        read = self.source.values
        if self.source.features is not None:
            return replace(self.source, features=torch.where(keep.unsqueeze(-1), read, read.mean(1, keepdim=True)))
        return replace(self.source, pixels=keep_cells(read, keep, self.module.grid))


class CaptionExplainer(Seq2SeqExplainer):
    """`captions` has a row for each picture of the test split, or of the user's own pictures; `words` one for each word
    of the captions that are drawn. The maps `word 1`, `word 2` ... are in the size of the picture."""

    noun, table, of_reference = "picture", "captions", OF_REFERENCE
    example, perturbable = ExplainedCaption, PerturbableImage

    def __init__(self, module: Captioner, data: CaptionData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.pictures, options)
        most = int(module.writing.longest(self.batch(0).source.lengths).max())
        self.scored = [WORDS, OF_REFERENCE, *map(site_of_word, range(1, most + 1))]

    def columns(self, batch: ReadableCaptionBatch) -> dict[str, list[Any]]:
        """Caption, its score and probability; of given captions the first one and its loss a token."""
        best = [texts[0] for texts in self.module.write(batch)]
        columns = {"id": list(batch.ids), "split": list(batch.splits), **self.write_columns(batch, best)}
        if batch.targets is not None:
            columns |= self.judge(batch, best, self.module.force_decode(batch, best))[1]
        return columns
