"""Mechanisms, masks and inputs that the tests of the core share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.attention import (
    GAT,
    Additive,
    Attention,
    Concat,
    Constant,
    Cosine,
    DenseSupport,
    Dot,
    EdgeSupport,
    Entmax15,
    GATv2,
    General,
    NormalizedAdditive,
    PositionAware,
    ScaledDot,
    SmoothedSigmoid,
    Softmax,
    Sparsemax,
    Support,
    Uniform,
    record,
)

SCORES: dict[str, Callable[[int, int], nn.Module]] = {
    "constant": lambda dim, heads: Constant(),
    "dot": lambda dim, heads: Dot(),
    "scaled dot": lambda dim, heads: ScaledDot(),
    "general": lambda dim, heads: General(dim=dim, heads=heads),
    "cosine": lambda dim, heads: Cosine(heads=heads, temperature=0.5),
    "additive": lambda dim, heads: Additive(dim=dim, heads=heads),
    "normalised additive": lambda dim, heads: NormalizedAdditive(dim=dim, heads=heads),
    "concat": lambda dim, heads: Concat(dim=dim, heads=heads),
    "gat": lambda dim, heads: GAT(dim=dim, heads=heads),
    "gatv2": lambda dim, heads: GATv2(dim=dim, heads=heads),
}
SEQUENCE_SCORES = {
    **SCORES,
    "position aware": lambda dim, heads: PositionAware(dim=dim, heads=heads, reach=2),
}
"""With those for which the order of keys matters, and so do not work on graphs."""
NORMALISERS: dict[str, Callable[[], nn.Module]] = {
    "softmax": Softmax,
    "smoothed sigmoid": SmoothedSigmoid,
    "sparsemax": Sparsemax,
    "entmax": Entmax15,
    "uniform": Uniform,
}
FUSED = {(score, "softmax") for score in ("dot", "scaled dot", "general", "cosine")}
MASKS = ("none", "key", "query", "causal", "causal+key", "any", "causal+any")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Shape(NamedTuple):
    batch: int = 2
    heads: int = 3
    queries: int = 5
    keys: int = 4
    width: int = 6


class Run(NamedTuple):
    context: Tensor
    gradients: dict[str, Tensor]


def site(
    score: str, normaliser: str, shape: Shape, dtype: torch.dtype = torch.float64, *, dropout: float = 0.0
) -> Attention:
    torch.default_generator.manual_seed(5)  # torch.manual_seed visits every device, a millisecond each time
    attend = Attention(SEQUENCE_SCORES[score](shape.width, shape.heads), NORMALISERS[normaliser](), dropout=dropout)
    return attend.to(dtype)


def inputs(shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    """Query, key and value of a DenseSupport."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length: int, width: int) -> Tensor:
        return torch.randn(shape.batch, shape.heads, length, width, generator=generator, dtype=torch.float64).to(dtype)

    return {
        "query": draw(shape.queries, shape.width),
        "key": draw(shape.keys, shape.width),
        "value": draw(shape.keys, shape.width + 1),
    }


def masked(kind: str, shape: Shape, seed: int = 0) -> tuple[DenseSupport, Tensor]:
    """A support, and who may attend to whom written out as (b,h,q,k) independently of it.

    Masks of keys forbid the last key to all queries, and all keys of the first example; arbitrary masks forbid the
    last key to all queries, and everything to some.
    """
    generator = torch.Generator().manual_seed(seed)
    b, h, q, k = shape[:4]
    permitted = None
    if kind.endswith("key"):
        permitted = torch.rand(b, 1, 1, k, generator=generator) < 0.7
        permitted[0] = False
    elif kind == "query":
        permitted = torch.rand(b, 1, q, 1, generator=generator) < 0.6
    elif kind.endswith("any"):
        permitted = torch.rand(b, h, q, k, generator=generator) < 0.6
        permitted[0, 0, -1] = False
        permitted[-1, :, -1, 0] = True
        if k > 1:  # with more queries than keys causality forbids it to the only one whom the mask permits it
            permitted[-1, -1, :, 1] = False
            permitted[-1, -1, 0, 1] = True
    if permitted is not None and kind != "query":
        permitted[..., -1] = False
    allowed = torch.ones(b, h, q, k, dtype=torch.bool) if permitted is None else permitted.expand(b, h, q, k).clone()
    causal = kind.startswith("causal")
    if causal:
        for i in range(q):
            for j in range(k):
                if k - j < q - i:  # counted from the end, where queries and keys are aligned
                    allowed[:, :, i, j] = False
    return DenseSupport(permitted, causal=causal), allowed


def complete(queries: int, keys: int) -> EdgeSupport:
    """Every query attends to every key; shuffled, because the order of edges must not matter."""
    edges = torch.cartesian_prod(torch.arange(keys), torch.arange(queries)).T
    return EdgeSupport.from_edges(edges[:, torch.randperm(queries * keys)], queries, keys)


def run(
    attend: Attention,
    tensors: dict[str, Tensor],
    support: Support,
    *,
    within: Iterable[AbstractContextManager[object]] = (),
    seed: int = 0,
) -> Run:
    """The context, and the gradients of a fixed loss for query, key, value and parameters."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    attend.zero_grad()
    torch.default_generator.manual_seed(seed)  # dropout draws from here
    with ExitStack() as stack:
        for manager in within:
            stack.enter_context(manager)
        context, _ = attend(leaves["query"], leaves["key"], leaves["value"], support)
    if context.requires_grad:
        loss(context).backward()
    named = {**leaves, **dict(attend.named_parameters())}
    return Run(context.detach(), {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in named.items()})


def loss(context: Tensor) -> Tensor:
    """Not linear, so that no gradient is trivial; the same in every layout."""
    return (context + 0.5 * context.square()).sum()


def weights_of(attend: Attention, tensors: dict[str, Tensor], support: Support) -> Tensor:
    """The weights as a recorder sees them."""
    with record(attend) as maps, torch.no_grad():
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    return maps[""].weights


def assert_same(one: Run, other: Run) -> None:
    """Equal to the last bit."""
    assert torch.equal(one.context, other.context)
    assert one.gradients.keys() == other.gradients.keys()
    for name, gradient in one.gradients.items():
        assert torch.equal(gradient, other.gradients[name]), name


def assert_close(one: Run, other: Run, tolerance: float | None = None) -> None:
    """Close to an absolute tolerance, or to torch.testing's own."""
    options = {} if tolerance is None else {"rtol": 0.0, "atol": tolerance}
    torch.testing.assert_close(one.context, other.context, **options)
    for name, gradient in one.gradients.items():
        torch.testing.assert_close(gradient, other.gradients[name], msg=lambda m, n=name: f"{n}: {m}", **options)
