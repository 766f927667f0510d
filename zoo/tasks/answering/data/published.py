"""SICK, as it was published."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data.compressed import open_bytes
from zoo.data.download import find_published, verify_published
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import DataError
from zoo.tasks.answering.data.answer_set import Hypotheses

_SICK_AT = "https://zenodo.org/record/2787612/files"
_SICK_SHA256 = "1539c2d059809b5bd40694e26d8121cc85b6b496f91c7b40f2fc83bbd7dcd957"
"""Hash of SICK.txt itself, in whatever archive it comes."""
_SICK_PARTS = {"TRAIN": TRAIN, "TRIAL": VAL, "TEST": TEST}
_SICK_FORMS = ("SICK.txt", "SICK.txt.gz")
_LARGEST = 1 << 24
"""Bytes of SICK.txt that are read at most; it has 2 million."""


def read_sick(folders: Sequence[Path], sha256: str = _SICK_SHA256) -> Hypotheses:
    """Reads sick/SICK.txt, also with .gz or in SICK.zip: a row for each pair, with tabs between the columns.

    Args:
        folders: Folders to search; the archive is downloaded to the first that can be written.
        sha256: Hash of the text.
    """
    places = [folder / "sick" for folder in folders]
    path = next((place / name for place in places for name in _SICK_FORMS if (place / name).is_file()), None)
    path = path or find_published(["SICK.zip"], places, source=_SICK_AT)[0]["SICK.zip"]
    content = _content(path)
    verify_published(hashlib.sha256(content).hexdigest() == sha256, path, "its text is another one")
    rows = list(
        csv.DictReader(io.StringIO(content.decode("utf-8"), newline=None), delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    return Hypotheses(
        questions=[row["sentence_B"] for row in rows],
        ids=[row["pair_ID"] for row in rows],
        splits=np.array([_SICK_PARTS[row["SemEval_set"]] for row in rows], dtype=np.int64),
        answers=[row["entailment_label"].lower() for row in rows],
        passages=[row["sentence_A"] for row in rows],
        kinds=[row["entailment_label"].lower() for row in rows],
    )


def _content(path: Path) -> bytes:
    """Returns the bytes of SICK.txt, or the first of them if it is too large to be the published one."""
    if path.suffix != ".zip":
        with open_bytes(path) as file:
            return file.read(_LARGEST)
    try:
        with zipfile.ZipFile(path) as archive, archive.open("SICK.txt") as member:
            return member.read(_LARGEST)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{path}: SICK.txt cannot be read from this archive ({error}). Remove it, and it will be downloaded again."
        ) from error
