"""Transformer blocks: a mixer of positions and a feed-forward network, each with its residual connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.attention_state import flatten_beams
from zoo.attention.dropout import Dropout
from zoo.attention.kv_cache import KVCache
from zoo.attention.mechanism import Use, check
from zoo.attention.multihead import MultiheadAttention
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2 (Vaswani et al. 2017, eq. 2), with dropout of the hidden units.

    Args:
        dim: Width of the input and of the output.
        width: Number of hidden units.
        activation: Class or function that returns the module f.
        dropout: Probability that a hidden unit is dropped in training.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        width: PositiveInt,
        activation: Callable[[], nn.Module] = nn.ReLU,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, width)
        self.activation = activation()
        self.dropout = Dropout(dropout)
        self.contract = nn.Linear(width, dim)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return self.contract(self.dropout(self.activation(self.expand(x))))  # type: ignore[no-any-return]


class Residual(Protocol):
    """A residual connection around a function f: `add_branch(x, f(branch_input(x)))`."""

    def branch_input(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]: ...

    def add_branch(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]: ...


@validate_ranges
class _NormalizedResidual(nn.Module):
    """What `PostNorm` and `PreNorm` share; they differ in the place of the norm."""

    def __init__(
        self,
        *,
        dim: PositiveInt,
        dropout: Probability = 0.0,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        branch: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm(dim)
        self.dropout = Dropout(dropout)
        self.branch = None if branch is None else branch()

    def _apply_branch(self, y: Tensor) -> Tensor:
        y = self.dropout(y)
        return y if self.branch is None else self.branch(y)


class PostNorm(_NormalizedResidual):
    """norm(x + dropout(f(x))) (Vaswani et al. 2017, section 3.1).

    Args:
        dim: Width of x.
        dropout: Probability that an element of f(x) is dropped in training.
        norm: `dim -> module`, called with the width of x.
        branch: Class or function that returns a module applied to dropout(f(x)) before it is added, for example
            stochastic depth or a scale.
    """

    def branch_input(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Returns the input of f."""
        return x

    def add_branch(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Adds y = f(branch_input(x)) to x and normalizes the sum."""
        return self.norm(x + self._apply_branch(y))  # type: ignore[no-any-return]


class PreNorm(_NormalizedResidual):
    """x + dropout(f(norm(x))) (Xiong et al. 2020, table 1); a stack of such blocks needs a final norm.

    Args:
        dim, dropout, norm, branch: See `PostNorm`.
    """

    def branch_input(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Returns the input of f, norm(x)."""
        return self.norm(x)  # type: ignore[no-any-return]

    def add_branch(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Adds y = f(branch_input(x)) to x."""
        return x + self._apply_branch(y)


@validate_ranges
class EncoderBlock(nn.Module):
    """A mixer and a feed-forward network; with a causal support, the block of a decoder without a source.

    Args:
        dim: Width of the input and of the output.
        mixer: `MultiheadAttention` or another `Mixer`.
        feed_forward: Module applied to each position on its own.
        residual: `PreNorm`, `PostNorm` or a partial of one of them.
        feed_residual: Residual connection of the feed-forward network. Default: `residual`.
        dropout: Dropout of the outputs of the mixer and of the feed-forward network.
    """

    mixer: Any

    def __init__(
        self,
        *,
        dim: PositiveInt,
        mixer: nn.Module,
        feed_forward: nn.Module,
        residual: Callable[..., Residual] = PreNorm,
        feed_residual: Callable[..., Residual] | None = None,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.mixer = mixer
        self.mixed = residual(dim=dim, dropout=dropout)
        self.feed_forward = feed_forward
        self.fed = (residual if feed_residual is None else feed_residual)(dim=dim, dropout=dropout)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None, first: int | None = None
    ) -> Float[Tensor, "b m d"]:
        """Computes all positions in one pass.

        Args:
            first: Number of leading positions to return; the feed-forward network skips the others. Default: all.
        """
        y, _ = self.mixer(self.mixed.branch_input(x), support=support)
        if first is not None:
            x, y = x[:, :first], y[:, :first]
        return _apply_feed_forward(self, self.mixed.add_branch(x, y))

    def step(
        self, x: Float[Tensor, "b n d"], state: Any = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], Any]:
        """Computes the positions of the causal pass that follow those in `state`: see `Mixer.step`."""
        y, state = self.mixer.step(self.mixed.branch_input(x), state, support)
        return _apply_feed_forward(self, self.mixed.add_branch(x, y)), state


@dataclass(frozen=True, eq=False)
class DecoderState:
    """The state of a `DecoderBlock` between decoding steps; `DecoderBlock.start` returns the first one."""

    own: Any
    """State of the mixer after the positions so far; None before the first."""
    cross: KVCache
    """Prepared keys and values of the source, and the attention state of the queries so far."""
    position: int
    """Number of target positions so far."""
    hypotheses: int = 1
    """Number of hypotheses of each sentence: rows of the target, sentence by sentence, which share its source."""

    def reorder(self, beams: Int[Tensor, "b w"]) -> DecoderState:
        """Returns the state of the selected hypotheses of each sentence; the keys of the source are not copied."""
        own = None if self.own is None else self.own.reorder(flatten_beams(beams, self.hypotheses))
        return DecoderState(own, self.cross.select_rows(beams), self.position, beams.shape[1])

    def select(self, sentences: Int[Tensor, " s"]) -> DecoderState:
        """Returns the state of the selected sentences, with all their hypotheses."""
        own = self.own
        if own is not None:
            rows = torch.arange(self.hypotheses, device=sentences.device) + sentences.unsqueeze(1) * self.hypotheses
            own = own.reorder(rows.flatten())
        return replace(self, own=own, cross=self.cross.reorder(sentences))


@validate_ranges
class DecoderBlock(nn.Module):
    """A causal mixer, attention to a source, and a feed-forward network (Vaswani et al. 2017, section 3.1).

    Args:
        dim: Width of the input and of the output.
        mixer: `MultiheadAttention` or another `Mixer`, between target positions.
        cross: `MultiheadAttention`, from target positions to the source.
        feed_forward: Module applied to each position on its own.
        residual: `PreNorm`, `PostNorm` or a partial of one of them.
        dropout: Dropout of the outputs of the mixer, the attention to the source and the feed-forward network.
    """

    mixer: Any
    cross: Any

    def __init__(
        self,
        *,
        dim: PositiveInt,
        mixer: nn.Module,
        cross: nn.Module,
        feed_forward: nn.Module,
        residual: Callable[..., Residual] = PreNorm,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(cross, MultiheadAttention):
            raise ValueError(f"{type(cross).__name__} cannot attend to a source: give MultiheadAttention as cross")
        check(cross, Use.CROSS | Use.DECODING, "a decoder's attention to its source")
        self.mixer = mixer
        self.mixed = residual(dim=dim, dropout=dropout)
        self.cross = cross
        self.crossed = residual(dim=dim, dropout=dropout)
        if isinstance(self.crossed, PreNorm) and not cross.attend.is_content_based:
            self.crossed.norm = nn.Identity()  # it would be of queries alone, which nothing reads
        self.feed_forward = feed_forward
        self.fed = residual(dim=dim, dropout=dropout)

    def prepare(self, source: Float[Tensor, "b k s"], support: DenseSupport | None = None) -> KVCache:
        """Projects the source once; `forward` and `start` take the result in place of the source."""
        return self.cross.prepare(source, support)  # type: ignore[no-any-return]

    def start(
        self, source: Float[Tensor, "b k s"] | KVCache, source_support: DenseSupport | None = None
    ) -> DecoderState:
        """Returns the state before the first step."""
        return DecoderState(None, self._ensure_prepared(source, source_support), 0)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        source: Float[Tensor, "b k s"] | KVCache,
        support: DenseSupport | None = None,
        source_support: DenseSupport | None = None,
    ) -> Float[Tensor, "b n d"]:
        """Computes all target positions in one pass. Default for `support`: `DenseSupport(causal=True)`."""
        support = DenseSupport(causal=True) if support is None else support
        y, _ = self.mixer(self.mixed.branch_input(x), support=support)
        return self._attend(self.mixed.add_branch(x, y), self._ensure_prepared(source, source_support), 0)[0]

    def step(
        self, x: Float[Tensor, "b n d"], state: DecoderState, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], DecoderState]:
        """Computes the positions of the causal pass that follow those in `state`.

        Args:
            x: With several hypotheses in the state, each is a row of its own, sentence by sentence, at one position.
            state: State returned by `start` or by the previous step.
            support: Causal support from these positions to all positions so far, including these. Default: no mask.

        Returns:
            The output at these positions, and the state after them.
        """
        if state.hypotheses > 1 and x.shape[1] != 1:
            raise ValueError(f"hypotheses that share a source go on by one position at a time, not by {x.shape[1]}")
        y, own = self.mixer.step(self.mixed.branch_input(x), state.own, support)
        y = self.mixed.add_branch(x, y)
        if state.hypotheses == 1:
            y, cross = self._attend(y, state.cross, state.position)
        else:
            beside = y.reshape(-1, state.hypotheses, y.shape[2])
            beside, cross = self._attend(beside, state.cross, state.position, parallel_hypotheses=True)
            y = beside.view(y.shape)
        return y, replace(state, own=own, cross=cross, position=state.position + x.shape[1])

    def _ensure_prepared(self, source: Tensor | KVCache, support: DenseSupport | None) -> KVCache:
        if not isinstance(source, KVCache):
            return self.prepare(source, support)
        return source if support is None else source.zero_masked(support)

    def _attend(
        self, x: Tensor, source: KVCache, first: int, *, parallel_hypotheses: bool = False
    ) -> tuple[Tensor, KVCache]:
        y, source = self.cross.attend_step(
            self.crossed.branch_input(x), source, first, parallel_hypotheses=parallel_hypotheses
        )
        return _apply_feed_forward(self, self.crossed.add_branch(x, y)), source


def _apply_feed_forward(block: EncoderBlock | DecoderBlock, x: Tensor) -> Tensor:
    return block.fed.add_branch(x, block.feed_forward(block.fed.branch_input(x)))
