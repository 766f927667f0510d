"""`zoo maps` on pictures: the files of the folder, and agreement of tables, arrays, words and scores."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import zoo.maps
from zoo.attention import CBAM, AttentionFactory, ScaledDot, Softmax, sites
from zoo.errors import ConfigError, DataError
from zoo.maps.explainer import MapOptions
from zoo.maps.export import export
from zoo.maps.metrics import pointing_accuracy
from zoo.optim import OptimizerConfig
from zoo.tasks.batching import BatchOptions
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.datamodule import ImageData, PictureSource
from zoo.tasks.vision.datasets import planted_glimpse
from zoo.tasks.vision.maps.heatmaps import gold_cells
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.vit import ViT
from zoo.tasks.vision.task import ImageClassifier

SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
VIT = partial(ViT, attend=SOFTMAX, patch=8, dim=8, layers=2, heads=2, hidden=8, registers=1)
SCALE = {"mean": [0.5] * 3, "std": [0.3] * 3}


@pytest.fixture(scope="module")
def planted() -> ImageData:
    data = planted_glimpse(
        train=20, val=10, test=23, rows=2, columns=2, colours=4, max_epochs=1, batch_size=8, eval_batch_size=5, **SCALE
    )
    data.setup()
    return data


def own(tmp_path: Path) -> ImageData:
    """Two photos of other sizes than the net's, one of them without a label, in no split."""
    pixels = [torch.randint(256, (3, *size), dtype=torch.uint8) for size in ((70, 50), (40, 90))]
    given = ImageSet(
        pixels=pixels,
        labels=pd.Series([1, -1]).to_numpy(),
        splits=pd.Series(["test", ""]).to_numpy(),
        label_names=("ant", "bee"),
        ids=["mine/a b.jpg", "mine/ümlaut.png"],
        channels=3,
    )
    data = ImageData(
        PictureSource(lambda: given), BatchOptions(max_epochs=1, batch_size=2), height=32, width=32, **SCALE
    )
    data.setup()
    return data


def classifier(net: Any, data: ImageData, explain: str) -> ImageClassifier:
    torch.manual_seed(0)
    optimization = OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.1))
    module = ImageClassifier(net=net, optimization=optimization, **data.sizes(), explain=explain).eval()  # type: ignore[arg-type]
    for name, parameter in module.named_parameters():
        if ".query.weight" in name or ".key.weight" in name:
            nn.init.normal_(parameter)
    module.about = {"model": "mine", "path": "best.ckpt", "config": {"names": {"data": "planted_glimpse"}}}
    return module


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(name, dtype={"id": str, "label": str, "prediction": str, "class": str}, keep_default_na=False)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("out")


def test_a_vit_s_folder(planted: ImageData, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = classifier(VIT, planted, "rollout")
    export(module, planted, out, MapOptions(pictures=2))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "23 test pictures in places.csv, in out"
    assert printed[1] == "maps and drawings of 2 pictures"
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    drawn = {name for name in files if name.startswith("pictures/")}
    assert files - drawn == {
        "index.json", "maps.safetensors", "scores.json", "heat.csv", "places.csv", "words.txt",
    }  # fmt: skip
    assert len(drawn) == 2
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in drawn)

    (batch,) = _as_one_batch(planted, "test")
    heat, said = module.heat(batch), module.predict_step(batch)
    marks = gold_cells(batch.gold, (heat.shape[1], heat.shape[2]))
    places = table("out/places.csv")
    for column in ("id", "split", "label", "prediction"):
        assert places[column].tolist() == said[column]
    assert places["probability"].to_numpy() == pytest.approx(said["probability"], abs=1e-5)
    expected = pointing_accuracy(heat.flatten(1), marks)
    assert places["points_at_gold"].astype(float).mean() == pytest.approx(expected)
    scores = json.loads((out / "scores.json").read_text())
    assert scores["truth"] == {"pointing_accuracy": pytest.approx(expected)}
    assert f"truth/pointing_accuracy {expected:.4f} (test pictures, rollout)" in printed

    maps = zoo.maps.load(out)
    assert maps.layers == (*sites(module.net), "rollout")
    assert (maps.model, maps.about["pictures"]) == ("mine", 23)
    example = maps[next(iter(maps))]
    at = batch.ids.index(example.id)
    assert example.about["label"] == batch.label_names[int(batch.labels[at])]
    rows = table("out/heat.csv")
    rows = rows[rows["id"] == example.id]
    torch.testing.assert_close(torch.tensor(rows["heat"].to_numpy()).float(), heat[at].flatten(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(example["rollout"].weights.flatten(), heat[at].flatten(), rtol=1e-4, atol=1e-6)
    assert [f"r{row}c{column}" for row, column in zip(rows["row"], rows["column"], strict=True)] == list(
        example["rollout"].labels["key"]
    )
    assert example["layers.0.mixer.attend"].labels["key"][:3] == ["class", "register 1", "r1c1"]
    assert {row["site"] for row in scores["maps"]} == {*sites(module.net), "rollout"}
    words = (out / "words.txt").read_text().splitlines()
    assert words == printed[-2:]
    assert words[0].startswith(f"{example.id}: predicted {example.about['prediction']} (")
    assert module.maps(planted, MapOptions(ids=[example.id])).describe_chosen()[0] in words[0]


def test_a_cbam_s_gates(planted: ImageData, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = classifier(partial(ResNet, depth=8, gate=CBAM), planted, "spatial_gate")
    export(module, planted, out, MapOptions(pictures=1, heads="mean"))
    assert "23 test pictures in places.csv, channel gates by class, in out" in capsys.readouterr().out
    assert (out / "pictures" / "gates.png").is_file()
    gates = table("out/gates.csv")
    assert set(gates["site"]) == {f"layer{n}.0.gate.channel" for n in (1, 2, 3)}
    assert gates.groupby("class")["n"].first().sum() == 23
    (batch,) = _as_one_batch(planted, "test")
    with torch.no_grad(), zoo.attention.record(module.net) as maps:
        module(batch)
    of = batch.labels == 0
    expected = maps["layer2.0.gate.channel"].weights[of].mean(0)
    found = gates[(gates["site"] == "layer2.0.gate.channel") & (gates["class"] == batch.label_names[0])]["mean"]
    torch.testing.assert_close(torch.tensor(found.to_numpy()).float(), expected, rtol=0, atol=1e-5)
    example = zoo.maps.load(out)
    spatial = example[next(iter(example))]["layer3.0.gate.spatial"]
    assert (spatial.axes, spatial.labels["height"][0]) == (("height", "width"), "1")


def test_own_photos_are_all_there(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Photos without split or label have maps, too, and are drawn in their own size."""
    data = own(tmp_path)
    module = classifier(VIT, data, "gradient_rollout")
    export(module, data, out, MapOptions(pictures=5, table_format="csv"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "2 pictures in places.csv, in out"
    places = table("out/places.csv")
    assert places["id"].tolist() == ["mine/a b.jpg", "mine/ümlaut.png"]
    assert places["label"].tolist() == ["bee", ""]
    assert "points_at_gold" not in places
    names = sorted(path.name for path in (out / "pictures").iterdir())
    assert names == ["1_a_b.png", "2_ümlaut.png"] or names == ["1_ümlaut.png", "2_a_b.png"]
    assert json.loads((out / "scores.json").read_text())["truth"] == {}
    assert ", is bee; " in next(line for line in printed if line.startswith("mine/a b.jpg"))
    assert ", is " not in next(line for line in printed if line.startswith("mine/ümlaut.png"))


def test_asked_for_pictures_layers_and_a_budget(
    planted: ImageData, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = classifier(VIT, planted, "class_attention")
    size = 2 * 18 * 18 * 4  # heads, tokens
    export(module, planted, out, MapOptions(ids=["train/3", "test/1"], layers=[-1], heads="mean"))
    maps = zoo.maps.load(out)
    assert list(maps) == ["train/3", "test/1"]
    assert list(maps["test/1"]) == ["layers.1.mixer.attend", "class_attention"]
    assert maps["test/1"]["layers.1.mixer.attend"].layer == 1
    assert maps["test/1"]["layers.1.mixer.attend"].weights.shape == (1, 18, 18)
    export(module, planted, out, MapOptions(pictures=1, budget=size, overwrite=True))
    assert f"the budget of {size:,} bytes a picture left out layers.1.mixer.attend {size:,}" in capsys.readouterr().out
    assert zoo.maps.load(out).cut == {"layers.1.mixer.attend": size}
    assert module.maps(planted, MapOptions(ids=["test/2", "val/0"])).describe_chosen()[1].startswith("looks ")


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"ids": ["test/99"]}, DataError, "there is no picture 'test/99'"),
        ({"layers": [7]}, ConfigError, "layers: the model has 2 attention sites, there is no number 7"),
        ({"layers": ["encoder"]}, ConfigError, "no attention site is called 'encoder'"),
    ],
)
def test_options_that_do_not_fit(
    planted: ImageData, out: Path, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        export(classifier(VIT, planted, "rollout"), planted, out, MapOptions(**options))
    assert not out.exists()


def _as_one_batch(data: ImageData, split: str) -> list[Any]:
    """Returns a list of one batch with the whole split."""
    loader = data.loader(split)
    return [loader.collate([loader.examples[at] for at in range(len(loader.examples))])]
