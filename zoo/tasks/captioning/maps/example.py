"""One picture that is drawn: its caption, and the place in it that each word was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from zoo.maps.explainer import ExplainedExample, LabelledAttention, Table, picture_name
from zoo.nn.images.image_input import cells_of
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.captioning.plots import WordPlace, contact_sheet
from zoo.tasks.images.cell_maps import at_own_size, box_mask
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.text_codec import BEGIN, END, WordSegmentation
from zoo.tasks.seq2seq.word_alignment import by_word
from zoo.tasks.vision.plots import Box

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        self.weights = by_word(weights, spelled.owners, range(weights.shape[1])).float().cpu()
        self.boxes = None if boxes is None else _of_words(boxes.cpu(), spelled)

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


class ExplainedCaption(ExplainedExample):
    """A picture, its caption, and how a forced pass over the caption attended to the picture.

    Args:
        net: The net, whose `encoder` has a `grid`.
        batch: Batch of one picture, with its original.
        found: Recording of the pass over the caption.
        best: The caption.
        of_best: Weights of the site that aligns, in that pass; None if there are none.
        of_reference: The same of a pass over the given caption.
    """

    def __init__(
        self,
        net: Seq2SeqModel,
        batch: CaptionBatch,
        *,
        found: Recording,
        best: Hypothesis,
        of_best: Float[Tensor, "1 n k"] | None,
        of_reference: Float[Tensor, "1 n k"] | None,
    ) -> None:
        assert batch.language is not None
        assert batch.written is not None
        original = batch.written[0].original
        assert original is not None
        self.net, self.batch, self.found, self.best = net, batch, found, best
        self.drawn, self.seen, self.language = original.drawn(), original.seen, batch.language
        encoder: Any = net.encoder
        self.grid: tuple[int, int] = encoder.grid
        self.written = None if of_best is None else Words(self.language.spelled(best.tokens), of_best[0], self.grid)
        self.given: Words | None = None
        if of_reference is not None:
            boxes = None if batch.gold is None else batch.gold[0]
            self.given = Words(segment_target(batch, 0), of_reference[0], self.grid, boxes)

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture in pixels."""
        return self.drawn.size

    @property
    def caption(self) -> str:
        return self.language.text(self.best.tokens)

    @property
    def about(self) -> Mapping[str, Any]:
        assert self.batch.written is not None
        found: dict[str, Any] = {
            "caption": self.caption,
            "score": self.best.score,
            "probability": self.best.probability,
            "height": self.size[0],
            "width": self.size[1],
            "seen": list(map(float, self.seen)),
            "grid": list(self.grid),
        }
        references = self.batch.written[0].references
        return {**found, "reference": references[0]} if references else found

    @property
    def said(self) -> str:
        """Where each word looks most: row and column of the picture in pixels, and the weight of the cell."""
        if self.written is None:
            return "no map: this model does not attend to its picture, or its attention has no weights"
        return ", ".join(
            f"{row['word']} at {row['y']:.0f},{row['x']:.0f} {number(row['weight'])}"
            for row in self._rows("caption", self.written)
        )

    @property
    def words(self) -> Sequence[str]:
        return [f"{self.id}: {self.caption} ({number(self.best.probability)}); {self.said}"]

    def maps(self) -> Iterator[LabelledAttention]:
        for found in self.found.values():
            yield self._of_tokens(found)
        cells = [f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])]
        for name, words in ((WORDS, self.written), (OF_REFERENCE, self.given)):
            if words is not None and words.words:
                yield LabelledAttention.of_weights(
                    name, words.weights, {"query": words.words, "key": cells}, _NOUNS, words.gold
                )
        if self.written is not None and self.written.words:
            for place, weights in enumerate(self.written.weights, start=1):
                site = site_of_word(place)
                heat = at_own_size(weights.unsqueeze(0), self.grid, self.drawn.seen, self.drawn.shape)
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
        return self._sheet_of(self.written, self.caption or "(nothing)")

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

    def _of_tokens(self, found: AttentionMap) -> LabelledAttention:
        """A map of a site, with the tokens that its queries stand for, and the cells that are its keys."""
        written = self.best.target(END)
        tokens, read = self.language.pieces(written), self.language.pieces([BEGIN, *written[:-1]])
        cells = [f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])]
        if "step" in found.axes:  # a recurrent decoder
            return LabelledAttention(found, {"step": tokens, "key": cells})
        if "cross" in found.site.split(".") or found.site == self.net.align:
            return LabelledAttention(found, {"query": tokens, "key": cells}, {"query": "token", "key": _NOUNS["key"]})
        if found.site.startswith("encoder."):
            return LabelledAttention(found)
        return LabelledAttention(found, {"query": read, "key": read}, {"query": "token", "key": "token"})


def _of_words(boxes: Float[Tensor, "m 4"], spelled: WordSegmentation) -> Float[Tensor, "words 4"]:
    """Returns the box of each word: that of its first token with one."""
    found = torch.zeros(len(spelled.words), 4)
    for box, owner in zip(reversed(boxes[: len(spelled.owners)]), reversed(spelled.owners), strict=True):
        if owner >= 0 and box[2] > box[0]:
            found[owner] = box
    return found
