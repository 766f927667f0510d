"""Published weights: logits equal those of torchvision's nets with the same random weights; bad files are refused."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchvision.models
from token_net_cases import SOFTMAX
from torch import Tensor, nn
from torchvision.models import (
    DenseNet121_Weights,
    SwinTransformer,
    VisionTransformer,
    ViT_B_32_Weights,
    resnet18,
    resnet50,
    swin_t,
)

from zoo.attention import SqueezeExcitation
from zoo.errors import ConfigError, DataError, OfflineError
from zoo.tasks.vision.models import pretrained
from zoo.tasks.vision.models.pretrained import load_published, resnet_names, swin_names, vit_names
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.swin import Swin
from zoo.tasks.vision.models.torchvision_cnn import TorchvisionCNN
from zoo.tasks.vision.models.vit import ViT

DENSE = ("norm1", "norm2", "conv1", "conv2")


def at_random(net: nn.Module) -> nn.Module:
    """Draws every weight and statistic at a scale that keeps signals of deep nets; in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in net.state_dict().items():
        if not tensor.is_floating_point():
            continue
        drawn = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var"):
            drawn = drawn.abs() + 0.5
        elif tensor.dim() == 1:
            drawn = 0.2 * drawn + (1.0 if name.endswith("weight") else 0.0)
        else:
            drawn = drawn / max(1, tensor[0].numel()) ** 0.5
        tensor.copy_(drawn)
    return net.eval()


def data(height: int, width: int) -> dict[str, Any]:
    return {"channels": 3, "height": height, "width": width, "classes": 10}


def their_swin(window: int, layers: list[int], heads: list[int], dim: int) -> Callable[[], nn.Module]:
    return lambda: SwinTransformer([4, 4], dim, layers, heads, [window, window], num_classes=10)


def swin_case(window: int, height: int, width: int) -> tuple[Any, ...]:
    layers, heads = [2, 3, 2], [1, 2, 4]
    ours = {"dim": 8, "layers": layers, "heads": heads, "window": window, "attend": SOFTMAX}
    return their_swin(window, layers, heads, 8), lambda: Swin(**data(height, width), **ours), swin_names, height, width


CASES: dict[str, tuple[Any, ...]] = {
    "resnet18": (lambda: resnet18(num_classes=10), lambda: ResNet(**data(64, 64), depth=18), resnet_names, 64, 64),
    "resnet50": (lambda: resnet50(num_classes=10), lambda: ResNet(**data(64, 48), depth=50), resnet_names, 64, 48),
    "vit": (
        lambda: VisionTransformer(64, 16, 3, 4, 32, 48, num_classes=10),
        lambda: ViT(**data(64, 64), attend=SOFTMAX, patch=16, dim=32, layers=3, heads=4, hidden=48),
        vit_names,
        64,
        64,
    ),
    "swin, windows that divide": swin_case(4, 64, 64),
    "swin, padded windows": swin_case(7, 56, 36),
    "swin, odd windows and maps": swin_case(3, 20, 52),
    "swin, larger windows than maps": swin_case(7, 16, 36),
}


@pytest.mark.parametrize("case", CASES)
def test_equal_logits(case: str) -> None:
    theirs, ours, rename, height, width = CASES[case]
    peer = at_random(theirs()).double()
    net = ours().eval().double()
    net.load_state_dict(rename(peer.state_dict()))
    pixels = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        expected = peer(pixels)
        assert expected.std() > 0.1
        torch.testing.assert_close(net(pixels), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(net.float()(pixels.float()), peer.float()(pixels.float()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [{"depth": 18}, {"depth": 18, "gate": SqueezeExcitation}])
def test_gates_stay_as_initialised(size: dict[str, Any]) -> None:
    net = ResNet(**data(64, 64), **size)
    missing, unknown = net.load_state_dict(resnet_names(at_random(resnet18(num_classes=10)).state_dict()), strict=False)
    assert not unknown
    assert all(".gate." in name for name in missing)
    assert bool(missing) == ("gate" in size)


@pytest.mark.parametrize(
    ("model", "weights", "renamed"),
    [
        ("vit_b_32", ViT_B_32_Weights.DEFAULT, {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}),
        ("densenet121", DenseNet121_Weights.DEFAULT, {f".{each}.": f".{each[:-1]}.{each[-1]}." for each in DENSE}),
    ],
)
def test_old_names_of_a_file(model: str, weights: Any, renamed: dict[str, str]) -> None:
    """Files have former names of torchvision's parameters."""
    with torch.device("meta"):
        state = torchvision.models.get_model(model, weights=None).state_dict()
    old = {}
    for name, weight in state.items():
        for by, was in renamed.items():
            name = name.replace(by, was) if "layer" in name else name
        old[name] = weight
    assert old.keys() != state.keys()
    assert pretrained._check_weights(old, model, weights, Path("file")).keys() == state.keys()


class Published:
    """A server's folder on this disk, and torch's cache beside it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        monkeypatch.setenv("TORCH_HOME", str(folder / "cache"))
        self.cache = folder / "cache" / "hub" / "checkpoints"

    def put(self, content: Any, name: str = "resnet18", *, digest: str | None = None) -> str:
        """Publishes a file for `torchvision:NAME`, under its hash or another."""
        path = self.folder / "content"
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8] if digest is None else digest
        path = path.rename(self.folder / f"{name}-{digest}.pth")
        self.at(path.as_uri())
        return path.name

    def at(self, url: str) -> None:
        real = pretrained._weights

        def elsewhere(name: str) -> tuple[str, Any]:
            model, weights = real(name)
            return model, SimpleNamespace(url=url, meta=weights.meta, transforms=weights.transforms)

        self.monkeypatch.setattr(pretrained, "_weights", elsewhere)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    return Published(tmp_path, monkeypatch)


def net18(**options: Any) -> ResNet:
    return ResNet(channels=3, height=32, width=32, classes=4, depth=18, **options)


@cache
def state18() -> dict[str, Tensor]:
    return dict(at_random(resnet18()).state_dict())


def test_published_weights_by_name(server: Published, caplog: pytest.LogCaptureFixture) -> None:
    """The file is downloaded once; the weights come with the label names of their training."""
    state = state18()
    name = server.put(state)
    with caplog.at_level(logging.INFO, "zoo.tasks.vision.models.pretrained"):
        weights, labels = load_published("torchvision:resnet18", net18())
    assert len(labels) == 1000
    assert labels[:2] == ("tench", "goldfish")
    assert weights.keys() == net18().state_dict().keys()
    assert torch.equal(weights["head.weight"], state["fc.weight"])
    assert torch.equal(weights["layer3.0.bn2.running_var"], state["layer3.0.bn2.running_var"])
    assert "data.height=224 data.width=224 data.mean=[0.485,0.456,0.406] data.std=[0.229,0.224,0.225]" in caplog.text
    server.at("http://127.0.0.1:1/" + name)  # nobody answers there
    again, _ = load_published("torchvision:resnet18:IMAGENET1K_V1", net18(gate=SqueezeExcitation))
    assert torch.equal(again["head.weight"], state["fc.weight"])


def test_a_backbone_of_torchvision(server: Published) -> None:
    server.put(state18())
    net = TorchvisionCNN(channels=3, height=32, width=32, classes=1000, backbone="resnet18").eval()
    weights, _ = load_published("torchvision:resnet18", net)
    net.load_state_dict(weights)
    peer = at_random(resnet18())
    pixels = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(net(pixels), peer(pixels))


def test_what_an_inception_does_to_pixels_itself_is_told_as_normalisation() -> None:
    """torchvision's Inception changes the normalisation within the net; ours needs it in the data."""
    with torch.device("meta"):
        peer = torchvision.models.googlenet(weights=None, transform_input=True, init_weights=False)
    pixels = torch.rand(1, 3, 2, 2)
    mean, std = (torch.tensor(x)[:, None, None] for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    weights = torchvision.models.GoogLeNet_Weights.DEFAULT
    assert pretrained._describe_preprocessing("googlenet", weights).endswith(
        "data.mean=[0.5,0.5,0.5] data.std=[0.5,0.5,0.5]"
    )
    torch.testing.assert_close(peer._transform_input((pixels - mean) / std), (pixels - 0.5) / 0.5)


def test_offline(server: Published) -> None:
    server.at("http://127.0.0.1:1/resnet18-f37072fd.pth")
    with pytest.raises(OfflineError) as error:
        load_published("torchvision:resnet18", net18())
    belongs = server.cache / "resnet18-f37072fd.pth"
    for words in (
        "resnet18-f37072fd.pth",
        "http://127.0.0.1:1/",
        f"belongs at {belongs}",
        "place it there",
        "TORCH_HOME",
    ):
        assert words in str(error.value)
    assert "ZOO_DATA" not in str(error.value)


def test_another_file_than_was_published(server: Published) -> None:
    server.put(state18(), digest="00000000")
    with pytest.raises(DataError, match=r"not the expected file .* not 00000000"):
        load_published("torchvision:resnet18", net18())
    assert not list(server.cache.glob("*"))


@pytest.mark.parametrize("content", [b"", b"not weights", {"fc.weight": torch.ones(2)}, [1, 2]], ids=range(4))
def test_no_weights(server: Published, content: Any) -> None:
    name = server.put(content)
    with pytest.raises(DataError, match=f"{server.cache / name} .*Delete it, and it is downloaded anew"):
        load_published("torchvision:resnet18", net18())


def test_a_file_that_was_cut_short(server: Published) -> None:
    name = server.put(state18())
    server.cache.mkdir(parents=True)
    whole = (server.folder / name).read_bytes()
    (server.cache / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is damaged"):
        load_published("torchvision:resnet18", net18())


class _Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_zip", [True, False])
def test_code_in_a_file_does_not_run(server: Published, tmp_path: Path, is_zip: bool) -> None:
    trap = tmp_path / "trap"
    content = {**state18(), "trap": _Code(trap)}
    server.put(content if is_zip else pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="holds other things than weights"):
        load_published("torchvision:resnet18", net18())
    assert not trap.exists()


def test_weights_of_another_size(server: Published) -> None:
    server.put(dict(at_random(torchvision.models.resnet34()).state_dict()), "resnet34")
    with pytest.raises(ConfigError, match=r"no layer1\.2\.bn1\.bias; write model.size=resnet34"):
        load_published("torchvision:resnet34", net18())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timm:resnet18", "published weights are torchvision's, write torchvision:resnet50, say"),
        ("torchvision:resnet19", "no model 'resnet19'. Did you mean 'resnet1"),
        ("torchvision:resnet18:IMAGENET1K_V9", "no weights 'IMAGENET1K_V9'. Did you mean 'IMAGENET1K_V1'"),
        ("torchvision:vit_b_16", "this net is a ResNet. There is: resnet101"),
        ("torchvision:", "no model ''"),
    ],
)
def test_unknown_names(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_published(name, net18())


def test_a_net_without_published_weights() -> None:
    with pytest.raises(ConfigError, match="ResNet, ViT, Swin, TorchvisionCNN; this net is a Linear"):
        load_published("torchvision:resnet18", nn.Linear(1, 1))


def test_every_published_model_fits_the_options_that_are_named() -> None:
    """Names and shapes fit, on meta, except positions at another resolution."""
    kinds = {ResNet: resnet_names, ViT: vit_names, Swin: swin_names}
    for kind, rename in kinds.items():
        for model, options in pretrained._FAMILIES[kind].models.items():
            given = dict(each.removeprefix("model.").removeprefix("net.").split("=") for each in options.split())
            numbers = {name: value if name == "size" else int(value) for name, value in given.items()}
            attend = {} if kind is ResNet else {"attend": SOFTMAX}
            with torch.device("meta"):
                peer = torchvision.models.get_model(model, weights=None)
                net = kind(channels=3, height=224, width=224, classes=1000, **attend, **numbers)
            shapes = {name: weight.shape for name, weight in rename(peer.state_dict()).items()}
            assert shapes == {name: weight.shape for name, weight in net.state_dict().items()}, model


def test_swin_t() -> None:
    """Compares one net in its published size."""
    peer = at_random(swin_t())
    with torch.device("meta"):
        net = Swin(channels=3, height=224, width=224, classes=1000, attend=SOFTMAX, size="tiny").eval()
    net.load_state_dict(swin_names(peer.state_dict()), assign=True)
    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = peer(pixels)
        assert expected.std() > 0.1
        torch.testing.assert_close(net(pixels), expected, rtol=1e-5, atol=1e-5)
