"""Heat maps against loops in float64 by the papers' formulas; methods that a net does not support are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    CBAM,
    AttentionFactory,
    LinearAttention,
    Linformer,
    MechanismFactory,
    ScaledDot,
    SlidingWindow,
    Softmax,
    SqueezeExcitation,
    record,
)
from zoo.tasks.vision.maps.heatmaps import default_map, gold_cells, heat, refusal
from zoo.tasks.vision.models.cct import CCT
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.swin import Swin
from zoo.tasks.vision.models.torchvision_cnn import TorchvisionCNN
from zoo.tasks.vision.models.vit import ViT

SIZES = {"channels": 2, "height": 12, "width": 16, "classes": 5}
SMALL = {"dim": 12, "layers": 3, "heads": 2, "hidden": 16}
SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
NEAR = AttentionFactory(score=ScaledDot, normalizer=Softmax, restrict=partial(SlidingWindow, radius=2))


def vit(attend: Any = SOFTMAX, **options: Any) -> ViT:
    torch.manual_seed(0)
    return sharp(ViT(**SIZES, attend=attend, patch=4, **SMALL, **options))


def cct() -> CCT:
    torch.manual_seed(0)
    return sharp(CCT(**SIZES, attend=SOFTMAX, kernel=3, convolutions=1, **SMALL))


def sharp(net: Any) -> Any:
    """Makes a net in double precision whose attention is far from uniform."""
    for name, parameter in net.named_parameters():
        if ".query.weight" in name or ".key.weight" in name:
            nn.init.normal_(parameter, std=1.0)
    return net.double().eval()


def pictures(count: int = 3) -> Tensor:
    return torch.randn(count, 2, 12, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def recorded(net: Any, pixels: Tensor, classes: Tensor | None = None) -> tuple[list[Any], list[Any]]:
    """The weights of each site (b,h,q,k), and their gradients for the sum of the classes' logits."""
    with record(net, grad=True) as maps:
        logits = net(pixels)
    classes = logits.argmax(-1) if classes is None else classes
    score = sum(logits[number, int(label)] for number, label in enumerate(classes))
    found: list[Any] = list(maps.values())
    gradients = torch.autograd.grad(score, [each.weights for each in found])
    length = net.extra + int(np.prod(net.grid(12, 16)))
    weights = [each.support.to_dense(each.weights, length, length).detach().numpy() for each in found]
    return weights, [
        each.support.to_dense(gradient, length, length).numpy() for each, gradient in zip(found, gradients, strict=True)
    ]


def read_out(net: Any, product: np.ndarray, pooled: np.ndarray | None) -> np.ndarray:
    if pooled is not None:
        row = pooled @ product
    elif net.class_site:
        row = product[0]
    else:
        row = sum(product[token] for token in range(net.extra, len(product))) / (len(product) - net.extra)
    row = row[net.extra :]
    return row / row.sum()


def rollout_by_loop(net: Any, pixels: Tensor) -> np.ndarray:
    """Abnar & Zuidema 2020, eq. 1 and section 3."""
    weights, _ = recorded(net, pixels)
    pool = weights.pop() if isinstance(net, CCT) else None
    rows = []
    for b in range(len(pixels)):
        size = weights[0].shape[-1]
        rolled = np.eye(size)
        for layer in weights:
            mixed = np.zeros((size, size))
            for i in range(size):
                for j in range(size):
                    mean = sum(layer[b, h, i, j] for h in range(layer.shape[1])) / layer.shape[1]
                    mixed[i, j] = 0.5 * mean + 0.5 * (i == j)
                mixed[i] /= mixed[i].sum()
            rolled = mixed @ rolled
        rows.append(read_out(net, rolled, None if pool is None else pool[b, 0, 0]))
    return np.stack(rows)


def gradient_rollout_by_loop(net: Any, pixels: Tensor, classes: Tensor | None) -> np.ndarray:
    """Chefer et al. 2021, eq. 5 and 6: R <- R + E_h((gradient * A)+) R, from the identity."""
    weights, gradients = recorded(net, pixels, classes)
    rows = []
    for b in range(len(pixels)):
        relevance = np.eye(weights[0].shape[-1])
        pooled = None
        for weight, gradient in zip(weights, gradients, strict=True):
            mean = np.mean([np.maximum(gradient[b, h] * weight[b, h], 0) for h in range(weight.shape[1])], axis=0)
            if len(mean) == 1:
                pooled = mean[0]
            else:
                relevance = relevance + mean @ relevance
        rows.append(read_out(net, relevance, pooled))
    return np.stack(rows)


NETS = {
    "class token": vit,
    "registers": partial(vit, registers=2),
    "mean of patches": partial(vit, pool="mean", registers=1),
    "blocks": partial(vit, attend=NEAR),
    "sequence pooling": cct,
}


@pytest.mark.parametrize("kind", NETS)
def test_rollout(kind: str) -> None:
    net, pixels = NETS[kind](), pictures()
    expected = rollout_by_loop(net, pixels)
    with torch.inference_mode():
        found = heat(net, pixels, "rollout")
    assert found.shape == (3, *net.grid(12, 16))
    np.testing.assert_allclose(found.flatten(1).numpy(), expected, atol=1e-6)
    assert expected.std() > 0.003  # the test needs heat that differs


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("classes", [None, torch.tensor([4, 0, 2])])
def test_gradient_rollout(kind: str, classes: Tensor | None) -> None:
    net, pixels = NETS[kind](), pictures()
    expected = gradient_rollout_by_loop(net, pixels, classes)
    net.requires_grad_(False)  # as when fine-tuning; and where gradients are off altogether
    with torch.inference_mode():
        found = heat(net, pixels.clone(), "gradient_rollout", classes=classes)
    np.testing.assert_allclose(found.flatten(1).numpy(), expected, atol=1e-6)
    assert not found.requires_grad
    assert expected.std() > 3e-4


def test_class_attention_is_the_last_layer_s() -> None:
    net, pixels = vit(registers=2), pictures()
    weights = recorded(net, pixels)[0][-1].mean(1)[:, 0, 3:]
    expected = weights / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(heat(net, pixels, "class_attention").flatten(1).numpy(), expected, atol=1e-6)


def test_pooling_is_what_the_head_averages_with() -> None:
    net, pixels = cct(), pictures()
    found = heat(net, pixels, "pooling").double()
    logits = net.head((net.features(pixels) * found[:, None]).sum((2, 3)))
    torch.testing.assert_close(logits, net(pixels), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["resnet", "swin", "vit"])
def test_cam_adds_up_to_the_logit(kind: str) -> None:
    """The mean over cells is the logit less its bias, for features that are all evidence for the class."""
    torch.manual_seed(0)
    net: Any = {
        "resnet": lambda: ResNet(**SIZES, depth=8),
        "swin": lambda: Swin(**SIZES, attend=SOFTMAX, size="mini", window=2, patch=2),
        "vit": lambda: vit(pool="mean"),
    }[kind]()
    net.double().eval()
    pixels, classes = pictures(), torch.tensor([4, 0, 2])
    features, weight = net.features(pixels).detach().numpy(), net.head.weight.detach().numpy()
    for given in (None, classes):
        chosen = net(pixels).argmax(-1) if given is None else given
        found = heat(net, pixels, "cam", classes=given).numpy()
        for b, label in enumerate(chosen.tolist()):
            evidence = np.zeros(features.shape[2:])
            for r in range(features.shape[2]):
                for c in range(features.shape[3]):
                    evidence[r, c] = sum(weight[label, k] * features[b, k, r, c] for k in range(features.shape[1]))
            logit = (net(pixels)[b, label] - net.head.bias[label]).item()
            assert evidence.mean() == pytest.approx(logit, abs=1e-6)
            positive = np.maximum(evidence, 0)
            np.testing.assert_allclose(found[b], positive / (positive.sum() or 1), atol=1e-6)


# slow tier: hundreds of passes through a second net
@pytest.mark.parametrize("kind", ["swin", pytest.param("vit", marks=pytest.mark.slow)])
def test_saliency_is_the_slope_at_each_pixel(kind: str) -> None:
    """Saliency equals finite differences: two passes with one pixel changed, the maximum over channels."""
    torch.manual_seed(0)
    net: Any = Swin(**SIZES, attend=SOFTMAX, dim=6, layers=(1, 1), heads=(1, 2), window=2, patch=4)
    net = (net if kind == "swin" else vit()).double().eval()
    pixels, step = pictures(), 1e-6
    for given in (None, torch.tensor([4, 0, 2])):
        classes = net(pixels).argmax(-1) if given is None else given
        slopes = np.zeros(pixels.shape)
        for at in np.ndindex(*pixels.shape[1:]):
            change = torch.zeros_like(pixels)
            change[(slice(None), *at)] = step
            with torch.no_grad():
                both = [net(pixels + sign * change).gather(1, classes[:, None])[:, 0] for sign in (1, -1)]
            slopes[(slice(None), *at)] = (both[0] - both[1]).numpy() / (2 * step)
        places = np.abs(slopes).max(1).reshape(3, 3, 4, 4, 4).mean((2, 4))
        expected = places / places.sum((1, 2), keepdims=True)
        np.testing.assert_allclose(heat(net, pixels, "saliency", classes=given).numpy(), expected, atol=1e-5)


def test_the_class_map_is_usual_where_there_are_spatial_gates() -> None:
    assert default_map(ResNet(**SIZES, depth=8, gate=CBAM)) == "cam"


def test_a_picture_without_evidence_has_no_heat() -> None:
    net = ResNet(**SIZES, depth=8).eval()
    nn.init.constant_(net.head.weight, -1.0)  # features are not negative behind a ReLU
    assert not heat(net, pictures().float(), "cam").any()


def test_the_spatial_gate_of_the_last_block() -> None:
    torch.manual_seed(0)
    net = ResNet(**SIZES, depth=14, gate=CBAM).eval()
    seen: list[Tensor] = []
    gate = net.get_submodule("layer3.1.gate.spatial")
    gate.register_forward_hook(lambda module, given, out: seen.append(out / given[0]))
    pixels = pictures().float()
    found = heat(net, pixels, "spatial_gate")
    ratio = seen[0].nanmean(1)  # what the gate multiplied each place by
    torch.testing.assert_close(found, ratio / ratio.sum((1, 2), keepdim=True), rtol=0, atol=1e-5)


def test_many_pictures_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    net, pixels, classes = vit(), pictures(5), torch.arange(5)
    whole = {how: heat(net, pixels, how, classes=classes) for how in ("rollout", "gradient_rollout")}
    monkeypatch.setattr("zoo.tasks.vision.maps.heatmaps._NUMBERS", 2 * 6 * 13**2)  # two pictures at a time
    calls: list[int] = []
    net.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
    for how, expected in whole.items():
        torch.testing.assert_close(heat(net, pixels, how, classes=classes), expected)
    assert calls == [2, 2, 1] * 2


def test_heat_of_what_has_implied_weights() -> None:
    net = vit(attend=MechanismFactory(site=LinearAttention))
    found = heat(net, pictures(), "rollout")
    torch.testing.assert_close(found.sum((1, 2)), torch.ones(3), rtol=0, atol=1e-5)
    assert found.std() > 1e-4


@pytest.mark.parametrize(
    ("make", "how", "said"),
    [
        (vit, "cam", "the head does not read the mean of the features; write rollout or gradient_rollout or class_att"),
        (partial(vit, pool="mean"), "class_attention", "the net has no class token; write rollout or"),
        (vit, "pooling", "the net has no sequence pooling"),
        (vit, "roll_out", "there is no such map, write one of rollout, gradient_rollout, class_attention, pooling, sp"),
        (cct, "cam", "the head does not read the mean of the features; write rollout or gradient_rollout or pooling"),
        (
            partial(vit, attend=MechanismFactory(site=LinearAttention)),
            "gradient_rollout",
            "is LinearAttention, which has",
        ),
        (
            partial(vit, attend=MechanismFactory(site=partial(Linformer, length=13, slots=4))),
            "rollout",
            "layers.0.mixer.attend is Linformer, which has no weights that this map could be made of",
        ),
        (partial(Swin, **SIZES, attend=SOFTMAX, size="mini"), "rollout", "no tokens that stay in place from layer to"),
        (partial(ResNet, **SIZES, gate=SqueezeExcitation), "spatial_gate", "the net has no spatial gate; write cam"),
        (partial(ResNet, **SIZES), "rollout", "so their maps cannot be multiplied; write cam"),
    ],
)
def test_what_a_net_cannot_give_is_refused(make: Any, how: str, said: str) -> None:
    net = make()
    why_not = refusal(net, how)
    assert why_not is not None
    assert said in why_not
    with pytest.raises(ValueError, match=how):
        heat(net, pictures(), how)  # type: ignore[arg-type]


def test_no_cam_where_layers_follow_the_last_map() -> None:
    with torch.device("meta"):
        net = TorchvisionCNN(channels=3, height=32, width=32, classes=5, backbone="vgg11", gate=CBAM)
    assert refusal(net, "cam") == "the head does not read the mean of the features; write spatial_gate or gradient_cam"


def test_gold_cells() -> None:
    gold = torch.zeros(3, 12, 16, dtype=torch.bool)
    gold[0, 4:8, 4:10] = True  # fills one place of 4 x 4, and half of its neighbour
    gold[1, 3:8, 4:8] = True  # a quarter of the place above is less than half
    found = gold_cells(gold, (3, 4)).view(3, 3, 4)
    assert found[0].nonzero().tolist() == [[1, 1], [1, 2]]
    assert found[1].nonzero().tolist() == [[1, 1]]
    assert not found[2].any()
    uneven = gold_cells(gold[:1], (5, 3)).view(5, 3)  # columns 0-5, 5-10, 10-15 share pixels, as in adaptive pooling
    assert uneven.nonzero().tolist() == [[2, 1]]
