"""Keys that arrive while a decoder already reads: the result is that of all keys, and a query waits for its stop."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from zoo.attention import (
    Additive,
    ALiBi,
    Attention,
    AttentionFactory,
    CrossAttention,
    DenseSupport,
    LocationAware,
    Monotonic,
    MonotonicChunkwise,
    MultiheadAttention,
    ScaledDot,
    ScorePair,
    Softmax,
)
from zoo.attention.decoding import is_streaming, is_waiting
from zoo.attention.kv_cache import KVCache

DIM, SOURCE = 6, 5
CLOSE = {"rtol": 0.0, "atol": 1e-12}


def factory(score: Any, normalizer: Any) -> AttentionFactory:
    return AttentionFactory(score=score, normalizer=normalizer)


TWO = partial(ScorePair, monotonic=Additive, chunk=ScaledDot)
SCANS = {
    "monotonic": factory(Additive, partial(Monotonic, offset=0.0)),
    "location, monotonic": factory(partial(LocationAware, filters=2, kernel_size=5), partial(Monotonic, offset=0.0)),
    "advancing": factory(Additive, partial(Monotonic, offset=0.0, advance=1)),
    "mocha": factory(TWO, partial(MonotonicChunkwise, chunk=3, offset=0.0)),
    "chunks of one": factory(TWO, partial(MonotonicChunkwise, chunk=1, offset=-0.3)),
}
OTHERS = {
    "softmax": factory(Additive, Softmax),
    "location": factory(partial(LocationAware, filters=2, kernel_size=5), Softmax),
    "expected": factory(Additive, partial(Monotonic, inference="expected")),
}


def site(attend: AttentionFactory, seed: int) -> CrossAttention:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return CrossAttention(dim=DIM, source_dim=SOURCE, attend=attend, hidden=8).double().eval()


def drawn(seed: int, *shape: int) -> Tensor:
    return 3 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def parts_of(length: int, cuts: list[int]) -> list[slice]:
    ends = sorted({min(cut, length) for cut in cuts} | {length})
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def heard(attention: Any, queries: Tensor, source: Tensor, parts: list[slice]) -> tuple[Tensor, KVCache]:
    """Lets each query wait until it has found its stop in every head, or the source has ended."""
    memory, arrived, contexts = attention.add_initial_state(attention.prepare(source[:, :0])), 0, []
    for number in range(queries.shape[1]):
        while True:
            context, after = attention.attend_step(queries[:, number : number + 1], memory, number)
            if arrived == len(parts) or not is_waiting(attention.attend, after).any():
                break
            memory = attention.extend(memory, source[:, parts[arrived]])
            arrived += 1
        contexts.append(context)
        memory = after
    return torch.cat(contexts, 1), memory


@pytest.mark.parametrize("name", SCANS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), length=st.integers(1, 14), cuts=st.lists(st.integers(0, 14), max_size=6))
def test_parts_of_the_keys_give_the_scan_over_all_of_them(name: str, seed: int, length: int, cuts: list[int]) -> None:
    attention = site(SCANS[name], seed)
    queries, source = drawn(seed, 1, 6, DIM), drawn(seed + 1, 1, length, SOURCE)
    with torch.no_grad():
        expected, whole = attention.attend_step(queries, attention.add_initial_state(attention.prepare(source)))
        found, memory = heard(attention, queries, source, parts_of(length, cuts))
    torch.testing.assert_close(found, expected, **CLOSE)
    here, there = memory.attention, whole.attention
    assert here is not None
    assert there is not None
    missing = length - memory.length  # keys that no query had to wait for
    assert there.total[..., length - missing :].sum() == 0
    torch.testing.assert_close(here.total, there.total[..., : length - missing], **CLOSE)
    assert torch.equal(here.alignment, there.alignment[..., : length - missing])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 9), max_size=4))
def test_every_head_waits_for_its_own_stop(seed: int, cuts: list[int]) -> None:
    torch.manual_seed(seed)
    attention = MultiheadAttention(dim=DIM, source_dim=SOURCE, heads=2, attend=SCANS["mocha"]).double().eval()
    queries, source = drawn(seed, 1, 5, DIM), drawn(seed + 1, 1, 9, SOURCE)
    with torch.no_grad():
        expected, _ = attention.attend_step(queries, attention.add_initial_state(attention.prepare(source)))
        found, _ = heard(attention, queries, source, parts_of(9, cuts))
    torch.testing.assert_close(found, expected, **CLOSE)


def test_a_query_that_waits_is_asked_again_from_the_state_before_it() -> None:
    attention = site(factory(ScaledDot, partial(Monotonic, offset=0.0)), 0)
    with torch.no_grad():
        attention.query.weight.copy_(torch.eye(8, DIM))
        attention.key.weight.copy_(torch.eye(8, SOURCE))
    first, later = torch.zeros(1, 2, SOURCE).double(), torch.zeros(1, 1, SOURCE).double()
    first[..., 0], later[..., 0] = -1.0, 1.0  # the first two keys are passed, the third is a stop
    query = torch.ones(1, 1, DIM).double()
    before = attention.add_initial_state(attention.prepare(first))
    context, after = attention.attend_step(query, before)
    assert attention.is_waiting(after).all()
    assert context.abs().sum() == 0
    context, after = attention.attend_step(query, attention.extend(before, later))
    assert not is_waiting(attention.attend, after).any()
    assert torch.equal(context, later)


@pytest.mark.parametrize("inference", ["hard", "expected"])
def test_a_text_ends_where_a_query_has_passed_all_keys(inference: Literal["hard", "expected"]) -> None:
    attention = site(factory(ScaledDot, partial(Monotonic, offset=0.0, inference=inference)), 0)
    queries, source = drawn(1, 3, 6, DIM), drawn(2, 3, 4, SOURCE)
    memory = attention.add_initial_state(attention.prepare(source))
    _, alone = attention.attend_step(queries[:, :1], memory)
    assert attention.is_past_end(alone) is None  # nothing has trained it so
    attention.attend.stops_at_end = True
    assert attention.is_past_end(memory) is None  # before the first query
    expected = []
    for number in range(queries.shape[1]):
        _, memory = attention.attend_step(queries[:, number : number + 1], memory, number)
        assert memory.attention is not None
        expected.append(1 - memory.attention.weights.sum(-1).flatten() > 0.5)
        assert torch.equal(attention.is_past_end(memory).flatten(), expected[-1])
    assert torch.stack(expected).any()
    assert not torch.stack(expected).all()


@pytest.mark.parametrize("name", ["location", "softmax"])
def test_states_of_other_mechanisms_grow_with_the_keys(name: str) -> None:
    """A key that has just arrived has had no weight; the steps before keep theirs."""
    attention = site(OTHERS[name], 3)
    queries, source = drawn(0, 2, 2, DIM), drawn(1, 2, 7, SOURCE)
    memory = attention.add_initial_state(attention.prepare(source[:, :4]))
    _, memory = attention.attend_step(queries[:, :1], memory)
    grown = attention.extend(memory, source[:, 4:])
    assert memory.attention is not None
    assert grown.attention is not None
    torch.testing.assert_close(grown.attention.total[..., :4], memory.attention.total)
    assert grown.attention.total[..., 4:].abs().sum() == 0
    found, _ = attention.attend_step(queries[:, 1:], grown, 1)
    whole = attention.prepare(source)
    state = memory.attention.extend(3)
    expected, _ = attention.attend.read(attention.query(queries[:, 1:]).unsqueeze(1), whole, None, state)
    torch.testing.assert_close(found, expected.squeeze(1), **CLOSE)


def test_keys_are_appended_with_their_padding() -> None:
    attention = site(OTHERS["softmax"], 4)
    source, query = drawn(1, 2, 6, SOURCE), drawn(0, 2, 1, DIM)
    mask = torch.tensor([[True] * 6, [True, True, True, True, False, False]])
    source[1, 4:] = torch.nan
    support = DenseSupport.from_key_mask(mask)
    memory = attention.prepare(source[:, :3], DenseSupport.from_key_mask(mask[:, :3]))
    found, _ = attention.attend_step(query, attention.extend(memory, source[:, 3:], support))
    expected, _ = attention.attend_step(query, attention.prepare(source, support))
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("name", OTHERS)
def test_what_reads_all_keys_cannot_stream(name: str) -> None:
    attention = site(OTHERS[name], 5)
    assert not attention.is_streaming
    memory = attention.add_initial_state(attention.prepare(drawn(0, 1, 3, SOURCE)))
    with pytest.raises(ValueError, match="depend on all keys"):
        attention.is_waiting(memory)


@pytest.mark.parametrize("name", SCANS)
def test_what_scans_streams_in_evaluation_alone(name: str) -> None:
    attention = site(SCANS[name], 6)
    assert attention.is_streaming
    assert not attention.train().is_streaming
    placed: Attention = SCANS[name](8, 1).eval()
    placed.set_position(ALiBi(heads=1))
    assert not is_streaming(placed)
