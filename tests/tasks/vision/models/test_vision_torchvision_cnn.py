"""Gates in torchvision's nets: their modules, their effect, and the backbone's names and logits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import get_model

from zoo.attention import CBAM, EfficientChannel, SqueezeExcitation, record, sites
from zoo.tasks.vision.maps.heatmaps import heat, refusal
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.torchvision_cnn import TorchvisionCNN, backbones

GATES: dict[str, Any] = {"se": SqueezeExcitation, "eca": EfficientChannel, "cbam": CBAM}
FAMILIES = {
    "alexnet": (5, 64),
    "convnext_tiny": (18, 32),
    "densenet121": (4, 32),
    "efficientnet_b0": (16, 32),
    "googlenet": (9, 32),
    "inception_v3": (11, 75),
    "mnasnet0_5": (16, 32),
    "mobilenet_v2": (17, 32),
    "mobilenet_v3_small": (11, 32),
    "regnet_y_400mf": (16, 32),
    "resnet34": (16, 32),
    "resnet50": (16, 32),
    "resnext50_32x4d": (16, 32),
    "shufflenet_v2_x0_5": (16, 32),
    "vgg16": (13, 32),
    "vgg11_bn": (8, 32),
    "wide_resnet50_2": (16, 32),
}
"""Backbone -> its number of gates by default, and the smallest side of the pictures in tests."""


def made(backbone: str, gate: Any = nn.Identity, side: int = 32, **options: Any) -> TorchvisionCNN:
    sizes = {"channels": 3, "height": side, "width": side, "classes": 4, **options}
    return TorchvisionCNN(**sizes, backbone=backbone, gate=gate).eval()


def randomised(backbone: str) -> nn.Module:
    """torchvision's net, with weights of variance 2/n for n inputs, with which signals neither grow nor vanish."""
    options = {"aux_logits": False, "init_weights": False} if backbone == "inception_v3" else {}
    with torch.device("meta"):
        peer = get_model(backbone, weights=None, num_classes=4, **options)
    peer.to_empty(device="cpu")
    for module in peer.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Conv2d | nn.Linear):
            for parameter in module.parameters():
                parameter.data.uniform_(-1, 1).div_((module.weight[0].numel() / 6) ** 0.5)
    return peer.eval()


@pytest.mark.parametrize("backbone", FAMILIES)
def test_usual_places_of_each_family(backbone: str) -> None:
    """On meta: every gate runs once, with the number of channels that it was made for."""
    gates, side = FAMILIES[backbone]
    with torch.device("meta"):
        net = made(backbone, SqueezeExcitation, side, channels=1)
        x = torch.empty(2, 1, side, side)
    assert all(parameter.is_meta for parameter in net.parameters())
    assert len(net.gates) == gates
    with record(net) as maps:
        assert net(x).shape == (2, 4)
    widths = [gate.squeeze.in_features for gate in net.gates.values()]
    assert [tuple(each.weights.shape) for each in maps.values()] == [(2, width) for width in widths]
    features = net.features(x)
    assert features.shape[0] == 2
    assert features.dim() == 4
    assert not net.averages or features.shape[1] == net.head.in_features


def test_every_family_is_tried() -> None:
    def family(name: str) -> str:
        return name.split("_")[0].rstrip("0123456789") + ("_v3" if "_v3" in name else "")

    assert {family(name) for name in backbones()} == {family(name) for name in FAMILIES}
    assert not {"vit_b_16", "swin_t", "maxvit_t", "squeezenet1_0", "fcn_resnet50"} & set(backbones())


@pytest.mark.parametrize(("backbone", "side"), [("vgg11", 32), ("inception_v3", 75), ("densenet121", 32)])
def test_plain_weights_load_and_gates_act(backbone: str, side: int) -> None:
    peer = randomised(backbone)
    x = torch.randn(2, 3, side, side)
    with torch.device("meta"):
        plain, gated = made(backbone, side=side), made(backbone, SqueezeExcitation, side)
    weights = plain.rename_weights(peer.state_dict())
    assert plain.load_state_dict(weights, assign=True)
    missing, unexpected = gated.load_state_dict(weights, strict=False, assign=True)
    assert unexpected == []
    assert {name.split(".")[0] for name in missing} == {"gates"}
    gated.gates.to_empty(device="cpu")
    with torch.no_grad():
        for name, each in gated.gates.named_parameters():
            each.copy_(torch.full_like(each, 0.0) if name.endswith("weight") else torch.full_like(each, 30.0))
        expected = peer(x)
        assert torch.equal(plain(x), expected)
        torch.testing.assert_close(gated(x), expected)  # sigmoid(30) = 1
        for name, each in gated.gates.named_parameters():
            each.fill_(0.0 if name.endswith("weight") else -1.0)
        with record(gated) as maps:
            assert not torch.allclose(gated(x), expected)
    assert list(maps) == [f"gates.{name}" for name in gated.gates]
    for each in maps.values():
        torch.testing.assert_close(each.weights, torch.full_like(each.weights, 1 / (1 + torch.e)))


def test_auxiliary_classifiers_are_left_out() -> None:
    with torch.device("meta"):
        for backbone, side in (("inception_v3", 75), ("googlenet", 32)):
            net = made(backbone, side=side)
            weights = net.rename_weights(
                get_model(backbone, weights=None, num_classes=4, init_weights=False).state_dict()
            )
            assert set(weights) == set(net.state_dict())


@pytest.mark.parametrize("kind", GATES)
def test_a_gated_resnet_is_ours(kind: str) -> None:
    """The gates are at the end of the branch, before the addition, as in our ResNet."""
    theirs = made("resnet18", GATES[kind])
    ours = ResNet(channels=3, height=32, width=32, classes=4, depth=18, gate=GATES[kind]).eval()
    weights = {}
    for name, tensor in ours.state_dict().items():
        block, found, part = name.partition(".gate.")
        place = f"gates.{block.replace('.', '-')}-bn2.{part}" if found else f"backbone.{name}"
        weights[name if name.startswith("head") else place] = tensor
    theirs.load_state_dict(weights)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(theirs.features(x), ours.features(x), atol=1e-5, rtol=1e-5)


def test_what_stands_behind_a_module() -> None:
    """Equals the modules in sequence, without hooks, with explicit calls of gates."""
    net = made("mobilenet_v2", CBAM, at=["features.[13]", "features.?8"])
    assert list(net.gates) == [f"features-{number}" for number in (1, 3, 18)]
    x = torch.randn(2, 3, 32, 32)
    y = x
    with torch.no_grad():
        for number, layer in enumerate(net.backbone.features):
            y = layer.forward(y)
            if number in (1, 3, 18):
                y = net.gates[f"features-{number}"](y)
        torch.testing.assert_close(net.features(x), y)


def test_a_pattern_ends_at_a_dot() -> None:
    with torch.device("meta"):
        assert list(made("resnet18", at=["layer1.*"]).gates) == ["layer1-0", "layer1-1"]
        assert list(made("resnet18", at=["layer[12]", "layer2.0.bn1"]).gates) == ["layer1", "layer2", "layer2-0-bn1"]


@pytest.mark.parametrize("at", [["layer1"], ["layer1.*"], ["features.denseblock1"]])
def test_containers_that_call_all_their_children(at: list[str]) -> None:
    """Sequential and dense blocks call all their children; a gate is not among them."""
    backbone = "densenet121" if "dense" in at[0] else "resnet18"
    net, x = made(backbone, EfficientChannel, at=at), torch.randn(2, 3, 32, 32)
    with torch.no_grad(), record(net) as maps:
        net(x)
    assert {each.axes for each in maps.values()} == {("batch", "channel")}  # one call, no steps


def test_copies_have_gates_of_their_own() -> None:
    net, x = made("resnet18", SqueezeExcitation), torch.randn(2, 3, 32, 32)
    other = copy.deepcopy(net)
    with torch.no_grad():
        before = net(x)
        for gate in other.gates.values():
            gate.excite.bias.fill_(-3.0)
        assert torch.equal(net(x), before)
        assert not torch.allclose(other(x), before)
        assert torch.equal(copy.deepcopy(other)(x), other(x))


def test_every_parameter_learns() -> None:
    net = made("resnet18", CBAM, channels=5).train()
    F.cross_entropy(net(torch.randn(4, 5, 32, 32)), torch.arange(4)).backward()
    assert [name for name, each in net.named_parameters() if each.grad is None or not each.grad.abs().sum() > 0] == []


@pytest.mark.parametrize("backbone", ["resnet18", "densenet121"])
def test_head_of_the_mean_of_the_features(backbone: str) -> None:
    net, x = made(backbone, EfficientChannel, side=64), torch.randn(2, 3, 64, 64)
    assert net.averages
    with torch.no_grad():
        torch.testing.assert_close(net.head(net.features(x).mean((2, 3))), net(x))


@pytest.mark.parametrize("backbone", ["resnet18", "densenet121"])
def test_a_map_by_gradients_is_the_class_activation_map(backbone: str) -> None:
    """The head of the mean is linear, so that its gradient is its weights (Selvaraju et al. 2017, section 3.1)."""
    net, x = made(backbone, SqueezeExcitation, side=96), torch.randn(2, 3, 96, 96)
    classes = torch.tensor([3, 0])
    torch.testing.assert_close(heat(net, x, "gradient_cam", classes=classes), heat(net, x, "cam", classes=classes))


def test_a_map_by_gradients_where_other_layers_follow() -> None:
    """By finite differences: the gradient of the logit with respect to one channel's mean."""
    net, x = made("mobilenet_v3_small", side=64).double(), torch.randn(1, 3, 64, 64, dtype=torch.float64)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    assert refusal(net, "cam") is not None
    features = net.features(x)
    expected = torch.zeros(features.shape[2:], dtype=torch.float64)
    for channel in range(features.shape[1]):
        step = torch.zeros_like(features)
        step[:, channel] = 1e-5
        up, down = ((net.head(net.backbone.classifier((features + s).mean((2, 3)))))[0, 2] for s in (step, -step))
        expected += (up - down) / 2e-5 * features[0, channel]
    found = heat(net, x, "gradient_cam", classes=torch.tensor([2]))[0]
    torch.testing.assert_close(found.double(), expected.relu() / expected.relu().sum(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("backbone", ["vgg11", "mobilenet_v3_small", "convnext_tiny", "alexnet"])
def test_nets_with_layers_behind_the_mean_say_so(backbone: str) -> None:
    with torch.device("meta"):
        assert not made(backbone, side=64).averages


@pytest.mark.parametrize("backbone", ["resnet18", "vgg11_bn", "mnasnet0_5"])
def test_stages_cover_every_parameter(backbone: str) -> None:
    with torch.device("meta"):
        net = made(backbone, SqueezeExcitation)
    stages = net.layer_groups()
    for name, _ in net.named_parameters():
        assert len([stage for stage in stages if name.startswith(f"{stage}.")]) == 1, name
    assert stages[-2:] == ["gates", "head"]
    assert len(stages) > 5
    with torch.device("meta"):
        assert "gates" not in made(backbone).layer_groups()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backbone": "vit_b_16"}, "convolutional nets"),
        ({"backbone": "resnet81"}, "resnet18"),
        ({"backbone": "load"}, "convolutional nets"),
        ({"backbone": "squeezenet1_0"}, "convolutional nets"),
        ({"backbone": "vgg11", "at": ["feature.1"]}, "no module of vgg11 is called 'feature.1'.*features.1"),
        ({"backbone": "vgg11", "at": ["features.1", "*.99"]}, "no module of vgg11 is called '\\*.99'"),
        ({"backbone": "vgg11", "at": ["classifier.0"]}, r"classifier.0 gives \(2, 4096\); a gate needs a map"),
        ({"backbone": "densenet121", "at": ["features.denseblock1.*"], "gate": CBAM}, None),
        ({"backbone": "resnet18", "at": ["layer1.0.relu"]}, "layer1.0.relu runs 2 times"),
        ({"backbone": "inception_v3", "side": 32}, "inception_v3 cannot take pictures of 32x32 pixels"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], said: str | None) -> None:
    with torch.device("meta"):
        if said is None:
            assert made(**options).gates
            return
        with pytest.raises(ValueError, match=said):
            made(**options)


def test_a_module_that_gives_no_tensor() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    from zoo.tasks.vision.models import torchvision_cnn

    with pytest.raises(ValueError, match="pair gives tuple; a gate needs a map"):
        torchvision_cnn._channels("pair", {"pair": [Pair()(torch.zeros(1))]})


def test_an_identity_has_no_sites() -> None:
    with torch.device("meta"):
        assert sites(made("resnet18")) == {}
