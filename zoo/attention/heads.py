"""Multi-head attention: projections around Attend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.attend import Attend, sized
from zoo.attention.positions import Position
from zoo.attention.products import Linear
from zoo.attention.state import AttentionState, LinearState
from zoo.attention.supports import DenseSupport


@dataclass(frozen=True, eq=False)
class Memory:
    """What is attended to, projected: once per sequence, however many steps look at it.

    A decoder's memory of its own sequence grows by `MultiHead.extend`. It holds key heads only, unless the score makes
    a key of its own for each head (`General`, `Concat`).
    """

    key: Float[Tensor, "b h k d"]
    value: Float[Tensor, "b g k d"]
    room: _Room | None = None
    """Where they stand, if there is place behind them."""

    def append(self, key: Float[Tensor, "b h n d"], value: Float[Tensor, "b g n d"]) -> Memory:
        """A memory with more behind; this one stays as it is.

        Without gradients more than needed is allocated, twice the length, so that most steps copy nothing.
        """
        if torch.is_grad_enabled():
            return Memory(torch.cat([self.key, key], 2), torch.cat([self.value, value], 2))
        start, stop = self.key.shape[2], self.key.shape[2] + key.shape[2]
        room = self.room
        if room is None or not room.has_place(start, stop):
            room = _Room(_widened(self.key, 2 * stop), _widened(self.value, 2 * stop), taken=start)
        room.key[:, :, start:stop] = key
        room.value[:, :, start:stop] = value
        room.taken = stop
        return Memory(room.key[:, :, :stop], room.value[:, :, :stop], room)

    def reorder(self, beams: Int[Tensor, " beams"]) -> Memory:
        """The memory of the hypotheses that survive, in their order."""
        return Memory(self.key.index_select(0, beams), self.value.index_select(0, beams))


class Unread(nn.Module):
    """Zeros that take no memory, in the place of a projection whose result no one looks at.

    Args:
        width: Of the result.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b {self.width}"]:
        return x.new_zeros(()).expand(*x.shape[:-1], self.width)


class MultiHead(nn.Module):
    """Concat(head_1 ... head_h) W_O (Vaswani et al. 2017, section 3.2.2).

    With fewer key heads than heads, each serves a group of neighbouring query heads (Ainslie et al. 2023, section 2.2;
    with one of them multi-query attention, Shazeer 2019): the memory of a decoder is smaller by that factor.

    Where the mechanism compares nothing (`Uniform`), there is no projection of queries and keys, nor a position whose
    only part is in their scores.

    Args:
        dim: Width of the queries and of the result.
        heads: Number of heads; must divide `dim`.
        attend: `(dim, heads) -> Attend`, called with the width of one head.
        position: Makes a sense of where queries and keys are; given those of the width of one head (`dim`) and `heads`
            that it asks for.
        key_heads: Number of heads of keys and values; must divide `heads`; as many as these if not given.
        source_dim: Width of what is attended to; that of the queries if not given.
        bias: Biases on the projections of queries, keys and values.
        out_bias: A bias on that of the result; as `bias` if not given.
        project: Whether there is W_O; without it the heads stand side by side.
    """

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        attend: Callable[[int, int], Attend],
        position: Callable[..., Position] | None = None,
        key_heads: int | None = None,
        source_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        project: bool = True,
    ) -> None:
        super().__init__()
        if out_bias and not project:
            raise ValueError("out_bias=True is of the projection of the result, and project=False leaves that out")
        if dim % heads:
            raise ValueError(f"dim={dim} is not divisible by heads={heads}")
        key_heads = heads if key_heads is None else key_heads
        if key_heads < 1 or heads % key_heads:
            raise ValueError(f"heads={heads} is not divisible by key_heads={key_heads}")
        source_dim = dim if source_dim is None else source_dim
        self.heads = heads
        self.key_heads = key_heads
        self.query: nn.Module = Linear(dim, dim, bias=bias)
        self.key: nn.Module = Linear(source_dim, dim // heads * key_heads, bias=bias)
        self.value = Linear(source_dim, dim // heads * key_heads, bias=bias)
        self.out = Linear(dim, dim, bias=bias if out_bias is None else out_bias) if project else nn.Identity()
        self.attend = attend(dim // heads, heads)
        compares = getattr(self.attend, "compares", True)
        if not compares:
            self.query, self.key = Unread(dim), Unread(dim // heads * key_heads)
        if position is not None:
            made = sized(position, {"dim": dim // heads, "heads": heads})
            if compares or made.needs_weights:
                self.attend.place(made)
        self.attend.require(DenseSupport, "MultiHead")

    def prepare(self, source: Float[Tensor, "b k s"]) -> Memory:
        """Keys and values of a sequence, for as many calls of `forward` as there are steps."""
        return self._projected(source, 0)

    def extend(self, memory: Memory | None, source: Float[Tensor, "b k s"]) -> Memory:
        """The memory with the positions of `source` after those that it holds."""
        if memory is None:
            return self.prepare(source)
        later = self._projected(source, memory.key.shape[2])
        return memory.append(later.key, later.value)

    def step(
        self, x: Float[Tensor, "b q d"], state: Memory | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b q d"], Memory]:
        """Causal self-attention of the positions that follow those in `state`: the next rows of the full pass.

        Args:
            support: Of these queries and all keys so far, theirs included; causal where none is given.
        """
        memory = self.extend(state, x)
        return self(x, memory, DenseSupport(causal=True) if support is None else support)[0], memory

    def forward(
        self,
        query: Float[Tensor, "b q d"],
        source: Float[Tensor, "b k s"] | Memory | None = None,
        support: DenseSupport | None = None,
        state: AttentionState | LinearState | None = None,
    ) -> tuple[Float[Tensor, "b q d"], AttentionState | LinearState | None]:
        """Self-attention where no source is given; with a `LinearState`, of positions after those that it sums."""
        if source is None:
            memory = self._projected(query, state.length if isinstance(state, LinearState) else 0)
        else:
            memory = source if isinstance(source, Memory) else self.prepare(source)
        support = DenseSupport() if support is None else support
        context, state = self.attend(_split(self.query(query), self.heads), memory.key, memory.value, support, state)
        return self.out(_joined(context)), state

    def between(
        self,
        query: Float[Tensor, "b q d"],
        key: Float[Tensor, "b k e"],
        value: Float[Tensor, "b k e"],
        support: DenseSupport,
    ) -> Float[Tensor, "b q d"]:
        """What `forward` does between its projections, for rows that were projected before they were put together."""
        memory = self._memory(key, value, 0)
        return _joined(self.attend(_split(query, self.heads), memory.key, memory.value, support)[0])

    def _projected(self, source: Float[Tensor, "b k s"], start: int) -> Memory:
        return self._memory(self.key(source), self.value(source), start)

    def _memory(self, key: Float[Tensor, "b k e"], value: Float[Tensor, "b k e"], start: int) -> Memory:
        return Memory(self.attend.prepare(_split(key, self.key_heads), start), _split(value, self.key_heads))


@dataclass(eq=False)
class _Room:
    """Tensors that memories share; `taken` positions are in use, and only who has all of them may take more."""

    key: Tensor
    value: Tensor
    taken: int

    def has_place(self, start: int, stop: int) -> bool:
        is_writable = torch.is_inference_mode_enabled() or not self.key.is_inference()
        return self.taken == start and stop <= self.key.shape[2] and is_writable


def _widened(x: Float[Tensor, "b g k d"], length: int) -> Float[Tensor, "b g n d"]:
    wide = x.new_empty(*x.shape[:2], length, x.shape[3])
    wide[:, :, : x.shape[2]] = x
    return wide


def _joined(x: Float[Tensor, "b h n e"]) -> Float[Tensor, "b n d"]:
    return x.transpose(1, 2).flatten(2)


def _split(x: Float[Tensor, "b n d"], heads: int) -> Float[Tensor, "b h n e"]:
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)
