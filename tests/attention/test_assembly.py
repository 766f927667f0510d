"""Parts put together: the sites of a factory, the memory of a decoder, keys that are prepared once."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from attention_cases import NORMALISERS, SCORES, Shape, inputs, masked, site
from torch import Tensor, nn

from zoo.attention import (
    GAT,
    Additive,
    Attention,
    AttentionFactory,
    AttentionState,
    Degree,
    DenseSupport,
    Dot,
    EdgeSupport,
    GATv2,
    MultiheadAttention,
    ScaledDot,
    Softmax,
    record,
)

SHAPE = Shape()
every_mechanism = pytest.mark.parametrize(
    ("score", "normaliser"), [(score, normaliser) for score in SCORES for normaliser in NORMALISERS]
)


def test_each_site_of_a_factory_has_its_own_parameters() -> None:
    factory = AttentionFactory(score=GAT, normalizer=Softmax, dropout=0.1)
    first, second = factory(4, 2), factory(4, 2)
    assert first is not second
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    assert not torch.equal(first.score.to_query, second.score.to_query)
    assert first.dropout.p == second.dropout.p == 0.1
    assert first.probe is not second.probe


def test_a_factory_gives_only_the_sizes_asked_for() -> None:
    class OnlyHeads(Softmax):
        def __init__(self, *, heads: int) -> None:
            super().__init__()
            self.heads = heads

    class Everything(Dot):
        def __init__(self, *, dim: int, heads: int, window: int = 3) -> None:
            super().__init__()
            self.sizes = dim, heads, window

    attend = AttentionFactory(score=Everything, normalizer=OnlyHeads)(4, 2)
    assert (attend.score.sizes, attend.normalizer.heads) == ((4, 2, 3), 2)
    assert isinstance(AttentionFactory(score=Dot, normalizer=Softmax)(4, 2).score, Dot)
    sloped = AttentionFactory(score=partial(GATv2, slope=0.5), normalizer=Softmax)(4, 2)
    assert (sloped.score.slope, tuple(sloped.score.vector.shape)) == (0.5, (2, 4))
    wide = AttentionFactory(score=partial(Everything, window=7), normalizer=OnlyHeads)(8, 1)
    assert wide.score.sizes == (8, 1, 7)


def test_a_factory_and_its_sites_can_be_copied() -> None:
    factory = copy.deepcopy(AttentionFactory(score=partial(GAT, slope=0.1), normalizer=Softmax))
    attend = factory(4, 2)
    copied = copy.deepcopy(attend)
    assert torch.equal(copied.score.to_query, attend.score.to_query)
    assert copied.score.to_query is not attend.score.to_query
    assert copied.probe is not attend.probe


def test_multi_head_gives_its_sites_the_width_of_a_head() -> None:
    layer = MultiheadAttention(dim=12, heads=3, attend=AttentionFactory(score=Additive, normalizer=Softmax))
    assert layer.attend.score.vector.shape == (3, 4)
    with pytest.raises(
        ValueError, match="Degree works on EdgeSupport only; MultiheadAttention attends over DenseSupport"
    ):
        MultiheadAttention(dim=12, heads=3, attend=AttentionFactory(score=Dot, normalizer=Degree))


@every_mechanism
@pytest.mark.parametrize("kind", ["none", "causal+any"])
def test_a_state_changes_nothing(score: str, normaliser: str, kind: str) -> None:
    """With a state the weights are written out; the context is that of the fused path, gradients included."""
    attend, tensors = site(score, normaliser, SHAPE), inputs(SHAPE)
    support, _ = masked(kind, SHAPE)
    query, key, value = (tensors[name].requires_grad_() for name in ("query", "key", "value"))
    state = attend.start(query, key, support)
    context, after = attend(query, key, value, support, state)
    without, none = attend(query, key, value, support)
    assert none is None
    torch.testing.assert_close(context, without, rtol=0.0, atol=1e-12)
    assert after is not None
    weights = attend.weights(query, key, support)
    torch.testing.assert_close(after.weights, weights[:, :, -1:])
    torch.testing.assert_close(after.total, weights.sum(2, keepdim=True))
    (gradient,) = torch.autograd.grad(context.square().sum(), value)
    (expected,) = torch.autograd.grad(without.square().sum(), value)
    torch.testing.assert_close(gradient, expected, rtol=0.0, atol=1e-12)


def test_a_state_starts_at_zero_and_adds_up() -> None:
    attend, tensors = site("additive", "softmax", SHAPE), inputs(SHAPE._replace(queries=1))
    state = attend.start(tensors["query"], tensors["key"], DenseSupport())
    assert state.weights.shape == state.total.shape == (2, 3, 1, 4)
    assert not state.weights.any()
    assert not state.total.any()
    alignments = []
    for step in range(3):
        query = tensors["query"] + step
        _, following = attend(query, tensors["key"], tensors["value"], DenseSupport(), state)
        assert following is not None
        assert following is not state
        alignments.append(attend.weights(query, tensors["key"], DenseSupport()))
        state = following
        assert torch.equal(state.weights, alignments[-1])
        torch.testing.assert_close(state.total, torch.stack(alignments).sum(0))
    torch.testing.assert_close(state.total.sum(-1), torch.full((2, 3, 1), 3.0, dtype=torch.float64))


def test_a_normaliser_says_how_its_memory_begins() -> None:
    class FirstKey(Softmax):
        """As monotonic attention begins: at the first key."""

        def start(self, nothing: Tensor) -> Tensor:
            return nothing.index_fill(-1, torch.tensor(0), 1.0)

    tensors = inputs(SHAPE)
    state = Attention(Dot(), FirstKey()).start(tensors["query"], tensors["key"], DenseSupport())
    assert (state.weights[..., 0] == 1).all()
    assert not state.weights[..., 1:].any()
    assert not state.total.any()


def test_a_mechanism_sees_the_state() -> None:
    """A score that looks away from what was attended to: an argument, nothing kept on a module."""

    class Fresh(Dot):
        def forward(self, query: Tensor, key: Tensor, support: DenseSupport, state: AttentionState | None) -> Tensor:
            assert state is not None
            return super().forward(query, key, support) - 50 * state.total

    attend = Attention(Fresh(), Softmax())
    query, key = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 3, 2)
    key[0, 0, :, 0] = torch.tensor([0.02, 0.01, 0.0])
    query[..., 0] = 1000.0
    state, seen = attend.start(query, key, DenseSupport()), []
    for _ in range(3):
        _, state = attend(query, key, key, DenseSupport(), state)
        seen.append(state.weights.argmax().item())
    assert seen == [0, 1, 2]


def test_reorder_follows_the_beams() -> None:
    weights = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 2, 1, 4)
    state = AttentionState(weights=weights, total=10 * weights).reorder(torch.tensor([2, 2, 0, 1]))
    assert state.weights[:, 0, 0, 0].tolist() == [2.0, 2.0, 0.0, 1.0]
    assert state.total[:, 1, 0, 3].tolist() == [20.0, 20.0, 0.0, 10.0]
    assert state.weights.shape == (4, 2, 1, 4)


@every_mechanism
def test_keys_prepared_once_are_keys_prepared_each_step(score: str, normaliser: str) -> None:
    attend, tensors = site(score, normaliser, SHAPE), inputs(SHAPE)
    memory = attend.prepare(tensors["key"], tensors["value"], DenseSupport())
    at_once, _ = attend.read(tensors["query"], memory)
    for step in range(SHAPE.queries):
        query = tensors["query"][:, :, step : step + 1]
        once, _ = attend.read(query, memory)
        again, _ = attend(query, tensors["key"], tensors["value"], DenseSupport())
        assert torch.equal(once, again)
        torch.testing.assert_close(once, at_once[:, :, step : step + 1], rtol=0.0, atol=1e-12)


def test_multi_head_decodes_step_by_step() -> None:
    """State in, state out; the recorder sees the alignments that the state adds up."""
    torch.manual_seed(0)
    layer = MultiheadAttention(
        dim=12, heads=3, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax), source_dim=5
    ).double()
    query, source = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 6, 5, dtype=torch.float64)
    support = DenseSupport.from_key_mask(torch.rand(2, 6) < 0.7)
    memory = layer.prepare(source)
    state = layer.attend.start(memory.key[:, :, :1], memory.key, support)
    outputs = []
    with record(layer) as maps:
        for step in range(4):
            output, state = layer(query[:, step : step + 1], memory, support, state)
            outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), layer(query, source, support)[0], rtol=0.0, atol=1e-12)
    torch.testing.assert_close(maps["attend"].weights.sum(0), state.total)


def test_parameters_start_afresh_within_glorots_bounds() -> None:
    """Each head's vector is a layer from five numbers to one, however many heads there are."""
    for score in (Additive(dim=5, heads=99), GAT(dim=5, heads=99), GATv2(dim=5, heads=99)):
        for parameter in score.parameters():
            nn.init.constant_(parameter, 9.0)
        score.reset_parameters()
        for parameter in score.parameters():
            assert 0.9 < parameter.abs().max() <= (6 / (5 + 1)) ** 0.5


def test_a_mechanism_that_states_no_support_serves_all() -> None:
    attend = Attention(Dot(), Softmax())
    attend.check_layout(DenseSupport, "a Transformer")
    attend.check_layout(EdgeSupport, "a graph layer")
