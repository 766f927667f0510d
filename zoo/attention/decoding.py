"""What decoders ask of attention sites: steps, several hypotheses of a sentence, and keys that are still to come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention import Attention
from zoo.attention.attention_state import AttentionState
from zoo.attention.kv_cache import KVCache
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport


def attend_step(
    site: AttentionSite,
    query: Float[Tensor, "b h q d"],
    memory: KVCache,
    first: int = 0,
    *,
    parallel_hypotheses: bool = False,
) -> tuple[Float[Tensor, "b h q v"], KVCache]:
    """Computes the attention of the next queries of a decoder to its source.

    Args:
        first: Number of queries before these.
        parallel_hypotheses: If True, the queries do not follow each other: each is the next one of its own hypothesis,
            and the hypotheses of a sentence share its keys.

    Returns:
        The context of each query, and the memory with their attention state.
    """
    memory = memory.advance_to(first) if site.is_position_dependent else memory
    state = ensure_state(site, query, memory.key, memory.support, memory.attention)
    if parallel_hypotheses:
        context, state = _attend_hypotheses(site, query, memory, state)
    else:
        context, state = site.read(query, memory, None, state)
    return context, replace(memory, attention=state)


def add_initial_state(site: AttentionSite, memory: KVCache, heads: int) -> KVCache:
    """Returns the memory with the state before the first query."""
    nothing = memory.key.new_zeros(len(memory.key), heads, 1, 1)
    return replace(memory, attention=site.start(nothing, memory.key, memory.support))


def extend(site: AttentionSite, memory: KVCache, later: KVCache, support: DenseSupport, heads: int) -> KVCache:
    """Returns the memory with later keys; a state of no keys, in which nothing has happened, begins again."""
    if memory.attention is not None and not memory.length:
        return add_initial_state(site, replace(later, support=support), heads)
    return memory.append(later, support)


def ensure_state(
    site: AttentionSite,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k e"],
    support: DenseSupport,
    state: Any,
) -> Any:
    """Returns the state, or the initial state if none is given and the mechanism needs one."""
    return site.start(query, key, support) if state is None and site.is_stateful else state


def is_streaming(site: AttentionSite) -> TypeGuard[Attention]:
    """Returns True if a query reads no key behind the one at which it stops, so that later keys change nothing.

    This holds in evaluation, of mechanisms that move over the keys from the first to the last.
    """
    if not isinstance(site, Attention) or site.training or site.is_position_dependent:
        return False
    return site.normalizer.traits.streaming


def is_waiting(site: AttentionSite, memory: KVCache) -> Bool[Tensor, "b r"]:
    """Returns True where the last query found no key to stop at, among the keys so far, in one of its heads.

    If there are later keys, the query has no result yet: append them to the memory that it read (`extend`) and ask
    again. The state that it returned is for the case that there are none.
    """
    if not is_streaming(site) or memory.attention is None:
        raise ValueError("these weights depend on all keys: no query can be answered before the last one is there")
    return site.normalizer.is_waiting(memory.attention.last_alignment).any(1)


def skip(site: AttentionSite, memory: KVCache) -> KVCache:
    """Returns the memory for a query that `is_waiting` and will be asked again: it has passed all keys of this one.

    The query must be the same then, and its state that before it was first asked. A stateful score is asked for all
    keys again.
    """
    if memory.attention is None or not _reads_stops_alone(site, memory):
        return memory
    return replace(memory, attention=site.normalizer.skip(memory.attention))


def count_unread(site: AttentionSite, memory: KVCache) -> int:
    """Returns the number of first keys that no later query reads."""
    if memory.attention is None or not _reads_stops_alone(site, memory):
        return 0
    start = memory.attention.last_alignment.argmax(-1)
    return max(0, int(start.min()) - site.normalizer.lookback)


def sees_last_key(site: AttentionSite, memory: KVCache) -> Bool[Tensor, "b r"] | None:
    """Returns True where the next query sees the last key in one of its heads; None: every query does."""
    if not isinstance(site, Attention) or memory.attention is None:
        return None
    sees = site.score.sees_last_key(memory.attention.weights, memory.support)
    return None if sees is None else sees.any(1)


def is_past_end(site: AttentionSite, memory: KVCache) -> Bool[Tensor, "b r"] | None:
    """Returns True where the last query passed all keys in all of its heads; None if texts do not end in this way."""
    if not isinstance(site, Attention) or not site.stops_at_end:
        return None
    if memory.attention is None or memory.attention.alignment is None:
        return None
    return site.normalizer.is_waiting(memory.attention.alignment).all(1)


def _reads_stops_alone(site: AttentionSite, memory: KVCache) -> TypeGuard[Attention]:
    """Returns whether a query reads of those before it only where they stopped: one place, as it has one head."""
    if not is_streaming(site) or site.score.traits.stateful or memory.attention is None or not memory.length:
        return False
    return memory.attention.weights.shape[1] == 1


def _attend_hypotheses(
    site: AttentionSite, query: Float[Tensor, "b h w e"], memory: KVCache, state: AttentionState | None
) -> tuple[Float[Tensor, "b h w v"], AttentionState | None]:
    """Reads the memory for one query of each hypothesis: in one call, unless queries are told apart by number."""
    batch, _, hypotheses, _ = query.shape
    if state is not None and state.rows != hypotheses:  # nothing has been attended to: all begin alike
        state = state.select_rows(torch.zeros(batch, hypotheses, dtype=torch.long, device=query.device))
    if not site.is_position_dependent:
        return site.read(query, memory, None, state)
    contexts, states = [], []
    for number in range(hypotheses):
        row = torch.full((batch, 1), number, device=query.device)
        own = None if state is None else state.select_rows(row)
        context, own = site.read(query[:, :, number : number + 1], memory, None, own)
        contexts.append(context)
        states += [] if own is None else [own]
    return torch.cat(contexts, 2), AttentionState.concatenate(states) if states else None
