"""Softmax attention over a fixed number of linear combinations of the keys."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import accumulation_dtype
from zoo.attention.kv_cache import KVCache, repeat_kv
from zoo.attention.linear.base import PairFreeAttention
from zoo.attention.mechanism import Traits, Use
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges

# Up to this number, storing all weights is faster than a fused kernel, which recomputes them; more take much memory.
_FEW = 1 << 20
_WHOLE = "mixes all positions before a query sees them, and so cannot be causal"


@validate_ranges
class Linformer(PairFreeAttention):
    """softmax(q · (E K) / sqrt(d)) (F V), with E and F of slots x length (Wang et al. 2020, eq. 7).

    The weights are over slots, each a mixture of all positions, so there are no weights over positions to observe. The
    implied weights are the product of the weights and F; they may be negative, and rows need not sum to one.

    A shorter sequence uses the first columns of E and F. Masked keys are set to zero before they are mixed, so padding
    gives the same result as a shorter sequence; the softmax is always over all slots. The mechanism cannot be causal,
    because every slot mixes all positions.

    Cost: O(n s d)
    Weights: over slots, not positions; implied on request

    Args:
        dim: Width of one head.
        heads: Number of heads.
        length: Length of the longest sequence of keys.
        slots: Number of slots, s.
        share: Sharing of E and F: `"nothing"` gives each head its own, `"heads"` shares them between heads, and
            `"heads and values"` also sets F = E (section 4, headwise and key-value sharing).
    """

    reason = "its weights are over mixtures of positions; record(..., implied=True) gives their product with F"
    traits = Traits(layouts=(DenseSupport,), unsupported={Use.CAUSAL: _WHOLE})

    def __init__(
        self,
        *,
        dim: PositiveInt,
        heads: PositiveInt,
        length: PositiveInt,
        slots: PositiveInt = 256,
        share: Literal["nothing", "heads", "heads and values"] = "heads",
    ) -> None:
        super().__init__()
        if share not in ("nothing", "heads", "heads and values"):
            raise ValueError(f"share is 'nothing', 'heads' or 'heads and values', got {share!r}")
        self.longest = length
        count = heads if share == "nothing" else 1
        self.mix_keys = nn.Parameter(torch.empty(count, slots, length))
        self.mix_values = (
            self.mix_keys if share == "heads and values" else nn.Parameter(torch.empty(count, slots, length))
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws E and F from N(0, 1/slots), which preserves norms on average (proof of theorem 2)."""
        for mix in {self.mix_keys, self.mix_values}:
            nn.init.normal_(mix, std=mix.shape[1] ** -0.5)

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k v"],
        support: DenseSupport,
        state: None = None,
    ) -> tuple[Float[Tensor, "b h q v"], None]:
        """Computes the context of each query; for shapes see `DenseSupport`."""
        self.check(query, key, value, support)
        return self._attend(query, self.prepare(key, value, support), support)

    def read(
        self,
        query: Float[Tensor, "b h q d"],
        memory: KVCache,
        support: DenseSupport | None = None,
        state: None = None,
    ) -> tuple[Float[Tensor, "b h q v"], None]:
        """Computes `forward` for keys and values that `prepare` returned."""
        support = memory.support if support is None else support
        self.check(query, memory.key, memory.value, support)
        return self._attend(query, memory.zero_masked(support), support)

    def _attend(
        self, query: Float[Tensor, "b h q d"], memory: KVCache, support: DenseSupport
    ) -> tuple[Float[Tensor, "b h q v"], None]:
        key, value = self.repeat_for_heads(query.shape[1], memory, support)
        if support.causal:
            raise ValueError(f"Linformer {_WHOLE}")
        length = self.mix_keys.shape[-1]
        if key.shape[2] > length:
            raise ValueError(f"Linformer was made for at most length={length} keys, got {key.shape[2]}")
        query = support.zero_blind_queries(query, key)
        if self.position is not None:
            query = self.position.turn_query(query, key, support)
        dtype = value.dtype
        with torch.autocast(query.device.type, enabled=False):
            query, key, value = (x.to(accumulation_dtype(query)) for x in (query, key, value))
            heads = query.shape[1]
            slots, mixed = self._mix(self.mix_keys, key, heads), self._mix(self.mix_values, value, heads)
            if self.probe.is_open:
                self._show(query, slots, key.shape[2], support)
            if query.shape[:3].numel() * slots.shape[2] <= _FEW:
                context = _weights(query, slots) @ mixed
            else:
                context = F.scaled_dot_product_attention(query, slots, mixed)
        return context.to(dtype), None

    def _mix(self, mix: Tensor, x: Float[Tensor, "b g n d"], heads: int) -> Float[Tensor, "b h s d"]:
        """Computes the slots of keys or values, for every query head."""
        part = mix[..., : x.shape[2]].to(x.dtype)
        if len(part) > 1:
            return part @ repeat_kv(x, heads)
        # one product for all heads
        return repeat_kv(torch.einsum("sn,bgnd->bgsd", part[0], x), heads)

    def _show(
        self,
        query: Float[Tensor, "b h q d"],
        slots: Float[Tensor, "b h s d"],
        keys: int,
        support: DenseSupport,
    ) -> None:
        self.probe.silent(self.reason)
        if not self.probe.wants_implied:
            return
        with torch.set_grad_enabled(self.probe.wants_gradient and torch.is_grad_enabled()):
            pairs = _weights(query, slots) @ self.mix_values[..., :keys].to(query.dtype)
            mask = support.mask_of(pairs)
            self.probe.emit(pairs if mask is None else pairs.masked_fill(~mask, 0.0), support, implied=True)


def _weights(query: Float[Tensor, "b h q d"], slots: Float[Tensor, "b h s d"]) -> Float[Tensor, "b h q s"]:
    scores: Tensor = query * query.shape[-1] ** -0.5 @ slots.mT
    return scores.softmax(-1)
