"""A picture that is too long for the size of the net's input is a bad row as any other, in every domain of pictures."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from zoo.config.compose import compose
from zoo.config.instantiate import build
from zoo.errors import DataError

SPLITS = ("train", "train", "train", "train", "val", "val", "test", "test")
DATA = {
    "image_table": (["model=se_resnet"], "path", "label"),
    "captions": (["model=captioner"], "image", "caption"),
    "picture_questions": (["model=coattention"], "image", "answer"),
}


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    _, image, said = DATA[request.param]
    names = [f"{number}.png" for number in range(len(SPLITS))]
    for name in names:
        Image.new("RGB", (9, 9), "red").save(tmp_path / name)
    Image.new("RGB", (50_000, 1)).save(tmp_path / "thread.png")
    rows = [{image: name, said: f"answer {n % 2}", "split": SPLITS[n]} for n, name in enumerate(names)]
    rows.append({image: "thread.png", said: "answer 0", "split": "train"})
    if request.param == "picture_questions":
        rows = [{**row, "question": "what is it?"} for row in rows]
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    sizes = ["data.height=224", "data.width=224", "data.resize=crop", "data.augmentation=null"]
    sizes = sizes[:3] if request.param == "picture_questions" else sizes
    return [*DATA[request.param][0], f"data={request.param}", f"data.table={tmp_path}/table.csv", *sizes]


def read(overrides: list[str], *more: str) -> Any:
    data: Any = build(compose([*overrides, *more])["data"], "data")
    data.setup()
    return data


@pytest.mark.parametrize("table", DATA, indirect=True)
def test_it_stops_or_is_skipped_with_a_count(table: list[str]) -> None:
    with pytest.raises(DataError, match=r"line 10.*thread\.png.*1 x 50,000 is too long to be cut to 224 x 224"):
        read(table)
    with pytest.warns(UserWarning, match=r"skipped 1 .*: .*thread\.png.*too long"):
        data = read(table, "data.on_bad_row=skip")
    assert len(data.examples("all").entries) == len(SPLITS)
    assert all(entry.pixels.shape == (3, 224, 224) for entry in data.examples("all").entries)
    assert len(read(table, "data.resize=squash").examples("all").entries) == len(SPLITS) + 1
