"""A cell of the small encoder sees its own place in the picture, and as much on each side of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from zoo.config.compose import compose
from zoo.nn import PlainCNN
from zoo.nn.images.image_input import ImageInput


def seen_by(cell: int, *, strides: list[int], size: tuple[int, int]) -> tuple[PlainCNN, Tensor]:
    """The pixels that a cell depends on."""
    torch.default_generator.manual_seed(0)
    net = PlainCNN(height=size[0], width=size[1], channels=[8] * len(strides), strides=strides, dim=8).double()
    pixels = torch.randn(16, 3, *size, dtype=torch.double, requires_grad=True)
    cells = net.annotations(ImageInput(pixels))
    weights = torch.randn(8, dtype=torch.double)
    (gradient,) = torch.autograd.grad((cells[:, cell] @ weights).sum(), pixels)
    return net, gradient.abs().sum((0, 1)) > 0


@pytest.mark.parametrize("strides", [[2, 3], [3, 2], [1, 4], [6], [8], [2, 2, 2]])
def test_what_a_cell_sees_has_its_middle(strides: list[int]) -> None:
    step = torch.tensor(strides).prod().item()
    size = (9 * step, 7 * step)
    net, seen = seen_by(4 * 7 + 3, strides=strides, size=size)
    assert net.grid == (9, 7)
    for side, place in ((1, 4), (0, 3)):
        lines = seen.any(side).nonzero().flatten()
        assert (lines[0] + lines[-1] + 1).item() / 2 == (place + 0.5) * step
        assert len(lines) >= step


def test_kernels_are_as_wide_as_is_given() -> None:
    net = PlainCNN(height=8, width=8, channels=[4, 4], strides=[2, 2], dim=8, around=1)
    assert [part.kernel_size for part in net.layers if isinstance(part, torch.nn.Conv2d)] == [(4, 4), (4, 4), (1, 1)]
    assert net.annotations(ImageInput(torch.randn(2, 3, 8, 8))).shape == (2, 4, 8)


@pytest.mark.parametrize("model", ["captioner", "captioner_transformer", "coattention"])
def test_every_model_has_the_option(model: str) -> None:
    composed = compose([f"model={model}", "model.net.encoder.around=1"])
    assert composed["model"]["net"]["encoder"]["around"] == 1


def test_pictures_of_other_sizes_stand_in_the_middle_of_the_cells() -> None:
    net, seen = seen_by(0, strides=[2, 3], size=(20, 26))  # of 24 x 30
    assert net.grid == (4, 5)
    assert seen.any(1).nonzero().flatten().tolist() == list(range(8))  # 14 around 3 of 24, less the zeros
    assert seen.any(0).nonzero().flatten().tolist() == list(range(8))


def test_batch_norm_makes_cells_independent_of_each_other_in_evaluation() -> None:
    torch.default_generator.manual_seed(0)
    net = PlainCNN(height=8, width=8, channels=[4], strides=[4], dim=8, norm="batch", position=None)
    net.annotations(ImageInput(torch.randn(16, 3, 8, 8)))
    assert [name for name, _ in net.named_buffers() if name.endswith("running_mean")]
    net.eval()
    pixels = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(net.annotations(ImageInput(pixels))[:1], net.annotations(ImageInput(pixels[:1])))
    with pytest.raises(ValueError, match="norm is 'layer' or 'batch'"):
        PlainCNN(height=8, width=8, channels=[4], strides=[4], dim=8, norm="group")  # type: ignore[arg-type]
