"""Features of a classifier: frozen, trained from a stage on, or given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.nn import BackboneEncoder
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.nn.images.image_input import ImageInput

SIDE = 12


class Small(ImageClassifierNet):
    """Two stages of a classifier."""

    def __init__(self, *, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Conv2d(4, 6, 3, 2, 1)
        self.head = nn.Linear(6, classes)

    def features(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(pixels))
        return found

    def layer_groups(self) -> list[str]:
        return ["first", "second", "head"]


def encoder(**options: Any) -> BackboneEncoder:
    torch.default_generator.manual_seed(0)
    return BackboneEncoder(height=SIDE, width=SIDE, backbone=Small, **options).double()


def pictures() -> ImageInput:
    return ImageInput(torch.rand(4, 3, SIDE, SIDE, dtype=torch.double, generator=torch.Generator().manual_seed(0)))


def test_annotations_are_the_features_of_the_last_map_row_by_row() -> None:
    made, source = encoder().eval(), pictures()
    assert source.pixels is not None
    assert made.grid == (3, 3)
    assert made.width == 6
    found, expected = made(source).states, made.backbone.features(source.pixels)
    for cell in range(9):
        torch.testing.assert_close(found[:, cell], expected[:, :, cell // 3, cell % 3])


def test_given_features_are_read_instead_of_pixels() -> None:
    made, source = encoder(dim=5, position=None).eval(), pictures()
    kept = ImageInput(features=made.features(source), grid=(3, 3))
    torch.testing.assert_close(made(kept).states, made(source).states)
    assert made.width == 5
    with pytest.raises(ValueError, match="a backbone that is trained reads pixels"):
        encoder(tuned_from="second")(kept)


@pytest.mark.parametrize(
    ("tuned_from", "trained"), [(None, []), ("second", ["second"]), ("first", ["first", "second"])]
)
def test_stages_before_the_given_one_are_frozen(tuned_from: str | None, trained: list[str]) -> None:
    made = encoder(tuned_from=tuned_from, dim=4)
    made(pictures()).states.sin().sum().backward()
    moved = {name.split(".")[0] for name, each in made.backbone.named_parameters() if each.grad is not None}
    assert sorted(moved) == trained
    assert made.project.weight.grad is not None


def test_published_weights_are_those_of_the_backbone_without_its_last_layer() -> None:
    made = encoder()
    names = made.load_published(Small(channels=3, height=SIDE, width=SIDE, classes=5).state_dict())
    assert set(names) == {name for name in made.state_dict() if name.startswith("backbone.") and ".head." not in name}


def test_a_stage_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="tuned_from='secnd' is no stage of this backbone"):
        encoder(tuned_from="secnd")


def test_a_frozen_backbone_computes_as_in_evaluation() -> None:
    made = encoder().train()
    assert made.training
    assert not made.backbone.training
    assert encoder(tuned_from="second").train().backbone.training
