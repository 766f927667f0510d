"""Features of a classifier: frozen, trained from a stage on, or given."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from captioning_cases import ADDITIVE, SIDE, doubled, pictures, recurrent
from torch import Tensor, nn

from zoo.tasks.captioning import BackboneEncoder
from zoo.tasks.captioning.batch import Seen
from zoo.tasks.vision.nets.picture_net import PictureNet


class Small(PictureNet):
    """Two stages of a classifier."""

    def __init__(self, *, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Conv2d(4, 6, 3, 2, 1)
        self.head = nn.Linear(6, classes)

    def features(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(pixels))
        return found

    def stages(self) -> list[str]:
        return ["first", "second", "head"]


def encoder(**options: Any) -> BackboneEncoder:
    torch.default_generator.manual_seed(0)
    return BackboneEncoder(height=SIDE, width=SIDE, backbone=Small, **options).double()


def test_annotations_are_the_features_of_the_last_map_row_by_row() -> None:
    made, source = encoder().eval(), doubled(pictures()).source
    assert source.pixels is not None
    assert made.grid == (3, 3)
    assert made.width == 6
    found, expected = made(source).states, made.backbone.features(source.pixels)
    for cell in range(9):
        torch.testing.assert_close(found[:, cell], expected[:, :, cell // 3, cell % 3])


def test_given_features_are_read_instead_of_pixels() -> None:
    made, source = encoder(dim=5, position=None).eval(), doubled(pictures()).source
    kept = Seen(features=made.features(source), grid=(3, 3))
    torch.testing.assert_close(made(kept).states, made(source).states)
    assert made.width == 5
    with pytest.raises(ValueError, match="a backbone that is trained reads pixels"):
        encoder(tuned_from="second")(kept)


@pytest.mark.parametrize(
    ("tuned_from", "trained"), [(None, []), ("second", ["second"]), ("first", ["first", "second"])]
)
def test_stages_before_the_given_one_are_frozen(tuned_from: str | None, trained: list[str]) -> None:
    net = recurrent(ADDITIVE, encoder=partial(BackboneEncoder, backbone=Small, tuned_from=tuned_from, dim=4))
    batch = doubled(pictures())
    assert batch.targets is not None
    net.whole(batch.source, batch.targets.read).sin().sum().backward()
    backbone = net.encoder.backbone
    moved = {name.split(".")[0] for name, each in backbone.named_parameters() if each.grad is not None}
    assert sorted(moved) == trained
    assert net.encoder.project.weight.grad is not None


def test_published_weights_are_those_of_the_backbone_without_its_last_layer() -> None:
    made = encoder()
    names = made.published(Small(channels=3, height=SIDE, width=SIDE, classes=5).state_dict())
    assert set(names) == {name for name in made.state_dict() if name.startswith("backbone.") and ".head." not in name}


def test_a_stage_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="tuned_from='secnd' is no stage of this backbone"):
        encoder(tuned_from="secnd")


def test_a_frozen_backbone_computes_as_in_evaluation() -> None:
    made = encoder().train()
    assert made.training
    assert not made.backbone.training
    assert encoder(tuned_from="second").train().backbone.training
