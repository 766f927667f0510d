"""The mechanisms against loops in float64 written from each paper's formula, and against torch's own attention."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from attention_cases import MASKS, SCORES, Shape, assert_close, complete, inputs, masked, run, site, weights_of
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    GAT,
    Additive,
    Attention,
    AttentionFactory,
    Concat,
    Cosine,
    DenseSupport,
    Dot,
    EdgeSupport,
    GATv2,
    General,
    MultiheadAttention,
    NormalizedAdditive,
    ScaledDot,
    Softmax,
)

SHAPE = Shape()


def score_of_pair(score: nn.Module, head: int, query: list[float], key: list[float]) -> float:
    """One number, from the formula in the paper."""
    width = range(len(query))

    def leaky(x: float) -> float:
        return x if x > 0 else 0.2 * x

    match score:
        case ScaledDot():  # Vaswani et al. 2017, eq. 1
            return sum(query[d] * key[d] for d in width) / math.sqrt(len(query))
        case General():  # Luong et al. 2015, section 3.1: q^T W k
            weight = score.weight[head].tolist()
            return sum(query[i] * weight[i][j] * key[j] for i in width for j in width)
        case Cosine():  # Liu et al. 2022, section 3.2: cos(q, k) / T
            lengths = math.sqrt(sum(x * x for x in query)) * math.sqrt(sum(x * x for x in key))
            return sum(query[d] * key[d] for d in width) / lengths * math.exp(score.log_scale[head].item())
        case Concat():  # Luong et al. 2015, section 3.1: v^T tanh(W [q; k])
            weight, vector, both = score.weight[head].tolist(), score.vector[head].tolist(), query + key
            rows = [sum(w * x for w, x in zip(row, both, strict=True)) for row in weight]
            return sum(v * math.tanh(x) for v, x in zip(vector, rows, strict=True))
        case Dot():  # Luong et al. 2015, section 3.1
            return sum(query[d] * key[d] for d in width)
        case NormalizedAdditive():  # Raffel et al. 2017, section 2.4
            vector, bias = score.vector[head].tolist(), score.bias[head].tolist()
            scale = float(score.gain[head]) / math.sqrt(sum(x * x for x in vector))
            return scale * sum(vector[d] * math.tanh(query[d] + key[d] + bias[d]) for d in width)
        case Additive():  # Bahdanau et al. 2015, A.1.2, with W s and U h projected before
            vector = score.vector[head].tolist()
            return sum(vector[d] * math.tanh(query[d] + key[d]) for d in width)
        case GAT():  # Velickovic et al. 2018, eq. 3: LeakyReLU(a^T [Wh_i || Wh_j])
            a = score.to_query[head].tolist() + score.to_key[head].tolist()
            return leaky(sum(a[d] * x for d, x in enumerate(query + key)))
        case GATv2():  # Brody et al. 2022, eq. 7: a^T LeakyReLU(W [h_i || h_j])
            vector = score.vector[head].tolist()
            return sum(vector[d] * leaky(query[d] + key[d]) for d in width)
    return 0.0


def attention_of_loops(score: nn.Module, tensors: dict[str, Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
    b, h, q, k = allowed.shape
    query, key, value = (tensors[name].tolist() for name in ("query", "key", "value"))
    weights = torch.zeros(b, h, q, k, dtype=torch.float64)
    context = torch.zeros(b, h, q, len(value[0][0][0]), dtype=torch.float64)
    for n in range(b):
        for m in range(h):
            for i in range(q):
                seen = [j for j in range(k) if allowed[n, m, i, j]]
                exponents = [math.exp(score_of_pair(score, m, query[n][m][i], key[n][m][j])) for j in seen]
                for j, exponent in zip(seen, exponents, strict=True):
                    weights[n, m, i, j] = exponent / sum(exponents)
                    context[n, m, i] += weights[n, m, i, j] * tensors["value"][n, m, j]
    return weights, context


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", ["none", "causal", "any"])
def test_dense_attention_is_the_formula(score: str, kind: str) -> None:
    attend, tensors = site(score, "softmax", SHAPE), inputs(SHAPE)
    support, allowed = masked(kind, SHAPE)
    weights, context = attention_of_loops(attend.score, tensors, allowed)
    torch.testing.assert_close(weights_of(attend, tensors, support), weights, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(run(attend, tensors, support).context, context, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("score", SCORES)
def test_attention_over_edges_is_the_formula(score: str) -> None:
    torch.manual_seed(0)
    present = torch.rand(5, 4) < 0.5
    present[2] = False
    target, source = present.nonzero(as_tuple=True)
    attend, tensors = site(score, "softmax", SHAPE), inputs(SHAPE._replace(batch=1))
    weights, context = attention_of_loops(attend.score, tensors, present.expand(1, 3, 5, 4))
    flat = {name: x[0].transpose(0, 1) for name, x in tensors.items()}
    support = EdgeSupport.from_edges(torch.stack([source, target]), 5, 4)
    observed = weights_of(attend, flat, support)
    expected = weights[0, :, support.target.long(), support.source.long()].T
    torch.testing.assert_close(observed, expected, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(run(attend, flat, support).context, context[0].transpose(0, 1), rtol=0.0, atol=1e-10)


def test_gat_cannot_rank_by_query_and_gatv2_can() -> None:
    """Brody et al. 2022, theorem 1: under GAT every query has the same favourite."""
    shape = Shape(1, 1, 40, 6, 8)
    for score, favourites in (("gat", {1}), ("gatv2", set(range(2, 7)))):
        weights = weights_of(site(score, "softmax", shape), inputs(shape), DenseSupport())
        assert len(weights[0, 0].argmax(-1).unique()) in favourites


@pytest.mark.parametrize("kind", MASKS)
def test_scaled_dot_is_torch_attention(kind: str) -> None:
    """Every query has a key here; without keys torch does not return zeros."""
    _, allowed = masked(kind, SHAPE)
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    tensors = inputs(SHAPE)
    expected = F.scaled_dot_product_attention(**tensors, attn_mask=allowed)
    context = run(site("scaled dot", "softmax", SHAPE), tensors, DenseSupport(allowed)).context
    torch.testing.assert_close(context, expected, rtol=0.0, atol=1e-12)


def transplanted(
    dim: int, heads: int, source: int | None, bias: bool
) -> tuple[MultiheadAttention, nn.MultiheadAttention]:
    torch.manual_seed(1)
    ours = MultiheadAttention(
        dim=dim,
        heads=heads,
        source_dim=source,
        bias=bias,
        attend=AttentionFactory(score=ScaledDot, normalizer=Softmax),
    ).double()
    theirs = nn.MultiheadAttention(dim, heads, kdim=source, vdim=source, bias=bias, batch_first=True).double()
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        if source is None:
            theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in projections]))
        else:
            for name, layer in zip("qkv", projections, strict=True):
                getattr(theirs, f"{name}_proj_weight").copy_(layer.weight)
        theirs.out_proj.weight.copy_(ours.out.weight)
        if bias:
            for layer in (*projections, ours.out):
                nn.init.normal_(layer.bias)
            theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in projections]))
            theirs.out_proj.bias.copy_(ours.out.bias)
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", ["none", "padding", "causal", "any"])
@pytest.mark.parametrize("source_dim", [None, 5])
def test_multi_head_is_torch_multi_head(bias: bool, mask: str, source_dim: int | None) -> None:
    """Outputs, gradients of the input and of every projection; torch's masks say True = may not attend."""
    ours, theirs = transplanted(12, 3, source_dim, bias)
    query = torch.randn(2, 4, 12, dtype=torch.float64, requires_grad=True)
    source = query if source_dim is None else torch.randn(2, 6, source_dim, dtype=torch.float64)
    keys = source.shape[1]
    padding = torch.ones(2, keys, dtype=torch.bool)
    padding[1, -2:] = False
    allowed = torch.rand(2, 3, 4, keys) < 0.6
    allowed[..., 0] = True
    support, options = {
        "none": (None, {}),
        "padding": (DenseSupport.from_key_mask(padding), {"key_padding_mask": ~padding}),
        "causal": (DenseSupport(causal=True), {"attn_mask": ~torch.ones(4, keys).tril(keys - 4).bool()}),
        "any": (DenseSupport(allowed), {"attn_mask": ~allowed.flatten(0, 1)}),
    }[mask]
    results = []
    for output, model in (
        (ours(query, None if source_dim is None else source, support)[0], ours),
        (theirs(query, source, source, need_weights=False, **options)[0], theirs),
    ):
        query.grad = None
        model.zero_grad()
        output.square().sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        results.append((output, query.grad, gradients))
    (output, gradient, of_ours), (expected, expected_gradient, of_theirs) = results
    torch.testing.assert_close(output, expected, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0.0, atol=1e-10)
    if source_dim is None:
        joined = torch.cat([of_ours[f"{name}.weight"] for name in ("query", "key", "value")])
        torch.testing.assert_close(joined, of_theirs["in_proj_weight"], rtol=0.0, atol=1e-10)
    torch.testing.assert_close(of_ours["out.weight"], of_theirs["out_proj.weight"], rtol=0.0, atol=1e-10)


def test_multi_head_of_a_prepared_source() -> None:
    ours, _ = transplanted(12, 3, 5, True)
    query, source = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 6, 5, dtype=torch.float64)
    memory = ours.prepare(source)
    at_once = ours(query, source)[0]
    assert torch.equal(ours(query, memory)[0], at_once)
    for step in range(4):
        torch.testing.assert_close(ours(query[:, step : step + 1], memory)[0], at_once[:, step : step + 1])


def test_multi_head_takes_batches_in_any_memory_order() -> None:
    ours, _ = transplanted(12, 3, None, True)
    x = torch.randn(4, 2, 12, dtype=torch.float64).transpose(0, 1)
    torch.testing.assert_close(ours(x)[0], ours(x.contiguous())[0])


def test_indivisible_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="dim=10 is not divisible by heads=3"):
        MultiheadAttention(dim=10, heads=3, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax))


def test_slope_of_the_graph_scores() -> None:
    for score in (partial(GAT, slope=1.0), partial(GATv2, slope=1.0)):
        attend = Attention(score(dim=6, heads=3).double(), Softmax())
        support = complete(5, 4)
        flat = {name: x[0].transpose(0, 1) for name, x in inputs(SHAPE).items()}
        query, key = flat["query"], flat["key"]
        a_query = getattr(attend.score, "to_query", getattr(attend.score, "vector", None))
        a_key = getattr(attend.score, "to_key", getattr(attend.score, "vector", None))
        linear = (query * a_query).sum(-1)[support.target.long()] + (key * a_key).sum(-1)[support.source.long()]
        torch.testing.assert_close(attend.score(query, key, support), linear)


def test_half_precision_is_near_full_precision() -> None:
    support, _ = masked("any", SHAPE)
    for score in SCORES:
        exact = run(site(score, "softmax", SHAPE), inputs(SHAPE), support)
        for dtype, tolerance in ((torch.bfloat16, 0.15), (torch.float16, 0.02)):
            rough = run(site(score, "softmax", SHAPE, dtype), inputs(SHAPE, dtype), support)
            widened = rough._replace(
                context=rough.context.double(), gradients={name: g.double() for name, g in rough.gradients.items()}
            )
            assert_close(widened, exact, tolerance)
