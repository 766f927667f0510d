"""Vision Transformer: attention between the patches of a picture (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from zoo.attention import (
    Attention,
    EncoderBlock,
    FeedForward,
    Learned,
    MixerFactory,
    MultiheadAttention,
    Position,
    PreNorm,
    self_attention,
)
from zoo.nn.images.classifier import TokenNet
from zoo.tasks.vision.models.positions import TokenPositions
from zoo.types import NonNegativeInt, PositiveInt, Probability, validate_ranges


@validate_ranges
class ViT(TokenNet):
    """Patches and a class token, pre-norm blocks, a norm, a linear head (Dosovitskiy et al. 2021, eq. 1-4).

    The order of tokens is class token, registers, patches row by row. Registers (Darcet et al. 2024) have no positions,
    and the head does not read them. If the head reads the class token, the feed-forward network of the last block runs
    for this token only; attention still runs for all tokens.

    The net also takes pictures of other sizes that are divisible by `patch`. Learned positions are then interpolated
    (section 3.2), bicubic with antialiasing.

    Args:
        channels, height, width, classes: Shape of the pictures, and number of classes.
        attend: `(dim, heads) -> Attention`, or a `MixerFactory`.
        size: Name in `SIZES` that gives the defaults of `dim`, `layers`, `heads` and `hidden`.
        patch: Side of a patch. Default: 16 if the shorter side of a picture has at least 128 pixels, 8 from 48, else 4.
        dim: Width of a token.
        layers: Number of blocks.
        heads: Number of heads; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        position: Class or partial of `zoo.attention.positions` that is added to the tokens, or None. Positions of a
            sequence include the class token, as in the paper; positions of a grid are of patches only.
        relative: Class or partial of a `Position` of attention, whose positions count all tokens.
        pool: Input of the head: the class token, or the mean of the patches, without a class token.
        registers: Number of register tokens.
        dropout: Dropout rate of tokens, hidden units and residual branches; `attend` has an option for that of weights.
        stochastic_depth: Probability that training drops the last residual branches of an example; it grows linearly
            over the blocks, from 0 at the first (Huang et al. 2016, section 3).
    """

    # mini is for the planted pictures; lite is ViT-Lite (Hassani et al. 2021, table 1); tiny and small are from Touvron
    # et al. 2021, table 1; base and large are from table 1 of the paper.
    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "mini": {"dim": 96, "layers": 3, "heads": 4, "hidden": 192},
        "lite_6": {"dim": 256, "layers": 6, "heads": 4, "hidden": 512},
        "lite_7": {"dim": 256, "layers": 7, "heads": 4, "hidden": 512},
        "tiny": {"dim": 192, "layers": 12, "heads": 3, "hidden": 768},
        "small": {"dim": 384, "layers": 12, "heads": 6, "hidden": 1536},
        "base": {"dim": 768, "layers": 12, "heads": 12, "hidden": 3072},
        "large": {"dim": 1024, "layers": 24, "heads": 16, "hidden": 4096},
    }

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention] | MixerFactory,
        size: Literal["mini", "lite_6", "lite_7", "tiny", "small", "base", "large"] | None = None,
        patch: PositiveInt | None = None,
        dim: PositiveInt | None = None,
        layers: PositiveInt | None = None,
        heads: PositiveInt | None = None,
        hidden: PositiveInt | None = None,
        position: Callable[..., nn.Module] | None = Learned,
        relative: Callable[..., Position] | None = None,
        pool: Literal["class", "mean"] = "class",
        registers: NonNegativeInt = 0,
        dropout: Probability = 0.0,
        stochastic_depth: Probability = 0.0,
    ) -> None:
        super().__init__()
        if pool not in ("class", "mean"):
            raise ValueError(f"pool is 'class' or 'mean', got {pool!r}")
        own = {"dim": dim, "layers": layers, "heads": heads, "hidden": hidden}
        dim, layers, heads, hidden = named_sizes(self.SIZES, size, own)
        self.tokens = Tokens(
            channels=channels,
            height=height,
            width=width,
            patch=_patch(height, width) if patch is None else patch,
            dim=dim,
            position=position,
            class_token=pool == "class",
            registers=registers,
            dropout=dropout,
        )
        self.extra = self.tokens.extra
        length = self.extra + self.tokens.grid[0] * self.tokens.grid[1]
        self.layers = nn.ModuleList(
            EncoderBlock(
                dim=dim,
                mixer=self_attention(dim=dim, heads=heads, attend=attend, position=relative, length=length),
                feed_forward=FeedForward(dim=dim, width=hidden, activation=nn.GELU, dropout=dropout),
                residual=partial(PreNorm, norm=_norm, branch=branch),
                dropout=dropout,
            )
            for branch in stochastic_branches(layers, stochastic_depth)
        )
        check_length(self.layers, length)
        self.averages = pool == "mean"
        self.class_site = f"layers.{layers - 1}.mixer.attend" if pool == "class" else None
        self.norm = _norm(dim)
        self.head = nn.Linear(dim, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises the blocks as the authors do (Glorot uniform); their head, unlike ours, starts with zeros."""
        for linear in linears(self.layers):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Computes the logits."""
        x = self.tokens(pixels)
        if self.class_site is None:
            return self.head(self._encode(x)[:, self.extra :].mean(1))  # type: ignore[no-any-return]
        return self.head(self._encode(x, first=1)[:, 0])  # type: ignore[no-any-return]

    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d r k"]:
        """Computes the patches after the last norm, on their grid."""
        patches = self._encode(self.tokens(pixels))[:, self.extra :]
        return on_grid(patches, self.grid(pixels.shape[2], pixels.shape[3]))

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of patches."""
        return self.tokens.grid_of(height, width)

    def layer_groups(self) -> list[str]:
        return ["tokens", *(f"layers.{number}" for number in range(len(self.layers))), "norm", "head"]

    def resize_parameter(self, name: str, old: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."] | None:
        """Interpolates learned positions of another resolution; returns None for any other parameter."""
        return self.tokens.position.resize_parameter(old) if name == "tokens.position.embedding.vectors" else None

    def _encode(self, x: Float[Tensor, "b n d"], first: int | None = None) -> Float[Tensor, "b m d"]:
        """Computes the tokens after the last norm: all, or the first `first`."""
        *layers, last = self.layers
        for layer in layers:
            x = layer(x)
        return self.norm(last(x, first=first))  # type: ignore[no-any-return]


@validate_ranges
class Tokens(nn.Module):
    """[x_class; registers; x_p^1 E; ...; x_p^N E] + E_pos (Dosovitskiy et al. 2021, eq. 1).

    Args:
        channels, height, width: Shape of the pictures.
        patch: Side of a patch.
        dim: Width of a token.
        position, registers, dropout: As in `ViT`.
        class_token: If True, there is a class token.
    """

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        patch: PositiveInt,
        dim: PositiveInt,
        position: Callable[..., nn.Module] | None,
        class_token: bool,
        registers: NonNegativeInt,
        dropout: Probability,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.grid = self.grid_of(height, width)
        self.extra = class_token + registers
        self.project = nn.Conv2d(channels, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        self.registers = nn.Parameter(torch.empty(1, registers, dim)) if registers else None
        self.position = TokenPositions(position, dim=dim, grid=self.grid, front=int(class_token))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.project.weight, std=self.project.weight[0].numel() ** -0.5)
        assert self.project.bias is not None
        nn.init.zeros_(self.project.bias)
        for token in (self.class_token, self.registers):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02)

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        grid = self.grid_of(pixels.shape[2], pixels.shape[3])
        x = self.project(pixels).flatten(2).transpose(1, 2)
        x = self.position(x, grid, None if self.class_token is None else self.class_token.expand(len(x), -1, -1))
        if self.registers is not None:
            front = self.position.front
            x = torch.cat([x[:, :front], self.registers.expand(len(x), -1, -1), x[:, front:]], 1)
        return self.dropout(x)  # type: ignore[no-any-return]

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of patches."""
        return patch_grid(height, width, self.patch)


def patch_grid(height: int, width: int, patch: int) -> tuple[int, int]:
    """Returns the numbers of rows and columns of patches; `patch` must divide both sides."""
    for name, side in (("height", height), ("width", width)):
        if side % patch:
            raise ValueError(_misfit(name, side, patch))
    return height // patch, width // patch


def named_sizes(sizes: dict[str, dict[str, int]], size: str | None, own: dict[str, int | None]) -> list[int]:
    """Returns the numbers in `own`, with those that are None taken from a named size."""
    if size is not None and size not in sizes:
        raise ValueError(f"there is no size {size!r}; there are {', '.join(sizes)}")
    named = {} if size is None else sizes[size]
    missing = [name for name, number in own.items() if number is None and name not in named]
    if missing:
        raise ValueError(f"give {', '.join(missing)}, or a size: {', '.join(sizes)}")
    numbers = {name: named[name] if number is None else number for name, number in own.items()}
    return list(numbers.values())


def stochastic_branches(layers: int, rate: float) -> list[Callable[[], nn.Module] | None]:
    """Returns a factory of stochastic depth for each block, with rates from 0 at the first to `rate` at the last."""
    rates = [rate * number / max(1, layers - 1) for number in range(layers)]
    return [partial(StochasticDepth, p=each, mode="row") if each else None for each in rates]


def check_length(layers: nn.Module, length: int) -> None:
    """Raises ValueError if a mechanism is limited to fewer tokens."""
    for site in layers.modules():
        longest = getattr(site, "longest", None)
        if longest is not None and length > longest:
            raise ValueError(f"{type(site).__name__} takes {longest} tokens at most, and these pictures have {length}")


def linears(layers: nn.ModuleList) -> list[nn.Linear]:
    """Returns the linear layers of attention and feed-forward networks, without those within mechanisms or mixers."""
    parts = [part for part in layers.modules() if isinstance(part, MultiheadAttention | FeedForward)]
    return [each for part in parts for each in part.children() if isinstance(each, nn.Linear)]


def on_grid(tokens: Float[Tensor, "b n d"], grid: tuple[int, int]) -> Float[Tensor, "b d r k"]:
    """Arranges tokens, given row by row, as a feature map."""
    return tokens.transpose(1, 2).reshape(len(tokens), -1, *grid)


def _norm(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, eps=1e-6)


def _patch(height: int, width: int) -> int:
    side = min(height, width)
    return 16 if side >= 128 else 8 if side >= 48 else 4


def _misfit(name: str, side: int, patch: int) -> str:
    fitting = [str(each) for each in (side // patch * patch, (side // patch + 1) * patch) if each]
    patches = [str(each) for each in range(2, side // 2 + 1) if side % each == 0]
    other = f"; a patch of {' or '.join(patches)} would fit" if patches else ""
    return f"{name}={side} is not divisible by patch={patch}; {' or '.join(fitting)} pixels are{other}"
