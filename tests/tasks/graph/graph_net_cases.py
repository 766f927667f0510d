"""Layers and nets of every mechanism, for the tests of the graph nets."""

from __future__ import annotations

from typing import Any

from torch import nn

from zoo.attention import GAT, Additive, AttentionFactory, Constant, Degree, GATv2, ScaledDot, Softmax, Uniform
from zoo.tasks.graph.models import GraphAttention, GraphAttentionNet

NODES, FEATURES, DIM, HEADS, CLASSES = 11, 7, 4, 3, 5
MECHANISMS = {
    "gat": AttentionFactory(score=GAT, normalizer=Softmax),
    "gatv2": AttentionFactory(score=GATv2, normalizer=Softmax),
    "additive": AttentionFactory(score=Additive, normalizer=Softmax),
    "softmax": AttentionFactory(score=ScaledDot, normalizer=Softmax),
    "uniform": AttentionFactory(score=Constant, normalizer=Uniform),
    "degree": AttentionFactory(score=Constant, normalizer=Degree),
}


def layer(mechanism: str = "gat", **options: Any) -> GraphAttention:
    given: dict[str, Any] = {"features": FEATURES, "dim": DIM, "heads": HEADS, "attend": MECHANISMS[mechanism]}
    made = GraphAttention(**(given | {"shared": mechanism != "gatv2"} | options))
    nn.init.normal_(made.bias)  # a bias of zeros would hide a mistake
    return made


def net(mechanism: str = "gat", **options: Any) -> GraphAttentionNet:
    given: dict[str, Any] = {"features": FEATURES, "classes": CLASSES, "attend": MECHANISMS[mechanism], "dim": DIM}
    return GraphAttentionNet(**(given | {"heads": HEADS, "shared": mechanism != "gatv2"} | options))
