"""No examples, no queries, no keys: every mechanism returns an empty context, or zeros, and no error."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from test_mechanism_laws import MECHANISMS, NOT_CAUSAL, STEPPED, scaled

from zoo.attention import (
    Additive,
    Attention,
    CoverageAware,
    DenseSupport,
    Gaussian,
    HardStraightThrough,
    LocalP,
    LocationAware,
    MonotonicChunkwise,
    MultiheadAttention,
    ScorePair,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    record,
)

SITES: dict[str, Any] = {
    **MECHANISMS,
    "global window": lambda d, h: scaled(SlidingWindow(radius=2, global_tokens=2)),
    "shifted windows": lambda d, h: scaled(ShiftedWindows(window=2)),
    "gaussian": lambda d, h: Attention(Additive(dim=d, heads=h), Gaussian(), restrict=LocalP(dim=d, heads=h, radius=2)),
    "hard": lambda d, h: scaled(normalizer=HardStraightThrough()),
    "location": lambda d, h: Attention(LocationAware(dim=d, heads=h), Softmax()),
    "coverage": lambda d, h: Attention(CoverageAware(dim=d, heads=h), Softmax()),
    "chunkwise": lambda d, h: Attention(
        ScorePair(monotonic=Additive, chunk=Additive, dim=d, heads=h), MonotonicChunkwise(heads=h)
    ),
}
CAUSAL = (False, True)
OF_ONE_SEQUENCE = ("bigbird", "shifted windows", "dilated")


@pytest.mark.parametrize("name", SITES)
def test_sites(name: str) -> None:
    """With a mask and without, causal and not, recorded and not; gradients too."""
    attend, numbers = SITES[name](8, 2), itertools.product((0, 2), (0, 3, 4), (0, 4), CAUSAL, (False, True))
    for batch, queries, keys, causal, is_masked in numbers:
        is_whole = batch and queries and keys
        is_refused = (causal and name in (*NOT_CAUSAL, "gaussian")) or (name in OF_ONE_SEQUENCE and queries != keys)
        if is_whole or is_refused:
            continue
        query, key, value = (torch.randn(batch, 2, n, 8, requires_grad=True) for n in (queries, keys, keys))
        permitted = torch.ones(batch, 1, 1, keys, dtype=torch.bool) if is_masked else None
        support = DenseSupport(permitted, causal=causal)
        state = attend.start(query, key, support) if attend.is_stateful else None
        context = attend(query, key, value, support, state)[0]
        assert context.shape == (batch, 2, queries, 8)
        assert (context == 0).all()
        if context.requires_grad:
            context.sum().backward()
        with record(attend) as maps:
            attend(query, key, value, support, state)
        for found in maps.values():
            assert found.dense().shape[-2:] == (queries, keys)


@pytest.mark.parametrize("length", [0, 20])
@pytest.mark.parametrize("name", STEPPED)
def test_layers(name: str, length: int) -> None:
    """Blocks of a long sequence, masks with a row for each query, and steps."""
    layer = STEPPED[name](dim=8, heads=2)
    x = torch.randn(0 if length else 2, length, 8)
    for causal, rows in itertools.product(CAUSAL, (1, length)):
        is_by_query = rows != 1 and name in ("linear", "performer", "linformer")
        if is_by_query or (causal and name in NOT_CAUSAL):
            continue
        permitted = torch.ones(len(x), 1, rows, length, dtype=torch.bool)
        found, _ = layer(x, None, DenseSupport(permitted, causal=causal))
        assert found.shape == x.shape
        found.sum().backward()
    if name not in (*NOT_CAUSAL, "bigbird"):
        state = None
        for count in (2, 0, 1):
            found, state = layer.step(torch.randn(0, count, 8), state)
            assert found.shape == (0, count, 8)


def test_key_heads_of_no_example() -> None:
    """A mask by head is reduced to key heads."""
    attend = MECHANISMS["window"](8, 2)
    layer = MultiheadAttention(dim=8, heads=2, key_heads=1, attend=lambda d, h: attend)
    support = DenseSupport(torch.ones(0, 2, 5, 5, dtype=torch.bool))
    assert layer(torch.randn(0, 5, 8), None, support)[0].shape == (0, 5, 8)
