"""ViT: the paper's equations by loops, timm's nets with the same weights, other resolutions, every mechanism."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from token_net_cases import ATTENTION, CLOSE, MIXERS, SOFTMAX, mechanism, parameters, pictures, spread, vit
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import StochasticDepth

from zoo.attention import (
    ALiBi,
    AttentionFactory,
    Learned,
    Learned2D,
    Linformer,
    MechanismFactory,
    Rotary,
    Sinusoidal,
    Sinusoidal2D,
    T5Bias,
    record,
    sites,
)
from zoo.tasks.vision.models.vit import ViT, named_sizes


def reference(net: ViT, picture: Tensor) -> Tensor:
    """Dosovitskiy et al. 2021, eq. 1-4, a patch, a head and a token at a time; the logits of one picture."""
    weights = dict(net.named_parameters())

    def affine(x: Tensor, name: str) -> Tensor:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.sum() / len(x)
        scaled = centred / ((centred * centred).sum() / len(x) + 1e-6).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    kernel, place = weights["tokens.project.weight"], weights["tokens.position.embedding.vectors"]
    side = kernel.shape[2]
    patches = []
    for row in range(picture.shape[1] // side):
        for column in range(picture.shape[2] // side):
            part = picture[:, row * side : (row + 1) * side, column * side : (column + 1) * side]
            patches.append(kernel.flatten(1) @ part.flatten() + weights["tokens.project.bias"])
    first = int(net.class_site is not None)
    tokens = [weights["tokens.class_token"][0, 0] + place[0]] if first else []
    tokens += list(weights["tokens.registers"][0]) if "tokens.registers" in weights else []
    tokens += [patch + place[first + number] for number, patch in enumerate(patches)]
    for number, layer in enumerate(net.layers):
        block = f"layers.{number}"
        seen = [norm(token, f"{block}.mixed.norm") for token in tokens]
        query, key, value = ([affine(x, f"{block}.mixer.{name}") for x in seen] for name in ("query", "key", "value"))
        width = len(seen[0]) // layer.mixer.heads
        added = []
        for own in query:
            heads = []
            for start in range(0, len(seen[0]), width):
                part = slice(start, start + width)
                exponentials = [(own[part] @ other[part] / math.sqrt(width)).exp() for other in key]
                total = sum(exponentials)
                heads.append(sum(e / total * v[part] for e, v in zip(exponentials, value, strict=True)))
            added.append(affine(torch.cat(heads), f"{block}.mixer.out"))
        tokens = [token + each for token, each in zip(tokens, added, strict=True)]
        for where, token in enumerate(tokens):
            hidden = affine(norm(token, f"{block}.fed.norm"), f"{block}.feed_forward.expand")
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            tokens[where] = token + affine(hidden, f"{block}.feed_forward.contract")
    tokens = [norm(token, "norm") for token in tokens]
    read = tokens[0] if first else sum(tokens[net.extra :]) / len(tokens[net.extra :])
    return affine(read, "head")


@pytest.mark.parametrize(
    "options", [{}, {"registers": 2}, {"pool": "mean"}, {"pool": "mean", "registers": 1}, {"layers": 1}]
)
def test_equations(options: dict[str, Any]) -> None:
    net, pixels = vit(**options), pictures(12, 8)
    expected = torch.stack([reference(net, picture) for picture in pixels])
    named = dict(net.named_parameters())
    torch.testing.assert_close(net(pixels), expected, **CLOSE)
    found = torch.autograd.grad(net(pixels).square().sum(), list(named.values()))
    for gradient, peer in zip(found, torch.autograd.grad(expected.square().sum(), list(named.values())), strict=True):
        torch.testing.assert_close(gradient, peer, rtol=1e-9, atol=1e-9)


def from_timm(peer: nn.Module, net: ViT) -> None:
    """Loads timm's weights; its positions of registers become part of our registers."""
    theirs = peer.state_dict()
    front, registers = net.tokens.position.front, net.extra - net.tokens.position.front
    positions = theirs["pos_embed"][0]
    known = {
        "tokens.position.embedding.vectors": torch.cat([positions[:front], positions[front + registers :]]),
        **{f"tokens.project.{kind}": theirs[f"patch_embed.proj.{kind}"] for kind in ("weight", "bias")},
        **{f"{name}.{kind}": theirs[f"{name}.{kind}"] for name in ("norm", "head") for kind in ("weight", "bias")},
    }
    if front:
        known["tokens.class_token"] = theirs["cls_token"]
    if registers:
        known["tokens.registers"] = theirs["reg_token"] + positions[front : front + registers]
    same = {"mixed.norm": "norm1", "fed.norm": "norm2", "mixer.out": "attn.proj"}
    same |= {"feed_forward.expand": "mlp.fc1", "feed_forward.contract": "mlp.fc2"}
    for number in range(len(net.layers)):
        ours, block = f"layers.{number}", f"blocks.{number}"
        for kind in ("weight", "bias"):
            known |= {f"{ours}.{a}.{kind}": theirs[f"{block}.{b}.{kind}"] for a, b in same.items()}
            parts = theirs[f"{block}.attn.qkv.{kind}"].chunk(3)
            names = ("query", "key", "value")
            known |= {f"{ours}.mixer.{name}.{kind}": part for name, part in zip(names, parts, strict=True)}
    net.load_state_dict(known)


FEW = {"embed_dim": 48, "depth": 2}


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"registers": 4}, {"reg_tokens": 4, **FEW}),
        ({"pool": "mean"}, {"global_pool": "avg", "class_token": False, "fc_norm": False, **FEW}),
    ],
    ids=["class token", "registers", "mean"],
)
def test_timm(options: dict[str, Any], theirs: dict[str, Any]) -> None:
    timm = pytest.importorskip("timm")
    peer = timm.create_model("vit_tiny_patch16_224", img_size=48, num_classes=7, **theirs)
    spread(peer.double())
    few = {"dim": 48, "layers": 2, "hidden": 192} if options else {}
    sizes = {"channels": 3, "height": 48, "width": 48, "classes": 7, "size": "tiny", "patch": 16, **few}
    net = ViT(**sizes, attend=SOFTMAX, **options).double()
    from_timm(peer, net.eval())
    pixels = pictures(48, 48, count=2, channels=3)
    torch.testing.assert_close(net(pixels), peer(pixels), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(net.float()(pixels.float()), peer.float()(pixels.float()), rtol=1e-4, atol=1e-4)


def test_timm_at_another_resolution() -> None:
    resample = pytest.importorskip("timm.layers").resample_abs_pos_embed
    net = vit()
    larger = vit(height=24, width=16)
    weights = net.state_dict()
    name = "tokens.position.embedding.vectors"
    found = larger.resize_parameter(name, weights[name], tuple(larger.state_dict()[name].shape))
    expected = resample(weights[name][None], (6, 4), (3, 2), num_prefix_tokens=1)[0]
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)  # timm interpolates in single precision


@pytest.mark.parametrize("position", [Learned, Learned2D, Sinusoidal, Sinusoidal2D, None])
@pytest.mark.parametrize("options", [{"registers": 2}, {"pool": "mean"}])
def test_another_resolution_is_that_of_a_net_made_for_it(position: Any, options: dict[str, Any]) -> None:
    """A net has the same logits whether it was made for a resolution or resized to it."""
    net, other = vit(position=position, **options), vit(position=position, height=24, width=16, **options)
    weights = net.state_dict()
    shapes = {name: tuple(weight.shape) for name, weight in other.state_dict().items()}
    resized = {name: other.resize_parameter(name, weight, shapes[name]) for name, weight in weights.items()}
    assert {name for name, weight in resized.items() if weight is not None} == {
        name for name in weights if shapes[name] != tuple(weights[name].shape)
    }
    other.load_state_dict({name: weights[name] if each is None else each for name, each in resized.items()})
    pixels = pictures(24, 16)
    assert net.grid(24, 16) == (6, 4)
    torch.testing.assert_close(net(pixels), other(pixels), **CLOSE)


@pytest.mark.parametrize(("old", "new"), [((2, 4), (4, 8)), ((3, 3), (5, 7)), ((2, 3), (2, 3))])
def test_the_grid_of_old_positions(old: tuple[int, int], new: tuple[int, int]) -> None:
    net = vit(height=4 * new[0], width=4 * new[1])
    vectors = vit(height=4 * old[0], width=4 * old[1]).tokens.position.embedding.vectors.detach()
    found = net.tokens.position.resize_parameter(vectors)
    stretched = F.interpolate(
        vectors[1:].T.reshape(1, -1, *old), size=new, mode="bicubic", antialias=True, align_corners=False
    )
    expected = vectors if old == new else torch.cat([vectors[:1], stretched[0].flatten(1).T])
    torch.testing.assert_close(found, expected, **CLOSE)


def test_positions_of_an_unknown_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="8 positions are neither a grid whose sides are as 3 to 2 nor a square"):
        vit().tokens.position.resize_parameter(torch.zeros(9, 12))


@pytest.mark.parametrize(
    ("size", "height", "classes", "count"),
    [
        ("base", 224, 1000, 86_567_656),  # torchvision's vit_b_16
        ("large", 224, 1000, 304_326_632),  # torchvision's vit_l_16
        ("small", 224, 1000, 22_050_664),  # timm's vit_small_patch16_224
        ("tiny", 224, 1000, 5_717_416),  # timm's vit_tiny_patch16_224
        ("lite_7", 32, 10, 3_722_250),  # 3.72M: Hassani et al. 2021, table 1
    ],
)
def test_published_numbers_of_parameters(size: Any, height: int, classes: int, count: int) -> None:
    with torch.device("meta"):
        net = ViT(channels=3, height=height, width=height, classes=classes, attend=SOFTMAX, size=size)
    assert parameters(net) == count


def test_numbers_count_more_than_a_size() -> None:
    net = ViT(channels=1, height=28, width=28, classes=2, attend=SOFTMAX, size="mini", layers=1, dim=16, registers=3)
    assert (len(net.layers), net.norm.normalized_shape, net.extra) == (1, (16,), 4)
    assert net.layers[0].feed_forward.expand.out_features == ViT.SIZES["mini"]["hidden"]


@pytest.mark.parametrize(("height", "width", "patch"), [(28, 32, 4), (47, 100, None), (48, 80, 8), (128, 224, 16)])
def test_patches_that_follow_from_the_picture(height: int, width: int, patch: int | None) -> None:
    sizes = {"channels": 1, "height": height, "width": width, "classes": 2}
    if patch is None:
        with pytest.raises(ValueError, match=r"height=47 is not divisible by patch=4; 44 or 48 pixels are$"):
            ViT(**sizes, attend=SOFTMAX, size="mini")
    else:
        assert ViT(**sizes, attend=SOFTMAX, size="mini").tokens.patch == patch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 5}, "height=12 is not divisible by patch=5; 10 or 15 pixels are; a patch of 2 or 3 or 4 or 6 would"),
        ({"patch": 0}, "patch is to be a whole number of at least 1 or null"),
        ({"registers": -1}, "registers is to be a whole number of at least 0"),
        ({"dim": None, "hidden": None}, "give dim, hidden, or a size: mini,"),
        ({"layers": 0}, "layers is to be a whole number of at least 1 or null"),
        ({"heads": 5}, "dim=12 is not divisible by heads=5"),
        ({"stochastic_depth": 1.0}, "stochastic_depth is to be a number of at least 0 and below 1"),
        (
            {"attend": MechanismFactory(partial(Linformer, length=6))},
            "Linformer takes 6 tokens at most, and these .* have 7",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vit(**options)


@pytest.mark.parametrize("options", [{"pool": "max"}, {"size": "huge"}])
def test_names_that_there_are_not(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):  # the latter where signatures are checked
        vit(**options)


def test_the_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="there is no size 'huge'; there are mini, lite_6, lite_7, tiny, small, base,"):
        named_sizes(ViT.SIZES, "huge", {"dim": None})


def test_a_picture_that_patches_do_not_divide() -> None:
    with pytest.raises(ValueError, match="width=10 is not divisible by patch=4; 8 or 12 pixels are"):
        vit()(pictures(12, 10))


@pytest.mark.parametrize("path", ATTENTION, ids=lambda path: path.stem)
def test_every_mechanism(path: Path) -> None:
    """A mechanism learns, keeps pictures independent, is not changed by recording, or is refused."""
    torch.manual_seed(0)
    attend = mechanism(path)
    if path.stem == "degree":
        with pytest.raises(
            ValueError, match="Degree works on EdgeSupport only; MultiheadAttention attends over DenseSupport"
        ):
            vit(attend=attend)
        return
    if path.stem == "none":
        with pytest.raises(ValueError, match="MultiheadAttention has nothing but attention to read with"):
            vit(attend=attend)
        return
    net, pixels = vit(attend=attend, registers=1), pictures(12, 8)
    net.train()(pixels).logsumexp(1).sum().backward()
    for name, parameter in net.named_parameters():
        unused = path.stem == "uniform" and name.split(".")[-2] in ("query", "key")
        unused |= name == "layers.1.mixer.ahead.weight_hh_l0"  # the class token is first: nothing is handed on to it
        # nor has it, as the first query, weights of earlier queries
        unused |= path.stem in ("coverage", "location", "location_window") and name.startswith(
            "layers.1.mixer.attend.score.f"
        )
        assert unused or parameter.grad is not None, name
        assert unused or (parameter.grad.isfinite().all() and parameter.grad.any()) or "key.bias" in name, name
    net.eval()
    logits = net(pixels)
    others = net(torch.cat([pixels[:1], -pixels[1:]]))
    torch.testing.assert_close(others[:1], logits[:1], **CLOSE)
    # a hard monotonic query begins as one that stops nowhere
    assert path.stem in ("monotonic", "mocha") or not torch.allclose(others[1:], logits[1:])
    with record(net) as maps:
        assert torch.equal(net(pixels), logits)
    site = "mixer" if path.stem in MIXERS else "mixer.attend"
    assert {*maps, *maps.silent} == {f"layers.0.{site}", f"layers.1.{site}"}
    assert bool(maps.silent) == (path.stem in ("linear", "linformer", "performer", *MIXERS))


def test_maps_are_of_all_tokens() -> None:
    """Maps include all tokens even in the last block, whose feed-forward network runs for the class token only."""
    net, pixels = vit(registers=2), pictures(12, 8)
    assert (net.extra, net.class_site) == (3, "layers.1.mixer.attend")
    with record(net) as maps:
        net(pixels)
    assert [tuple(each.weights.shape) for each in maps.values()] == [(3, 3, 9, 9)] * 2
    block = net.layers[0]
    x = block.mixed.branch_input(net.tokens(pixels))
    query, key = (project(x).view(3, 9, 3, 4).transpose(1, 2) for project in (block.mixer.query, block.mixer.key))
    torch.testing.assert_close(maps["layers.0.mixer.attend"].weights, (query @ key.mT / 2).softmax(-1), **CLOSE)


def test_the_last_block_feeds_forward_what_is_read() -> None:
    shapes = []
    for pool in ("class", "mean"):
        net = vit(pool=pool, registers=1)
        for layer in net.layers:
            layer.feed_forward.register_forward_hook(lambda module, given, out: shapes.append(tuple(out.shape)))
        net(pictures(12, 8))
    assert shapes == [(3, 8, 12), (3, 1, 12), (3, 7, 12), (3, 7, 12)]


@pytest.mark.parametrize("registers", [0, 2])
def test_features_are_patches_on_their_grid(registers: int) -> None:
    net, pixels = vit(pool="mean", registers=registers), pictures(12, 8)
    features = net.features(pixels)
    assert features.shape == (3, 12, 3, 2)
    torch.testing.assert_close(net.head(features.mean((2, 3))), net(pixels), **CLOSE)
    x = net.tokens(pixels)
    for layer in net.layers:
        x = layer(x)
    torch.testing.assert_close(features[:, :, 2, 1], net.norm(x)[:, registers + 5], **CLOSE)


@pytest.mark.parametrize("position", [Learned2D, Sinusoidal2D])
def test_positions_of_a_grid_are_for_patches(position: Any) -> None:
    net, pixels = vit(position=position, registers=1), pictures(12, 8)
    tokens = net.tokens(pixels)
    assert torch.equal(tokens[:, 0], net.tokens.class_token[0].expand(3, -1))
    assert torch.equal(tokens[:, 1], net.tokens.registers[0].expand(3, -1))
    patches = net.tokens.project(pixels).flatten(2).mT
    torch.testing.assert_close(tokens[:, 2:], net.tokens.position.embedding(patches, (3, 2)), **CLOSE)


@pytest.mark.parametrize("position", [Learned, Learned2D, Sinusoidal, Sinusoidal2D, None])
@pytest.mark.parametrize("relative", [Rotary, T5Bias, ALiBi, None])
def test_without_positions_patches_may_change_places(position: Any, relative: Any) -> None:
    net, pixels = vit(position=position, relative=relative, heads=2), pictures(12, 8)
    swapped = torch.cat([pixels[:, :, 4:8], pixels[:, :, :4], pixels[:, :, 8:]], 2)
    assert torch.allclose(net(pixels), net(swapped), **CLOSE) == (position is None and relative is None)


def test_stochastic_depth_grows_with_depth() -> None:
    rates = [each.p for each in vit(layers=5, stochastic_depth=0.4).modules() if isinstance(each, StochasticDepth)]
    torch.testing.assert_close(rates, [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4])
    assert not any(isinstance(each, StochasticDepth) for each in vit().modules())


def test_stochastic_depth_is_of_training() -> None:
    net, pixels = vit(stochastic_depth=0.9), pictures(12, 8)
    assert torch.equal(net(pixels), vit()(pixels))
    first = nn.Sequential(net.tokens, net.layers[0])(pixels)
    without = net.head(net.norm(first[:, 0]))
    torch.manual_seed(0)
    logits = net.train()(pixels.repeat(20, 1, 1, 1)).view(20, 3, 5)
    left_out = (logits - without).abs().amax(-1) < 1e-12  # attention and feed-forward: .9 of .9
    assert 0.6 < left_out.double().mean() < 0.95


def test_dropout_is_of_training() -> None:
    net, pixels = vit(dropout=0.5), pictures(12, 8)
    assert torch.equal(net(pixels), vit()(pixels))
    assert not torch.allclose(net.train()(pixels), net(pixels))


def test_every_parameter_is_in_one_stage() -> None:
    net = vit(registers=1, relative=T5Bias)
    assert net.layer_groups() == ["tokens", "layers.0", "layers.1", "norm", "head"]
    for name, _ in net.named_parameters():
        assert sum(name.startswith(f"{stage}.") for stage in net.layer_groups()) == 1, name


def test_every_site_is_of_its_own() -> None:
    net = vit(attend=mechanism(next(path for path in ATTENTION if path.stem == "additive")))
    names = [f"layers.{number}.mixer.attend" for number in range(2)]
    assert list(sites(net)) == names
    first, second = (next(net.get_submodule(name).parameters()) for name in names)
    assert first is not second


def test_weights_begin_as_the_authors_have_them() -> None:
    torch.manual_seed(0)
    net = ViT(channels=3, height=32, width=32, classes=10, attend=SOFTMAX, size="mini")
    block = net.layers[0]
    for linear in (block.mixer.query, block.mixer.out, block.feed_forward.expand):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert 0.99 * bound < linear.weight.abs().max() <= bound
        assert not linear.bias.any()
    assert 0.018 < net.tokens.position.embedding.vectors.std() < 0.022
    factory = AttentionFactory(score=SOFTMAX.score, normalizer=SOFTMAX.normalizer)
    torch.manual_seed(0)
    again = ViT(channels=3, height=32, width=32, classes=10, attend=factory, size="mini")
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
