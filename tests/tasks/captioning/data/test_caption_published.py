"""Flickr8k and COCO in the layout in which they are published."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from zoo.data.splits import SPLITS, TEST, TRAIN, VAL
from zoo.errors import DataError
from zoo.tasks.captioning.data.published import read_coco, read_flickr8k
from zoo.tasks.captioning.datasets import flickr8k
from zoo.tasks.vision.data.image_list import ReaderOptions

LISTS = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}


def draw(path: Path, grey: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((6, 8, 3), grey, dtype=np.uint8)).save(path)


@pytest.fixture
def flickr(tmp_path: Path) -> Path:
    """Returns the folder of a small Flickr8k."""
    home = tmp_path / "flickr8k"
    lines = [f"{n}.jpg#{k}\tA {n} , number {k} ." for n in "abcde" for k in range(5)]
    (home / "text").mkdir(parents=True)
    (home / "text" / "Flickr8k.token.txt").write_text("\n".join([*lines, "z.jpg.1#0\tno such picture"]) + "\n")
    for part, names in LISTS.items():
        (home / "text" / f"Flickr_8k.{part}Images.txt").write_text("\n".join(names) + "\n")
    for name in "abcde":
        draw(home / "images" / f"{name}.jpg")
    return home


def test_flickr8k(flickr: Path) -> None:
    found = read_flickr8k(flickr.parent, ReaderOptions())
    assert list(found.ids) == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert found.splits.tolist() == [TRAIN, TRAIN, VAL, TEST]
    assert found.captions is not None
    assert found.captions[1] == [f"A b , number {k} ." for k in range(5)]
    assert found.pixels[3].shape == (3, 6, 8)


def test_captions_without_punctuation_in_small_letters_everywhere(flickr: Path) -> None:
    data = flickr8k(root=str(flickr.parent), max_epochs=1, batch_size=4, height=8, width=8, punctuation=False)
    (batch,) = data.loader("test")
    assert batch.references == [[f"a d number {k}" for k in range(5)]]
    assert set(data.language.vocabulary.tokens[4:]) == {"a", "b", "number", "0", "1", "2", "3", "4"}


def test_the_archives_have_another_layout(flickr: Path) -> None:
    (flickr / "images").rename(flickr / "Flicker8k_Dataset")
    for path in (flickr / "text").iterdir():
        shutil.move(path, flickr)
    (flickr / "text").rmdir()
    assert len(read_flickr8k(flickr.parent, ReaderOptions())) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda home: shutil.rmtree(home), "there is no such folder. Flickr8k is given for research, on request"),
        (lambda home: (home / "text" / "Flickr8k.token.txt").unlink(), "there is no such file. Flickr8k is given"),
        (lambda home: (home / "images" / "c.jpg").unlink(), "devImages.txt, line 1: there is no picture"),
        (lambda home: append(home / "text" / "Flickr_8k.testImages.txt", "y.jpg"), "line 2: 'y.jpg' has no caption"),
        (lambda home: append(home / "text" / "Flickr_8k.testImages.txt", "a.jpg"), "'a.jpg' is listed more than once"),
        (lambda home: append(home / "text" / "Flickr8k.token.txt", "e.jpg no tab"), "line 27: this is not the caption"),
    ],
)
def test_a_damaged_flickr8k_is_named(flickr: Path, change: Any, said: str) -> None:
    change(flickr)
    with pytest.raises(DataError) as error:
        read_flickr8k(flickr.parent, ReaderOptions())
    assert said in str(error.value)


def append(path: Path, line: str) -> None:
    path.write_text(path.read_text() + f"{line}\n")


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Returns the folder of a small COCO."""
    home = tmp_path / "coco"
    images: list[dict[str, Any]] = []
    for number, (year, split) in enumerate(
        [("train2014", "train")] * 4 + [("val2014", "restval"), ("val2014", "val"), ("val2014", "test")]
    ):
        name = f"COCO_{year}_{number:012d}.jpg"
        draw(home / year / name)
        sentences = [{"raw": f"Picture {number}.", "tokens": []}, {"raw": f"It is {number}", "tokens": []}]
        images.append({"filepath": year, "filename": name, "split": split, "sentences": sentences, "cocoid": number})
    (home / "dataset_coco.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    (home / "annotations").mkdir()
    for year in ("train2014", "val2014"):
        mine = [each for each in images if each["filepath"] == year]
        content = {
            "images": [{"id": each["cocoid"], "file_name": each["filename"]} for each in mine],
            "annotations": [
                {"image_id": each["cocoid"], "caption": s["raw"]} for each in mine for s in each["sentences"]
            ],
        }
        (home / "annotations" / f"captions_{year}.json").write_text(json.dumps(content))
    return home


def splits_of(home: Path, split: Any, validation: int = 1) -> Counter[str]:
    found = read_coco(home.parent, ReaderOptions(), split=split, validation=validation)
    assert found.captions is not None
    assert found.captions[0] == ["Picture 0.", "It is 0"]
    assert found.pixels[6].shape == (3, 6, 8)
    return Counter(SPLITS[each] for each in found.splits.tolist())


def test_coco_in_both_splits(coco: Path) -> None:
    assert splits_of(coco, "karpathy") == {"train": 5, "val": 1, "test": 1}
    assert splits_of(coco, "official") == {"train": 3, "val": 1, "test": 3}
    assert splits_of(coco, "official", validation=2) == {"train": 2, "val": 2, "test": 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda all: all["images"][2].update(split="other"), "images.2.split is 'other'"),
        (lambda all: all["images"][2].update(filename="../a.jpg"), "images.2.filename is '../a.jpg', which is no name"),
        (lambda all: all["images"][2].update(filepath="/etc"), "images.2.filepath is '/etc', not train2014 or val2014"),
        (lambda all: all["images"][2].update(sentences=[]), "images.2 has no sentence"),
        (lambda all: all["images"][2].pop("filename"), "filename"),
        (lambda all: all.pop("images"), "images"),
    ],
)
def test_a_damaged_split_of_coco_is_named(coco: Path, change: Any, said: str) -> None:
    path = coco / "dataset_coco.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"dataset_coco.json: this is not the published file") as error:
        read_coco(coco.parent, ReaderOptions(), split="karpathy", validation=1)
    assert said in str(error.value)


def test_what_coco_lacks_is_said(coco: Path) -> None:
    (coco / "val2014" / f"COCO_val2014_{6:012d}.jpg").unlink()
    with pytest.raises(DataError, match=r"000006.jpg: the picture is not there"):
        read_coco(coco.parent, ReaderOptions(), split="karpathy", validation=1)
    (coco / "dataset_coco.json").write_text("{")
    with pytest.raises(DataError, match="this is not the published file"):
        read_coco(coco.parent, ReaderOptions(), split="karpathy", validation=1)
    (coco / "dataset_coco.json").unlink()
    with pytest.raises(DataError, match=r"there is no such file. COCO's pictures and captions are published at"):
        read_coco(coco.parent, ReaderOptions(), split="karpathy", validation=1)


@pytest.mark.real
def test_the_published_flickr8k() -> None:
    root = Path(os.environ.get("ZOO_DATA", "data"))
    if not (root / "flickr8k").is_dir():
        pytest.skip(f"there is no {root / 'flickr8k'}")
    found = read_flickr8k(root, ReaderOptions())
    assert found.captions is not None
    assert {len(each) for each in found.captions} == {5}
    assert (found.splits == TEST).sum() == 1000
    assert found.pixels[0].shape[0] == 3
