"""Self-attention of a block: multi-head attention or a mixer, the arguments of each, and what is refused."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from zoo.attention import (
    Attention,
    AttentionFactory,
    AttentionFree,
    BigBird,
    Constant,
    Degree,
    DenseSupport,
    FourierMixer,
    Gaussian,
    Linformer,
    LocalM,
    LocalP,
    MechanismFactory,
    MixerFactory,
    MultiheadAttention,
    Rotary,
    ScaledDot,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    StateSpace,
    T5Bias,
    Uniform,
    self_attention,
)

SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_a_mechanism_comes_with_heads() -> None:
    torch.manual_seed(0)
    made = self_attention(dim=8, heads=2, attend=SOFTMAX, position=Rotary, bias=False, out_bias=True, causal=True)
    torch.manual_seed(0)
    heads = MultiheadAttention(dim=8, heads=2, attend=SOFTMAX, position=Rotary, bias=False, out_bias=True)
    assert isinstance(made.attend.position, Rotary)
    assert {*made.state_dict()} == {*heads.state_dict()}
    assert torch.equal(made(draw(2, 5, 8))[0], heads(draw(2, 5, 8))[0])


def test_a_mixer_is_given_what_it_asks_for_and_does_not_have() -> None:
    make = partial(self_attention, dim=8, heads=2, length=7)
    assert isinstance(make(attend=MixerFactory(partial(StateSpace, states=6))), StateSpace)
    assert make(attend=MixerFactory(FourierMixer)).length == 7
    assert make(attend=MixerFactory(partial(FourierMixer, length=None))).length == 7
    assert make(attend=MixerFactory(partial(FourierMixer, length=9))).length == 9
    assert make(attend=MixerFactory(AttentionFree), length=5)(draw(1, 5, 8))[0].shape == (1, 5, 8)
    assert make(attend=MixerFactory(FourierMixer), length=None).length is None
    assert make(attend=MixerFactory(StateSpace), causal=True).causal
    assert not make(attend=MixerFactory(StateSpace)).causal
    assert not make(attend=MixerFactory(partial(StateSpace, causal=False)), causal=True).causal


def test_what_compares_nothing_has_no_queries_and_keys() -> None:
    """And no position whose only part is in their scores; contexts are those of a layer that projects them."""
    uniform = AttentionFactory(score=Constant, normalizer=Uniform)
    constant = AttentionFactory(score=Constant, normalizer=Softmax)
    layers = [
        MultiheadAttention(dim=8, heads=2, key_heads=1, source_dim=6, attend=attend, position=position)
        for attend, position in ((uniform, T5Bias), (constant, None))
    ]
    assert {name.split(".")[0] for name, _ in layers[0].named_parameters()} == {"value", "out"}
    for own, other in zip((layers[0].value, layers[0].out), (layers[1].value, layers[1].out), strict=True):
        own.load_state_dict(other.state_dict())
    x, source, support = draw(2, 5, 8), draw(2, 4, 6), DenseSupport(causal=True)
    assert torch.allclose(layers[0](x, source, support)[0], layers[1](x, source, support)[0])
    windows = (SlidingWindow(radius=1), BigBird(block=2), ShiftedWindows(window=2), LocalM(radius=1))
    assert not any(Attention(Constant(), Uniform(), restrict=window).is_content_based for window in windows)
    assert Attention(Constant(), Uniform(), restrict=LocalP(dim=4, heads=2, radius=1)).is_content_based
    assert not Attention(Constant(), Degree()).is_content_based
    assert Attention(ScaledDot(), Softmax()).is_content_based


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attend": MixerFactory(FourierMixer)}, "FourierMixer sees the whole sequence at once; to be causal it must"),
        (
            {"attend": MechanismFactory(partial(Linformer, length=9))},
            "Linformer mixes all positions before a query sees them, and so cannot be causal",
        ),
        (
            {"attend": AttentionFactory(score=ScaledDot, normalizer=Gaussian, restrict=LocalP)},
            "LocalP predicts a position in the whole source, whose length is unknown",
        ),
        (
            {"attend": MixerFactory(StateSpace), "position": Rotary},
            "StateSpace has no queries and keys, so it cannot use relative",
        ),
    ],
)
def test_what_is_refused_at_the_start(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        self_attention(dim=8, heads=2, causal=True, **options)


def test_a_model_that_attends_otherwise_refuses_a_mixer() -> None:
    with pytest.raises(
        ValueError, match="FourierMixer replaces self-attention over a whole sequence, which this model"
    ):
        MultiheadAttention(dim=8, heads=2, attend=MixerFactory(FourierMixer), source_dim=4)
    with pytest.raises(ValueError, match="StateSpace replaces self-attention"):
        MultiheadAttention(dim=8, heads=2, attend=MixerFactory(partial(StateSpace, states=2)))


def test_without_a_projection_the_heads_stand_side_by_side() -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(
        dim=6, heads=2, attend=lambda dim, heads: Attention(ScaledDot(), Softmax()), project=False
    ).double()
    query, source = draw(2, 3, 6).double(), draw(2, 4, 6).double()
    assert {name.partition(".")[0] for name, _ in layer.named_parameters()} == {"query", "key", "value"}
    q, k, v = layer.query(query), layer.key(source), layer.value(source)
    for example in range(2):
        for row in range(3):
            for head in (slice(0, 3), slice(3, 6)):
                weights = torch.exp(k[example, :, head] @ q[example, row, head] / 3**0.5)
                expected = (weights / weights.sum()) @ v[example, :, head]
                torch.testing.assert_close(layer(query, source)[0][example, row, head], expected)
    with pytest.raises(ValueError, match="project=False leaves out"):
        MultiheadAttention(dim=6, heads=2, attend=SOFTMAX, out_bias=True, project=False)


def test_between_its_projections() -> None:
    """Rows that were projected elsewhere give what `forward` gives, positions included."""
    torch.manual_seed(0)
    layer = MultiheadAttention(dim=8, heads=4, key_heads=2, attend=SOFTMAX, position=Rotary)
    x, support = draw(2, 5, 8), DenseSupport(causal=True)
    context = layer.attend_projected(layer.query(x), layer.key(x), layer.value(x), support)
    assert torch.equal(layer.out(context), layer(x, support=support)[0])
