"""The base of mechanisms that never compute pairs of queries and keys."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.kv_cache import KVCache, repeat_kv
from zoo.attention.mechanism import Position, Traits, Use, check_widths
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport

_SUMMED = "sums the keys once for all queries"


class PairFreeAttention(AttentionSite):
    """Implements what these mechanisms share: positions, and keys and values that are cleaned once."""

    traits = Traits(
        layouts=(DenseSupport,),
        unsupported={
            Use.DECODING: "has no weights over a source, and would read all of its keys again at every step",
            Use.MASKED_QUERIES: _SUMMED,
        },
    )
    reason = ""
    """Reason, reported by a recorder, why there are no weights."""
    longest: int | None = None
    """Largest number of keys, if the mechanism is limited to one."""

    def set_position(self, position: Position) -> None:
        """Sets the position of queries and keys; only positions that turn them are possible."""
        kind = type(position)
        if kind.bias is not Position.bias or kind.add_context is not Position.add_context:
            raise ValueError(
                f"{type(self).__name__} computes no pairs to which {kind.__name__} could add; use a position "
                "that rotates queries and keys, such as Rotary"
            )
        self.position = position

    def prepare(
        self, key: Float[Tensor, "b g k d"], value: Float[Tensor, "b g k v"], support: DenseSupport, start: int = 0
    ) -> KVCache:
        key, value = support.zero_masked(key), support.zero_masked(value)
        return KVCache(key if self.position is None else self.position.turn(key, start), value, support)

    def check(
        self,
        query: Float[Tensor, "..."],
        key: Float[Tensor, "..."],
        value: Float[Tensor, "..."],
        support: DenseSupport,
    ) -> None:
        """Refuses shapes and masks that do not fit each other."""
        support.check(query, key, value)
        check_widths(query, key)
        self.key_mask(support)

    def repeat_for_heads(
        self, heads: int, memory: KVCache, support: DenseSupport
    ) -> tuple[Float[Tensor, "b _g k d"], Float[Tensor, "b _g k v"]]:
        """Returns the keys and values, repeated for the query heads if the mask differs by head.

        A sum over keys can be shared by a group of query heads only if all of them see the same keys.
        """
        mask = self.key_mask(support)
        if mask is None or mask.shape[1] == 1 or memory.key.shape[1] == memory.value.shape[1] == heads:
            return memory.key, memory.value
        return support.zero_masked(repeat_kv(memory.key, heads)), support.zero_masked(repeat_kv(memory.value, heads))

    def key_mask(self, support: DenseSupport) -> Bool[Tensor, "#b #h 1 #k"] | None:
        """Returns the mask of keys. It must be the same for every query, because keys are summed once."""
        if support.permitted is not None and support.permitted.shape[2] != 1:
            raise ValueError(
                f"{type(self).__name__} {_SUMMED}; its mask must be the same for each, "
                f"(b, h, 1, k), got {tuple(support.permitted.shape)}"
            )
        return support.permitted
