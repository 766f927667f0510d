"""Questions without some cells of their picture, or some tokens, and how probable their answer then is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.maps.perturbation import Perturbable, gradient_at_rows
from zoo.nn.images.image_input import ImageInput
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.spans import best_spans
from zoo.tasks.seq2seq.source import Source

if TYPE_CHECKING:
    from zoo.tasks.answering.task import Answerer

_NUMBERS = 2**21
"""Maximum number of channel values in one batch of variants."""
_OF_TOKEN = 2**7
"""Number of channel values that take as much as one token of the question or the passage."""


class PerturbableQuestion(Perturbable):
    """A question whose inputs are the keys of the map that is scored; the answer is the model's own.

    They are the cells of a picture, the tokens of the question about a passage, or the tokens of a premise. The map's
    value of an input is the sum of its weights. The pixels of a cell that is left out have the mean colour; tokens are
    removed.

    Args:
        module: The task.
        batch: Batch of one question.
    """

    max_size = _NUMBERS
    may_be_empty = False

    def __init__(self, module: Answerer, batch: QABatch) -> None:
        self.module = module
        self.noun = "cell" if module.subject == "picture" else "token"
        self.attention = module.explain(batch).dense()[0].mean(0).sum(0)
        self.batch = replace(batch.first(), kinds=("",), splits=("",))
        with torch.no_grad():
            given = module(self.batch)
        longest = getattr(module, "longest", None)
        whole = isinstance(given, Tensor)
        self.answer: Any = given.argmax(-1) if whole else best_spans(*given, longest=longest)[0][0].tolist()

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        return self._log_probability(self._without(keep)).exp()

    @property
    def size(self) -> int:  # type: ignore[override]
        """Channel values of the picture; a token takes as much as `_OF_TOKEN` of them."""
        if self.batch.picture is not None:
            assert self.batch.picture.pixels is not None
            return self.batch.picture.pixels.numel()
        assert self.batch.passage is not None
        return _OF_TOKEN * (self.batch.passage.tokens.numel() + self.batch.question.tokens.numel())

    def gradient(self) -> Float[Tensor, " n"]:
        if self.batch.picture is not None:
            return self._gradient_of_cells(self.batch.picture)
        text = self.batch.question if self.module.subject == "passage" else self.batch.passage
        assert text is not None
        net: Any = self.module.net
        return gradient_at_rows(
            lambda: self._log_probability(self.batch).sum(), net.vectors.table, text.tokens
        ).flatten()

    def _gradient_of_cells(self, picture: ImageInput) -> Float[Tensor, " n"]:
        assert picture.pixels is not None
        pixels = picture.pixels.clone().requires_grad_()
        with torch.enable_grad():
            found = self._log_probability(replace(self.batch, picture=replace(picture, pixels=pixels)))
            (gradient,) = torch.autograd.grad(found.sum(), pixels)
        product = (gradient.double() * picture.pixels).sum(1).flatten()
        return product.new_zeros(len(self.attention)).index_add(0, self._cells(picture.pixels), product).abs()

    def _log_probability(self, batch: QABatch) -> Float[Tensor, " b"]:
        given = self.module(batch)
        if isinstance(given, Tensor):
            return given.double().log_softmax(-1)[:, self.answer].squeeze(1)
        first, last = (each.double().log_softmax(-1)[:, at] for each, at in zip(given, self.answer, strict=True))
        found: Tensor = first + last
        return found

    def _without(self, keep: Bool[Tensor, "v n"]) -> QABatch:
        """Returns the question for each variant, with what it keeps."""
        count, batch = len(keep), self.batch
        copies = torch.zeros(count, dtype=torch.int64, device=keep.device)
        question = batch.question.select(copies)
        passage = None if batch.passage is None else batch.passage.select(copies)
        picture = batch.picture
        if picture is not None:
            assert picture.pixels is not None
            shown = keep[:, self._cells(picture.pixels)].view(count, 1, *picture.pixels.shape[2:])
            picture = replace(picture, pixels=picture.pixels * shown)  # 0 is the mean colour
        elif self.module.subject == "passage":
            question = _kept(batch.question, keep)
        else:
            assert batch.passage is not None
            passage = _kept(batch.passage, keep)
        about: dict[str, Any] = {name: getattr(batch, name) * count for name in ("ids", "kinds", "splits")}
        answers = batch.answers.repeat(count)
        return replace(batch, question=question, passage=passage, picture=picture, answers=answers, **about)

    def _cells(self, pixels: Float[Tensor, "b 3 h w"]) -> Int[Tensor, " p"]:
        """Returns the cell of each pixel."""
        assert self.module.grid is not None
        cells = torch.arange(len(self.attention), dtype=torch.float32, device=pixels.device)
        laid = F.interpolate(cells.view(1, 1, *self.module.grid), pixels.shape[2:], mode="nearest")
        return laid.flatten().long()


def _kept(text: Source, keep: Bool[Tensor, "v n"]) -> Source:
    rows = text.tokens.expand(len(keep), -1)
    return Source.of([row[kept].tolist() for row, kept in zip(rows, keep, strict=True)]).to(rows.device)
