"""Questions without some cells of their picture, or some tokens, and how probable their answer then is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.maps.perturbation import Perturbable, gradient_at_rows
from zoo.nn.images.image_input import keep_cells
from zoo.tasks.answering.batch import QABatch, ReadableTextBatch, ReadableVQABatch, TextBatch, VQABatch
from zoo.tasks.seq2seq.source import Source

if TYPE_CHECKING:
    from zoo.tasks.answering.task import AnsweringTask
    from zoo.tasks.answering.vqa import VQAClassifier

FIRST = torch.zeros(1, dtype=torch.int64)
NetBatch = TypeVar("NetBatch", bound=QABatch[None])


class PerturbableQuestion(Perturbable, Generic[NetBatch]):
    """A question whose inputs are the keys of the map that is scored; the answer is the model's own.

    The map's value of an input is the sum of its weights.

    Args:
        module: The task.
        attention: The map's value of each input.
        batch: Batch of one question, for the net.
    """

    may_be_empty = False

    def __init__(self, module: AnsweringTask[Any, Any], attention: Float[Tensor, " n"], batch: NetBatch) -> None:
        self.module, self.attention, self.batch = module, attention, batch
        with torch.no_grad():
            self.answer = module.choose_answers(module(batch))[0]

    @abstractmethod
    def make_variants(self, keep: Bool[Tensor, "v n"]) -> NetBatch:
        """Returns the question for each variant, with what it keeps."""

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        return self.compute_log_probability(self.make_variants(keep)).exp()

    def compute_log_probability(self, batch: NetBatch) -> Float[Tensor, " b"]:
        return self.module.compute_log_probability(self.module(batch), self.answer)


class PerturbablePicture(PerturbableQuestion[VQABatch[None]]):
    """A question about a picture, whose cells are its inputs. Pixels that are left out have the mean colour.

    Args:
        module: The task.
        batch: Batch of one question.
    """

    noun = "cell"
    max_size = 2**21

    def __init__(self, module: VQAClassifier, batch: ReadableVQABatch) -> None:
        super().__init__(module, module.explain(batch).dense()[0].mean(0).sum(0), batch.select(FIRST))
        self.size, self.grid = batch.pixels.numel(), module.grid
        cells = torch.arange(len(self.attention), dtype=torch.float32, device=batch.pixels.device)
        laid = F.interpolate(cells.view(1, 1, *module.grid), batch.pixels.shape[2:], mode="nearest")
        self.cells: Int[Tensor, " p"] = laid.flatten().long()
        """The cell of each pixel."""

    def make_variants(self, keep: Bool[Tensor, "v n"]) -> VQABatch[None]:
        copies = self.batch.select(torch.zeros(len(keep), dtype=torch.int64, device=keep.device))
        return replace(copies, pixels=keep_cells(copies.pixels, keep, self.grid))

    def gradient(self) -> Float[Tensor, " n"]:
        pixels = self.batch.pixels.clone().requires_grad_()
        with torch.enable_grad():
            total = self.compute_log_probability(replace(self.batch, pixels=pixels)).sum()
            (gradient,) = torch.autograd.grad(total, pixels)
        product = (gradient.double() * self.batch.pixels).sum(1).flatten()
        return product.new_zeros(len(self.attention)).index_add(0, self.cells, product).abs()


class PerturbableText(PerturbableQuestion[TextBatch[None]]):
    """A question about a passage, or a hypothesis and its premise; the tokens of one of the texts are the inputs.

    Tokens that are left out are removed.

    Args:
        module: The task.
        batch: Batch of one question.
        part: The text.
    """

    noun = "token"
    max_size = 2**14

    def __init__(
        self, module: AnsweringTask[Any, Any], batch: ReadableTextBatch, part: Literal["question", "passage"]
    ) -> None:
        super().__init__(module, module.explain(batch).dense()[0].mean(0).sum(0), batch.select(FIRST))
        self.part = part
        self.size = self.batch.passage.tokens.numel() + self.batch.question.tokens.numel()

    @property
    def text(self) -> Source:
        """The text whose tokens are the inputs."""
        text: Source = getattr(self.batch, self.part)
        return text

    def make_variants(self, keep: Bool[Tensor, "v n"]) -> TextBatch[None]:
        copies = self.batch.select(torch.zeros(len(keep), dtype=torch.int64, device=keep.device))
        shortened: dict[str, Any] = {self.part: self.text.keep_tokens(keep)}
        return replace(copies, **shortened)

    def gradient(self) -> Float[Tensor, " n"]:
        network: Any = self.module.net
        return gradient_at_rows(
            lambda: self.compute_log_probability(self.batch).sum(), network.vectors.table, self.text.tokens
        ).flatten()
