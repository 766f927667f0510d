"""The two halves of a Transformer (Vaswani et al. 2017, section 3.1), on vectors: they know nothing of tokens."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    Attention,
    DecoderBlock,
    DecoderState,
    DenseSupport,
    EncoderBlock,
    FeedForward,
    KVCache,
    MixerFactory,
    MultiheadAttention,
    Position,
    PostNorm,
    PreNorm,
    self_attention,
)
from zoo.attention.mechanism import Use, check
from zoo.types import PositiveInt, Probability, validate_ranges

Norm = Literal["pre", "post"]
SelfAttend = Callable[[int, int], Attention] | MixerFactory
_RESIDUALS: dict[str, type[PreNorm] | type[PostNorm]] = {"pre": PreNorm, "post": PostNorm}


@validate_ranges
class TransformerEncoder(nn.Module):
    """Blocks of self-attention and a feed-forward network, and after pre-norm blocks a norm.

    Args:
        dim: Width of the vectors.
        layers: Number of blocks.
        heads: Heads of each; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        attend: `(dim, heads) -> Attention`, or a `MixerFactory`.
        relative: Class or partial of a `Position` inside the attention; a mixer has none.
        norm: "pre" (Xiong et al. 2020) or "post" (Vaswani et al. 2017).
        dropout: Dropout of hidden units and of what blocks add; `attend` has that of the weights.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        layers: PositiveInt,
        heads: PositiveInt,
        hidden: PositiveInt,
        attend: SelfAttend,
        relative: Callable[..., Position] | None = None,
        norm: Norm = "pre",
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        _check(norm)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                dim=dim,
                mixer=self_attention(dim=dim, heads=heads, attend=attend, position=_make_position(relative, attend)),
                feed_forward=FeedForward(dim=dim, width=hidden, dropout=dropout),
                residual=_RESIDUALS[norm],
                dropout=dropout,
            )
            for _ in range(layers)
        )
        check(self.blocks, Use.PADDED)
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()
        start_evenly(self)

    def forward(self, x: Float[Tensor, "b k d"], support: DenseSupport) -> Float[Tensor, "b k d"]:
        for block in self.blocks:
            x = block(x, support)
        return self.norm(x)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Written:
    """The states of a decoder's blocks after the positions so far."""

    blocks: tuple[DecoderState, ...]

    @property
    def position(self) -> int:
        """Number of positions so far."""
        return self.blocks[0].position

    def reorder(self, beams: Int[Tensor, "b w"]) -> Written:
        return Written(tuple(state.reorder(beams) for state in self.blocks))

    def select(self, sentences: Int[Tensor, " s"]) -> Written:
        return Written(tuple(state.select(sentences) for state in self.blocks))


@validate_ranges
class TransformerDecoder(nn.Module):
    """Blocks of causal self-attention, attention to a source, and a feed-forward network.

    Args:
        dim: Width of the vectors, the source's too.
        layers: Number of blocks.
        heads: Heads of each site; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        attend: `(dim, heads) -> Attention` of the attention to the source.
        self_attend: The same for the causal self-attention, or a `MixerFactory`.
        relative: Class or partial of a `Position` inside the self-attention; a mixer has none. If its signature has
            `causal`, it is called with True.
        norm, dropout: See `TransformerEncoder`.
        align: Number of the block, from 1, whose attention to the source is the alignment. Default: the last.
    """

    blocks: Any

    def __init__(
        self,
        *,
        dim: PositiveInt,
        layers: PositiveInt,
        heads: PositiveInt,
        hidden: PositiveInt,
        attend: Callable[[int, int], Attention],
        self_attend: SelfAttend,
        relative: Callable[..., Position] | None = None,
        norm: Norm = "pre",
        dropout: Probability = 0.0,
        align: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        _check(norm)
        aligned = layers if align is None else align
        if not aligned <= layers:
            raise ValueError(f"align is the number of one of the decoder's {layers} layers, from 1, got {align}")
        self.blocks = nn.ModuleList(
            DecoderBlock(
                dim=dim,
                mixer=self_attention(
                    dim=dim,
                    heads=heads,
                    attend=self_attend,
                    position=_make_position(relative, self_attend, causal=True),
                    causal=True,
                ),
                cross=MultiheadAttention(dim=dim, heads=heads, attend=attend),
                feed_forward=FeedForward(dim=dim, width=hidden, dropout=dropout),
                residual=_RESIDUALS[norm],
                dropout=dropout,
            )
            for _ in range(layers)
        )
        check(nn.ModuleList(block.mixer for block in self.blocks), Use.CAUSAL | Use.STEPWISE)
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()
        self.aligned = aligned - 1
        start_evenly(self)

    @property
    def site(self) -> str:
        """Name of the site whose weights are the alignment."""
        return f"blocks.{self.aligned}.cross.attend"

    def forward(
        self, x: Float[Tensor, "b n d"], source: Float[Tensor, "b k d"], support: DenseSupport
    ) -> Float[Tensor, "b n d"]:
        """Computes all positions in one pass.

        Args:
            support: Support of attention to the source.
        """
        for block in self.blocks:
            x = block(x, source, source_support=support)
        return self.norm(x)  # type: ignore[no-any-return]

    def start(self, source: Float[Tensor, "b k d"], support: DenseSupport) -> Written:
        """Returns the state before the first position; the weights of the alignment are summed up from there on."""
        states = [block.start(source, support) for block in self.blocks]
        aligned = states[self.aligned]
        states[self.aligned] = replace(aligned, cross=self.blocks[self.aligned].cross.add_initial_state(aligned.cross))
        return Written(tuple(states))

    def step(self, x: Float[Tensor, "b w d"], state: Written) -> tuple[Float[Tensor, "b w d"], Written]:
        """Computes the next position of every hypothesis."""
        rows, after = x.flatten(0, 1).unsqueeze(1), []
        for block, own in zip(self.blocks, state.blocks, strict=True):
            rows, own = block.step(rows, own)
            after.append(own)
        return self.norm(rows).view(x.shape), Written(tuple(after))

    def coverage(self, state: Written) -> Float[Tensor, "b w k"]:
        """Returns the weight that each place of the source has had so far, averaged over heads; 1 at padding."""
        memory: KVCache = state.blocks[self.aligned].cross
        assert memory.attention is not None
        total, permitted = memory.attention.total.mean(1), memory.support.permitted
        return total if permitted is None else total.masked_fill(~permitted[:, 0], 1.0)


def scaled_embeddings(
    tokens: Int[Tensor, "b n"], table: Float[Tensor, "v d"], position: nn.Module | None, first: int = 0
) -> Float[Tensor, "b n d"]:
    """Returns rows of a table times sqrt(d) (section 3.4), and adds positions, which count from `first`."""
    x = F.embedding(tokens, table) * math.sqrt(table.shape[1])
    return x if position is None else position(x, first)


def start_evenly(module: nn.Module) -> None:
    """Draws matrices of attention and feed-forward networks uniformly (Glorot & Bengio 2010); biases are zero."""
    for part in module.modules():
        for linear in part.children() if isinstance(part, MultiheadAttention | FeedForward) else ():
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)


def _make_position(
    relative: Callable[..., Position] | None, attend: SelfAttend, *, causal: bool = False
) -> Callable[..., Position] | None:
    if relative is None or isinstance(attend, MixerFactory):
        return None
    return partial(relative, causal=True) if causal and "causal" in inspect.signature(relative).parameters else relative


def _check(norm: str) -> None:
    if norm not in _RESIDUALS:
        raise ValueError(f"norm is 'pre' or 'post', got {norm!r}")
