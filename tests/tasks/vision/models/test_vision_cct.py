"""CCT: the paper's equations by loops, vit-pytorch's net with the same weights, sizes, other resolutions, maps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from token_net_cases import ATTENTION, CLOSE, MIXERS, SOFTMAX, cct, mechanism, parameters, pictures, spread
from torch import Tensor, nn

from zoo.attention import Learned, Learned2D, Sinusoidal, Sinusoidal2D, T5Bias, record
from zoo.tasks.vision.models.cct import CCT


def reference(net: CCT, picture: Tensor) -> Tensor:
    """Hassani et al. 2021, eq. 1-5, a pixel, a head and a token at a time; the logits of one picture."""
    weights = dict(net.named_parameters())

    def affine(x: Tensor, name: str) -> Tensor:
        return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0.0)

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean()
        scaled = centred / (centred.square().mean() + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = picture
    for number in range(len(net.tokens.convolutions)):
        x = pooled(convolved(x, weights[f"tokens.convolutions.{number}.weight"]).clamp(min=0.0))
    tokens = list(x.flatten(1).T + weights["position.embedding.vectors"])
    for number, layer in enumerate(net.layers):
        block = f"layers.{number}"
        seen = [norm(token, f"{block}.mixed.inner.norm") for token in tokens]
        query, key, value = ([affine(x, f"{block}.mixer.{name}") for x in seen] for name in ("query", "key", "value"))
        width = len(seen[0]) // layer.mixer.heads
        for where, own in enumerate(query):
            heads = []
            for start in range(0, len(own), width):
                part = slice(start, start + width)
                exponentials = [(own[part] @ other[part] / math.sqrt(width)).exp() for other in key]
                total = sum(exponentials)
                heads.append(sum(e / total * v[part] for e, v in zip(exponentials, value, strict=True)))
            token = norm(tokens[where] + affine(torch.cat(heads), f"{block}.mixer.out"), f"{block}.mixed.norm")
            hidden = affine(token, f"{block}.feed_forward.expand")
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            tokens[where] = token + affine(hidden, f"{block}.feed_forward.contract")
    tokens = [norm(token, "norm") for token in tokens]
    exponentials = [(weights["pool.query"][0] @ token).exp() for token in tokens]
    total = sum(exponentials)
    return affine(sum(e / total * token for e, token in zip(exponentials, tokens, strict=True)), "head")


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Kernels of 3 x 3 with a margin of zeros, a place at a time."""
    wide = torch.zeros(len(x), x.shape[1] + 2, x.shape[2] + 2, dtype=x.dtype)
    wide[:, 1:-1, 1:-1] = x
    places = [
        [(kernel * wide[:, r : r + 3, c : c + 3]).sum((1, 2, 3)) for c in range(x.shape[2])] for r in range(x.shape[1])
    ]
    return torch.stack([torch.stack(row, 1) for row in places], 1)


def pooled(x: Tensor) -> Tensor:
    """The largest of 3 x 3 around every second place."""
    rows, columns = range(0, x.shape[1], 2), range(0, x.shape[2], 2)
    places = [[x[:, max(0, r - 1) : r + 2, max(0, c - 1) : c + 2].amax((1, 2)) for c in columns] for r in rows]
    return torch.stack([torch.stack(row, 1) for row in places], 1)


def test_equations() -> None:
    net, pixels = cct(convolutions=1, height=8, width=6), pictures(8, 6)
    expected = torch.stack([reference(net, picture) for picture in pixels])
    torch.testing.assert_close(net(pixels), expected, **CLOSE)
    named = dict(net.named_parameters())
    found = torch.autograd.grad(net(pixels).square().sum(), list(named.values()))
    for gradient, peer in zip(found, torch.autograd.grad(expected.square().sum(), list(named.values())), strict=True):
        torch.testing.assert_close(gradient, peer, rtol=1e-9, atol=1e-9)


def from_vit_pytorch(peer: nn.Module, net: CCT) -> None:
    theirs = peer.state_dict()
    known = {
        "position.embedding.vectors": theirs["classifier.positional_emb"][0],
        "pool.query": theirs["classifier.attention_pool.weight"],
    }
    for number in range(len(net.tokens.convolutions)):
        known[f"tokens.convolutions.{number}.weight"] = theirs[f"tokenizer.conv_layers.{number}.0.weight"]
    same = {"norm": "norm", "head": "fc"}
    for number in range(len(net.layers)):
        ours, block = f"layers.{number}", f"blocks.{number}"
        same |= {f"{ours}.mixed.inner.norm": f"{block}.pre_norm", f"{ours}.mixed.norm": f"{block}.norm1"}
        same |= {f"{ours}.feed_forward.expand": f"{block}.linear1", f"{ours}.feed_forward.contract": f"{block}.linear2"}
        same[f"{ours}.mixer.out"] = f"{block}.self_attn.proj"
        parts = theirs[f"classifier.{block}.self_attn.qkv.weight"].chunk(3)
        names = ("query", "key", "value")
        known |= {f"{ours}.mixer.{name}.weight": part for name, part in zip(names, parts, strict=True)}
    for kind in ("weight", "bias"):
        known |= {f"{a}.{kind}": theirs[f"classifier.{b}.{kind}"] for a, b in same.items()}
    net.load_state_dict(known)


@pytest.mark.parametrize(("kernel", "convolutions"), [(3, 2), (3, 1), (7, 2)])
def test_vit_pytorch(kernel: int, convolutions: int) -> None:
    peers = pytest.importorskip("vit_pytorch.cct")
    options = {"img_size": 32, "num_classes": 10, "positional_embedding": "learnable"}
    peer = spread(peers.cct_2(kernel_size=kernel, n_conv_layers=convolutions, **options).double())
    sizes = {"height": 32, "width": 32, "size": "cct_2_3x2", "kernel": kernel, "convolutions": convolutions}
    net = CCT(channels=3, classes=10, attend=SOFTMAX, **sizes).double().eval()
    from_vit_pytorch(peer, net)
    pixels = pictures(32, 32, count=2, channels=3)
    torch.testing.assert_close(net(pixels), peer(pixels), rtol=1e-10, atol=1e-10)
    assert parameters(net) == parameters(peer) - 1  # the bias of the pooling's scores


@pytest.mark.parametrize(
    ("size", "side", "classes", "count", "grid"),
    [
        ("cct_2_3x2", 32, 10, 283_722, 8),  # 0.284M: Hassani et al. 2021, table 1
        ("cct_4_3x2", 32, 10, 482_122, 8),  # 0.482M
        ("cct_6_3x1", 32, 10, 3_233_802, 16),  # 3.23M
        ("cct_7_3x1", 32, 10, 3_760_138, 16),  # 3.76M
        ("cct_14_7x2", 224, 1000, 22_367_272, 14),  # 22.36M: table 4
    ],
)
def test_published_numbers_of_parameters(size: Any, side: int, classes: int, count: int, grid: int) -> None:
    with torch.device("meta"):
        net = CCT(channels=3, height=side, width=side, classes=classes, attend=SOFTMAX, size=size)
    assert parameters(net) == count
    assert net.grid(side, side) == (grid, grid)


@pytest.mark.parametrize(("kernel", "convolutions"), [(3, 1), (3, 2), (5, 1), (7, 2)])
@pytest.mark.parametrize(("height", "width"), [(17, 32), (28, 9)])
def test_the_grid_is_that_of_the_convolutions(kernel: int, convolutions: int, height: int, width: int) -> None:
    net = cct(kernel=kernel, convolutions=convolutions, height=height, width=width)
    pixels = pictures(height, width, count=1)
    assert tuple(net.tokens(pixels).shape[2:]) == net.grid(height, width)
    assert tuple(net.features(pixels).shape) == (1, 12, *net.grid(height, width))
    assert net(pixels).shape == (1, 5)


@pytest.mark.parametrize("position", [Learned, Learned2D, Sinusoidal, Sinusoidal2D, None])
def test_another_resolution_is_that_of_a_net_made_for_it(position: Any) -> None:
    net, other = cct(position=position), cct(position=position, height=32, width=24)
    weights = net.state_dict()
    shapes = {name: tuple(weight.shape) for name, weight in other.state_dict().items()}
    resized = {name: other.resize_parameter(name, weight, shapes[name]) for name, weight in weights.items()}
    other.load_state_dict({name: weights[name] if each is None else each for name, each in resized.items()})
    pixels = pictures(32, 24)
    torch.testing.assert_close(net(pixels), other(pixels), **CLOSE)


@pytest.mark.parametrize("path", ATTENTION, ids=lambda path: path.stem)
def test_every_mechanism(path: Path) -> None:
    torch.manual_seed(0)
    attend = mechanism(path)
    if path.stem == "degree":
        with pytest.raises(
            ValueError, match="Degree works on EdgeSupport only; MultiheadAttention attends over DenseSupport"
        ):
            cct(attend=attend)
        return
    if path.stem == "none":
        with pytest.raises(ValueError, match="MultiheadAttention has nothing but attention to read with"):
            cct(attend=attend)
        return
    net, pixels = cct(attend=attend), pictures(16, 12)
    net.train()(pixels).logsumexp(1).sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in net.parameters())
    net.eval()
    logits = net(pixels)
    others = net(torch.cat([pixels[:1], -pixels[1:]]))
    torch.testing.assert_close(others[:1], logits[:1], **CLOSE)
    assert not torch.allclose(others[1:], logits[1:])
    with record(net) as maps:
        assert torch.equal(net(pixels), logits)
    site = "mixer" if path.stem in MIXERS else "mixer.attend"
    assert {*maps, *maps.silent} == {f"layers.0.{site}", f"layers.1.{site}", "pool.attend"}


def test_maps() -> None:
    net, pixels = cct(), pictures(16, 12)
    with record(net) as maps:
        logits = net(pixels)
    shapes = {site: tuple(maps[site].weights.shape) for site in maps}
    assert shapes == {
        "layers.0.mixer.attend": (3, 3, 12, 12),
        "layers.1.mixer.attend": (3, 3, 12, 12),
        "pool.attend": (3, 1, 1, 12),
    }
    features = net.features(pixels).flatten(2)
    weights = maps["pool.attend"].weights[:, 0, 0]
    torch.testing.assert_close(weights, (net.pool.query @ features).softmax(-1)[:, 0], **CLOSE)
    torch.testing.assert_close(net.head((features * weights.unsqueeze(1)).sum(-1)), logits, **CLOSE)


def test_stochastic_depth_and_dropout_are_of_training() -> None:
    net, pixels = cct(stochastic_depth=0.5, dropout=0.5), pictures(16, 12)
    assert torch.equal(net(pixels), cct()(pixels))
    assert not torch.allclose(net.train()(pixels), net(pixels))
    assert [type(layer.fed.branch).__name__ for layer in net.layers] == ["NoneType", "StochasticDepth"]
    assert [type(layer.mixed.inner.branch).__name__ for layer in net.layers] == ["NoneType", "StochasticDepth"]


def test_every_parameter_is_in_one_stage() -> None:
    net = cct(relative=T5Bias)
    for name, _ in net.named_parameters():
        assert sum(name.startswith(f"{stage}.") for stage in net.layer_groups()) == 1, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": None}, "give kernel, or a size: mini,"),
        ({"convolutions": 0}, "convolutions is to be a whole number of at least 1 or null"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cct(**options)
