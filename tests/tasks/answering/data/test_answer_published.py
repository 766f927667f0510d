"""SICK in the form in which it was published, and from wherever it comes."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import DataError
from zoo.tasks.answering.data.published import read_sick

REAL = os.environ.get("ZOO_DATA")
COLUMNS = (
    *("pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score", "entailment_AB"),
    *("entailment_BA", "sentence_A_original", "sentence_B_original", "sentence_A_dataset", "sentence_B_dataset"),
    "SemEval_set",
)
ROWS = [
    ("1", "A dog runs", 'A "dog" is running', "ENTAILMENT", "TRAIN"),
    ("2", "A dog runs", "There is no dog", "CONTRADICTION", "TRIAL"),
    ("4", "Zwei Männer", "A man\u2019s hat", "NEUTRAL", "TEST"),
]
WRITERS: dict[str, Callable[[Path, bytes], object]] = {
    "SICK.txt": lambda path, raw: path.write_bytes(raw),
    "SICK.txt.gz": lambda path, raw: path.write_bytes(gzip.compress(raw)),
    "SICK.zip": lambda path, raw: zip_of(path, "SICK.txt", raw),
}


def text() -> bytes:
    """Lines end as on Windows, and quotes are letters like others."""
    rows = [COLUMNS] + [(*row[:4], "4.5", "", "", row[1], row[2], "FLICKR", "FLICKR", row[4]) for row in ROWS]
    return "\r\n".join("\t".join(row) for row in rows).encode()


def zip_of(path: Path, name: str, raw: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "about")
        archive.writestr(name, raw)


@pytest.mark.parametrize("name", WRITERS)
def test_the_published_form(tmp_path: Path, name: str) -> None:
    (tmp_path / "sick").mkdir()
    WRITERS[name](tmp_path / "sick" / name, text())
    found = read_sick([tmp_path], hashlib.sha256(text()).hexdigest())
    assert found.about == "premise"
    assert found.passages == ["A dog runs", "A dog runs", "Zwei Männer"]
    assert found.questions == ['A "dog" is running', "There is no dog", "A man\u2019s hat"]
    assert found.answers == ["entailment", "contradiction", "neutral"]
    assert found.ids == ["1", "2", "4"]
    assert found.splits.tolist() == [TRAIN, VAL, TEST]


@pytest.mark.parametrize("name", WRITERS)
def test_another_text_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "sick").mkdir()
    WRITERS[name](tmp_path / "sick" / name, text().replace(b"runs", b"ran"))
    with pytest.raises(DataError, match=f"{name}.*not the published file"):
        read_sick([tmp_path])


def test_damaged_archives(tmp_path: Path) -> None:
    (tmp_path / "sick").mkdir()
    path = tmp_path / "sick" / "SICK.zip"
    for write in (lambda: path.write_bytes(b"PK no archive"), lambda: zip_of(path, "other.txt", b"")):
        write()
        with pytest.raises(DataError, match=r"SICK\.txt cannot be read from this archive"):
            read_sick([tmp_path])


@pytest.mark.real
@pytest.mark.skipif(not REAL or not (Path(REAL) / "sick").is_dir(), reason="needs sick/ in $ZOO_DATA")
def test_the_real_one() -> None:
    assert REAL is not None
    found = read_sick([Path(REAL)])
    sizes = [int((found.splits == split).sum()) for split in (TRAIN, VAL, TEST)]
    assert sizes == [4439, 495, 4906]
    of_test = Counter(answer for answer, split in zip(found.answers, found.splits, strict=True) if split == TEST)
    assert of_test == {"neutral": 2790, "entailment": 1404, "contradiction": 712}
