"""Compact convolutional Transformer: tokens from convolutions, and attention pooling (Hassani et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    EncoderBlock,
    FeedForward,
    Learned,
    MixerFactory,
    Pooling,
    Position,
    PreNorm,
    self_attention,
)
from zoo.nn.images.classifier import TokenNet
from zoo.tasks.vision.models.positions import TokenPositions
from zoo.tasks.vision.models.vit import check_length, linears, named_sizes, on_grid, stochastic_branches
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class CCT(TokenNet):
    """Convolutions, blocks, a norm, sequence pooling, a linear head (Hassani et al. 2021, section 3).

    As in the authors' code, queries, keys and values have no bias, and the norm before a feed-forward network is part
    of the residual path: x' = norm(x + attention(norm(x))), x'' = x' + feed_forward(x'). Unlike there, sequence pooling
    has no bias, which its softmax would cancel.

    Args:
        channels, height, width, classes: Shape of the pictures, and number of classes.
        attend: `(dim, heads) -> Attention` of the blocks, or a `MixerFactory`.
        size: Name in `SIZES` that gives the defaults of `dim`, `layers`, `heads`, `hidden`, `kernel` and
            `convolutions`; `cct_7_3x1` has 7 blocks, kernels of side 3, and 1 convolution.
        dim: Width of a token.
        layers: Number of blocks.
        heads: Number of heads; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        kernel: Side of the kernel of a convolution.
        convolutions: Number of convolutions, each with ReLU and max pooling.
        position: Class or partial of `zoo.attention.positions` that is added to the tokens, or None.
        relative: Class or partial of a `Position` of attention.
        dropout: Dropout rate of tokens, hidden units and residual branches; `attend` has an option for that of weights.
        stochastic_depth: Probability that training drops the last residual branches of an example; it grows linearly
            over the blocks, from 0 at the first (Huang et al. 2016, section 3).
    """

    # mini is for the planted pictures; the other sizes are the paper's (table 1 and appendix A).
    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "mini": {"dim": 64, "layers": 3, "heads": 4, "hidden": 128, "kernel": 7, "convolutions": 1},
        "cct_2_3x2": {"dim": 128, "layers": 2, "heads": 2, "hidden": 128, "kernel": 3, "convolutions": 2},
        "cct_4_3x2": {"dim": 128, "layers": 4, "heads": 2, "hidden": 128, "kernel": 3, "convolutions": 2},
        "cct_6_3x1": {"dim": 256, "layers": 6, "heads": 4, "hidden": 512, "kernel": 3, "convolutions": 1},
        "cct_7_3x1": {"dim": 256, "layers": 7, "heads": 4, "hidden": 512, "kernel": 3, "convolutions": 1},
        "cct_7_7x2": {"dim": 256, "layers": 7, "heads": 4, "hidden": 512, "kernel": 7, "convolutions": 2},
        "cct_14_7x2": {"dim": 384, "layers": 14, "heads": 6, "hidden": 1152, "kernel": 7, "convolutions": 2},
    }
    averages = False
    pool_site = "pool.attend"

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention] | MixerFactory,
        size: Literal["mini", "cct_2_3x2", "cct_4_3x2", "cct_6_3x1", "cct_7_3x1", "cct_7_7x2", "cct_14_7x2"]
        | None = None,
        dim: PositiveInt | None = None,
        layers: PositiveInt | None = None,
        heads: PositiveInt | None = None,
        hidden: PositiveInt | None = None,
        kernel: PositiveInt | None = None,
        convolutions: PositiveInt | None = None,
        position: Callable[..., nn.Module] | None = Learned,
        relative: Callable[..., Position] | None = None,
        dropout: Probability = 0.0,
        stochastic_depth: Probability = 0.0,
    ) -> None:
        super().__init__()
        own = {"dim": dim, "layers": layers, "heads": heads, "hidden": hidden}
        own |= {"kernel": kernel, "convolutions": convolutions}
        dim, layers, heads, hidden, kernel, convolutions = named_sizes(self.SIZES, size, own)
        self.tokens = ConvolutionalTokens(channels=channels, dim=dim, kernel=kernel, convolutions=convolutions)
        grid = self.grid(height, width)
        self.position = TokenPositions(position, dim=dim, grid=grid)
        self.dropout = nn.Dropout(dropout)
        length = grid[0] * grid[1]
        self.layers = nn.ModuleList(
            EncoderBlock(
                dim=dim,
                mixer=self_attention(
                    dim=dim,
                    heads=heads,
                    attend=attend,
                    position=relative,
                    length=length,
                    bias=False,
                    out_bias=True,
                ),
                feed_forward=FeedForward(dim=dim, width=hidden, activation=nn.GELU, dropout=dropout),
                residual=partial(BothNorms, branch=branch),
                feed_residual=partial(PreNorm, norm=lambda dim: nn.Identity(), branch=branch),
                dropout=dropout,
            )
            for branch in stochastic_branches(layers, stochastic_depth)
        )
        check_length(self.layers, length)
        self.norm = nn.LayerNorm(dim)
        self.pool = Pooling(dim=dim, project=False)
        self.head = nn.Linear(dim, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises the weights as the authors do."""
        for linear in (*linears(self.layers), self.head):
            nn.init.trunc_normal_(linear.weight, std=0.02)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        nn.init.trunc_normal_(self.pool.query, std=0.02)
        for vectors in self.position.parameters():
            nn.init.trunc_normal_(vectors, std=0.2)

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Computes the logits."""
        return self.head(self.pool(self._encode(pixels)).squeeze(1))  # type: ignore[no-any-return]

    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d r k"]:
        """Computes the tokens after the last norm, on their grid."""
        return on_grid(self._encode(pixels), self.grid(pixels.shape[2], pixels.shape[3]))

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of tokens."""
        return self.tokens.side(height), self.tokens.side(width)

    def layer_groups(self) -> list[str]:
        return ["tokens", "position", *(f"layers.{n}" for n in range(len(self.layers))), "norm", "pool", "head"]

    def resize_parameter(self, name: str, old: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."] | None:
        """Interpolates learned positions of another resolution; returns None for any other parameter."""
        return self.position.resize_parameter(old) if name == "position.embedding.vectors" else None

    def _encode(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        x = self.tokens(pixels).flatten(2).transpose(1, 2)
        x = self.dropout(self.position(x, self.grid(pixels.shape[2], pixels.shape[3])))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]


@validate_ranges
class ConvolutionalTokens(nn.Module):
    """MaxPool(ReLU(Conv(x))), one or more times (Hassani et al. 2021, eq. 1).

    Pooling halves each side; strides and padding are those of the authors' code. Pooling runs before ReLU, which gives
    the same result.

    Args:
        channels: Number of channels of the pictures.
        dim: Number of channels of the last convolution; the others have 64.
        kernel: Side of the kernels.
        convolutions: Number of convolutions.
    """

    def __init__(
        self, *, channels: PositiveInt, dim: PositiveInt, kernel: PositiveInt, convolutions: PositiveInt
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, max(1, kernel // 2 - 1), max(1, kernel // 2)
        widths = [channels, *[64] * (convolutions - 1), dim]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel, self.stride, self.padding, bias=False)
            for before, after in pairwise(widths)
        )
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for convolution in self.convolutions:
            nn.init.kaiming_normal_(convolution.weight)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d r k"]:
        for convolution in self.convolutions:
            x = self.pool(convolution(x)).relu()
        return x

    def side(self, pixels: int) -> int:
        """Returns the number of tokens along a side with this number of pixels."""
        for _ in self.convolutions:
            pixels = (pixels + 2 * self.padding - self.kernel) // self.stride + 1
            pixels = (pixels - 1) // 2 + 1
        return pixels


@validate_ranges
class BothNorms(nn.Module):
    """norm(x + branch(dropout(f(norm(x))))), with two norms.

    Args:
        dim: Width of x.
        dropout: Dropout rate of f(norm(x)).
        branch: As in `PreNorm`.
    """

    def __init__(
        self, *, dim: PositiveInt, dropout: Probability = 0.0, branch: Callable[[], nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.inner = PreNorm(dim=dim, dropout=dropout, branch=branch)
        self.norm = nn.LayerNorm(dim)

    def branch_input(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Returns the input of f."""
        return self.inner.branch_input(x)

    def add_branch(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Returns the result, for y = f(branch_input(x))."""
        return self.norm(self.inner.add_branch(x, y))  # type: ignore[no-any-return]
