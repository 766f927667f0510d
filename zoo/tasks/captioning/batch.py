"""A batch of pictures and their captions, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from zoo.nn.images.image_input import ImageInput, OriginalImage, cells_of
from zoo.tasks.seq2seq.batch import Seq2SeqBatch, W, all_known, collate_written
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.vision.batch import normalize
from zoo.text import Frequencies


@dataclass(frozen=True)
class WrittenPicture:
    """A picture and its captions as people know them, which training does not need.

    Args:
        references: The captions, as written; none if they are not known.
        size: Height and width of the picture itself, in pixels.
        original: The picture itself, for drawing.
    """

    references: Sequence[str]
    size: tuple[int, int]
    original: OriginalImage


@dataclass(frozen=True, eq=False)
class CaptionExample:
    """A picture and a caption.

    A net reads pixels, or the features that a frozen encoder made of them.

    Args:
        pixels: Pixels in the size of the net's input; None if there are features.
        features: A row for each cell of a grid, row by row; None if there are pixels.
        target: Numbers of the caption's tokens, without the end; None if it is not known.
        id: Name of the picture.
        split: train, val or test, or "" if it is in none.
        regions: For each token of the target, the box that it speaks of: top, left, bottom and right as shares of what
            the net sees; a token that speaks of no place has an empty box. None if they are not known.
        written: The picture and its captions as people know them; None in training.
    """

    pixels: UInt8[Tensor, "3 h w"] | None
    features: Float[Tensor, "k d"] | None
    target: Sequence[int] | None
    id: str
    split: str = ""
    regions: Float[Tensor, "n 4"] | None = None
    written: WrittenPicture | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class CaptionBatch(Seq2SeqBatch[ImageInput, W]):
    """A batch of pictures and their captions.

    Args:
        gold: For each target token the box that it speaks of: top, left, bottom and right as shares of what the net
            sees, an empty box for a token that speaks of no place, such as the end; None if they are not known.
        frequencies: Document frequencies of all references of the split, for CIDEr; None: it is not computed.
    """

    gold: Float[Tensor, "b n 4"] | None = None
    frequencies: Frequencies | None = None

    @classmethod
    def collate(
        cls,
        examples: Sequence[CaptionExample],
        language: TextCodec,
        *,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
        grid: tuple[int, int] | None = None,
        frequencies: Frequencies | None = None,
    ) -> CaptionBatch[Any]:
        """Collates pictures, in their order.

        Args:
            examples: The pictures: pixels of all, or features of all.
            language: The language of the captions.
            mean: Mean of each channel, for pixels between 0 and 1.
            std: Standard deviation of each channel, likewise.
            grid: Rows and columns of features.
            frequencies: Document frequencies of all references of the split.
        """
        pixels, features = all_known([each.pixels for each in examples]), all_known([e.features for e in examples])
        targets, regions = all_known([each.target for each in examples]), all_known([e.regions for e in examples])
        tokens = None if targets is None else Targets.pad(targets)
        return cls(
            source=ImageInput(
                None if pixels is None else normalize(torch.stack(pixels), mean, std),
                None if features is None else torch.stack(features).float(),
                grid,
            ),
            targets=tokens,
            ids=tuple(each.id for each in examples),
            splits=tuple(each.split for each in examples),
            gold=None if tokens is None or regions is None else _pad(regions, tokens.tokens.shape[1]),
            language=language,
            frequencies=frequencies,
            written=collate_written([each.written for each in examples]),
        )

    @property
    def known_frequencies(self) -> Frequencies:
        """Document frequencies, in a batch that has them."""
        if self.frequencies is None:
            raise ValueError("these pictures have no captions whose words were counted")
        return self.frequencies

    def select_gold(
        self, gold: Float[Tensor, "b n 4"], numbers: Int[Tensor, " s"], source: ImageInput, targets: Targets
    ) -> Float[Tensor, "s m 4"]:
        return gold[numbers, : targets.tokens.shape[1]]

    def gold_cells(self, grid: tuple[int, int]) -> Bool[Tensor, "b n k"] | None:
        """Returns the gold as a mask of the cells of a grid, row by row; None if it is not known."""
        return None if self.gold is None else cells_of(self.gold, grid)


ReadableCaptionBatch: TypeAlias = CaptionBatch[tuple[WrittenPicture, ...]]


def _pad(regions: Sequence[Float[Tensor, "_ 4"]], steps: int) -> Float[Tensor, "b n 4"]:
    padded = torch.zeros(len(regions), steps, 4)
    for row, each in zip(padded, regions, strict=True):
        row[: len(each)] = each
    return padded
