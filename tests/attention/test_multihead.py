"""MultiheadAttention: the sums of its paper, fewer key heads, and a decoder's memory that equals the full pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from attention_cases import DTYPES, MASKS, NORMALISERS, SEQUENCE_SCORES, Shape, masked
from torch import Tensor, nn

from zoo.attention import (
    ALiBi,
    Attention,
    AttentionFactory,
    DenseSupport,
    General,
    KVCache,
    LinearAttention,
    MechanismFactory,
    MultiheadAttention,
    Rotary,
    ScaledDot,
    Shaw,
    Softmax,
    T5Bias,
    TransformerXL,
    record,
)

POSITIONS: dict[str, Callable[..., nn.Module] | None] = {
    "none": None,
    "alibi": ALiBi,
    "t5": partial(T5Bias, buckets=8, distance=6, causal=True),
    "shaw": partial(Shaw, distance=3),
    "transformer-xl": TransformerXL,
    "rotary": Rotary,
}
every_score = pytest.mark.parametrize("score", SEQUENCE_SCORES)
every_position = pytest.mark.parametrize("position", POSITIONS)
EXACT = {"rtol": 0.0, "atol": 1e-12}
BY_ANGLE = ("constant", "dot", "scaled dot", "cosine")
"""Scores that stay the same when queries and keys are turned alike: the others are refused rotary positions."""
dot_attention = AttentionFactory(score=ScaledDot, normalizer=Softmax)


def is_refused(score: str, position: str) -> bool:
    if position != "rotary" or score in BY_ANGLE:
        return False
    with pytest.raises(ValueError, match=r"Rotary rotates queries and keys, and \w+ depends on more than the angle"):
        layer_of(score, position=position)
    return True


def layer_of(
    score: str = "scaled dot",
    *,
    key_heads: int | None = None,
    position: str = "none",
    normaliser: str = "softmax",
    dtype: torch.dtype = torch.float64,
) -> MultiheadAttention:
    torch.manual_seed(1)

    def attend(dim: int, heads: int) -> Attention:
        return Attention(SEQUENCE_SCORES[score](dim, heads), NORMALISERS[normaliser]())

    layer = MultiheadAttention(dim=24, heads=4, attend=attend, key_heads=key_heads, position=POSITIONS[position])
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)  # also those that start at zero
    return layer.to(dtype)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_hand(layer: MultiheadAttention, query: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
    """Scaled dot products of grouped heads, a number at a time."""
    q, k, v = layer.query(query), layer.key(source), layer.value(source)
    width = q.shape[-1] // layer.heads
    rows = []
    for b in range(len(query)):
        for i in range(query.shape[1]):
            parts = []
            for head in range(layer.heads):
                group = head * layer.key_heads // layer.heads
                mine, theirs = slice(head * width, (head + 1) * width), slice(group * width, (group + 1) * width)
                seen = [j for j in range(source.shape[1]) if allowed[b, head, i, j]]
                exps = [torch.exp((q[b, i, mine] * k[b, j, theirs]).sum() / math.sqrt(width)) for j in seen]
                parts.append(sum((e * v[b, j, theirs] for e, j in zip(exps, seen, strict=True)), q.new_zeros(width)))
                parts[-1] = parts[-1] / sum(exps) if seen else parts[-1]
            rows.append(layer.out(torch.cat(parts)))
    return torch.stack(rows).view(query.shape)


def gradients(layer: nn.Module, leaves: list[Tensor], output: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((output + output.square()).sum(), [*leaves, *layer.parameters()]))


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", MASKS)
def test_grouped_heads_by_hand(key_heads: int, kind: str) -> None:
    support, allowed = masked(kind, Shape(heads=4, queries=3, keys=5))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        layer = layer_of(key_heads=key_heads)
        query, source = draw(2, 3, 24).requires_grad_(), draw(2, 5, 24, seed=1).requires_grad_()
        expected = by_hand(layer, query, source, allowed)
        wanted = gradients(layer, [query, source], expected)
        layer = layer.to(dtype)
        low = [x.detach().to(dtype).requires_grad_() for x in (query, source)]
        for options in ({}, {"grad": True}):  # fused and written out
            with record(layer, **options):
                output, state = layer(*low, support)
            assert state is None
            found = gradients(layer, low, output)
            torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one.double(), other, rtol=10 * tolerance, atol=10 * tolerance)


@every_score
@every_position
def test_grouped_heads_are_heads_with_the_same_keys(score: str, position: str) -> None:
    """For every score and position: as if each key head were there once for each of its queries' heads."""
    if is_refused(score, position):
        return
    grouped, full = layer_of(score, key_heads=2, position=position), layer_of(score, position=position)
    weights = grouped.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        weights[name] = weights[name].unflatten(0, (2, 6)).repeat_interleave(2, 0).flatten(0, 1)
    full.load_state_dict(weights)
    support, _ = masked("causal+any", Shape(heads=4, queries=5, keys=5))
    x = draw(2, 5, 24)
    torch.testing.assert_close(grouped(x, None, support)[0], full(x, None, support)[0], **EXACT)
    with record(grouped) as maps, record(full) as others, torch.no_grad():
        grouped(x, None, support), full(x, None, support)
    torch.testing.assert_close(maps["attend"].weights, others["attend"].weights, **EXACT)


@pytest.mark.parametrize("key_heads", [1, 2])
def test_observation_changes_nothing_of_grouped_heads(key_heads: int) -> None:
    for kind in MASKS:
        support, _ = masked(kind, Shape(heads=4, queries=5, keys=5))
        for dtype in DTYPES:
            layer, x = layer_of(key_heads=key_heads, dtype=dtype), draw(2, 5, 24, dtype=dtype).requires_grad_()
            plain = layer(x, None, support)[0]
            before = gradients(layer, [x], plain)
            with record(layer) as maps:
                output = layer(x, None, support)[0]
            assert torch.equal(output, plain)
            assert all(torch.equal(a, b) for a, b in zip(before, gradients(layer, [x], output), strict=True))
            assert maps["attend"].weights.shape == (2, 4, 5, 5)


def test_what_no_head_of_a_group_may_see_changes_nothing() -> None:
    layer, x = layer_of(key_heads=2), draw(2, 5, 24)
    permitted = torch.ones(1, 4, 1, 5, dtype=torch.bool)
    permitted[:, :2, :, 3] = False  # both heads of the first group
    spoilt = layer.prepare(x)
    spoilt.key[:, 0, 3] = torch.nan
    spoilt.value[:, 0, 3] = torch.inf
    support = DenseSupport(permitted)
    assert torch.equal(layer(x, spoilt, support)[0], layer(x, layer.prepare(x), support)[0])


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 3), (4, 8)])
def test_key_heads_divide_heads(heads: int, key_heads: int) -> None:
    with pytest.raises(ValueError, match=rf"heads={heads} is not divisible by key_heads={key_heads}"):
        MultiheadAttention(dim=24, heads=heads, attend=dot_attention, key_heads=key_heads)


@every_score
@every_position
def test_moving_all_positions_changes_nothing(score: str, position: str) -> None:
    """Relative positions depend on distances only; scores with which they would not are refused."""
    if is_refused(score, position):
        return
    layer, x = layer_of(score, position=position), draw(2, 7, 24)
    moved = torch.cat([torch.zeros(2, 5, 24, dtype=x.dtype), x], 1)
    hidden = DenseSupport.from_key_mask(torch.arange(12).expand(2, -1) >= 5, causal=True)
    torch.testing.assert_close(layer(x, moved, hidden)[0], layer(x, None, DenseSupport(causal=True))[0], **EXACT)


@every_score
@every_position
def test_decoding_equals_the_full_pass(score: str, position: str) -> None:
    """In chunks of any length, for every score and position."""
    if is_refused(score, position):
        return
    layer, x = layer_of(score, key_heads=2, position=position), draw(2, 7, 24)
    whole = layer(x, None, DenseSupport(causal=True))[0]
    for chunks in ([1] * 7, [3, 1, 3], [7], [0, 2, 5]):
        memory, rows = None, []
        for part in x.split(chunks, 1):
            row, memory = layer.step(part, memory)
            rows.append(row)
        assert memory is not None
        assert memory.value.shape == (2, 2, 7, 6)
        torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)


@pytest.mark.parametrize("normaliser", NORMALISERS)
@every_position
def test_decoding_of_ragged_batches(normaliser: str, position: str) -> None:
    """Padded on the left: the first of each row's real positions start at different steps; NaN stands before them."""
    layer, x = layer_of(normaliser=normaliser, position=position, key_heads=2), draw(3, 6, 24)
    mask = torch.arange(6) >= torch.tensor([[0], [2], [5]])
    x = torch.where(mask.unsqueeze(-1), x, torch.nan)
    whole = layer(x, None, DenseSupport.from_key_mask(mask, causal=True))[0]
    memory, rows = None, []
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        support = DenseSupport.from_key_mask(mask[:, :stop], causal=True)
        row, memory = layer.step(x[:, start:stop], memory, support)
        rows.append(row)
    decoded = torch.cat(rows, 1)
    torch.testing.assert_close(decoded[mask], whole[mask], **EXACT)
    assert decoded[mask].isfinite().all()
    for row, result, real in zip(x, whole, mask, strict=True):  # positions are relative, padding before them is nothing
        alone = layer(row[real].unsqueeze(0), None, DenseSupport(causal=True))[0][0]
        torch.testing.assert_close(result[real], alone, **EXACT)


def test_memory_follows_its_hypotheses() -> None:
    layer, x, y = layer_of(key_heads=2), draw(3, 4, 24), draw(4, 1, 24, seed=1)
    beams = torch.tensor([2, 0, 0, 1])
    _, memory = layer.step(x)
    moved = memory.reorder(beams)
    assert isinstance(moved, KVCache)
    expected = layer(torch.cat([x[beams], y], 1), None, DenseSupport(causal=True))[0][:, -1:]
    torch.testing.assert_close(layer.step(y, moved)[0], expected, **EXACT)


def test_memory_is_not_changed() -> None:
    layer, x = layer_of(), draw(2, 4, 24)
    memory = layer.prepare(x)
    key = memory.key.clone()
    assert layer.extend(memory, x).key.shape[2] == 8
    assert torch.equal(memory.key, key)


def test_memories_of_one_past_do_not_disturb_each_other() -> None:
    """Without gradients they share what they have in common; with them, and for both paths, the same results."""
    layer, x, others = layer_of(key_heads=2), draw(2, 3, 24), draw(2, 2, 5, 24, seed=1)
    wholes = [layer(torch.cat([x, each], 1), None, DenseSupport(causal=True))[0][:, 3:] for each in others]
    for manager in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        with manager:
            _, past = layer.step(x[:, 2:], layer.prepare(x[:, :2]))
            rows: list[list[Tensor]] = [[], []]
            memories = [past, past]
            for step in range(5):
                for i, each in enumerate(others):
                    row, memories[i] = layer.step(each[:, step : step + 1], memories[i])
                    rows[i].append(row)
            kept = past.key.clone()
            again, _ = layer.step(others[0][:, :1], past)
        for row, whole in zip(rows, wholes, strict=True):
            torch.testing.assert_close(torch.cat(row, 1), whole, **EXACT)
        torch.testing.assert_close(again, wholes[0][:, :1], **EXACT)
        assert torch.equal(past.key, kept)


def test_most_steps_copy_nothing() -> None:
    layer, memory, places = layer_of(), None, set()
    with torch.no_grad():
        for _ in range(60):
            _, memory = layer.step(draw(1, 1, 24), memory)
            places.add(memory.key.data_ptr())
    assert len(places) < 8


def test_a_reordered_memory_has_place_for_more() -> None:
    """Beams that change at every step copy what they keep once, and append in place."""
    layer, beams = layer_of(), torch.tensor([1, 0])
    with torch.no_grad():
        _, memory = layer.step(draw(2, 6, 24))
        _, memory = layer.step(draw(2, 1, 24), memory)
        for _ in range(4):
            moved = memory.reorder(beams)
            place = moved.key.data_ptr()
            _, memory = layer.step(draw(2, 1, 24), moved)
            assert memory.key.data_ptr() == place


def test_a_memory_outlives_inference_mode() -> None:
    layer, x = layer_of(), draw(2, 5, 24)
    with torch.inference_mode():
        memory = layer.extend(layer.prepare(x[:, :2]), x[:, 2:3])
    with torch.no_grad():
        row, memory = layer.step(x[:, 3:4], memory)
        torch.testing.assert_close(row, layer(x, None, DenseSupport(causal=True))[0][:, 3:4], **EXACT)


def test_a_prepared_source_serves_all_steps() -> None:
    layer, x, source = layer_of("additive", key_heads=2), draw(2, 4, 24), draw(2, 5, 24, seed=1)
    memory = layer.prepare(source)
    rows = [layer(x[:, i : i + 1], memory)[0] for i in range(4)]
    torch.testing.assert_close(torch.cat(rows, 1), layer(x, source)[0], **EXACT)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("source_dim", [None, 10])
def test_torch_multihead_attention(kind: str, source_dim: int | None) -> None:
    """Its masks are True = forbidden, one for all heads (b * h, q, k); rows without keys are NaN there."""
    support, allowed = masked(kind, Shape(heads=4, queries=5, keys=5 if source_dim is None else 6))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        layer = MultiheadAttention(dim=24, heads=4, attend=dot_attention, source_dim=source_dim).to(dtype)
        peer = nn.MultiheadAttention(24, 4, kdim=source_dim, vdim=source_dim, batch_first=True).to(dtype)
        transplant(layer, peer)
        query = draw(2, 5, 24, dtype=dtype).requires_grad_()
        source = query if source_dim is None else draw(2, 6, source_dim, dtype=dtype, seed=1).requires_grad_()
        leaves = [query] if source_dim is None else [query, source]
        any_key = allowed.any(-1, keepdim=True)
        forbidden = ~(allowed | ~any_key).flatten(0, 1)
        output, _ = layer(query, None if source_dim is None else source, support)
        expected, weights = peer(query, source, source, attn_mask=forbidden, average_attn_weights=False)
        real = any_key.all(1).squeeze(-1)  # rows that see a key in every head
        torch.testing.assert_close(output[real], expected[real], rtol=tolerance, atol=tolerance)
        with record(layer) as maps:
            layer(query, None if source_dim is None else source, support)
        torch.testing.assert_close(maps["attend"].weights.to(dtype), weights * any_key, rtol=tolerance, atol=tolerance)
        ours = named_gradients(layer, leaves, output[real])
        theirs = named_gradients(peer, leaves, expected[real])
        inputs = {name: gradient for name, gradient in ours.items() if name.startswith("input")}
        for name, gradient in (inputs | packed(ours, source_dim is None)).items():
            torch.testing.assert_close(gradient, theirs[name], rtol=10 * tolerance, atol=10 * tolerance)


def named_gradients(module: nn.Module, leaves: list[Tensor], output: Tensor) -> dict[str, Tensor]:
    names = [f"input {i}" for i in range(len(leaves))] + [name for name, _ in module.named_parameters()]
    found = torch.autograd.grad(output.square().sum(), [*leaves, *module.parameters()])
    return dict(zip(names, found, strict=True))


def packed(of: dict[str, Tensor], one_width: bool) -> dict[str, Tensor]:
    """Our parameters, or their gradients, as torch names and packs them."""
    names = ("query", "key", "value")
    result = {"in_proj_bias": torch.cat([of[f"{name}.bias"] for name in names])}
    if one_width:
        result["in_proj_weight"] = torch.cat([of[f"{name}.weight"] for name in names])
    else:
        result |= {f"{name[0]}_proj_weight": of[f"{name}.weight"] for name in names}
    return result | {"out_proj.weight": of["out.weight"], "out_proj.bias": of["out.bias"]}


def transplant(layer: MultiheadAttention, peer: nn.MultiheadAttention) -> None:
    """Our weights for torch's module."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.2)
    peer.load_state_dict(packed(dict(layer.state_dict()), peer.in_proj_weight is not None))


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_x_transformers(key_heads: int, causal: bool) -> None:
    """Its softmax is in single precision; its head p has the keys of p % key_heads, ours of p // (4 / key_heads)."""
    peers = pytest.importorskip("x_transformers.x_transformers")
    layer = layer_of(key_heads=key_heads, dtype=torch.float32)
    peer = peers.Attention(dim=24, heads=4, dim_head=6, kv_heads=key_heads, causal=causal)
    order = torch.arange(24).view(key_heads, -1, 6).transpose(0, 1).flatten()
    for name in ("query", "key", "value", "out"):
        nn.init.zeros_(getattr(layer, name).bias)
    weights = {f"to_{name[0]}": getattr(layer, name).weight for name in ("key", "value")}
    weights |= {"to_q": layer.query.weight[order], "to_out": layer.out.weight[:, order]}
    peer.load_state_dict({f"{name}.weight": weight for name, weight in weights.items()})
    x, mask = draw(2, 7, 24, dtype=torch.float32).requires_grad_(), torch.arange(7) < torch.tensor([[7], [4]])
    output, expected = layer(x, None, DenseSupport.from_key_mask(mask, causal))[0], peer(x, mask=mask)
    torch.testing.assert_close(output[mask], expected[mask], rtol=1e-5, atol=1e-5)
    ours, theirs = (torch.autograd.grad(each[mask].square().sum(), x)[0] for each in (output, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_scores_with_keys_of_their_own_for_each_head() -> None:
    layer = MultiheadAttention(
        dim=24, heads=4, attend=AttentionFactory(score=General, normalizer=Softmax), key_heads=2
    ).double()
    x = draw(2, 5, 24)
    whole = layer(x, None, DenseSupport(causal=True))[0]
    memory = layer.prepare(x[:, :3])
    assert (memory.key.shape[1], memory.value.shape[1]) == (4, 2)
    torch.testing.assert_close(layer.step(x[:, 3:], memory)[0], whole[:, 3:], **EXACT)


@pytest.mark.parametrize("position", ["none", "rotary"])
def test_sums_of_keys_in_place_of_a_memory(position: str) -> None:
    """Linear attention decodes from its sums, whose size does not grow, as well as from all keys."""
    attend = MechanismFactory(LinearAttention)
    layer = MultiheadAttention(dim=24, heads=4, attend=attend, key_heads=2, position=POSITIONS[position]).double()
    x, causal = draw(2, 8, 24), DenseSupport(causal=True)
    whole = layer(x, None, causal)[0]
    nothing = draw(2, 4, 0, 6)
    state, memory, rows, others = layer.attend.start(nothing, nothing, causal), None, [], []
    for part in x.split([3, 1, 4], 1):
        row, state = layer(part, None, causal, state)
        other, memory = layer.step(part, memory)
        rows.append(row)
        others.append(other)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)
    torch.testing.assert_close(torch.cat(others, 1), whole, **EXACT)


@pytest.mark.parametrize("length", [0, 1])
def test_short_sequences(length: int) -> None:
    layer = layer_of(key_heads=2)
    output, _ = layer(draw(2, length, 24), None, DenseSupport(causal=True))
    assert output.shape == (2, length, 24)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("out_bias", [False, True, None])
def test_biases(bias: bool, out_bias: bool | None) -> None:
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    module = MultiheadAttention(dim=4, heads=2, attend=attend, bias=bias, out_bias=out_bias)
    found = {name for name in ("query", "key", "value", "out") if getattr(module, name).bias is not None}
    assert found == ({"query", "key", "value"} if bias else set()) | (
        {"out"} if (bias if out_bias is None else out_bias) else set()
    )
