"""Attention in linear time: a kernel phi(q) · phi(k) replaces the exponential, so that keys can be summed first.

Only the sums are kept, so there are no weights to record. On request (`record(model, implied=True)`) the normalized
phi(q) · phi(k) is computed for every pair, at the quadratic cost of softmax attention.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.attention.attention_state import LinearState
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.kv_cache import KVCache, repeat_kv
from zoo.attention.linear.base import PairFreeAttention
from zoo.attention.supports.dense import DenseSupport

_BLOCK = 128
_LARGEST, _PART = 16 * 2**20, 4 * 2**20
"""Bytes of features that are computed at once, and bytes of a part where there are more.

From 32 MiB on, the allocator of a CPU maps new memory for every tensor, which is slow.
"""


class KernelAttention(PairFreeAttention, ABC):
    """sum_j phi(q) · phi(k_j) v_j / sum_j phi(q) · phi(k_j), with phi defined by the subclass."""

    reason = (
        "it sums over keys before it reads queries, and has no weights; record(..., implied=True) gives phi(q) · phi(k)"
    )

    @abstractmethod
    def size(self, width: int) -> int:
        """Returns the number of features of phi for vectors of a width."""

    def projection(self, query: Float[Tensor, "b h q d"]) -> Float[Tensor, "h d f"] | None:
        """Returns the projection that phi uses in this pass; recomputation in the backward pass uses the same one."""
        return None

    @abstractmethod
    def map_query(
        self,
        query: Float[Tensor, "b h q d"],
        projection: Float[Tensor, "h d f"] | None,
        scale: Float[Tensor, "b h f"],
    ) -> Float[Tensor, "b h q f"]:
        """Computes phi of queries, for keys whose features were divided by exp(scale)."""

    @abstractmethod
    def map_key(
        self,
        key: Float[Tensor, "b h k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        before: LinearState,
    ) -> tuple[Float[Tensor, "b h k f"], Float[Tensor, "b h f"] | None]:
        """Computes phi of keys, and the logarithm of the number that each feature was divided by (None for 1)."""

    def start(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"], support: DenseSupport
    ) -> LinearState:
        """Returns the sums before the first key."""
        dtype = accumulation_dtype(query)
        shape = *query.shape[:2], self.size(query.shape[-1])
        sums = torch.zeros(*shape, 1, dtype=dtype, device=query.device)
        return LinearState(sums, sums.new_full(shape, torch.finfo(dtype).min), length=0)

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k v"],
        support: DenseSupport,
        state: LinearState | None = None,
    ) -> tuple[Float[Tensor, "b h q v"], LinearState | None]:
        """Computes the context of each query.

        Args:
            state: Sums over earlier keys; `key` and `value` then hold only the keys after those.

        Returns:
            The context of each query, and the sums including these keys (None if no state was given).
        """
        self.check(query, key, value, support)
        memory = self.prepare(key, value, support, 0 if state is None else state.length)
        return self._attend(query, memory, support, state)

    def read(
        self,
        query: Float[Tensor, "b h q d"],
        memory: KVCache,
        support: DenseSupport | None = None,
        state: LinearState | None = None,
    ) -> tuple[Float[Tensor, "b h q v"], LinearState | None]:
        """Computes `forward` for keys and values that `prepare` returned."""
        support = memory.support if support is None else support
        self.check(query, memory.key, memory.value, support)
        return self._attend(query, memory.zero_masked(support), support, state)

    def follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b g n d"],
        value: Float[Tensor, "b g n v"],
        support: DenseSupport,
        memory: LinearState | KVCache | None = None,
    ) -> tuple[Float[Tensor, "b h n v"], LinearState]:
        """Computes causal self-attention at the positions that follow those in the memory.

        Returns:
            The context of each query, and the sums over all keys so far.
        """
        here = support.select_last_keys(key.shape[2])
        if isinstance(memory, KVCache):
            before = DenseSupport(memory.support.permitted, causal=True)
            memory = self._attend(query[:, :, :0], memory, before, self.start(query, key, here))[1]
        return self(query, key, value, here, self.start(query, key, here) if memory is None else memory)  # type: ignore[no-any-return]

    def _attend(
        self, query: Float[Tensor, "b h q d"], memory: KVCache, support: DenseSupport, state: LinearState | None
    ) -> tuple[Float[Tensor, "b h q v"], LinearState | None]:
        key, value = self.repeat_for_heads(query.shape[1], memory, support)
        if state is not None and (not support.causal or query.shape[2] > key.shape[2]):
            raise ValueError("a state of sums needs causal attention, with at least one key for each query")
        if state is None or not state.length:
            query = support.zero_blind_queries(query, key)
        mask = self.key_mask(support)
        if self.position is not None:
            first = support.first_position(query, key) + (0 if state is None else state.length)
            query = self.position.turn(query, first)
        key, value = (repeat_kv(x, query.shape[1]) for x in (key, value))
        if support.causal and support.later:
            seen_keys = slice(0, max(key.shape[2] - support.later, 0))
            key, value = key[:, :, seen_keys], value[:, :, seen_keys]
            mask = mask if mask is None or mask.shape[-1] == 1 else mask[..., seen_keys]
        mask = None if mask is None else mask.mT
        sums = self.start(query, key, support) if state is None else state
        with torch.autocast(query.device.type, enabled=False):
            projection = self.projection(query)
            if self.probe.is_open:
                self._show(query, key, projection, mask, support, state)
            part = self._part(query, key)
            if support.causal:
                context, sums = self._attend_causally(query, key, value, mask, projection, sums, part)
            else:
                for keys in split_parts(part, key, value, mask):
                    sums = _run(part, self._add, *keys, projection, sums)
                read = [_run(part, self._read, *queries, projection, sums) for queries in split_parts(part, query)]
                context = concatenate(read).to(value.dtype)
        return context, None if state is None else sums

    def _part(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> int | None:
        """Returns the number of positions that are computed together; None for all."""
        if torch.compiler.is_compiling() or query.device.type != "cpu":
            return None
        position = query.shape[0] * query.shape[1] * self.size(query.shape[3]) * accumulation_dtype(query).itemsize
        if max(query.shape[2], key.shape[2]) * position <= _LARGEST:
            return None
        return max(_PART // position // _BLOCK, 1) * _BLOCK

    def _attend_causally(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h k d"],
        value: Float[Tensor, "b h k v"],
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        projection: Float[Tensor, "h d f"] | None,
        sums: LinearState,
        part: int | None,
    ) -> tuple[Float[Tensor, "b h q v"], LinearState]:
        """Computes causal attention where the last query stands at the last key.

        There may be more queries than keys (the first queries then see no key) or more keys than queries.
        """
        blind, early = (max(n, 0) for n in (query.shape[2] - key.shape[2], key.shape[2] - query.shape[2]))
        if early:
            earlier, (key, value, mask) = zip(*(_cut(x, early) for x in (key, value, mask)), strict=True)
            for keys in split_parts(part, *earlier):
                sums = _run(part, self._add, *keys, projection, sums)
        of_parts = [query.new_zeros(*query.shape[:2], blind, value.shape[3], dtype=value.dtype)] if blind else []
        for both in split_parts(part, query[:, :, blind:] if blind else query, key, value, mask):
            context, sums = _run(part, self._follow, *both, projection, sums)
            of_parts.append(context)
        return concatenate(of_parts), sums

    def split_blocks(self, *tensors: Tensor | None) -> Iterable[tuple[Any, ...]]:
        """Splits the tensors into blocks of positions whose pairs are computed together."""
        return split_parts(_BLOCK, *tensors)

    def _add(
        self,
        key: Float[Tensor, "b h k d"],
        value: Float[Tensor, "b h k v"],
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        projection: Float[Tensor, "h d f"] | None,
        sums: LinearState,
    ) -> LinearState:
        """Adds these keys to the sums."""
        of_key, scale = self.map_key(upcast(key), projection, mask, sums)
        return sums.step(sums.sums_at(scale) + of_key.mT @ append_count(value, mask), scale, key.shape[2])

    def _read(
        self, query: Float[Tensor, "b h q d"], projection: Float[Tensor, "h d f"] | None, sums: LinearState
    ) -> Float[Tensor, "b h q v"]:
        """Computes the context of queries that see all keys in the sums."""
        return _normalize_sums(self.map_query(upcast(query), projection, sums.scale) @ sums.sums)

    def _follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h n d"],
        value: Float[Tensor, "b h n v"],
        mask: Bool[Tensor, "#b #h #n 1"] | None,
        projection: Float[Tensor, "h d f"] | None,
        sums: LinearState,
    ) -> tuple[Float[Tensor, "b h n v"], LinearState]:
        """Computes the context of queries that see the sums and the keys up to their own, and adds the keys."""
        of_key, scale = self.map_key(upcast(key), projection, mask, sums)
        of_query = self.map_query(upcast(query), projection, sums.scale if scale is None else scale)
        context, total = _causal(of_query, of_key, append_count(value, mask), sums.sums_at(scale))
        return _normalize_sums(context).to(value.dtype), sums.step(total, scale, key.shape[2])

    def _show(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        support: DenseSupport,
        state: LinearState | None,
    ) -> None:
        self.probe.silent(self.reason)
        if not self.probe.wants_implied or state is not None:  # the keys in the sums cannot be told apart
            return
        with torch.set_grad_enabled(self.probe.wants_gradient and torch.is_grad_enabled()):
            self.probe.emit(self.compute_implied(query, key, projection, mask, support), support, implied=True)

    def compute_implied(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h _k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #_k 1"] | None,
        support: DenseSupport,
    ) -> Float[Tensor, "b h q k"]:
        """Computes phi(q) · phi(k) of all pairs, normalized; `key` is without the keys after the last query."""
        before = self.start(query, key, support)
        of_key, scale = self.map_key(upcast(key), projection, mask, before)
        of_query = self.map_query(upcast(query), projection, before.scale if scale is None else scale)
        pairs = of_query @ append_later(of_key, support).mT
        allowed = support.mask_of(pairs)
        pairs = pairs if allowed is None else pairs.masked_fill(~allowed, 0.0)
        norm = pairs.sum(-1, keepdim=True)
        return pairs / norm.masked_fill(norm == 0.0, 1.0)


class LinearAttention(KernelAttention):
    """phi(x) = elu(x) + 1 (Katharopoulos et al. 2020, eq. 5-7; causal: eq. 9-12).

    Causal attention is computed in blocks, from the pairs within a block and the sums of earlier blocks. As in the
    paper, queries and keys are not scaled. A rotary position turns them before phi, so the result depends on absolute
    positions too, not only on distances.

    Cost: O(n d^2)
    Weights: none; implied on request
    """

    def size(self, width: int) -> int:
        return width

    def map_query(
        self,
        query: Float[Tensor, "b h q d"],
        projection: Float[Tensor, "h d f"] | None,
        scale: Float[Tensor, "b h f"],
    ) -> Float[Tensor, "b h q f"]:
        return _elu_plus_one(query)

    def map_key(
        self,
        key: Float[Tensor, "b h k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        before: LinearState,
    ) -> tuple[Float[Tensor, "b h k f"], Float[Tensor, "b h f"] | None]:
        return _elu_plus_one(key), None


class _EluPlusOne(torch.autograd.Function):
    """Computes elu(x) + 1 from exp(x): `F.elu(x) + 1` is zero below -17 in fp32, and its backward pass needs x too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0.0).exp_().add_(x.relu())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        return result.clamp(max=1.0) * gradient  # type: ignore[no-any-return]


def _elu_plus_one(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    return _EluPlusOne.apply(x)  # type: ignore[no-any-return]


def append_later(x: Float[Tensor, "b h _k f"], support: DenseSupport) -> Float[Tensor, "b h k f"]:
    """Appends zeros for the keys after the last query, which no query sees."""
    return F.pad(x, (0, 0, 0, support.later if support.causal else 0))


def split_parts(size: int | None, *tensors: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Splits all tensors along their positions into parts of `size`; None and tensors of one position are repeated."""
    assert tensors[0] is not None
    length = tensors[0].shape[2]
    if size is None or length <= size:
        return [tensors]
    # the backward pass of split concatenates once; that of slices adds one full tensor for each slice
    every = (itertools.repeat(x) if x is None or x.shape[2] == 1 else torch.split(x, size, 2) for x in tensors)
    return zip(*every, strict=False)


def _cut(x: Tensor | None, at: int) -> tuple[Any, ...]:
    """Splits a tensor before a position; None and a tensor of one position are repeated."""
    return (x, x) if x is None or x.shape[2] == 1 else torch.split(x, [at, x.shape[2] - at], 2)


def _run(part: int | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function; if positions are split into parts, the backward pass recomputes it, so no features are kept."""
    if part is None or not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def concatenate(parts: list[Float[Tensor, "..."]]) -> Float[Tensor, "..."]:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def append_count(value: Float[Tensor, "b h k v"], mask: Bool[Tensor, "#b #h #k 1"] | None) -> Float[Tensor, "b h k v1"]:
    """Appends a last column to the values: 1 at keys, 0 at masked keys."""
    value = upcast(value)
    exists = value.new_ones(()) if mask is None else mask.to(value.dtype)
    return torch.cat([value, exists.expand(*value.shape[:3], 1)], -1)


def _normalize_sums(sums: Float[Tensor, "b h q v1"]) -> Float[Tensor, "b h q v"]:
    """Divides the sums by their last column; a row without keys has sum zero and stays zero."""
    context, norm = torch.split(sums, [sums.shape[-1] - 1, 1], -1)
    return context / norm.masked_fill(norm == 0.0, 1.0)


def _causal(
    query: Float[Tensor, "b h n f"],
    key: Float[Tensor, "b h n f"],
    value: Float[Tensor, "b h n v"],
    before: Float[Tensor, "b h f #v"],
) -> tuple[Float[Tensor, "b h n v"], Float[Tensor, "b h f v"]]:
    """Computes sum_{j<=i} (q_i · k_j) v_j for each query, and the sum of k_j v_j^T over all keys.

    Args:
        before: Initial value of the sum.
    """
    length = key.shape[2]
    sums = before.expand(*before.shape[:3], value.shape[3])
    if not length:
        return torch.zeros_like(value), sums
    block = min(_BLOCK, length)
    missing = -length % block
    blocks = (F.pad(x, (0, 0, 0, missing)) if missing else x for x in (query, key, value))
    of_query, of_key, of_value = (
        x.reshape(*x.shape[:2], (length + missing) // block, block, x.shape[3]) for x in blocks
    )
    running = torch.cat([sums.unsqueeze(2), of_key.mT @ of_value], 2).cumsum(2)
    within = (of_query @ of_key.mT).tril() @ of_value
    result = (within + of_query @ running[:, :, :-1]).flatten(2, 3)[:, :, :length]
    return result, running[:, :, -1]
