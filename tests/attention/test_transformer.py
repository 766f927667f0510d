"""Transformer blocks: equal to torch's with the same weights, recordable by name, and decoded as they are trained."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    AttentionFactory,
    DecoderBlock,
    DenseSupport,
    EncoderBlock,
    FeedForward,
    FourierMixer,
    GatedRecurrent,
    KVCache,
    MultiheadAttention,
    PostNorm,
    PreNorm,
    Rotary,
    ScaledDot,
    Softmax,
    record,
)

EXACT = {"rtol": 0.0, "atol": 1e-12}
RESIDUALS = {False: PostNorm, True: PreNorm}
precisions = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
both_norms = pytest.mark.parametrize("norm_first", [False, True])


def heads(**options: object) -> MultiheadAttention:
    return MultiheadAttention(dim=12, heads=3, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax), **options)


def feed_forward() -> FeedForward:
    return FeedForward(dim=12, width=20, activation=nn.GELU)


def encoder(norm_first: bool = True, mixer: nn.Module | None = None, **options: object) -> EncoderBlock:
    torch.manual_seed(0)
    mixer = heads() if mixer is None else mixer
    return EncoderBlock(
        dim=12, mixer=mixer, feed_forward=feed_forward(), residual=RESIDUALS[norm_first], **options
    ).double()


def decoder(norm_first: bool = True, mixer: nn.Module | None = None) -> DecoderBlock:
    torch.manual_seed(0)
    mixer = heads(key_heads=1, position=partial(Rotary, base=100.0)) if mixer is None else mixer
    block = DecoderBlock(
        dim=12, mixer=mixer, cross=heads(), feed_forward=feed_forward(), residual=RESIDUALS[norm_first]
    )
    return block.double()


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def attention_weights(ours: str, theirs: str, of: dict[str, Tensor]) -> dict[str, Tensor]:
    """One MultiheadAttention's parameters as torch names and packs them."""
    names = ("query", "key", "value")
    return {
        f"{theirs}.in_proj_weight": torch.cat([of[f"{ours}.{name}.weight"] for name in names]),
        f"{theirs}.in_proj_bias": torch.cat([of[f"{ours}.{name}.bias"] for name in names]),
        f"{theirs}.out_proj.weight": of[f"{ours}.out.weight"],
        f"{theirs}.out_proj.bias": of[f"{ours}.out.bias"],
    }


def as_torch(of: dict[str, Tensor], *, decodes: bool) -> dict[str, Tensor]:
    """A block's parameters, or their gradients, by torch's names."""
    same = {"feed_forward.expand": "linear1", "feed_forward.contract": "linear2", "mixed.norm": "norm1"}
    same |= {"crossed.norm": "norm2", "fed.norm": "norm3"} if decodes else {"fed.norm": "norm2"}
    result = {f"{theirs}.{kind}": of[f"{ours}.{kind}"] for ours, theirs in same.items() for kind in ("weight", "bias")}
    result |= attention_weights("mixer", "self_attn", of)
    return result | (attention_weights("cross", "multihead_attn", of) if decodes else {})


def assert_equal_to_torch(
    block: nn.Module, peer: nn.Module, leaves: list[Tensor], output: Tensor, expected: Tensor, tolerance: float
) -> None:
    torch.testing.assert_close(output, expected, rtol=tolerance, atol=tolerance)
    found = []
    for module, result in ((block, output), (peer, expected)):
        names = [f"input {i}" for i in range(len(leaves))] + [name for name, _ in module.named_parameters()]
        gradients = torch.autograd.grad((result + result.square()).sum(), [*leaves, *module.parameters()])
        found.append(dict(zip(names, gradients, strict=True)))
    ours, theirs = found
    ours = {n: g for n, g in ours.items() if n.startswith("input")} | as_torch(ours, decodes=len(leaves) > 1)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=20 * tolerance, atol=20 * tolerance)


@both_norms
@precisions
@pytest.mark.parametrize("causal", [False, True])
def test_torch_encoder_layer(norm_first: bool, dtype: torch.dtype, tolerance: float, causal: bool) -> None:
    block = spread(encoder(norm_first)).to(dtype)
    peer = nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=norm_first).to(dtype)
    peer.load_state_dict(as_torch(dict(block.state_dict()), decodes=False))
    x, mask = draw(2, 5, 12, dtype=dtype).requires_grad_(), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    output = block(x, DenseSupport.from_key_mask(mask, causal))
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected = peer(x, src_mask=later, src_key_padding_mask=~mask)
    assert_equal_to_torch(block, peer, [x], output, expected, tolerance)


@both_norms
@precisions
def test_torch_decoder_layer(norm_first: bool, dtype: torch.dtype, tolerance: float) -> None:
    block = spread(decoder(norm_first, heads())).to(dtype)
    peer = nn.TransformerDecoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=norm_first).to(dtype)
    peer.load_state_dict(as_torch(dict(block.state_dict()), decodes=True))
    x, source = draw(2, 5, 12, dtype=dtype).requires_grad_(), draw(2, 4, 12, seed=1, dtype=dtype).requires_grad_()
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    output = block(x, source, source_support=DenseSupport.from_key_mask(mask))
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = peer(x, source, tgt_mask=later, memory_key_padding_mask=~mask)
    assert_equal_to_torch(block, peer, [x, source], output, expected, tolerance)


def spread(block: nn.Module) -> nn.Module:
    """Parameters of norms and biases away from ones and zeros, which hide mistakes."""
    for parameter in block.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    return block


@both_norms
def test_dropout_stands_where_torch_has_it(norm_first: bool) -> None:
    """All three places, and none besides: with the same masks the same result."""
    calls: list[tuple[int, ...]] = []

    class Counted(nn.Dropout):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(tuple(x.shape))
            return x * 2.0

    block = encoder(norm_first)
    peer = nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=norm_first).double()
    peer.load_state_dict(as_torch(dict(block.state_dict()), decodes=False))
    for module, names in (
        (block, ("mixed.dropout", "feed_forward.dropout", "fed.dropout")),
        (peer, ("dropout1", "dropout", "dropout2")),
    ):
        for name in names:
            module.set_submodule(name, Counted())
    x = draw(2, 5, 12)
    torch.testing.assert_close(block(x), peer(x), **EXACT)
    assert calls == [(2, 5, 12), (2, 5, 20), (2, 5, 12)] * 2
    rates = [each.p for each in encoder(dropout=0.3).modules() if isinstance(each, nn.Dropout)]
    assert sorted(rates) == [0.0, 0.3, 0.3]


@both_norms
@pytest.mark.parametrize("recurrent", [False, True])
def test_decoding_equals_the_full_pass(norm_first: bool, recurrent: bool) -> None:
    block = decoder(norm_first, GatedRecurrent(dim=12) if recurrent else None)
    x, source = draw(3, 6, 12), draw(3, 4, 12, seed=1)
    mask = torch.arange(6) >= torch.tensor([[0], [1], [4]])
    from_source = DenseSupport.from_key_mask(torch.arange(4) < torch.tensor([[4], [2], [1]]))
    whole = block(x, source, DenseSupport.from_key_mask(mask, causal=True), from_source)
    prepared = block.prepare(source, from_source)
    assert isinstance(prepared, KVCache)
    state, rows = block.start(prepared), []
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        support = DenseSupport.from_key_mask(mask[:, :stop], causal=True)
        row, state = block.step(x[:, start:stop], state, support)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1)[mask], whole[mask], **EXACT)


@both_norms
def test_encoder_blocks_decode_too(norm_first: bool) -> None:
    block, x = encoder(norm_first), draw(2, 6, 12)
    whole = block(x, DenseSupport(causal=True))
    first, state = block.step(x[:, :4])
    beams = torch.tensor([1, 1, 0])
    rest, _ = block.step(x[beams, 4:], state.reorder(beams))
    torch.testing.assert_close(first, whole[:, :4], **EXACT)
    torch.testing.assert_close(rest, whole[beams, 4:], **EXACT)


def test_a_decoder_is_causal_unless_told_otherwise() -> None:
    block, x, source = decoder(), draw(1, 4, 12), draw(1, 3, 12, seed=1)
    changed = torch.cat([x[:, :2], -x[:, 2:]], 1)
    assert torch.equal(block(x, source)[:, :2], block(changed, source)[:, :2])
    assert not torch.equal(block(x, source, DenseSupport())[:, :2], block(changed, source, DenseSupport())[:, :2])


def test_every_site_is_recorded_by_name() -> None:
    model = nn.ModuleList([encoder(), decoder()])
    x = draw(2, 5, 12)
    with record(model) as maps:
        model[1](draw(2, 3, 12), model[0](x))
    shapes = {site: tuple(maps[site].weights.shape) for site in maps}
    assert shapes == {
        "0.mixer.attend": (2, 3, 5, 5),
        "1.mixer.attend": (2, 3, 3, 3),
        "1.cross.attend": (2, 3, 3, 5),
    }


class Counting(nn.Module):
    """Doubles what is added, and is made anew for each residual."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Counting.made += 1

    def forward(self, y: Tensor) -> Tensor:
        return 2.0 * y


@both_norms
def test_a_branch_changes_what_is_added(norm_first: bool) -> None:
    plain, x = encoder(norm_first), draw(2, 5, 12)
    Counting.made = 0
    torch.manual_seed(0)
    block = EncoderBlock(
        dim=12,
        mixer=heads(),
        feed_forward=feed_forward(),
        residual=partial(RESIDUALS[norm_first], branch=Counting),
    ).double()
    assert Counting.made == 2
    assert plain.mixed.branch is None
    assert plain.fed.branch is None
    block.load_state_dict(plain.state_dict())
    for linear in (plain.mixer.out, plain.feed_forward.contract):
        linear.weight.data.mul_(2.0)
        linear.bias.data.mul_(2.0)
    torch.testing.assert_close(block(x), plain(x), **EXACT)


@both_norms
@pytest.mark.parametrize("first", [0, 1, 3, 5])
def test_the_first_positions_alone(norm_first: bool, first: int) -> None:
    """They are what they are among all, and no other is fed forward; the map is of all."""
    block, x = encoder(norm_first), draw(2, 5, 12)
    fed: list[int] = []
    block.feed_forward.register_forward_hook(lambda module, given, out: fed.append(out.shape[1]))
    with record(block) as maps:
        found = block(x, first=first)
    torch.testing.assert_close(found, block(x)[:, :first], **EXACT)
    assert fed == [first, 5]
    assert maps["mixer.attend"].weights.shape == (2, 3, 5, 5)


def test_the_feed_forward_network_may_have_a_residual_of_its_own() -> None:
    block = EncoderBlock(
        dim=12, mixer=heads(), feed_forward=feed_forward(), residual=PreNorm, feed_residual=PostNorm
    ).double()
    x = draw(2, 5, 12)
    y = x + block.mixer(block.mixed.norm(x))[0]
    torch.testing.assert_close(block(x), block.fed.norm(y + block.feed_forward(y)), **EXACT)


def test_residuals_take_another_norm() -> None:
    block = EncoderBlock(dim=12, mixer=heads(), feed_forward=feed_forward(), residual=partial(PreNorm, norm=nn.RMSNorm))
    assert isinstance(block.mixed.norm, nn.RMSNorm)
    assert isinstance(block.fed.norm, nn.RMSNorm)


def test_a_mixer_cannot_attend_to_a_source() -> None:
    with pytest.raises(ValueError, match="FourierMixer cannot attend to a source: give MultiheadAttention as cross"):
        DecoderBlock(dim=12, mixer=heads(), cross=FourierMixer(), feed_forward=feed_forward())
