"""The textbook case in two functions: against the formula in numbers, and against `Attention` on every layout."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import MASKS, Shape, inputs, masked

from zoo.attention import (
    Attention,
    DenseSupport,
    EdgeSupport,
    ScaledDot,
    SlidingWindow,
    Softmax,
    Support,
    attention_weights,
    dot_product_attention,
)

SHAPE = Shape()
SITE = Attention(ScaledDot(), Softmax())


def test_weights_of_two_keys() -> None:
    """q · k is 0 and log 3 times sqrt(d): weights of 1/4 and 3/4."""
    query, key = torch.tensor([[[[1.0, 1.0]]]]), torch.zeros(1, 1, 2, 2)
    key[0, 0, 1, 0] = math.log(3.0) * math.sqrt(2.0)
    torch.testing.assert_close(attention_weights(query, key), torch.tensor([[[[0.25, 0.75]]]]))
    value = torch.tensor([[[[0.0], [8.0]]]])
    torch.testing.assert_close(dot_product_attention(query, key, value), torch.tensor([[[[6.0]]]]))


@pytest.mark.parametrize("kind", MASKS)
def test_they_are_attention(kind: str) -> None:
    support, _ = masked(kind, SHAPE)
    tensors = inputs(SHAPE)
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    clean = [support.zero_blind_queries(query, key), support.zero_masked(key), support.zero_masked(value)]
    torch.testing.assert_close(attention_weights(*clean[:2], support), SITE.weights(query, key, support))
    torch.testing.assert_close(dot_product_attention(*clean, support), SITE(query, key, value, support)[0])


@pytest.mark.parametrize(
    "support",
    [
        DenseSupport(causal=True),
        SlidingWindow(radius=1)(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 5), DenseSupport()),
    ],
)
def test_of_any_layout(support: Support) -> None:
    query, key, value = torch.randn(3, 2, 3, 4, 5, dtype=torch.float64).unbind(0)
    torch.testing.assert_close(
        dot_product_attention(query, key, value, support), SITE(query, key, value, support)[0], rtol=1e-9, atol=1e-12
    )


def test_of_edges() -> None:
    edges = EdgeSupport.from_edges(torch.tensor([[0, 1, 2, 0], [1, 1, 0, 2]]), 3)
    query, key, value = torch.randn(3, 3, 2, 5, dtype=torch.float64).unbind(0)
    assert attention_weights(query, key, edges).shape == (4, 2)
    torch.testing.assert_close(dot_product_attention(query, key, value, edges), SITE(query, key, value, edges)[0])
