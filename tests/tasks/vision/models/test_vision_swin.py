"""Swin: a block by loops over places, the layout of windows, parameter counts, every mechanism within windows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from token_net_cases import ATTENTION, CLOSE, MIXERS, SOFTMAX, mechanism, parameters, pictures, spread
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from zoo.attention import record, sites
from zoo.nn.images.windows import Windows
from zoo.tasks.vision.models.swin import PatchMerging, Swin, SwinBlock

WEIGHTLESS = ("degree", "linear", "linformer", "performer")


def swin(**options: Any) -> Swin:
    """Three blocks in two stages, in float64; the maps are 7 x 5 and 4 x 3, the windows 3 x 3."""
    torch.manual_seed(0)
    sizes = {
        "height": 14,
        "width": 10,
        "patch": 2,
        "dim": 4,
        "layers": (2, 1),
        "heads": (2, 1),
        "window": 3,
        "ratio": 2,
    }
    return spread(Swin(**{"channels": 2, "classes": 5, "attend": SOFTMAX, **sizes, **options}).double())


def window_of(place: int, window: int, shift: int, side: int) -> int:
    """Which window a row or column is in; borders are at shift, shift + window, ... (Liu et al. 2021, fig. 2)."""
    return (place - shift) // window if side > window else place // window


def reference(block: SwinBlock, x: Tensor) -> Tensor:
    """Eq. 3 and 4, a place at a time: the map (r, c, d) of one picture, its windows without any cyclic shift."""
    weights = dict(block.named_parameters())
    rows, columns, dim = x.shape
    window, shift, heads = block.window, block.shift, block.mixer.heads
    table = weights["mixer.attend.position.table"]

    def affine(x: Tensor, name: str) -> Tensor:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.sum() / dim
        return (
            centred / ((centred * centred).sum() / dim + 1e-5).sqrt() * weights[f"{name}.weight"]
            + weights[f"{name}.bias"]
        )

    # padding is zeros behind the norm
    down, across = (math.ceil(side / window) * window for side in (rows, columns))
    seen = {
        (r, c): norm(x[r, c], "mixed.norm") if r < rows and c < columns else torch.zeros(dim, dtype=x.dtype)
        for r in range(down)
        for c in range(across)
    }
    home = {(r, c): (window_of(r, window, shift, rows), window_of(c, window, shift, columns)) for r, c in seen}
    query, key, value = (
        {place: affine(each, f"mixer.{name}") for place, each in seen.items()} for name in ("query", "key", "value")
    )
    out = torch.empty_like(x)
    for r in range(rows):
        for c in range(columns):
            near = [place for place in seen if home[place] == home[r, c]]
            context = []
            for head in range(heads):
                part = slice(head * dim // heads, (head + 1) * dim // heads)
                scores = [
                    query[r, c][part] @ key[place][part] / math.sqrt(dim // heads)
                    + table[head, r - place[0] + window - 1, c - place[1] + window - 1]
                    for place in near
                ]
                shares = torch.stack(scores).softmax(0)
                context.append(sum(share * value[place][part] for share, place in zip(shares, near, strict=True)))
            y = x[r, c] + affine(torch.cat(context), "mixer.out")
            hidden = affine(norm(y, "fed.norm"), "feed_forward.expand")
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            out[r, c] = y + affine(hidden, "feed_forward.contract")
    return out


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("size", [(6, 6), (7, 5), (2, 7), (3, 4), (2, 2)])
def test_block(size: tuple[int, int], shift: int) -> None:
    """Tests windows that divide the map or not, shifts, and maps smaller than a window."""
    torch.manual_seed(0)
    options = {"attend": SOFTMAX, "window": 3, "shift": shift, "ratio": 2, "dropout": 0.0, "branch": None}
    block = spread(SwinBlock(dim=4, heads=2, **options).double())
    x = torch.randn(2, *size, 4, dtype=torch.float64)
    expected = torch.stack([reference(block, each) for each in x])
    torch.testing.assert_close(block(x), expected, **CLOSE)
    named = dict(block.named_parameters())
    gradients = torch.autograd.grad(block(x).square().sum(), list(named.values()))
    peers = torch.autograd.grad(expected.square().sum(), list(named.values()))
    for gradient, peer in zip(gradients, peers, strict=True):
        torch.testing.assert_close(gradient, peer, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [(4, 4), (3, 5), (1, 2)])
def test_merging(size: tuple[int, int]) -> None:
    """Liu et al. 2021, section 3.1, in the order of the authors' code: above left, below left, above right, below."""
    merge = spread(PatchMerging(dim=3).double())
    x = torch.randn(1, *size, 3, dtype=torch.float64)
    merged = merge(x)
    assert merged.shape == (1, math.ceil(size[0] / 2), math.ceil(size[1] / 2), 6)
    for r in range(merged.shape[1]):
        for c in range(merged.shape[2]):
            four = [(2 * r, 2 * c), (2 * r + 1, 2 * c), (2 * r, 2 * c + 1), (2 * r + 1, 2 * c + 1)]
            zeros = torch.zeros(3, dtype=torch.float64)
            together = torch.cat([x[0, i, j] if i < size[0] and j < size[1] else zeros for i, j in four])
            torch.testing.assert_close(merged[0, r, c], merge.reduce(merge.norm(together)), **CLOSE)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_recorded_weights_are_of_the_places_that_windows_say(layer: int) -> None:
    """Each weight belongs to two cells of one window, and the weights of a cell sum to 1."""
    net, pixels = swin(), pictures(14, 10, count=2)
    with record(net, layers=[layer]) as maps:
        net(pixels)
    (found,) = maps.values()
    windows = net.windows(layer, 14, 10)
    assert (windows.rows, windows.columns) == ((7, 5) if layer < 2 else (4, 3))
    at = windows.cells()
    assert found.weights.shape == (2 * len(at), 1 if layer == 2 else 2, 9, 9)
    assert sorted(at[at >= 0].tolist()) == list(range(windows.rows * windows.columns))
    shift = 1 if layer == 1 else 0
    for picture in range(2):
        for number, places in enumerate(at.tolist()):
            weights = found.weights[picture * len(at) + number]
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)
            for i, query in enumerate(places):
                for j, key in enumerate(places):
                    if query < 0 or key < 0:
                        continue
                    homes = [
                        (
                            window_of(place // windows.columns, 3, shift, windows.rows),
                            window_of(place % windows.columns, 3, shift, windows.columns),
                        )
                        for place in (query, key)
                    ]
                    assert (weights[:, i, j] > 0).all() == (homes[0] == homes[1])


@pytest.mark.parametrize("rows", [1, 3, 4, 7])
@pytest.mark.parametrize("shifts", [(0, 0), (1, 2), (0, 1)])
def test_join_undoes_cut(rows: int, shifts: tuple[int, int]) -> None:
    windows = Windows(rows, 5, 3, *shifts)
    x = torch.randn(2, rows, 5, 3)
    assert torch.equal(windows.join(windows.cut(x)), x)
    flat = windows.cut(x).view(2, -1, 3)
    at = windows.cells().flatten()
    assert torch.equal(flat[:, at >= 0], x.flatten(1, 2)[:, at[at >= 0]])
    assert not flat[:, at < 0].any()


@pytest.mark.parametrize(("size", "count"), [("tiny", 28_288_354), ("small", 49_606_258), ("base", 87_768_224)])
def test_parameter_counts(size: str, count: int) -> None:
    with torch.device("meta"):
        assert parameters(Swin(channels=3, height=224, width=224, classes=1000, attend=SOFTMAX, size=size)) == count


def test_features_and_head() -> None:
    net, pixels = swin(), pictures(14, 10)
    features = net.features(pixels)
    assert features.shape == (3, 8, 4, 3)
    assert net.grid(14, 10) == (7, 5)
    torch.testing.assert_close(net(pixels), net.head(features.mean((2, 3))), **CLOSE)


def test_stages_name_every_parameter_once_from_input_to_output() -> None:
    net = swin()
    assert net.layer_groups() == ["patches", "layers.0", "layers.1", "merges.2", "layers.2", "norm", "head"]
    for name, _ in net.named_parameters():
        assert sum(name.startswith(f"{stage}.") for stage in net.layer_groups()) == 1, name
    order: list[str] = []
    for name in net.layer_groups():
        net.get_submodule(name).register_forward_hook(lambda *_, name=name: order.append(name))
    net(pictures(14, 10))
    assert order == net.layer_groups()


def test_other_pictures_than_it_was_made_for() -> None:
    net = swin()
    other = swin(height=22, width=6)
    other.load_state_dict(net.state_dict())
    pixels = pictures(22, 6)
    assert torch.equal(net(pixels), other(pixels))


def test_windows_of_another_side() -> None:
    """Interpolation of tables keeps constants, monotonicity and the centre."""
    net = swin(window=4)
    name = "layers.0.mixer.attend.position.table"
    shape = net.get_parameter(name).shape
    assert shape == (2, 7, 7)
    rising = torch.arange(5.0).expand(2, 5, 5)
    found = net.resize_parameter(name, rising, shape)
    assert found is not None
    assert found.shape == shape
    assert (found.diff(dim=2) > 0).all()
    torch.testing.assert_close(found[:, 3, 3], torch.full((2,), 2.0))
    torch.testing.assert_close(net.resize_parameter(name, torch.ones(2, 5, 5), shape), torch.ones(2, 7, 7))
    torch.testing.assert_close(net.resize_parameter(name, rising.mT, shape), found.mT)
    assert net.resize_parameter(name, torch.ones(3, 5, 5), shape) is None
    assert net.resize_parameter("patches.0.weight", torch.ones(4, 2, 3, 3), (4, 2, 2, 2)) is None


@pytest.mark.parametrize("path", ATTENTION, ids=lambda path: path.stem)
def test_every_mechanism_attends_within_windows_or_is_refused(path: Path) -> None:
    if path.stem in MIXERS:
        with pytest.raises(
            ValueError, match="replaces self-attention over a whole sequence, which this model does not have"
        ):
            swin(attend=mechanism(path))
        return
    if path.stem in WEIGHTLESS:
        with pytest.raises(ValueError, match=r"RelativeBias2D|EdgeSupport"):
            swin(attend=mechanism(path))
        return
    if path.stem == "none":
        with pytest.raises(ValueError, match="has nothing but attention to read with"):
            swin(attend=mechanism(path))
        return
    net, pixels = swin(attend=mechanism(path)), pictures(14, 10)
    torch.manual_seed(0)
    logits = net(pixels)
    assert logits.isfinite().all()
    logits.sum().backward()
    with record(net) as maps:
        torch.manual_seed(0)
        assert torch.equal(net(pixels), logits)
    assert list(maps) == list(sites(net)) == [f"layers.{number}.mixer.attend" for number in range(3)]


def test_training_after_inference() -> None:
    """A cached support can be trained with even if it was created in inference mode."""
    net = swin(height=18, width=18)
    pixels = pictures(18, 18, count=7)
    with torch.inference_mode():
        expected = net(pixels).clone()
    logits = net(pixels)
    torch.testing.assert_close(logits, expected, **CLOSE)
    logits.sum().backward()


def test_stochastic_depth_grows_with_the_blocks() -> None:
    net = swin(layers=(2, 2), heads=(1, 2), stochastic_depth=0.3)
    rates = [module.p for module in net.modules() if isinstance(module, StochasticDepth)]
    assert rates == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3])


def test_dropout_is_of_hidden_units_and_of_what_blocks_add() -> None:
    drops = [module.p for module in swin(dropout=0.2).modules() if isinstance(module, nn.Dropout)]
    assert drops == [0.2] * 9


def test_first_weights() -> None:
    """Those of torchvision's: normal with a deviation of 0.02, biases of zero."""
    torch.manual_seed(0)
    net = Swin(channels=3, height=16, width=16, classes=3, attend=SOFTMAX, dim=32, layers=(1,), heads=(2,), window=4)
    block = net.layers[0]
    for linear in (*block.mixer.children(), *block.feed_forward.children(), net.head):
        if isinstance(linear, nn.Linear):
            assert linear.weight.std().item() == pytest.approx(0.02, rel=0.25)
            assert not linear.bias.any()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"height": 15}, "height=15 is not divisible by patch=2"),
        ({"size": "huge"}, "there is no size 'huge'; there are mini, tiny, small, base"),
        ({"dim": None}, "give dim, layers, heads and window, or a size"),
        ({"heads": (2,)}, "layers and heads are numbers of each stage, got 2 and 1 of them"),
        ({"window": 0}, "a whole number of at least 1 or null"),
        ({"layers": (2, 0)}, "a whole number of at least 1 or null"),
        ({"heads": (3, 1)}, "dim=4 is not divisible by heads=3"),
        ({"stochastic_depth": 1.0}, "stochastic_depth is to be a number of at least 0 and below 1"),
    ],
)
def test_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        swin(**options)


def test_a_picture_that_patches_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="width=9 is not divisible by patch=2"):
        swin()(pictures(14, 9))
