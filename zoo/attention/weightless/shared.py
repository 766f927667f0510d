"""The base of mechanisms that never compute pairs of queries and keys."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.checks import check_serves, check_widths
from zoo.attention.memory import Memory, per_query_head
from zoo.attention.observing.record import Tap
from zoo.attention.positions.relative import Position
from zoo.attention.supports.dense import DenseSupport


class Weightless(nn.Module):
    """Implements what these mechanisms share with `Attend`: positions, supports and the Tap."""

    supports = (DenseSupport,)
    remembers = False
    batchable = True
    not_decoding = "has no weights over a source, and would read all of its keys again at every step"
    not_by_query = "sums the keys once for all queries"
    reason = ""
    """Reason, reported by a recorder, why there are no weights."""
    longest: int | None = None
    """Largest number of keys, if the mechanism is limited to one."""

    position: Position | None

    def __init__(self) -> None:
        super().__init__()
        self.position = None
        self.tap = Tap()

    def place(self, position: Position) -> None:
        """Sets the position of queries and keys; only positions that turn them are possible."""
        kind = type(position)
        if kind.bias is not Position.bias or kind.add_context is not Position.add_context:
            raise ValueError(
                f"{type(self).__name__} computes no pairs to which {kind.__name__} could add; use a position "
                "that rotates queries and keys, such as Rotary"
            )
        self.position = position

    def require(self, support: type, user: str) -> None:
        """Refuses, at start-up, supports other than `DenseSupport`."""
        check_serves(self, support, user)

    def prepare(
        self, key: Float[Tensor, "b g k d"], value: Float[Tensor, "b g k v"], support: DenseSupport, start: int = 0
    ) -> Memory:
        """Prepares keys and values for `read`: see `Attend.prepare`."""
        key, value = support.clean(key), support.clean(value)
        return Memory(key if self.position is None else self.position.turn(key, start), value, support)

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

    def for_heads(
        self, heads: int, memory: Memory, support: DenseSupport
    ) -> tuple[Float[Tensor, "b _g k d"], Float[Tensor, "b _g k v"]]:
        """Returns the keys and values, repeated for the query heads if the mask differs by head.

        A sum over keys can be shared by a group of query heads only if all of them see the same keys.
        """
        mask = self.key_mask(support)
        if mask is None or mask.shape[1] == 1 or memory.key.shape[1] == memory.value.shape[1] == heads:
            return memory.key, memory.value
        return support.clean(per_query_head(memory.key, heads)), support.clean(per_query_head(memory.value, heads))

    def key_mask(self, support: DenseSupport) -> Bool[Tensor, "#b #h 1 #k"] | None:
        """Returns the mask of keys. It must be the same for every query, because keys are summed once."""
        if support.permitted is not None and support.permitted.shape[2] != 1:
            raise ValueError(
                f"{type(self).__name__} {self.not_by_query}; its mask must be the same for each, "
                f"(b, h, 1, k), got {tuple(support.permitted.shape)}"
            )
        return support.permitted
