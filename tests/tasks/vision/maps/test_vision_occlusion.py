"""A picture without some of its cells: they have the mean colour, which is 0 once it is normalised."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from zoo.attention import AttentionFactory, ScaledDot, Softmax
from zoo.optim import OptimizerConfig
from zoo.tasks.vision.batch import ImageBatch
from zoo.tasks.vision.maps import perturbation
from zoo.tasks.vision.maps.perturbation import PerturbableImage
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.vit import ViT
from zoo.tasks.vision.task import ImageClassifier

FILES = Path(__file__).parents[3] / "checkpoints" / "files"
SIZE = {"channels": 3, "height": 16, "width": 24, "classes": 5}
NETS: dict[str, Any] = {
    "vit": partial(
        ViT, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax), patch=8, dim=8, layers=2, heads=2, hidden=8
    ),
    "resnet": partial(ResNet, dim=4),
}


@pytest.fixture(params=NETS)
def module(request: pytest.FixtureRequest) -> ImageClassifier:
    torch.manual_seed(0)
    optimization = OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.1))
    made = ImageClassifier(net=NETS[request.param], optimization=optimization, **SIZE)  # type: ignore[arg-type]
    for parameter in made.net.head.parameters():
        nn.init.normal_(parameter)
    return made.double().eval()


@pytest.fixture
def batch() -> ImageBatch:
    pixels = torch.randn(1, 3, 16, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return ImageBatch(pixels, torch.tensor([1]), ("a",), ("test",), tuple("uvwxy"))


def test_cells_left_out(module: ImageClassifier, batch: ImageBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "_NUMBERS", 3 * 16 * 24 * 2)  # two pictures at a time
    found = PerturbableImage(module, batch)
    heat = module.heat(batch)[0]
    rows, columns = heat.shape
    torch.testing.assert_close(found.attention, heat.flatten())
    keep = torch.rand(5, rows * columns) < 0.5
    keep[0] = True
    answer = module(batch).argmax()
    for row, score in zip(keep.view(5, rows, columns), found.score(keep), strict=True):
        pixels = batch.pixels.clone()
        for y in range(16):
            for x in range(24):
                if not row[y * rows // 16, x * columns // 24]:
                    pixels[0, :, y, x] = 0.0
        expected = module(batch.replace_pixels(pixels)).softmax(-1)[0, answer]
        torch.testing.assert_close(score, expected.detach(), rtol=0, atol=1e-12)


def test_the_gradient_is_that_of_scaled_cells(module: ImageClassifier, batch: ImageBatch) -> None:
    found = PerturbableImage(module, batch)
    rows, columns = found.grid
    gradient = found.gradient().view(rows, columns)
    share = rows * columns / (16 * 24)  # a mean over pixels, where scaling has their sum

    def passed(row: int, column: int, scale: float) -> torch.Tensor:
        pixels = batch.pixels.clone()
        high, wide = 16 // rows, 24 // columns
        pixels[:, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] *= scale
        return module(batch.replace_pixels(pixels)).log_softmax(-1)[0, found.answer].detach()

    for row in range(rows):
        for column in range(columns):
            slope = (passed(row, column, 1 + 1e-6) - passed(row, column, 1 - 1e-6)) / 2e-6
            torch.testing.assert_close(gradient[row, column], slope.abs() * share, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("checkpoint", ["format2/vit", "format1/se_resnet"])
def test_pictures_by_the_command(cli: Any, checkpoint: str) -> None:
    done = cli("maps", FILES / f"{checkpoint}.ckpt", "--out", "maps", "--pictures", 1, "--faithfulness", 3)
    assert done.code == 0, done.err
    assert "faithfulness over 3 pictures (mean ± standard error)" in done.out
    rows = pd.read_csv("maps/faithfulness.csv", keep_default_na=False)
    assert rows.id.nunique() == 3
    # a net without attention has no weights to change
    assert ("fall_with_uniform_weights" in set(rows.measure)) == checkpoint.endswith("vit")
