"""What reads pictures for a decoder: a vector for each cell of a grid (the annotations of Xu et al. 2015)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import DenseSupport
from zoo.attention.kernels.dtypes import accumulation_dtype
from zoo.nn.images.image_input import ImageInput
from zoo.nn.seq2seq.state import Encoded


class ImageEncoder(nn.Module, ABC):
    """Annotations of the cells of a grid, row by row; their mean is the summary of a picture (section 3.1.2).

    Args:
        width: Width of an annotation.
        grid: Rows and columns.
    """

    def __init__(self, *, width: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.width = self.summary_width = self.key_width = width
        self.grid = grid
        self.read = nn.Identity()
        """Gradients with respect to annotations are taken here."""

    @abstractmethod
    def annotations(self, source: ImageInput) -> Float[Tensor, "b k {self.width}"]:
        """Returns the annotations of pictures."""

    def forward(self, source: ImageInput) -> Encoded:
        found = self.annotations(source)
        states = self.read(found.to(accumulation_dtype(found)))
        return Encoded(states, DenseSupport(), states.mean(1))
