"""The interface of attention sites: `Attention`, and mechanisms that take its place as a whole."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor

from zoo.attention.kv_cache import KVCache
from zoo.attention.mechanism import Mechanism, Position, check_layout
from zoo.attention.recording.recorder import AttentionProbe


class AttentionSite(Mechanism):
    """Computes contexts from queries, keys and values; networks are given a factory `(dim, heads) -> AttentionSite`."""

    allowed_traits = Mechanism.allowed_traits | {"content_based"}
    arguments = ("query", "key", "value", "support", "state")

    position: Position | None
    probe: AttentionProbe

    def __init__(self) -> None:
        super().__init__()
        self.position = None
        self.probe = AttentionProbe()

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "..."],
        key: Float[Tensor, "..."],
        value: Float[Tensor, "..."],
        support: Any,
        state: Any = None,
    ) -> tuple[Float[Tensor, "..."], Any]:
        """Returns the context of each query, and the state after these queries (None if none was given)."""

    @abstractmethod
    def prepare(self, key: Float[Tensor, "..."], value: Float[Tensor, "..."], support: Any, start: int = 0) -> KVCache:
        """Computes, once for a sequence, whatever depends on keys and values alone; `read` takes the result.

        Args:
            support: Keys and values that it forbids to every query become zero.
            start: Position of the first key.
        """

    @abstractmethod
    def read(
        self, query: Float[Tensor, "..."], memory: KVCache, support: Any = None, state: Any = None
    ) -> tuple[Float[Tensor, "..."], Any]:
        """Attends like `forward`, to keys and values that `prepare` has prepared.

        Args:
            support: Default: the support of the memory. With another one, every call cleans keys and values again.
        """

    def start(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Any) -> Any:
        """Returns the state before the first step of a decoder. Default: None, there is none."""
        return None

    def follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b g n dk"],
        value: Float[Tensor, "b g n v"],
        support: Any,
        memory: Any = None,
    ) -> tuple[Float[Tensor, "b h n v"], Any]:
        """Computes causal self-attention for the positions that follow those in the memory.

        Args:
            support: Support of these queries and of all keys so far.

        Returns:
            The context of each query, and the memory with the new keys and values.
        """
        raise ValueError(f"{type(self).__name__} cannot compute its positions step by step")

    def set_position(self, position: Position) -> None:
        """Sets the position of queries and keys."""
        raise ValueError(f"{type(self).__name__} uses no positions, and {type(position).__name__} is one")

    def check_layout(self, layout: type, user: str) -> None:
        """Refuses, at start-up, a mechanism that cannot work on this kind of support."""
        check_layout(self, layout, user)

    @property
    def is_content_based(self) -> bool:
        """True if the result depends on the numbers in queries and keys; otherwise they need no projections."""
        return self.traits.content_based

    @property
    def is_stateful(self) -> bool:
        """True if the weights of a query depend on the weights of the queries before it."""
        return False

    @property
    def is_position_dependent(self) -> bool:
        """True if the result of a query may depend on its number among the queries, through a position or a window."""
        return self.position is not None
