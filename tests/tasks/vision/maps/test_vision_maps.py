"""Drawings, words and tables of maps: pixels of overlays, Swin's windows, gates by class."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

import zoo.maps
from zoo.attention import (
    CBAM,
    AttentionFactory,
    AttentionMap,
    DenseSupport,
    ScaledDot,
    SlidingWindow,
    Softmax,
    SqueezeExcitation,
    record,
    sites,
)
from zoo.maps import plots
from zoo.nn.images.windows import Windows
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.maps.gate_table import GateTable
from zoo.tasks.vision.maps.map_labels import cell_names, heads_over_picture, join_windows, label_maps, scored_map
from zoo.tasks.vision.maps.regions import region, where_it_looks
from zoo.tasks.vision.models.cct import CCT
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.swin import Swin
from zoo.tasks.vision.models.vit import ViT
from zoo.tasks.vision.plots import Panels, gate_figure, overlay, sheet, upsample

SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
SIZES = {"channels": 1, "height": 12, "width": 16, "classes": 3}
SMALL = {"dim": 8, "layers": 2, "heads": 2, "hidden": 8}


def photo(height: int = 60, width: int = 90, gold: tuple[int, int, int, int] | None = None) -> Picture:
    """A grey photo of one brightness."""
    marks = None
    if gold is not None:
        marks = torch.zeros(height, width, dtype=torch.bool)
        top, left, bottom, right = gold
        marks[top:bottom, left:right] = True
    return Picture(torch.full((3, height, width), 128, dtype=torch.uint8), 0, "photo.jpg", "test", marks)


def drawn(picture: Picture, heat: Tensor | None, **options: Any) -> np.ndarray:
    """The pixels of an overlay in the size of the photo."""
    height, width = picture.pixels.shape[1:]
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    overlay(figure.add_axes((0, 0, 1, 1)), picture, heat, **options)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


def test_heat_lies_where_it_is_and_the_photo_is_seen_elsewhere() -> None:
    heat = torch.zeros(4, 6)
    heat[1, 4] = 1.0  # 15 pixels a place: rows 15-29, columns 60-74
    found = drawn(photo(), heat)
    assert found.shape == (60, 90, 3)
    hot = found[22, 67]
    assert hot[1] > hot[2] + 80  # viridis ends in yellow
    for row, column in ((50, 10), (5, 5), (22, 30)):
        assert found[row, column].tolist() == pytest.approx([128] * 3, abs=2)
    warm = np.abs(found - 128).sum(-1) > 20
    rows, columns = np.nonzero(warm)
    assert (rows.min() >= 7, rows.max() <= 38, columns.min() >= 52, columns.max() <= 83) == (True,) * 4


def test_heat_of_a_part_that_the_net_saw() -> None:
    """Heat over the central square of a wide photo leaves the rest unchanged."""
    found = drawn(photo(), torch.ones(2, 2), seen=(0.0, 15.0, 60.0, 60.0))
    assert np.abs(found[:, :14] - 128).max() <= 2
    assert np.abs(found[:, 76:] - 128).max() <= 2
    assert np.abs(found[30, 20:70] - 128).sum(-1).min() > 20
    assert np.ptp(found[30, 20:70], axis=0).max() <= 4  # equal heat has one colour


def test_gold_is_framed_with_and_without_heat() -> None:
    gold = tuple(int(plots.GOLD[at : at + 2], 16) for at in (1, 3, 5))
    for heat in (None, torch.zeros(4, 6)):
        found = drawn(photo(gold=(20, 30, 40, 60)), heat)
        on_frame = np.abs(found - gold).sum(-1) < 60
        for line in (on_frame[19:22, 35:55].any(0), on_frame[39:42, 35:55].any(0), on_frame[25:35, 29:32].any(1)):
            assert line.all()
        assert not on_frame[25:35, 35:55].any()
        assert not on_frame[:15].any()


def test_colours_are_ordered_by_brightness() -> None:
    found = drawn(photo(10, 100), torch.linspace(0, 1, 50)[None])
    brightness = found[5, 55:98] @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(brightness) > -2).all()
    assert brightness[-1] > brightness[0] + 40


def test_upsampling_is_bilinear() -> None:
    heat = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    found = upsample(heat, (30, 40))
    assert found.shape == (30, 40)
    # half a pixel of 10 beside the middle of a place: 0.95 of it and 0.05 of its neighbour
    expected = 0.95 * (0.95 * heat[1, 2] + 0.05 * heat[1, 3]) + 0.05 * (0.95 * heat[2, 2] + 0.05 * heat[2, 3])
    assert float(found[15, 25]) == pytest.approx(float(expected), abs=1e-5)


def test_a_sheet_of_one_example(tmp_path: Path) -> None:
    pixels = torch.randint(256, (1, 20, 30), dtype=torch.uint8)
    groups = [
        Panels("layers", [f"layer {n}" for n in range(30)], [torch.rand(4, 6)] * 30),
        Panels("no maps", [], []),
        Panels("heads", ["head 0", "head 1"], [torch.rand(4, 6)] * 2),
    ]
    figure = sheet(
        Picture(pixels, 0, "a", ""), torch.rand(4, 6), title="predicted $7 (.98), is 7", name="cam", panels=groups
    )
    titles = [each.get_title() for each in figure.axes]
    assert titles[:2] == ["picture", "cam"]
    layers = [int(title.removeprefix("layer ")) for title in titles if title.startswith("layer")]
    assert (len(layers), layers[0], layers[-1]) == (12, 0, 29)
    assert figure.get_suptitle() == "predicted $7 (.98), is 7"
    plots.save(figure, tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size > 10_000


def swin_map(
    rows: int, columns: int, window: int, down: int, right: int, batch: int = 2
) -> tuple[AttentionMap, Windows]:
    torch.manual_seed(0)
    windows = Windows(rows, columns, window, down, right)
    support = windows.support(batch, torch.device("cpu"))
    count = batch * len(windows.cells())
    weights = support.softmax(torch.randn(count, 3, window**2, window**2))
    return AttentionMap("site", weights, support.axes, support, (0, 1, 2)), windows


@pytest.mark.parametrize("sizes", [(4, 6, 2, 0, 0), (4, 6, 2, 1, 1), (5, 7, 3, 1, 1), (3, 3, 3, 0, 0), (3, 8, 4, 0, 2)])
def test_windows_are_put_together(sizes: tuple[int, int, int, int, int]) -> None:
    """Windows equal attention over all cells of a picture, with the cells of other windows forbidden."""
    rows, columns, side, down, right = sizes
    found, windows = swin_map(*sizes)
    across = -(-columns // side)
    tall, wide = -(-rows // side) * side, across * side
    for index in (0, 1):
        expected = torch.zeros(3, rows * columns, rows * columns)
        exists = torch.zeros(rows * columns, rows * columns, dtype=torch.bool)
        for q in range(rows * columns):
            for k in range(rows * columns):
                # where a place of the map stands after the cyclic shift
                (qr, qc), (kr, kc) = (((p // columns - down) % tall, (p % columns - right) % wide) for p in (q, k))
                if (qr // side, qc // side) != (kr // side, kc // side):
                    continue
                torn = any(
                    shift
                    and (a // columns < shift if axis == 0 else a % columns < shift)
                    != (b // columns < shift if axis == 0 else b % columns < shift)
                    for axis, shift, a, b in ((0, down, q, k), (1, right, q, k))
                )
                if torn:
                    continue
                window = index * len(windows.cells()) + qr // side * across + qc // side
                at = (qr % side * side + qc % side, kr % side * side + kc % side)
                expected[:, q, k] = found.weights[window, :, at[0], at[1]]
                exists[q, k] = True
        whole = join_windows(found, windows, index)
        assert whole.support is not None
        dense = whole.support.to_dense(whole.weights, rows * columns, rows * columns)[0]  # type: ignore[union-attr]
        torch.testing.assert_close(dense, expected)
        assert len(whole.weights) == int(exists.sum())


def test_a_swin_s_own_windows() -> None:
    torch.manual_seed(0)
    net = Swin(**SIZES, attend=SOFTMAX, dim=6, layers=(2, 1), heads=(2, 3), window=2, patch=2).eval()
    with torch.no_grad(), record(net) as maps:
        net(torch.randn(1, 1, 12, 16))
    found = list(label_maps(net, maps, (12, 16)))
    assert [len(each.axis_labels["source"]) for each in found] == [48, 48, 12]
    assert found[2].axis_labels["target"][5] == "r2c2"
    received = heads_over_picture(net, maps["layers.1.mixer.attend"], (12, 16))
    assert received is not None
    assert received.shape == (2, 6, 8)
    assert float(received.sum()) == pytest.approx(2.0, abs=1e-4)  # each place gives 1 in all, of which the mean


def test_names_of_tokens_and_gold(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gold = torch.zeros(1, 12, 16, dtype=torch.bool)
    gold[0, 4:8, 8:12] = True  # r2c3
    pixels = torch.randn(1, 1, 12, 16)
    vit = ViT(**SIZES, attend=SOFTMAX, patch=4, registers=1, **SMALL).eval()
    with torch.no_grad(), record(vit) as maps:
        vit(pixels)
    found = list(label_maps(vit, maps, (12, 16), gold))
    assert found[0].axis_labels["key"] == ["class", "register 1", *cell_names((3, 4))]
    assert found[0].gold is not None
    assert found[0].gold.nonzero().tolist() == [[0, 2 + 6]]
    cct = CCT(**SIZES, attend=SOFTMAX, kernel=3, convolutions=1, **SMALL).eval()
    with torch.no_grad(), record(cct) as maps:
        cct(pixels)
    *layers, pool = label_maps(cct, maps, (12, 16), gold)
    assert [each.gold for each in layers] == [None, None]
    assert pool.axis_labels["query"] == ["picture"]
    assert pool.gold is not None
    rows = torch.arange(48).view(6, 8)[2:4, 4:6].flatten()
    assert pool.gold[0].nonzero().flatten().tolist() == rows.tolist()


def test_each_kind_of_map_is_written_and_read(tmp_path: Path) -> None:
    """Tokens, blocks, pooling, windows, gates and the scored map are equal after writing and reading."""
    torch.manual_seed(0)
    near = AttentionFactory(score=ScaledDot, normalizer=Softmax, restrict=partial(SlidingWindow, radius=1))
    nets: dict[str, Any] = {
        "vit": ViT(**SIZES, attend=SOFTMAX, patch=4, **SMALL),
        "blocks": ViT(**SIZES, attend=near, patch=4, pool="mean", **SMALL),
        "cct": CCT(**SIZES, attend=SOFTMAX, kernel=3, convolutions=1, **SMALL),
        "swin": Swin(**SIZES, attend=SOFTMAX, dim=6, layers=(2,), heads=(2,), window=2, patch=2),
        "cbam": ResNet(**SIZES, depth=8, gate=CBAM),
    }
    gold = torch.zeros(1, 12, 16, dtype=torch.bool)
    gold[0, 4:8, 8:12] = True
    for name, net in nets.items():
        net.eval()
        with torch.no_grad(), record(net) as maps:
            net(torch.randn(1, 1, 12, 16))
        heat = AttentionMap("heat", torch.rand(1, 1, 1, 12), DenseSupport.axes, DenseSupport(), (0,))
        with zoo.maps.Writer(tmp_path / name, model=name, layers=[*sites(net), "heat"]) as writer:
            for each in (*label_maps(net, maps, (12, 16), gold), scored_map(heat, (3, 4), gold)):
                writer.add("a", each.found, axis_labels=each.axis_labels, gold=each.gold, nouns=each.nouns)
        read = zoo.maps.load(tmp_path / name)
        assert list(read["a"]) == [*sites(net), "heat"]
        for site, one in read["a"].items():
            given = maps.get(site, heat)
            values, total = one.weights, given.weights.sum()
            assert float(values.sum()) == pytest.approx(float(total), rel=1e-5)
            if one.is_gate:
                assert torch.equal(values, given.weights[0])
        table = read.to_pandas()
        assert set(table["layer"]) == set(range(len(read["a"])))
        assert {row["layer"] for row in read.scores["maps"]} >= {len(read["a"]) - 1}
    cbam = zoo.maps.load(tmp_path / "cbam")
    spatial = cbam["a"]["layer1.0.gate.spatial"]
    pointing = next(row for row in cbam.scores["maps"] if row["site"] == "layer1.0.gate.spatial")
    assert pointing["pointing_accuracy"] == float(spatial.gold.flatten()[spatial.weights.argmax()])  # type: ignore[union-attr]
    table = cbam.to_pandas()
    gates = table[table["layer"] == 1]  # layer1.0.gate.spatial
    row = gates[(gates["height"] == "3") & (gates["width"] == "5")].iloc[0]
    assert row["weight"] == pytest.approx(float(spatial.weights[2, 4]))


def test_gates_by_class_are_means_over_pictures() -> None:
    torch.manual_seed(0)
    net = ResNet(**SIZES, depth=8, gate=SqueezeExcitation).eval()
    pixels, labels = torch.randn(23, 1, 12, 16), torch.randint(2, (23,))
    labels[7] = 3  # one picture of a class, and none of another
    made = GateTable(["ant", "bee", "cat", "dog"])
    rows = []
    for start in range(0, 23, 5):
        with torch.no_grad(), record(net) as maps:
            net(pixels[start : start + 5])
        made.add(maps, labels[start : start + 5])
        for site, each in maps.items():
            for gates, label in zip(each.weights, labels[start : start + 5].tolist(), strict=True):
                rows += [(site, channel, label, gate) for channel, gate in enumerate(gates.double().tolist())]
    direct = pd.DataFrame(rows, columns=["site", "channel", "label", "gate"])
    table = made.frame(list(sites(net)))
    assert list(table.columns) == ["layer", "site", "channel", "class", "mean", "sd", "n"]
    assert len(table) == 3 * (16 + 32 + 64)
    for (site, channel, label), group in direct.groupby(["site", "channel", "label"]):
        name = ["ant", "bee", "cat", "dog"][label]
        row = table[(table["site"] == site) & (table["channel"] == channel) & (table["class"] == name)].iloc[0]
        assert row["mean"] == pytest.approx(group["gate"].mean(), abs=1e-9)
        assert row["sd"] == pytest.approx(group["gate"].std(), abs=1e-9, nan_ok=True)
        assert (row["n"], row["layer"]) == (len(group), list(sites(net)).index(site))


def test_a_picture_of_gates(tmp_path: Path) -> None:
    table = pd.DataFrame(
        [
            {"layer": layer, "site": f"s{layer}", "channel": c, "class": name, "mean": 0.5, "sd": 0.1, "n": 3}
            for layer in range(7)
            for c in range(60)
            for name in ("ant", "bee")
        ]
    )
    table.loc[(table["layer"] == 6) & (table["channel"] == 42) & (table["class"] == "bee"), "mean"] = 0.9
    figure = gate_figure(table)
    panels = [each for each in figure.axes if each.get_images()]
    assert [each.get_title(loc="left").split(":")[0] for each in panels] == ["s0", "s2", "s4", "s6"]
    cells = panels[-1].get_images()[0].get_array()
    assert cells is not None
    assert cells.shape == (2, 48)
    assert float(cells[1].max()) == 0.9  # the channel that differs is among those that are drawn
    plots.save(figure, tmp_path / "gates.png")


@pytest.mark.parametrize(
    ("hot", "how", "said"),
    [
        ({(2, 4): 3, (2, 5): 2, (3, 4): 2, (3, 5): 2, (0, 0): 1}, "rollout",
         "looks at rows 3-4, columns 5-6 (.90 of its attention), right"),
        ({(0, 5): 1.0}, "rollout", "looks at row 1, column 6 (1.00 of its attention), top right"),
        ({(2, 2): 1.0, (5, 5): 0.9}, "cam", "looks at row 3, column 3 (.53 of the evidence), in the middle"),
        ({(5, 0): 1.0, (4, 1): 0.9}, "spatial_gate",
         "looks at rows 5-6, columns 1-2 (1.00 of what the gate lets through), bottom left"),
        ({}, "cam", "looks nowhere: no place is evidence for the class"),
        ({(r, c): 1.0 for r in range(6) for c in range(6)}, "rollout",
         "looks at nothing in particular: no place of 6 x 6 stands out"),
    ],
)  # fmt: skip
def test_where_it_looks_in_words(hot: dict[tuple[int, int], float], how: str, said: str) -> None:
    heat = torch.zeros(6, 6)
    for place, value in hot.items():
        heat[place] = value
    assert where_it_looks(heat, how) == said
    found = region(heat)
    assert (found is None) == (not hot)
