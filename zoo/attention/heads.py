"""Multi-head attention: projections around Attend."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.attend import Attend
from zoo.attention.state import AttentionState
from zoo.attention.supports import DenseSupport


class Memory(NamedTuple):
    """What is attended to, projected: once per sequence, however many steps look at it."""

    key: Float[Tensor, "b h k d"]
    value: Float[Tensor, "b h k d"]


class MultiHead(nn.Module):
    """Concat(head_1 ... head_h) W_O (Vaswani et al. 2017, section 3.2.2).

    Args:
        dim: Width of the queries and of the result.
        heads: Number of heads; must divide `dim`.
        attend: `(dim, heads) -> Attend`, called with the width of one head.
        source_dim: Width of what is attended to; that of the queries if not given.
        bias: Biases on the four projections.
    """

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        attend: Callable[[int, int], Attend],
        source_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} is not divisible by heads={heads}")
        source_dim = dim if source_dim is None else source_dim
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(source_dim, dim, bias=bias)
        self.value = nn.Linear(source_dim, dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)
        self.attend = attend(dim // heads, heads)
        self.attend.require(DenseSupport, "MultiHead")

    def prepare(self, source: Float[Tensor, "b k s"]) -> Memory:
        """Keys and values of a sequence, for as many calls of `forward` as there are steps."""
        return Memory(self.attend.prepare(self._split(self.key(source))), self._split(self.value(source)))

    def forward(
        self,
        query: Float[Tensor, "b q d"],
        source: Float[Tensor, "b k s"] | Memory | None = None,
        support: DenseSupport | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "b q d"], AttentionState | None]:
        """Self-attention where no source is given."""
        memory = source if isinstance(source, Memory) else self.prepare(query if source is None else source)
        support = DenseSupport() if support is None else support
        context, state = self.attend(self._split(self.query(query)), memory.key, memory.value, support, state)
        return self.out(context.transpose(1, 2).flatten(2)), state

    def _split(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n e"]:
        return x.view(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).transpose(1, 2)
