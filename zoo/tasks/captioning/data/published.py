"""Flickr8k and COCO, as they were published. Their terms let nobody else hand them out, so they are not downloaded."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

import numpy as np

from zoo.data.encodings import Fault
from zoo.data.line_index import read_lines
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.data.tables import message
from zoo.errors import DataError
from zoo.io import read_json
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions
from zoo.validation import ValidationError, validate

_TOKENS = "Flickr8k.token.txt"
_LISTS = {
    TRAIN: "Flickr_8k.trainImages.txt",
    VAL: "Flickr_8k.devImages.txt",
    TEST: "Flickr_8k.testImages.txt",
}
_CAPTION = re.compile(r"(.+\.jpg)(?:\.\d+)?#\d+\t(.*)")
_KARPATHY = "dataset_coco.json"
_OF_KARPATHY = {"train": TRAIN, "restval": TRAIN, "val": VAL, "test": TEST}
_YEARS = {TRAIN: "train2014", TEST: "val2014"}

_FLICKR8K_FROM = (
    "Flickr8k is given for research, on request, by the University of Illinois (Hodosh, Young and Hockenmaier 2013), "
    "and is not downloaded"
)
_COCO_FROM = (
    "COCO's pictures and captions are published at cocodataset.org (19 GB), Karpathy's split, dataset_coco.json, at "
    "cs.stanford.edu/people/karpathy/deepimagesent; they are not downloaded"
)


def read_flickr8k(root: Path, reading: ReaderOptions) -> CaptionSet:
    """Reads flickr8k/images/*.jpg and flickr8k/text: Flickr8k.token.txt and the lists of train, dev and test.

    Files may also stand in `flickr8k` itself, and pictures in `Flicker8k_Dataset`, as the archives have them.

    Args:
        root: The folder that holds flickr8k.
        reading: How pictures are read.
    """
    home = root / "flickr8k"
    pictures = _first_folder([home / "images", home / "Flicker8k_Dataset", home / "Flickr8k_Dataset"], _FLICKR8K_FROM)
    text = home / "text" if (home / "text").is_dir() else home
    captions = _flickr8k_captions(_there(text / _TOKENS, _FLICKR8K_FROM))
    ids, splits, there = list[str](), list[int](), _files(pictures)
    for split, name in _LISTS.items():
        path = _there(text / name, _FLICKR8K_FROM)
        for line, picture in _lines(path):
            if picture not in captions:
                raise DataError(message(path, line, None, f"{picture!r} has no caption in {_TOKENS}", "Mend the list."))
            if picture not in there:
                what = f"there is no picture {pictures / picture}"
                raise DataError(message(path, line, None, what, "Put it there, or take it out of the list."))
            ids.append(picture)
            splits.append(split)
    _refuse_repeated(ids, text)
    return CaptionSet(
        Decoded(ids, reading, pictures), [captions[each] for each in ids], ids, np.array(splits, dtype=np.int64)
    )


def read_coco(
    root: Path, reading: ReaderOptions, *, split: Literal["karpathy", "official"], validation: int
) -> CaptionSet:
    """Reads coco/train2014 and coco/val2014, and captions from coco/dataset_coco.json or coco/annotations.

    Args:
        root: The folder that holds coco.
        reading: How pictures are read.
        split: `karpathy` reads dataset_coco.json, the split of Karpathy and Fei-Fei 2015, with which most papers
            compare: 113,287 pictures for training, 5,000 for validation, 5,000 for tests. `official` reads
            annotations/captions_train2014.json and captions_val2014.json; the latter is for tests.
        validation: Number of training pictures that are held out for validation if the split is official.
    """
    home = root / "coco"
    found = _karpathy(home) if split == "karpathy" else _official(home, validation)
    there = {year: _files(_first_folder([home / year], _COCO_FROM)) for year in {each[0] for each in found}}
    for year, name, _, _ in found:
        if name not in there[year]:
            raise DataError(f"{home / year / name}: the picture is not there. Complete the folder.")
    ids = [f"{year}/{name}" for year, name, _, _ in found]
    _refuse_repeated(ids, home)
    return CaptionSet(
        Decoded(ids, reading, home),
        [captions for _, _, captions, _ in found],
        ids,
        np.array([each for _, _, _, each in found], dtype=np.int64),
    )


Named = tuple[str, str, list[str], int]
"""Folder and name of a picture, its captions and its split."""


def _flickr8k_captions(path: Path) -> dict[str, list[str]]:
    """Returns the captions of each picture; one picture of the published file, which does not exist, has others."""
    captions: dict[str, list[str]] = defaultdict(list)
    for line, text in _lines(path):
        parts = _CAPTION.fullmatch(text)
        if parts is None or not parts[2].strip():
            remedy = "Write NAME.jpg#NUMBER, a tab and the caption."
            raise DataError(message(path, line, None, "this is not the caption of a picture", remedy))
        captions[parts[1]].append(parts[2].strip())
    return dict(captions)


def _karpathy(home: Path) -> list[Named]:
    path = _there(home / _KARPATHY, _COCO_FROM)
    image = {"filepath": str, "filename": str, "split": str, "sentences": [{"raw": str}]}
    found = []
    for number, each in enumerate(_content(path, {"images": [image]})["images"]):
        where = f"images.{number}"
        if each["split"] not in _OF_KARPATHY:
            _refuse(path, f"{where}.split is {each['split']!r}, not one of {', '.join(_OF_KARPATHY)}")
        captions = [sentence["raw"].strip() for sentence in each["sentences"] if sentence["raw"].strip()]
        if not captions:
            _refuse(path, f"{where} has no sentence")
        if each["filepath"] not in _YEARS.values():
            _refuse(path, f"{where}.filepath is {each['filepath']!r}, not train2014 or val2014")
        name = _plain_name(path, each["filename"], f"{where}.filename")
        found.append((each["filepath"], name, captions, _OF_KARPATHY[each["split"]]))
    return found


def _official(home: Path, validation: int) -> list[Named]:
    found = []
    for split, year in _YEARS.items():
        path = _there(home / "annotations" / f"captions_{year}.json", _COCO_FROM)
        form = {"images": [{"id": int, "file_name": str}], "annotations": [{"image_id": int, "caption": str}]}
        content = _content(path, form)
        captions: dict[int, list[str]] = defaultdict(list)
        for each in content["annotations"]:
            if each["caption"].strip():
                captions[each["image_id"]].append(each["caption"].strip())
        images = sorted(content["images"], key=lambda each: each["id"])
        for number, image in enumerate(images):
            if image["id"] not in captions:
                _refuse(path, f"the image {image['id']} has no caption")
            name = _plain_name(path, image["file_name"], f"file_name of the image {image['id']}")
            # held out at equal distances, since neighbours are alike in no way
            is_held_out = split == TRAIN and (number + 1) * validation // len(images) > number * validation // len(
                images
            )
            found.append((year, name, captions[image["id"]], VAL if is_held_out else split))
    return found


def _content(path: Path, form: Mapping[str, Any]) -> Any:
    try:
        content = read_json(path)
        validate(content, form, "it")
    except (OSError, ValueError, ValidationError) as error:
        _refuse(path, str(error))
    return content


def _refuse(path: Path, what: str) -> NoReturn:
    raise DataError(f"{path}: this is not the published file: {what}. Get it again.")


def _plain_name(path: Path, name: str, where: str) -> str:
    """Refuses names that lead out of the folder."""
    if PurePosixPath(name).name != name or name in ("", ".", ".."):
        _refuse(path, f"{where} is {name!r}, which is no name of a file")
    return name


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for line, text in read_lines(path):
        if isinstance(text, Fault):
            raise DataError(message(path, line, None, *text))
        if text.strip():
            yield line, text.strip()


def _there(path: Path, source: str) -> Path:
    if not path.is_file():
        raise _make_missing_error(path, "there is no such file", source)
    return path


def _first_folder(places: Sequence[Path], source: str) -> Path:
    found = next((each for each in places if each.is_dir()), None)
    if found is None:
        raise _make_missing_error(places[0], "there is no such folder", source)
    return found


def _make_missing_error(path: Path, what: str, source: str) -> DataError:
    remedy = "set $ZOO_DATA or paths.data to the folder that holds it"
    return DataError(f"{path}: {what}. {source}: place it there, or {remedy} (data/README.md has the layout).")


def _files(folder: Path) -> set[str]:
    return {each.name for each in os.scandir(folder)}


def _refuse_repeated(ids: Sequence[str], place: Path) -> None:
    repeated = next((name for name, count in Counter(ids).items() if count > 1), None)
    if repeated is not None:
        raise DataError(f"{place}: {repeated!r} is listed more than once, and could be in two splits. Mend the lists.")
