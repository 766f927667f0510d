"""Prepared keys and values: computed once for a sequence, and read by any number of decoding steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.supports.dense import DenseSupport


@dataclass(frozen=True, eq=False)
class KVCache:
    """Keys and values that `Attention.prepare` returns and `Attention.read` takes.

    Keys have as many heads as the projection of keys, unless the score makes a key for each query head (`General`,
    `Concat`).
    """

    key: Float[Tensor, "..."]
    value: Float[Tensor, "..."]
    support: Any
    """Support of the keys. Keys and values that it forbids to every query are zero."""
    attention: AttentionState | None = None
    """State after the queries so far, for mechanisms whose next query depends on it."""
    room: _Buffer | None = None
    """Larger buffers that hold these keys and values, and can take more behind them."""

    @property
    def length(self) -> int:
        return self.key.shape[2]

    def advance_to(self, first: int) -> KVCache:
        """Returns the memory for queries that follow `first` earlier ones."""
        support = self.support.advance_to(first)
        return self if support is self.support else replace(self, support=support)

    def zero_masked(self, support: Any) -> KVCache:
        """Returns the memory for another support; the same object if it was prepared for this one."""
        if support is self.support:
            return self
        return replace(
            self, key=support.zero_masked(self.key), value=support.zero_masked(self.value), support=support, room=None
        )

    def append(self, later: KVCache, support: Any) -> KVCache:
        """Returns a memory with the keys and values of `later` appended; this one does not change.

        Without gradients the buffers are twice as long as needed, so that most steps need not copy them.

        Args:
            support: Support over all keys, the appended ones included.
        """
        attention = None if self.attention is None else self.attention.extend(later.length)
        if torch.is_grad_enabled():
            key, value = torch.cat([self.key, later.key], 2), torch.cat([self.value, later.value], 2)
            return KVCache(key, value, support, attention)
        start, stop = self.length, self.length + later.length
        room = self.room
        if room is None or not room.has_place(start, stop):
            room = _Buffer(_allocate(self.key, 2 * stop), _allocate(self.value, 2 * stop), taken=start)
        room.key[:, :, start:stop] = later.key
        room.value[:, :, start:stop] = later.value
        room.taken = stop
        return KVCache(room.key[:, :, :stop], room.value[:, :, :stop], support, attention, room)

    def drop_first(self, first: int) -> KVCache:
        """Returns the memory without its first keys."""
        attention = None if self.attention is None else self.attention.drop_first(first)
        support = self.support.select_last_keys(self.length - first)
        return KVCache(self.key[:, :, first:], self.value[:, :, first:], support, attention)

    def reorder(self, beams: Int[Tensor, " beams"]) -> KVCache:
        """Returns the memory of the selected hypotheses, in the order of their indices `beams`."""
        attention = None if self.attention is None else self.attention.reorder(beams)
        support = self.support.reorder(beams)
        if self.room is None:
            return KVCache(self.key.index_select(0, beams), self.value.index_select(0, beams), support, attention)
        room = self.room.reorder(beams, self.length)
        return KVCache(room.key[:, :, : self.length], room.value[:, :, : self.length], support, attention, room)

    def select_rows(self, beams: Int[Tensor, "b r"]) -> KVCache:
        """Returns the memory with the attention of the selected hypotheses of each sentence; they share its keys."""
        return self if self.attention is None else replace(self, attention=self.attention.select_rows(beams))


def zero_masked_nonfinite(x: Float[Tensor, "b g n d"], support: DenseSupport) -> Float[Tensor, "b g n d"]:
    """Sets NaN and infinity at forbidden positions to zero; finite values stay, as later queries may see them."""
    mask = support.permitted
    if mask is None or mask.shape[0] not in (1, x.shape[0]) or mask.shape[3] not in (1, x.shape[2]):
        return x  # a mask that does not fit is refused later, when it is used with queries
    cleaned = support.zero_masked(x)
    return x if cleaned is x else torch.where(x.isfinite(), x, cleaned)


def repeat_kv(x: Float[Tensor, "..."], heads: int) -> Float[Tensor, "..."]:
    """Returns keys or values with each head repeated for the query heads that it serves; heads are axis 1."""
    if x.shape[1] == heads:
        return x
    return x.unsqueeze(2).expand(-1, -1, heads // x.shape[1], *x.shape[2:]).flatten(1, 2)


@dataclass(eq=False)
class _Buffer:
    """Buffers that several memories share.

    The first `taken` positions are in use. Only a memory that holds all of them may append in place.
    """

    key: Tensor
    value: Tensor
    taken: int

    def has_place(self, start: int, stop: int) -> bool:
        is_writable = torch.is_inference_mode_enabled() or not self.key.is_inference()
        return self.taken == start and stop <= self.key.shape[2] and is_writable

    def reorder(self, beams: Int[Tensor, " beams"], taken: int) -> _Buffer:
        """Copies whole buffers: faster than their first positions, and the copy has place for more."""
        return _Buffer(self.key.index_select(0, beams), self.value.index_select(0, beams), taken)


def _allocate(x: Float[Tensor, "b g k d"], length: int) -> Float[Tensor, "b g n d"]:
    wide = x.new_empty(*x.shape[:2], length, x.shape[3])
    wide[:, :, : x.shape[2]] = x
    return wide
