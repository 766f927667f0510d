"""Swin Transformer (Liu et al. 2021): attention within windows, which every second layer shifts by half a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import Permute

from zoo.attention import Attention, FeedForward, MultiheadAttention, PreNorm, RelativeBias2D
from zoo.attention.positions.embeddings import resized_grid
from zoo.nn.images.classifier import GridNet
from zoo.nn.images.windows import Windows
from zoo.tasks.vision.models.vit import linears, patch_grid, stochastic_branches
from zoo.types import NonNegativeInt, PositiveInt, Probability, validate_ranges


@validate_ranges
class Swin(GridNet):
    """Patches, and stages of blocks, each with a coarser and wider map (Liu et al. 2021, section 3.1 and fig. 3).

    A map whose sides are not multiples of the window is padded with zeros at its right and lower edge. The padding is
    attended to, as in the authors' code and in torchvision's, whose weights give the same logits.

    Args:
        channels, height, width, classes: Shape of the pictures, and number of classes. The net also takes pictures of
            other sizes that are divisible by `patch`.
        attend: `(dim, heads) -> Attention`, called within each window.
        size: Name in `SIZES` that gives the defaults of `dim`, `layers`, `heads` and `window`.
        dim: Width of the first stage; each stage after it is twice as wide.
        layers: Number of blocks in each stage.
        heads: Number of heads in each stage.
        window: Side of a window, in cells of the map.
        patch: Side of a patch, in pixels.
        ratio: Hidden units of the feed-forward networks, as a multiple of the width.
        dropout: Dropout rate of hidden units and residual branches; `attend` has an option for that of weights.
        stochastic_depth: Probability that training drops the last residual branches of an example; it grows linearly
            over the blocks, from 0 at the first. The paper trains tiny, small and base with 0.2, 0.3 and 0.5.
    """

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "mini": {"dim": 48, "layers": (2, 2), "heads": (3, 6), "window": 6},
        "tiny": {"dim": 96, "layers": (2, 2, 6, 2), "heads": (3, 6, 12, 24), "window": 7},
        "small": {"dim": 96, "layers": (2, 2, 18, 2), "heads": (3, 6, 12, 24), "window": 7},
        "base": {"dim": 128, "layers": (2, 2, 18, 2), "heads": (4, 8, 16, 32), "window": 7},
    }
    """mini is for the planted pictures; the other sizes are the paper's (section 3.3)."""

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention],
        size: Literal["mini", "tiny", "small", "base"] | None = None,
        dim: PositiveInt | None = None,
        layers: Sequence[PositiveInt] | None = None,
        heads: Sequence[PositiveInt] | None = None,
        window: PositiveInt | None = None,
        patch: PositiveInt = 4,
        ratio: PositiveInt = 4,
        dropout: Probability = 0.0,
        stochastic_depth: Probability = 0.0,
    ) -> None:
        super().__init__()
        dim, layers, heads, window = self._numbers(size, dim, layers, heads, window)
        if len(layers) != len(heads):
            raise ValueError(f"layers and heads are numbers of each stage, got {len(layers)} and {len(heads)} of them")
        self.patch = patch
        self.grid(height, width)
        self.patches = nn.Sequential(
            nn.Conv2d(channels, dim, patch, stride=patch), Permute([0, 2, 3, 1]), nn.LayerNorm(dim)
        )
        self.layers, self.merges = nn.ModuleList(), nn.ModuleDict()
        branches = iter(stochastic_branches(sum(layers), stochastic_depth))
        for stage, (count, of_stage) in enumerate(zip(layers, heads, strict=True)):
            if stage:
                self.merges[str(len(self.layers))] = PatchMerging(dim=dim)
                dim *= 2
            for number in range(count):
                block = SwinBlock(
                    dim=dim,
                    heads=of_stage,
                    attend=attend,
                    window=window,
                    shift=number % 2 * (window // 2),
                    ratio=ratio,
                    dropout=dropout,
                    branch=next(branches),
                )
                self.layers.append(block)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        for linear in (*linears(self.layers), self.head):
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Computes the logits."""
        return self.head(self.features(pixels).mean((2, 3)))  # type: ignore[no-any-return]

    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d r k"]:
        """Computes the map of the last stage; the logits are `head` of its mean over the cells."""
        self.grid(pixels.shape[2], pixels.shape[3])
        x = self.patches(pixels)
        for number, block in enumerate(self.layers):
            x = block(self._merge(number, x))
        return self.norm(x).permute(0, 3, 1, 2)  # type: ignore[no-any-return]

    def layer_groups(self) -> list[str]:
        names = [f"{kind}.{number}" for number in range(len(self.layers)) for kind in ("merges", "layers")]
        parts = {name for name, _ in self.named_modules()}
        return ["patches", *(name for name in names if name in parts), "norm", "head"]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of patches."""
        return patch_grid(height, width, self.patch)

    def windows(self, layer: int, height: int, width: int) -> Windows:
        """Returns the windows of a layer, whose weights are (b * windows, heads, cells, cells)."""
        rows, columns = self.grid(height, width)
        for start in self.merges:
            if int(start) <= layer:
                rows, columns = (rows + 1) // 2, (columns + 1) // 2
        return self.layers[layer].windows(rows, columns)  # type: ignore[operator, no-any-return]

    def resize_parameter(self, name: str, old: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."] | None:
        """Interpolates relative positions of windows of another side; returns None for any other parameter."""
        if not name.endswith("position.table") or old.dim() != 3 or old.shape[0] != shape[0]:
            return None
        return resized_grid(old.permute(1, 2, 0), (shape[1], shape[2])).permute(2, 0, 1)

    @classmethod
    def _numbers(cls, size: str | None, *own: Any) -> list[Any]:
        """Returns dim, layers, heads and window, with those that are None taken from a named size."""
        if size is None and None in own:
            raise ValueError(f"give dim, layers, heads and window, or a size: {', '.join(cls.SIZES)}")
        if size is not None and size not in cls.SIZES:
            raise ValueError(f"there is no size {size!r}; there are {', '.join(cls.SIZES)}")
        named = own if size is None else cls.SIZES[size].values()
        return [of_size if number is None else number for number, of_size in zip(own, named, strict=True)]

    def _merge(self, number: int, x: Float[Tensor, "b r c d"]) -> Float[Tensor, "b r2 c2 d2"]:
        """Merges patches before the first block of each stage but the first."""
        merge = str(number)
        return self.merges[merge](x) if merge in self.merges else x


@validate_ranges
class SwinBlock(nn.Module):
    """x + f(norm(x)), with f first attention within windows, then a feed-forward network (Liu et al. 2021, eq. 3)."""

    def __init__(
        self,
        *,
        dim: PositiveInt,
        heads: PositiveInt,
        attend: Callable[[int, int], Attention],
        window: PositiveInt,
        shift: NonNegativeInt,
        ratio: PositiveInt,
        dropout: Probability,
        branch: Callable[[], nn.Module] | None,
    ) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        position = partial(RelativeBias2D, grid=(window, window))
        self.mixer = MultiheadAttention(dim=dim, heads=heads, attend=attend, position=position)
        self.mixed = PreNorm(dim=dim, dropout=dropout, branch=branch)
        self.feed_forward = FeedForward(dim=dim, width=ratio * dim, activation=nn.GELU, dropout=dropout)
        self.fed = PreNorm(dim=dim, dropout=dropout, branch=branch)

    def forward(self, x: Float[Tensor, "b r c d"]) -> Float[Tensor, "b r c d"]:
        b, rows, columns, _ = x.shape
        windows = self.windows(rows, columns)
        x = x.flatten(1, 2)
        within = windows.cut(self.mixed.branch_input(x).view(b, rows, columns, -1))
        y, _ = self.mixer(within, support=windows.support(b, x.device))
        x = self.mixed.add_branch(x, windows.join(y).flatten(1, 2))
        x = self.fed.add_branch(x, self.feed_forward(self.fed.branch_input(x)))
        return x.view(b, rows, columns, -1)

    def windows(self, rows: int, columns: int) -> Windows:
        """Returns the windows of a map; a side that one window covers is not shifted."""
        down, right = (self.shift if side > self.window else 0 for side in (rows, columns))
        return Windows(rows, columns, self.window, down, right)


@validate_ranges
class PatchMerging(nn.Module):
    """Merges 2x2 neighbours into one cell of twice the width (Liu et al. 2021, section 3.1); odd sides are padded."""

    def __init__(self, *, dim: PositiveInt) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)
        nn.init.trunc_normal_(self.reduce.weight, std=0.02)

    def forward(self, x: Float[Tensor, "b r c d"]) -> Float[Tensor, "b r2 c2 d2"]:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        four = [x[:, down::2, right::2] for right in (0, 1) for down in (0, 1)]
        return self.reduce(self.norm(torch.cat(four, -1)))  # type: ignore[no-any-return]
