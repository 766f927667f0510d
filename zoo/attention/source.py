"""Attention of a decoder to its source, whose states are combined as they are.

Goes: a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.attend import Attend
from zoo.attention.checks import check_decodes
from zoo.attention.kernels.products import Linear
from zoo.attention.memory import Memory
from zoo.attention.observing.record import Tap
from zoo.attention.ranges import Count
from zoo.attention.state import AttentionState
from zoo.attention.supports.dense import DenseSupport


class Unread(nn.Module):
    """Returns zeros that take no memory, in place of a projection that a mechanism does not use.

    Args:
        width: Width of the output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b {self.width}"]:
        return x.new_zeros(()).expand(*x.shape[:-1], self.width)


class SourceAttention(nn.Module):
    """c_i = sum_j a_ij h_j, a_i = normalise(score(W s_i, U h_j)) (Bahdanau et al. 2015, eq. 5-6 and appendix A.1.2).

    Queries and keys are projected without biases, and the states h are not projected. Without `hidden` nothing is
    projected: the mechanism compares s and h themselves, as the scores of Luong et al. 2015 (eq. 8) do.

    Cost: O(n m d)

    Args:
        dim: Width of a query.
        source_dim: Width of a state of the source, and of the context.
        attend: `(dim, heads) -> Attend`, called with the width in which queries and keys are compared and one head.
        hidden: Width of projected queries and keys. Default: they are not projected, and must be of one width.
        key_dim: Width of what keys are made of. Default: `source_dim`.
    """

    def __init__(
        self,
        *,
        dim: Count,
        source_dim: Count,
        attend: Callable[[int, int], Attend],
        hidden: Count | None = None,
        key_dim: Count | None = None,
    ) -> None:
        super().__init__()
        key_dim = source_dim if key_dim is None else key_dim
        compared = dim if hidden is None else hidden
        self.attend: Any = attend(compared, 1)
        self.width = source_dim if getattr(self.attend, "reads_source", True) else 0
        if self.width:
            self.attend.require(DenseSupport, "SourceAttention")
            check_decodes(self.attend, "attention to a source")
        self.query: nn.Module = nn.Identity()
        self.key: nn.Module = nn.Identity()
        if not getattr(self.attend, "compares", True):
            self.query, self.key = Unread(compared), Unread(compared)
        elif hidden is not None:
            self.query, self.key = Linear(dim, hidden, bias=False), Linear(key_dim, hidden, bias=False)
        elif key_dim != dim:
            raise ValueError(
                f"queries have width {dim} and keys {key_dim}: give hidden, a width that both are projected to, or "
                "make the two widths the same"
            )

    def prepare(
        self,
        source: Float[Tensor, "b k s"],
        support: DenseSupport | None = None,
        keys: Float[Tensor, "b k e"] | None = None,
    ) -> Memory:
        """Projects and cleans the keys of a sequence once, for all queries.

        Args:
            support: Support that is False at padding. Default: no padding.
            keys: What keys are made of. Default: `source`.
        """
        support = DenseSupport() if support is None else support
        value = support.clean(source.unsqueeze(1))
        key = value if keys is None else support.clean(keys.unsqueeze(1))
        memory: Memory = self.attend.prepare(self.key(key), value, support)
        return memory

    def tracked(self, memory: Memory) -> Memory:
        """Returns the memory of a source with the state before the first query, so that `look` sums up all weights."""
        return tracked(self.attend, memory, heads=1) if self.width else memory

    def extend(
        self,
        memory: Memory,
        source: Float[Tensor, "b k s"],
        support: DenseSupport | None = None,
        keys: Float[Tensor, "b k e"] | None = None,
    ) -> Memory:
        """Appends later states of the source to the memory.

        Args:
            support: Support over all keys: those in the memory, then those of `source`.
            keys: What the later keys are made of. Default: `source`.
        """
        support = DenseSupport() if support is None else support
        later = self.prepare(source, support.of_last_keys(source.shape[1]), keys)
        return extended(self.attend, memory, later, support, heads=1)

    @property
    def streams(self) -> bool:
        """True if a query can be answered before all keys are there: see `Attend.streams`."""
        return bool(self.width) and self.attend.streams

    def waits(self, memory: Memory) -> Bool[Tensor, "b r"]:
        """Returns True where the last query needs later keys: see `Attend.waits`."""
        found: Tensor = self.attend.waits(memory.attention)
        return found

    def skip(self, memory: Memory) -> Memory:
        """Returns the memory for a query that waits, when it is asked again with later keys: see `Attend.skip`."""
        found: Memory = self.attend.skip(memory)
        return found

    def trim(self, memory: Memory) -> tuple[Memory, int]:
        """Returns the memory without the first keys that no later query reads, and their number."""
        count: int = self.attend.count_unread(memory)
        return (memory.since(count) if count else memory), count

    def reaches_last(self, memory: Memory) -> Bool[Tensor, "b r"] | None:
        """Returns True where the next query sees the last key: see `Attend.reaches_last`."""
        return self.attend.reaches_last(memory) if self.width else None

    def passed(self, memory: Memory) -> Bool[Tensor, "b r"] | None:
        """Returns True where the last query passed all keys, which ends a text: see `Attend.passed`."""
        return self.attend.passed(memory) if self.width else None

    def look(
        self, query: Float[Tensor, "b q d"], memory: Memory, first: int = 0, *, side_by_side: bool = False
    ) -> tuple[Float[Tensor, "b q {self.width}"], Memory]:
        """Computes the contexts of the next queries of a decoder: see `MultiHead.look`."""
        return self.compare(self.query(query), memory, first, side_by_side=side_by_side)

    def compare(
        self, query: Float[Tensor, "b q e"], memory: Memory, first: int = 0, *, side_by_side: bool = False
    ) -> tuple[Float[Tensor, "b q {self.width}"], Memory]:
        """Computes `look` for queries that are already projected."""
        context, memory = look(self.attend, query.unsqueeze(1), memory, first, side_by_side=side_by_side)
        return context.squeeze(1), memory


class NoAttention(nn.Module):
    """No context: a decoder knows of its source what its first state holds (Sutskever et al. 2014).

    The control of all mechanisms, for models that can do without one. It refuses the others.

    Cost: O(1)
    """

    reads_source = False
    compares = False
    remembers = False
    numbers_queries = False

    def __init__(self) -> None:
        super().__init__()
        self.tap = Tap()

    def require(self, support: type, user: str) -> None:
        raise ValueError(
            f"attention=none is for recurrent decoders, which can start from a summary of their source: {user} has "
            "nothing but attention to read with; attention=uniform gives all places the same weight"
        )

    def prepare(self, key: Float[Tensor, "..."], value: Float[Tensor, "..."], support: DenseSupport) -> Memory:
        return Memory(key[..., :0], value[..., :0], support)

    def read(
        self,
        query: Float[Tensor, "b h q d"],
        memory: Memory,
        support: DenseSupport | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "b h q 0"], None]:
        if self.tap.is_open:
            self.tap.silent("it is the control without attention")
        return query.new_zeros(*query.shape[:3], 0), None


def look(
    attend: Any, query: Float[Tensor, "b h q d"], memory: Memory, first: int = 0, *, side_by_side: bool = False
) -> tuple[Float[Tensor, "b h q v"], Memory]:
    """Computes the attention of the next queries of a decoder, by heads: see `MultiHead.look`."""
    memory = memory.at_step(first) if attend.numbers_queries else memory
    state = begun(attend, query, memory.key, memory.support, memory.attention)
    if side_by_side:
        context, state = _side_by_side(attend, query, memory, state)
    else:
        context, state = attend.read(query, memory, None, state)
    return context, replace(memory, attention=state)


def tracked(attend: Any, memory: Memory, heads: int) -> Memory:
    """Returns the memory with the state before the first query."""
    nothing = memory.key.new_zeros(len(memory.key), heads, 1, 1)
    return replace(memory, attention=attend.start(nothing, memory.key, memory.support))


def extended(attend: Any, memory: Memory, later: Memory, support: DenseSupport, heads: int) -> Memory:
    """Returns the memory with later keys; a state of no keys, in which nothing has happened, begins again."""
    if memory.attention is not None and not memory.length:
        return tracked(attend, replace(later, support=support), heads)
    return memory.append(later, support)


def begun(
    attend: Any, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k e"], support: DenseSupport, state: Any
) -> Any:
    """Returns the state, or the initial state if none is given and the mechanism needs one."""
    return attend.start(query, key, support) if state is None and attend.remembers else state


def _side_by_side(
    attend: Any, query: Float[Tensor, "b h w e"], memory: Memory, state: AttentionState | None
) -> tuple[Float[Tensor, "b h w v"], AttentionState | None]:
    """Reads the memory for one query of each hypothesis: in one call, unless queries are told apart by number."""
    batch, _, hypotheses, _ = query.shape
    if state is not None and state.rows != hypotheses:  # nothing has been attended to: all begin alike
        state = state.of_rows(torch.zeros(batch, hypotheses, dtype=torch.long, device=query.device))
    if not attend.numbers_queries:
        return attend.read(query, memory, None, state)  # type: ignore[no-any-return]
    contexts, states = [], []
    for number in range(hypotheses):
        row = torch.full((batch, 1), number, device=query.device)
        own = None if state is None else state.of_rows(row)
        context, own = attend.read(query[:, :, number : number + 1], memory, None, own)
        contexts.append(context)
        states += [] if own is None else [own]
    return torch.cat(contexts, 2), AttentionState.joined(states) if states else None
