"""A batch of pictures and their captions, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from zoo.attention.kernels.kept import for_later
from zoo.tasks.batches import moved
from zoo.tasks.generation.batch import GeneratingBatch, all_known
from zoo.tasks.generation.language import Language
from zoo.tasks.generation.targets import Targets
from zoo.tasks.vision.batch import normalised
from zoo.text import Frequencies

HALF = 0.5
"""A cell is gold if it holds at least this share of what the best cell holds of a box, as in `zoo.tasks.vision`."""


@dataclass(frozen=True, eq=False)
class Original:
    """A picture in its own size, which is read when it is asked for.

    Args:
        pictures: The pixels of all pictures, by number.
        number: The number of this one.
        seen: The part of it that the net sees: top, left, height and width in its pixels.
    """

    pictures: Sequence[Any] | UInt8[np.ndarray, "n 3 h w"]
    number: int
    seen: tuple[float, float, float, float]

    def pixels(self) -> UInt8[Tensor, "3 h w"]:
        return torch.as_tensor(self.pictures[self.number])


@dataclass(frozen=True)
class Written:
    """A picture and its captions as people know them, which training does not need.

    Args:
        references: The captions, as written; none if they are not known.
        size: Height and width of the picture itself, in pixels.
        original: The picture itself, for drawing.
    """

    references: Sequence[str]
    size: tuple[int, int]
    original: Original | None = None


@dataclass(frozen=True, eq=False)
class Captioned:
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
    written: Written | None = None


@dataclass(frozen=True, eq=False)
class Seen:
    """Pictures as nets read them: pixels, or features.

    Args:
        pixels: Normalised pixels.
        features: Features of the cells of a grid, row by row.
        grid: Rows and columns of the grid of features.
    """

    pixels: Float[Tensor, "b 3 h w"] | None = None
    features: Float[Tensor, "b k d"] | None = None
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self._any)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b k"]:
        """True everywhere: the pixels, or the cells, of a batch are as many in all pictures."""
        places = self._any.shape[-2:].numel() if self.features is None else self._any.shape[1]
        return for_later(lambda: torch.ones(len(self), places, dtype=torch.bool, device=self._any.device))

    @cached_property
    def lengths(self) -> Int[Tensor, " b"]:
        """Number of pixels, or cells, of each picture."""
        return for_later(lambda: torch.full((len(self),), self.is_real.shape[1], device=self._any.device))

    def some(self, numbers: Int[Tensor, " s"]) -> Seen:
        pixels, features = (None if each is None else each[numbers] for each in (self.pixels, self.features))
        return Seen(pixels, features, self.grid)

    def to(self, device: torch.device | str) -> Seen:
        return moved(self, device)

    @property
    def _any(self) -> Tensor:
        found = self.pixels if self.features is None else self.features
        assert found is not None
        return found


@dataclass(frozen=True, eq=False)
class Pictures(GeneratingBatch[Seen, Written]):
    """A batch of pictures and their captions.

    Args:
        gold: For each target token the box that it speaks of: top, left, bottom and right as shares of what the net
            sees, an empty box for a token that speaks of no place, such as the end; None if they are not known.
        language: The language, by which numbers become texts.
        frequencies: Document frequencies of all references of the split, for CIDEr; None: it is not computed.
    """

    gold: Float[Tensor, "b n 4"] | None = None
    language: Language | None = None
    frequencies: Frequencies | None = None

    @classmethod
    def of(
        cls,
        examples: Sequence[Captioned],
        language: Language | None = None,
        *,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
        grid: tuple[int, int] | None = None,
        frequencies: Frequencies | None = None,
    ) -> Pictures:
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
        targets, written = all_known([each.target for each in examples]), all_known([e.written for e in examples])
        regions = all_known([each.regions for each in examples])
        tokens = None if targets is None else Targets.of(targets)
        return cls(
            source=Seen(
                None if pixels is None else normalised(torch.stack(pixels), mean, std),
                None if features is None else torch.stack(features).float(),
                grid,
            ),
            targets=tokens,
            ids=tuple(each.id for each in examples),
            splits=tuple(each.split for each in examples),
            gold=None if tokens is None or regions is None else _padded(regions, tokens.tokens.shape[1]),
            language=language,
            frequencies=frequencies,
            written=None if written is None else tuple(written),
        )

    def gold_of(self, chosen: Int[Tensor, " s"], source: Seen, targets: Targets) -> Float[Tensor, "s n 4"]:
        assert self.gold is not None
        return self.gold[chosen, : targets.tokens.shape[1]]

    def gold_cells(self, grid: tuple[int, int]) -> Bool[Tensor, "b n k"] | None:
        """Returns the gold as a mask of the cells of a grid, row by row; None if it is not known."""
        return None if self.gold is None else cells_of(self.gold, grid)


def cells_of(boxes: Float[Tensor, "*b 4"], grid: tuple[int, int]) -> Bool[Tensor, "*b k"]:
    """Returns the cells of a grid that boxes lie in: those with at least half as much of a box as the best cell.

    Args:
        boxes: Top, left, bottom and right as shares of the height and width.
        grid: Rows and columns.
    """
    top, left, bottom, right = boxes.unsqueeze(-2).unbind(-1)
    rows, columns = (torch.arange(count, device=boxes.device) for count in grid)
    down = _shared(top * grid[0], bottom * grid[0], rows)
    across = _shared(left * grid[1], right * grid[1], columns)
    inside = (down.unsqueeze(-1) * across.unsqueeze(-2)).flatten(-2)
    return (inside > 0) & (inside >= HALF * inside.amax(-1, keepdim=True))


def _shared(first: Tensor, last: Tensor, cells: Tensor) -> Tensor:
    """Returns how much of [first, last] lies in each cell [c, c + 1]."""
    return (torch.minimum(last, cells + 1.0) - torch.maximum(first, cells.to(first))).clamp(min=0.0)


def _padded(regions: Sequence[Float[Tensor, "_ 4"]], steps: int) -> Float[Tensor, "b n 4"]:
    padded = torch.zeros(len(regions), steps, 4)
    for row, each in zip(padded, regions, strict=True):
        row[: len(each)] = each
    return padded
