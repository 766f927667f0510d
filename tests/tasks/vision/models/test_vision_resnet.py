"""ResNets against the papers' counts, torchvision's and timm's nets with transplanted weights, and plain functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import CBAM, EfficientChannel, SqueezeExcitation, record, sites
from zoo.tasks.vision.models.resnet import Basic, ResNet

SMALL: dict[str, Any] = {"channels": 3, "height": 32, "width": 32, "classes": 10}
IMAGENET: dict[str, Any] = {"channels": 3, "height": 224, "width": 224, "classes": 1000}


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def stirred(net: nn.Module) -> nn.Module:
    """Random statistics and weights of normalisations too, so that none of them is the identity."""
    generator = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            for tensor in (module.bias.data, module.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
    return net.eval()


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({"size": "resnet20"}, 272_474),
        ({"size": "resnet20", "gate": SqueezeExcitation}, 274_847),
        ({"size": "resnet56"}, 855_770),
        ({"size": "resnet56", "gate": SqueezeExcitation}, 862_889),
        ({"depth": 20, "shortcut": "padding"}, 269_722),
        ({"depth": 56, "shortcut": "padding"}, 853_018),
        ({"depth": 110, "shortcut": "padding"}, 1_727_962),
    ],
)
def test_cifar_counts(options: dict[str, Any], parameters: int) -> None:
    """272k -> 275k and 856k -> 863k; with parameter-free shortcuts the 0.27M, 0.85M and 1.7M of He et al., table 6."""
    with torch.device("meta"):
        assert count(ResNet(**SMALL, **options)) == parameters


@pytest.mark.parametrize(
    ("size", "gate", "millions"),
    [
        ("resnet50", nn.Identity, 25.56),
        ("resnet50", SqueezeExcitation, 28.09),
        ("resnet50", CBAM, 28.09),
        ("resnet50", EfficientChannel, 25.56),
        ("resnet18", CBAM, 11.78),
        ("resnet34", CBAM, 21.96),
        ("resnet101", CBAM, 49.33),
    ],
)
def test_imagenet_counts(size: str, gate: Any, millions: float) -> None:
    """Those of Woo et al. 2018, table 4, and of Wang et al. 2020, table 2 without gates' own."""
    with torch.device("meta"):
        net = ResNet(**IMAGENET, size=size, gate=gate)
    assert round(count(net) / 1e6, 2) == millions


@pytest.mark.parametrize("depth", [18, 34, 50, 101])
def test_parameters_are_torchvisions(depth: int) -> None:
    with torch.device("meta"):
        ours = ResNet(**IMAGENET, depth=depth)
        peer = getattr(torchvision.models, f"resnet{depth}")(weights=None)
    shapes = {name.replace("fc.", "head."): tensor.shape for name, tensor in peer.state_dict().items()}
    assert {name: tensor.shape for name, tensor in ours.state_dict().items()} == shapes


@pytest.mark.parametrize("depth", [18, 50])
def test_equal_to_torchvision(depth: int) -> None:
    peer = stirred(getattr(torchvision.models, f"resnet{depth}")(weights=None, num_classes=7))
    ours = ResNet(channels=3, height=64, width=48, classes=7, depth=depth).eval()
    ours.load_state_dict({name.replace("fc.", "head."): each for name, each in peer.state_dict().items()})
    x = torch.randn(2, 3, 64, 48)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), peer(x), atol=1e-5, rtol=0)


def timm_names(ours: ResNet) -> dict[str, str]:
    """Our parameter -> timm's."""
    words = {
        "head.": "fc.",
        ".gate.squeeze.": ".se.fc1.",
        ".gate.excite.": ".se.fc2.",
        ".gate.conv.": ".se.conv.",
        ".gate.channel.squeeze.": ".se.channel.fc1.",
        ".gate.channel.excite.": ".se.channel.fc2.",
        ".gate.spatial.conv.": ".se.spatial.conv.conv.",
    }
    found = {}
    for name in ours.state_dict():
        found[name] = name
        for old, new in words.items():
            found[name] = found[name].replace(old, new)
    return found


@pytest.mark.parametrize(("kind", "block"), [("se", "Bottleneck"), ("eca", "BasicBlock"), ("cbam", "BasicBlock")])
def test_equal_to_timm(kind: str, block: str) -> None:
    resnet = pytest.importorskip("timm.models.resnet")
    cbam = pytest.importorskip("timm.layers.cbam")
    layers = pytest.importorskip("timm.layers")
    theirs = {
        "se": partial(layers.SEModule, rd_divisor=1),
        "eca": layers.EcaModule,
        "cbam": cbam.CbamModule,
    }[kind]
    gate = {"se": SqueezeExcitation, "eca": EfficientChannel, "cbam": CBAM}[kind]
    depth, counts = (18, (2, 2, 2, 2)) if block == "BasicBlock" else (50, (3, 4, 6, 3))
    peer = resnet.ResNet(getattr(resnet, block), counts, num_classes=5, block_args={"attn_layer": theirs})
    peer = stirred(peer)
    for module in peer.modules():
        if isinstance(module, cbam.SpatialAttn):  # a normalisation there that the paper's equation 3 has not
            module.conv.bn = nn.Identity()
    ours = ResNet(channels=3, height=64, width=64, classes=5, depth=depth, gate=gate).eval()
    weights = peer.state_dict()
    names = timm_names(ours)
    with torch.no_grad():
        for name, tensor in ours.state_dict().items():
            if kind == "cbam" and name.endswith(".bias") and ".gate." in name:
                tensor.zero_()  # timm's MLP has none
            else:
                tensor.copy_(weights.pop(names[name]).reshape(tensor.shape))
        assert not weights
        x = torch.randn(2, 3, 64, 64)
        torch.testing.assert_close(ours(x), peer(x), atol=1e-5, rtol=1e-5)


def by_functions(weights: dict[str, Tensor], x: Tensor, blocks: int, padding: bool) -> Tensor:
    """He et al. 2016, section 4.2, written with functions and names of weights alone."""

    def normalised(x: Tensor, name: str) -> Tensor:
        values = (weights[f"{name}.{each}"] for each in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *values)

    x = normalised(F.conv2d(x, weights["conv1.weight"], padding=1), "bn1").relu()
    for stage in (1, 2, 3):
        for number in range(blocks):
            here, stride = f"layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1
            y = normalised(F.conv2d(x, weights[f"{here}.conv1.weight"], stride=stride, padding=1), f"{here}.bn1").relu()
            y = normalised(F.conv2d(y, weights[f"{here}.conv2.weight"], padding=1), f"{here}.bn2")
            if stride == 2 and padding:
                x = torch.cat([x[:, :, ::2, ::2], torch.zeros_like(x[:, :, ::2, ::2])], 1)
            elif stride == 2:
                name = f"{here}.downsample"
                x = normalised(F.conv2d(x, weights[f"{name}.0.weight"], stride=2), f"{name}.1")
            x = (x + y).relu()
    return x.mean((2, 3)) @ weights["head.weight"].T + weights["head.bias"]


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize(("depth", "size"), [(20, 32), (14, 21)])
def test_cifar_form_by_functions(depth: int, size: int, padding: bool) -> None:
    net = ResNet(**SMALL, depth=depth, shortcut="padding" if padding else "projection").double()
    stirred(net)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        wanted = by_functions(net.state_dict(), x, (depth - 2) // 6, padding)
        torch.testing.assert_close(net(x), wanted)


def test_head_of_the_mean_of_the_features() -> None:
    net = stirred(ResNet(**SMALL, depth=8, gate=CBAM))
    x = torch.randn(2, 3, 40, 24)
    with torch.no_grad():
        features = net.features(x)
        assert features.shape == (2, 64, 10, 6)
        torch.testing.assert_close(net(x), net.head(features.mean((2, 3))))


def test_the_stem_and_the_width_are_independent_of_the_form() -> None:
    x = torch.randn(2, 1, 64, 64)
    sizes = {"channels": 1, "height": 64, "width": 64, "classes": 3}
    with torch.no_grad():
        assert ResNet(**sizes, depth=8, stem="large").eval().features(x).shape == (2, 64, 4, 4)
        assert ResNet(**sizes, depth=18, stem="small", dim=4).eval().features(x).shape == (2, 32, 8, 8)
    assert isinstance(ResNet(**sizes, depth=50, form="cifar", dim=2).get_submodule("layer1.7"), Basic)


@pytest.mark.parametrize("depth", [20, 50])
def test_a_gate_in_every_block_is_observed(depth: int) -> None:
    with torch.device("meta"):
        net = ResNet(**SMALL, depth=depth, gate=CBAM)
    blocks = [name.removesuffix(".conv2") for name, _ in net.named_modules() if name.endswith(".conv2")]
    assert list(sites(net)) == [f"{block}.gate.{part}" for block in blocks for part in ("channel", "spatial")]
    assert len(blocks) == {20: 9, 50: 16}[depth]


def test_recording_changes_nothing() -> None:
    net = stirred(ResNet(**SMALL, depth=8, gate=SqueezeExcitation))
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        plain = net(x)
        with record(net) as maps:
            assert torch.equal(net(x), plain)
    assert [tuple(each.weights.shape) for each in maps.values()] == [(2, 16), (2, 32), (2, 64)]


@pytest.mark.parametrize("depth", [8, 50])
def test_zero_init_starts_with_the_shortcuts(depth: int) -> None:
    net = ResNet(**SMALL, depth=depth, dim=4, gate=SqueezeExcitation, zero_init=True).eval()
    block = net.get_submodule("layer2.0")
    x = torch.randn(2, 4 if depth == 8 else 16, 8, 8)
    with torch.no_grad():
        assert torch.equal(block(x), block.downsample(x).relu())
    net.train()(torch.randn(4, 3, 32, 32)).square().sum().backward()
    last = "bn2" if depth == 8 else "bn3"
    assert block.get_submodule(last).weight.grad.abs().sum() > 0


def test_stochastic_depth_rises_linearly_and_drops_whole_branches() -> None:
    net = ResNet(**SMALL, depth=20, stochastic_depth=0.9)
    drops = [block.drop.p for block in net.modules() if isinstance(block, Basic)]
    torch.testing.assert_close(drops, [0.9 * number / 9 for number in range(1, 10)])
    block = net.get_submodule("layer3.2").train()
    x = torch.randn(64, 64, 4, 4)
    torch.manual_seed(0)
    is_shortcut = (block(x) == x.relu()).flatten(1).all(1)
    assert 48 < is_shortcut.sum() < 64
    block.eval()
    assert not (block(x) == x.relu()).flatten(1).all(1).any()


def test_stages_name_the_parameters() -> None:
    with torch.device("meta"):
        net = ResNet(**SMALL, depth=18, gate=SqueezeExcitation)
    assert net.layer_groups() == ["conv1", "layer1", "layer2", "layer3", "layer4", "head"]
    names = [name for name, _ in net.named_parameters() if not name.startswith(tuple(net.layer_groups()))]
    assert names == ["bn1.weight", "bn1.bias"]


@pytest.mark.parametrize("gate", [nn.Identity, SqueezeExcitation, EfficientChannel, CBAM])
def test_every_parameter_learns(gate: Any) -> None:
    net = ResNet(**SMALL, depth=8, gate=gate)
    F.cross_entropy(net(torch.randn(4, 3, 32, 32)), torch.arange(4)).backward()
    assert [name for name, each in net.named_parameters() if each.grad is None or not each.grad.abs().sum() > 0] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": "resnet21"}, "resnet20, resnet32"),
        ({"size": None}, "resnet20, resnet32"),
        ({"depth": 21}, "6n \\+ 2 layers"),
        ({"depth": 2}, "6n \\+ 2 layers"),
        ({"depth": 20, "form": "imagenet"}, "18, 34, 50, 101, 152 layers"),
        ({"form": "mnist"}, "form is 'cifar' or 'imagenet'"),
        ({"stem": "tiny"}, "stem is 'small' or 'large'"),
        ({"shortcut": "none"}, "shortcut is 'projection' or 'padding'"),
        ({"stochastic_depth": 1.0}, "stochastic_depth=1.0"),
        ({"dim": 0}, "dim=0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ResNet(**SMALL, **options)
