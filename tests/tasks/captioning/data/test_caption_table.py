"""The user's own captions: what is read of a table, and what is said of one that cannot be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from zoo.data.splits import NONE, TEST, TRAIN, VAL
from zoo.data.tables import collect_errors
from zoo.errors import DataError
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.data.readers import ReaderOptions, read_caption_table, read_pictures
from zoo.tasks.captioning.datasets import captions

Write = Callable[[str], Path]
SAMPLE = Path(__file__).parents[4] / "data" / "samples" / "captioning" / "captions.csv"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a table beside five pictures of 8 x 6, a.png to e.png."""
    (tmp_path / "in").mkdir()
    for number, name in enumerate("abcde"):
        Image.fromarray(np.full((6, 8, 3), 40 * number, dtype=np.uint8)).save(tmp_path / "in" / f"{name}.png")

    def to(text: str) -> Path:
        path = tmp_path / "in" / "own.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return to


def read(path: Path, **options: Any) -> CaptionSet:
    return read_caption_table(path, ReaderOptions(**options))


def cut_short(path: Path) -> None:
    """Writes a picture whose second half is missing."""
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


GOOD = "image,caption,split\na.png,A dog.,train\na.png,One dog,train\nb.png,a cat,val\nc.png,a bird,test\n"


def test_a_picture_has_all_captions_of_its_rows(write: Write) -> None:
    found = read(write(GOOD))
    assert list(found.ids) == ["a.png", "b.png", "c.png"]
    assert found.captions == [["A dog.", "One dog"], ["a cat"], ["a bird"]]
    assert found.splits.tolist() == [TRAIN, VAL, TEST]
    assert found.pixels[1].shape == (3, 6, 8)


def test_jsonl_columns_and_folder_are_named(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    write(GOOD)
    rows = [{"file": f"{name}.png", "says": f"it is {name}"} for name in "abcde"]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    found = read_caption_table(path, ReaderOptions(image="file", caption="says"), folder=tmp_path / "in")
    assert found.captions == [[f"it is {name}"] for name in "abcde"]
    assert sorted(found.splits.tolist()) == [TRAIN] * 3 + [VAL, TEST]


def test_a_picture_of_two_names_is_one(write: Write, tmp_path: Path) -> None:
    os.symlink(tmp_path / "in" / "a.png", tmp_path / "in" / "again.png")
    found = read(write(GOOD + "again.png,that dog,train\n./b.png,that cat,val\n"))
    assert found.captions == [["A dog.", "One dog", "that dog"], ["a cat", "that cat"], ["a bird"]]


@pytest.mark.parametrize(
    ("row", "line", "said"),
    [
        ("d.png,,train", 6, "column 'caption': the cell is empty"),
        (",a fish,train", 6, "column 'image': the cell is empty"),
        ("x.png,a fish,train", 6, "column 'image': there is no file "),
        ("../own.png,a fish,train", 6, "in/../own.png. Write the path from the folder of the table."),
        ("/etc/passwd,a fish,train", 6, "column 'image': '/etc/passwd': this is no picture"),
        ("own.csv,a fish,train", 6, "'own.csv': this is no picture"),
        ("a.png,a fish,test", 6, "'a.png' is in 'test' here, and in 'train' in line 2"),
        (f"d.png,{'a' * 10_001},train", 6, "the text has 10,001 characters"),
        ("broken.png,a fish,train", 6, "'broken.png': the picture is damaged or cut short"),
    ],
)
def test_bad_rows_are_named_and_counted(write: Write, tmp_path: Path, row: str, line: int, said: str) -> None:
    cut_short(tmp_path / "in" / "broken.png")
    path = write(GOOD + f"{row}\n")
    with pytest.warns(UserWarning, match="skipped 1 bad row. The first"):
        found = read(path, on_bad_row="skip")
    assert len(found) == 3
    if row.startswith("broken"):  # without skip the pixels are read later, and the file is named then
        return
    with pytest.raises(DataError, match=rf"own.csv, line {line}\b") as error:
        read(path)
    assert said in str(error.value)
    assert "on_bad_row=skip" in str(error.value)
    with collect_errors() as problems:
        read(path)
    assert said in str(problems[0])


def test_damaged_pixels_are_named_when_they_are_read(write: Write, tmp_path: Path) -> None:
    cut_short(tmp_path / "in" / "broken.png")
    found = read(write(GOOD + "broken.png,a fish,train\n"))
    with pytest.raises(DataError, match=r"broken.png: the picture is damaged or cut short"):
        found.pixels[3]


def test_a_trained_model_reads_pictures_with_and_without_captions(write: Write, tmp_path: Path) -> None:
    found = read_pictures([write("image\na.png\nb.png\n")], ReaderOptions())
    assert (found.captions, found.splits.tolist()) == (None, [NONE, NONE])
    found = read_pictures([write("image,caption\na.png,a dog\nb.png,a cat\na.png,one dog\n")], ReaderOptions())
    assert (found.captions, found.splits.tolist()) == ([["a dog", "one dog"], ["a cat"]], [TEST, TEST])
    with pytest.raises(DataError, match=r"line 3, column 'caption': it is empty"):
        read_pictures([write("image,caption\na.png,a dog\nb.png,\n")], ReaderOptions())
    with pytest.raises(DataError, match="give one table, or pictures and folders"):
        read_pictures([write(GOOD), tmp_path / "in"], ReaderOptions())
    assert len(read_pictures([tmp_path / "in" / "a.png", tmp_path / "in" / "b.png"], ReaderOptions())) == 2


def test_the_sample_can_be_read() -> None:
    data = captions(table=str(SAMPLE), max_epochs=1, batch_size=4, height=32, width=32, punctuation=False)
    (batch, *_) = data.train_dataloader()
    assert batch.source.pixels.shape[1:] == (3, 32, 32)
    assert all(len(data.loader(split).examples) for split in ("train", "val", "test"))
