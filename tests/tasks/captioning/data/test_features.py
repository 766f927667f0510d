"""Features of a frozen encoder are computed once, equal those of every step, and are shared by equal runs alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError, DataError
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.tasks.batching import BatchOptions
from zoo.tasks.captioning import CaptionData
from zoo.tasks.captioning.data import features
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.datamodule import CaptionSource
from zoo.tasks.vision import Augmentation
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions

COUNT = 7


class Eye(ImageClassifierNet):
    """A convolution and a norm, which counts the pictures that it sees."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.norm = nn.Conv2d(3, 5, 4, stride=4), nn.BatchNorm2d(5)
        self.count = [0]

    def __deepcopy__(self, memo: Any) -> Eye:
        """Returns a copy that counts in the same place."""
        made = Eye()
        made.load_state_dict(self.state_dict())
        made.count = self.count
        return made

    @property
    def seen(self) -> int:
        """The number of pictures that this net and its copies have seen."""
        return self.count[0]

    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        self.count[0] += len(pixels)
        found: Tensor = self.norm(self.conv(pixels))
        return found

    def layer_groups(self) -> list[str]:
        return ["conv"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for number in range(COUNT):
        shape = (9 + number, 12, 3)
        Image.fromarray(draw.integers(0, 255, shape, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "PART", 3)


def made(folder: Path, **options: Any) -> CaptionData:
    names = [f"{number}.png" for number in range(COUNT)]
    splits = np.array([TRAIN] * 4 + [VAL] * 2 + [TEST])
    read = lambda reading: CaptionSet(Decoded(names, reading, folder), [["a", "b"]] * COUNT, names, splits)  # noqa: E731
    given = {"height": 8, "width": 12, "cache": str(folder / "cache")} | options
    return CaptionData(CaptionSource(read, ReaderOptions()), BatchOptions(max_epochs=1, batch_size=4), **given)


def test_kept_features_are_those_of_the_pixels(pictures: Path) -> None:
    data, eye = made(pictures), Eye()
    (pixels,) = data.loader("val")
    data.see_through(eye)
    assert eye.training
    assert eye.seen == COUNT
    (kept,) = data.loader("val")
    expected = eye.eval().features(pixels.source.pixels).flatten(2).transpose(1, 2)
    assert kept.source.pixels is None
    assert kept.source.grid == (2, 3)
    assert torch.allclose(kept.source.features, expected, atol=2e-3)
    assert [each.size for each in kept.written] == [each.size for each in pixels.written] == [(13, 12), (14, 12)]
    assert kept.ids == pixels.ids
    (train, *_) = data.train_dataloader()
    assert train.source.features.dtype == torch.float32
    assert len({tuple(row.flatten().tolist()) for row in train.source.features}) > 1


def test_other_runs_and_only_equal_ones_share_them(pictures: Path) -> None:
    def computed(eye: Eye | None = None, **options: Any) -> int:
        eye = Eye() if eye is None else eye
        made(pictures, **options).see_through(eye)
        return eye.seen

    assert computed() == COUNT
    assert computed() == 0
    assert computed(Eye(seed=1)) == COUNT
    assert computed(mean=[0.1, 0.1, 0.1]) == COUNT
    assert computed(height=16) == COUNT
    frozen = Eye()
    frozen.get_buffer("norm.running_mean").add_(1.0)
    assert computed(frozen) == COUNT
    shutil.copy(pictures / "0.png", pictures / "4.png")  # a picture of the second part
    assert computed() == 3
    assert computed(cache=None) == COUNT
    made(pictures, keep_features=False).see_through(eye := Eye())
    assert eye.seen == 0


def test_an_interrupted_computation_is_continued(pictures: Path) -> None:
    whole = (pictures / "6.png").read_bytes()
    (pictures / "6.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"6.png: the picture is damaged or cut short"):
        made(pictures).see_through(Eye())
    (pictures / "6.png").write_bytes(whole)
    made(pictures).see_through(eye := Eye())
    assert eye.seen == 1


def test_augmentation_switches_them_off_and_says_so(pictures: Path) -> None:
    data = made(pictures, augmentation=Augmentation(resized_crop=[0.5, 1.0], flip=True))
    with pytest.warns(UserWarning, match=r"data.augmentation changes training pictures, so that their features are"):
        data.see_through(eye := Eye())
    assert eye.seen == 0
    first, second = ([batch.source.pixels for batch in data.train_dataloader()] for _ in range(2))
    assert first[0].shape == (4, 3, 8, 12)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    plain = made(pictures)
    assert not torch.equal(first[0], next(iter(plain.train_dataloader())).source.pixels)
    assert torch.equal(next(iter(data.loader("val"))).source.pixels, next(iter(plain.loader("val"))).source.pixels)


def test_features_that_half_precision_cannot_hold_are_refused(pictures: Path) -> None:
    eye = Eye()
    eye.norm.weight.data.fill_(1e6)
    with pytest.raises(ConfigError, match=r"too large for half precision.*data.keep_features=false"):
        made(pictures).see_through(eye)


def test_worker_processes_read_the_pictures(pictures: Path) -> None:
    alone, together = made(pictures), made(pictures, cache=None)
    together.batching = BatchOptions(max_epochs=1, batch_size=4, num_workers=1)
    for data in (alone, together):
        data.see_through(Eye())
    assert alone.features is not None
    assert together.features is not None
    for number in range(COUNT):
        assert torch.equal(alone.features[number], together.features[number])
