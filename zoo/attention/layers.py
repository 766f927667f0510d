"""Transformer blocks: a mixer of positions and a feed-forward network, each with its residual connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.checks import check_decodes
from zoo.attention.dropout import Dropout
from zoo.attention.kernels.products import Linear
from zoo.attention.memory import Memory
from zoo.attention.ranges import Count, Rate
from zoo.attention.supports.layouts import DenseSupport


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2 (Vaswani et al. 2017, eq. 2), with dropout of the hidden units.

    Args:
        dim: Width of input and result.
        width: Number of hidden units.
        activation: f, made anew for each block.
        dropout: Probability with which a hidden unit is dropped in training.
    """

    def __init__(
        self, *, dim: Count, width: Count, activation: Callable[[], nn.Module] = nn.ReLU, dropout: Rate = 0.0
    ) -> None:
        super().__init__()
        self.expand = Linear(dim, width)
        self.activation = activation()
        self.dropout = Dropout(dropout)
        self.contract = Linear(width, dim)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return self.contract(self.dropout(self.activation(self.expand(x))))  # type: ignore[no-any-return]


class Residual(Protocol):
    """How what f adds comes to x: `after(x, f(before(x)))`."""

    def before(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]: ...

    def after(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]: ...


class PostNorm(nn.Module):
    """norm(x + dropout(f(x))) (Vaswani et al. 2017, section 3.1).

    Args:
        dim: Width of x.
        dropout: Of f(x).
        norm: `dim -> module`.
        branch: Makes what changes dropout(f(x)) further before it is added: stochastic depth or a scale, say.
    """

    def __init__(
        self,
        *,
        dim: Count,
        dropout: Rate = 0.0,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        branch: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm(dim)
        self.dropout = Dropout(dropout)
        self.branch = None if branch is None else branch()

    def before(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """What f is given."""
        return x

    def after(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The result, where y = f(before(x))."""
        return self.norm(x + _added(self, y))  # type: ignore[no-any-return]


class PreNorm(nn.Module):
    """x + dropout(f(norm(x))) (Xiong et al. 2020, table 1); a stack of them ends with a norm of its own.

    Args:
        dim, dropout, norm, branch: As in `PostNorm`.
    """

    def __init__(
        self,
        *,
        dim: Count,
        dropout: Rate = 0.0,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        branch: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm(dim)
        self.dropout = Dropout(dropout)
        self.branch = None if branch is None else branch()

    def before(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """What f is given."""
        return self.norm(x)  # type: ignore[no-any-return]

    def after(self, x: Float[Tensor, "b n d"], y: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The result, where y = f(before(x))."""
        return x + _added(self, y)


class EncoderBlock(nn.Module):
    """A mixer and a feed-forward network; with a causal support, the block of a decoder without a source.

    Args:
        dim: Width of input and result.
        mixer: How positions learn of each other: `MultiHead`, or another `Mixer`.
        feed_forward: Of each position on its own.
        residual: `PreNorm`, `PostNorm` or a partial of one (of another norm, say).
        feed_residual: Of the feed-forward network, where it is not the mixer's.
        dropout: Of what the mixer and the feed-forward network add.
    """

    mixer: Any

    def __init__(
        self,
        *,
        dim: Count,
        mixer: nn.Module,
        feed_forward: nn.Module,
        residual: Callable[..., Residual] = PreNorm,
        feed_residual: Callable[..., Residual] | None = None,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        self.mixer = mixer
        self.mixed = residual(dim=dim, dropout=dropout)
        self.feed_forward = feed_forward
        self.fed = (residual if feed_residual is None else feed_residual)(dim=dim, dropout=dropout)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None, first: int | None = None
    ) -> Float[Tensor, "b m d"]:
        """All positions, or the first few if nobody needs the others: then these alone are fed forward."""
        y, _ = self.mixer(self.mixed.before(x), support=support)
        if first is not None:
            x, y = x[:, :first], y[:, :first]
        return _feed(self, self.mixed.after(x, y))

    def step(
        self, x: Float[Tensor, "b n d"], state: Any = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], Any]:
        """The rows of the causal pass that follow those in `state`, and the state after them: see `Mixer.step`."""
        y, state = self.mixer.step(self.mixed.before(x), state, support)
        return _feed(self, self.mixed.after(x, y)), state


@dataclass(frozen=True, eq=False)
class DecoderState:
    """What a block of a decoder keeps from one step to the next; `DecoderBlock.start` makes the first."""

    own: Any
    """Of the positions so far, as its mixer keeps them; None before the first."""
    cross: Memory
    """The source, prepared, and what was attended to there."""
    position: int
    """How many steps were done."""

    def reorder(self, beams: Int[Tensor, " beams"]) -> DecoderState:
        """The state of the hypotheses that survive, in their order."""
        own = None if self.own is None else self.own.reorder(beams)
        return DecoderState(own, self.cross.reorder(beams), self.position)


class DecoderBlock(nn.Module):
    """A causal mixer, attention to a source, and a feed-forward network (Vaswani et al. 2017, section 3.1).

    Args:
        dim: Width of input and result.
        mixer: How target positions learn of earlier ones: `MultiHead`, or another `Mixer`.
        cross: Attention to the source: `MultiHead`.
        feed_forward: Of each position on its own.
        residual: `PreNorm`, `PostNorm` or a partial of one (of another norm, say).
        dropout: Of what the mixer, the attention and the feed-forward network add.
    """

    mixer: Any
    cross: Any

    def __init__(
        self,
        *,
        dim: Count,
        mixer: nn.Module,
        cross: nn.Module,
        feed_forward: nn.Module,
        residual: Callable[..., Residual] = PreNorm,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        if not hasattr(cross, "look"):
            raise ValueError(f"{type(cross).__name__} cannot attend to a source: give MultiHead as cross")
        check_decodes(cross, "a decoder's attention to its source")
        self.mixer = mixer
        self.mixed = residual(dim=dim, dropout=dropout)
        self.cross = cross
        self.crossed = residual(dim=dim, dropout=dropout)
        self.feed_forward = feed_forward
        self.fed = residual(dim=dim, dropout=dropout)

    def prepare(self, source: Float[Tensor, "b k s"], support: DenseSupport | None = None) -> Memory:
        """The source as `forward` and `start` take it, for as many steps as there are."""
        return self.cross.prepare(source, support)  # type: ignore[no-any-return]

    def start(
        self, source: Float[Tensor, "b k s"] | Memory, source_support: DenseSupport | None = None
    ) -> DecoderState:
        """The state before the first step."""
        return DecoderState(None, self._prepared(source, source_support), 0)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        source: Float[Tensor, "b k s"] | Memory,
        support: DenseSupport | None = None,
        source_support: DenseSupport | None = None,
    ) -> Float[Tensor, "b n d"]:
        """All target positions at once. `support` is causal where none is given."""
        support = DenseSupport(causal=True) if support is None else support
        y, _ = self.mixer(self.mixed.before(x), support=support)
        return self._attend(self.mixed.after(x, y), self._prepared(source, source_support), 0)[0]

    def step(
        self, x: Float[Tensor, "b n d"], state: DecoderState, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], DecoderState]:
        """The rows of the causal pass that follow those in `state`, and the state after them.

        Args:
            state: What `start` or the step before returned.
            support: Of these positions and all so far, theirs included; causal where none is given.
        """
        y, own = self.mixer.step(self.mixed.before(x), state.own, support)
        y, cross = self._attend(self.mixed.after(x, y), state.cross, state.position)
        return y, DecoderState(own, cross, state.position + x.shape[1])

    def _prepared(self, source: Tensor | Memory, support: DenseSupport | None) -> Memory:
        if not isinstance(source, Memory):
            return self.prepare(source, support)
        return source if support is None else source.cleaned(support)

    def _attend(self, x: Tensor, source: Memory, first: int) -> tuple[Tensor, Memory]:
        y, source = self.cross.look(self.crossed.before(x), source, first)
        return _feed(self, self.crossed.after(x, y)), source


def _feed(block: EncoderBlock | DecoderBlock, x: Tensor) -> Tensor:
    return block.fed.after(x, block.feed_forward(block.fed.before(x)))


def _added(residual: PreNorm | PostNorm, y: Tensor) -> Tensor:
    y = residual.dropout(y)
    return y if residual.branch is None else residual.branch(y)
