"""IMDB, 20 Newsgroups and Yelp: generated archives in their published formats."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import DataError, OfflineError
from zoo.tasks.documents.data.published import read_imdb, read_newsgroups, read_yelp

REAL = os.environ.get("ZOO_DATA")


def archive(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return path


def reviews() -> dict[str, bytes]:
    kinds = {"neg": (1, 2, 3, 4), "pos": (7, 8, 9, 10)}
    return {
        f"aclImdb/{part}/{kind}/{number}_{ratings[number % 4]}.txt": f"{kind} {number}<br />café".encode()
        for part in ("train", "test")
        for kind, ratings in kinds.items()
        for number in range(12)
    } | {"aclImdb/README": b"not a review", "aclImdb/train/unsup/0_0.txt": b"without a label"}


def test_imdb(tmp_path: Path) -> None:
    archive(tmp_path / "imdb" / "aclImdb_v1.tar.gz", reviews())
    found = read_imdb([tmp_path], targets="single", validation=6)
    assert found.label_names == ("neg", "pos")
    assert len(found) == 48
    assert found.texts[found.ids.index("train/pos/3_10")] == "pos 3<br />café"
    for part, count in ((TRAIN, 9), (VAL, 3), (TEST, 12)):
        assert np.bincount(found.labels[found.splits == part]).tolist() == [count] * 2
    again = read_imdb([tmp_path], targets="single", validation=6)
    assert again.splits.tolist() == found.splits.tolist()
    ratings = read_imdb([tmp_path], targets="ordinal", validation=8)
    assert ratings.label_names == ("1", "2", "3", "4", "7", "8", "9", "10")
    assert np.bincount(ratings.labels[ratings.splits == VAL]).tolist() == [1] * 8


def test_newsgroups(tmp_path: Path) -> None:
    files = {
        f"20news-bydate-{part}/{group}/{number}": b"From: a\nSubject: b\n\nThe b\xf6dy.\n\nIts end.\n"
        for part in ("train", "test")
        for group in ("alt.atheism", "sci.med")
        for number in range(5)
    }
    files["20news-bydate-test/sci.med/empty"] = b"From: a\n"
    archive(tmp_path / "newsgroups20" / "20news-bydate.tar.gz", files)
    found = read_newsgroups([tmp_path], validation=2)
    assert found.label_names == ("alt.atheism", "sci.med")
    assert found.texts[0] == "The bödy.\n\nIts end.\n"
    assert found.texts[found.ids.index("test/sci.med/empty")] == ""
    assert (found.splits == VAL).sum() == 2


def test_yelp(tmp_path: Path) -> None:
    rows = "".join(f'"{n % 5 + 1}","Said ""so"".\\nLine {n}"\n' for n in range(20)).encode()
    files = {"y/train.csv": rows, "y/test.csv": rows, "y/readme.txt": b""}
    archive(tmp_path / "yelp" / "yelp_review_full_csv.tgz", files)
    found = read_yelp([tmp_path], targets="ordinal", validation=5)
    assert found.label_names == ("1", "2", "3", "4", "5")
    assert found.texts[found.ids.index("train 1")] == 'Said "so".\nLine 0'
    assert np.bincount(found.splits).tolist() == [15, 5, 20]


READERS: list[Any] = [
    pytest.param("imdb/aclImdb_v1.tar.gz", lambda at: read_imdb([at], targets="single", validation=2), id="imdb"),
    pytest.param("newsgroups20/20news-bydate.tar.gz", lambda at: read_newsgroups([at], validation=2), id="newsgroups"),
    pytest.param(
        "yelp/yelp_review_full_csv.tgz", lambda at: read_yelp([at], targets="ordinal", validation=2), id="yelp"
    ),
]


@pytest.mark.parametrize(("name", "read"), READERS)
def test_archives_that_are_not_the_published_ones(tmp_path: Path, name: str, read: Any) -> None:
    path = archive(tmp_path / name, reviews() | {"y/train.csv": b'"6","x"\n'})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="damaged or cut short"):
        read(tmp_path)
    archive(path, {"y/train.csv": b'"6","x"\n'})
    with pytest.raises(DataError, match="this is not the published file"):
        read(tmp_path)


@pytest.mark.parametrize(("name", "read"), READERS)
def test_without_a_network(tmp_path: Path, name: str, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(OfflineError, match=Path(name).name):
        read(tmp_path)


@pytest.mark.parametrize(("name", "read"), READERS)
def test_a_download_must_be_the_published_file(
    tmp_path: Path, name: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer(io.BytesIO):
        status, headers = 200, {"Content-Length": "5"}

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Answer(b"other"))
    with pytest.raises(DataError, match="is not the expected file"):
        read(tmp_path)
    assert not (tmp_path / name).exists()


@pytest.mark.real
@pytest.mark.skipif(not REAL or not (Path(REAL) / "imdb").is_dir(), reason="needs imdb/ in $ZOO_DATA")
def test_the_published_reviews() -> None:
    found = read_imdb([Path(str(REAL))], targets="single", validation=2500)
    assert [(found.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [22_500, 2_500, 25_000]
    assert found.counts() == (11_250, 11_250)
