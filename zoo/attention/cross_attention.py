"""Attention of a decoder to its source, whose states are combined as they are.

Goes: a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention import decoding
from zoo.attention.attention_state import AttentionState
from zoo.attention.kv_cache import KVCache
from zoo.attention.mechanism import Traits, Use, check
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges


class ZeroProjection(nn.Module):
    """Returns zeros that take no memory, in place of a projection that a mechanism does not use.

    Args:
        width: Width of the output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b {self.width}"]:
        return x.new_zeros(()).expand(*x.shape[:-1], self.width)


@validate_ranges
class CrossAttention(nn.Module):
    """c_i = sum_j a_ij h_j, a_i = normalize(score(W s_i, U h_j)) (Bahdanau et al. 2015, eq. 5-6 and appendix A.1.2).

    Queries and keys are projected without biases, and the states h are not projected. Without `hidden` nothing is
    projected: the mechanism compares s and h themselves, as the scores of Luong et al. 2015 (eq. 8) do.

    Cost: O(n m d)

    Args:
        dim: Width of a query.
        source_dim: Width of a state of the source, and of the context.
        attend: `(dim, heads) -> AttentionSite`, called with the width of queries and keys, and one head.
        hidden: Width of projected queries and keys. Default: they are not projected, and must be of one width.
        key_dim: Width of what keys are made of. Default: `source_dim`.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        source_dim: PositiveInt,
        attend: Callable[[int, int], AttentionSite],
        hidden: PositiveInt | None = None,
        key_dim: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        key_dim = source_dim if key_dim is None else key_dim
        compared = dim if hidden is None else hidden
        self.attend = attend(compared, 1)
        self.width = 0 if isinstance(self.attend, NoAttention) else source_dim
        if self.width:
            self.attend.check_layout(DenseSupport, "CrossAttention")
            check(self.attend, Use.CROSS | Use.DECODING, "attention to a source")
        self.query: nn.Module = nn.Identity()
        self.key: nn.Module = nn.Identity()
        if not self.attend.is_content_based:
            self.query, self.key = ZeroProjection(compared), ZeroProjection(compared)
        elif hidden is not None:
            self.query, self.key = nn.Linear(dim, hidden, bias=False), nn.Linear(key_dim, hidden, bias=False)
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
    ) -> KVCache:
        """Projects and cleans the keys of a sequence once, for all queries.

        Args:
            support: Support that is False at padding. Default: no padding.
            keys: What keys are made of. Default: `source`.
        """
        support = DenseSupport() if support is None else support
        value = support.zero_masked(source.unsqueeze(1))
        key = value if keys is None else support.zero_masked(keys.unsqueeze(1))
        return self.attend.prepare(self.key(key), value, support)

    def add_initial_state(self, memory: KVCache) -> KVCache:
        """Returns the memory with the state before the first query, so that `attend_step` sums up all weights."""
        return decoding.add_initial_state(self.attend, memory, heads=1) if self.width else memory

    def extend(
        self,
        memory: KVCache,
        source: Float[Tensor, "b k s"],
        support: DenseSupport | None = None,
        keys: Float[Tensor, "b k e"] | None = None,
    ) -> KVCache:
        """Appends later states of the source to the memory.

        Args:
            support: Support over all keys: those in the memory, then those of `source`.
            keys: What the later keys are made of. Default: `source`.
        """
        support = DenseSupport() if support is None else support
        later = self.prepare(source, support.select_last_keys(source.shape[1]), keys)
        return decoding.extend(self.attend, memory, later, support, heads=1)

    @property
    def is_streaming(self) -> bool:
        """True if a query can be answered before all keys are there: see `decoding.is_streaming`."""
        return decoding.is_streaming(self.attend)

    def is_waiting(self, memory: KVCache) -> Bool[Tensor, "b r"]:
        """Returns True where the last query needs later keys: see `decoding.is_waiting`."""
        return decoding.is_waiting(self.attend, memory)

    def skip(self, memory: KVCache) -> KVCache:
        """Returns the memory for a query that waits, when it is asked again with later keys: see `decoding.skip`."""
        return decoding.skip(self.attend, memory)

    def trim(self, memory: KVCache) -> tuple[KVCache, int]:
        """Returns the memory without the first keys that no later query reads, and their number."""
        count = decoding.count_unread(self.attend, memory)
        return (memory.drop_first(count) if count else memory), count

    def sees_last_key(self, memory: KVCache) -> Bool[Tensor, "b r"] | None:
        """Returns True where the next query sees the last key: see `decoding.sees_last_key`."""
        return decoding.sees_last_key(self.attend, memory)

    def is_past_end(self, memory: KVCache) -> Bool[Tensor, "b r"] | None:
        """Returns True where the last query passed all keys, which ends a text: see `decoding.is_past_end`."""
        return decoding.is_past_end(self.attend, memory)

    def attend_step(
        self, query: Float[Tensor, "b q d"], memory: KVCache, first: int = 0, *, parallel_hypotheses: bool = False
    ) -> tuple[Float[Tensor, "b q {self.width}"], KVCache]:
        """Computes the contexts of the next queries of a decoder: see `MultiheadAttention.attend_step`."""
        return self.attend_projected(self.query(query), memory, first, parallel_hypotheses=parallel_hypotheses)

    def attend_projected(
        self, query: Float[Tensor, "b q e"], memory: KVCache, first: int = 0, *, parallel_hypotheses: bool = False
    ) -> tuple[Float[Tensor, "b q {self.width}"], KVCache]:
        """Computes `attend_step` for queries that are already projected."""
        context, memory = decoding.attend_step(
            self.attend, query.unsqueeze(1), memory, first, parallel_hypotheses=parallel_hypotheses
        )
        return context.squeeze(1), memory


class NoAttention(AttentionSite):
    """No context: a decoder knows of its source what its first state holds (Sutskever et al. 2014).

    The control of all mechanisms, for models that can do without one. It refuses the others.

    Cost: O(1)
    """

    traits = Traits(content_based=False)

    def check_layout(self, layout: type, user: str) -> None:
        raise ValueError(
            f"attention=none is for recurrent decoders, which can start from a summary of their source: {user} has "
            "nothing but attention to read with; attention=uniform gives all places the same weight"
        )

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "..."],
        value: Float[Tensor, "..."],
        support: DenseSupport,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "b h q 0"], None]:
        return self.read(query, self.prepare(key, value, support))

    def prepare(
        self, key: Float[Tensor, "..."], value: Float[Tensor, "..."], support: DenseSupport, start: int = 0
    ) -> KVCache:
        return KVCache(key[..., :0], value[..., :0], support)

    def read(
        self,
        query: Float[Tensor, "b h q d"],
        memory: KVCache,
        support: DenseSupport | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "b h q 0"], None]:
        if self.probe.is_open:
            self.probe.silent("it is the control without attention")
        return query.new_zeros(*query.shape[:3], 0), None
