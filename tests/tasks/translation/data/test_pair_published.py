"""Multi30k and IWSLT 2014: generated files in their published formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import DataError, OfflineError
from zoo.tasks.translation.data import published
from zoo.tasks.translation.data.published import read_iwslt14, read_multi30k

REAL = os.environ.get("ZOO_DATA")
SIZES = {"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000}


def captions(root: Path, *, zipped: bool, languages: str = "de en", sizes: dict[str, int] = SIZES) -> Path:
    folder = root / "multi30k"
    folder.mkdir(parents=True)
    for name, count in sizes.items():
        for language in languages.split():
            raw = "".join(f"{language} {name} {number}\n" for number in range(count)).encode()
            path = folder / f"{name}.{language}{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(raw, 1) if zipped else raw)
    return root


@pytest.mark.parametrize("zipped", [False, True])
def test_multi30k(tmp_path: Path, zipped: bool) -> None:
    root = captions(tmp_path, zipped=zipped, languages="en fr")
    found = read_multi30k([root], "fr-en")
    assert [int((found.splits == part).sum()) for part in (TRAIN, VAL, TEST)] == list(SIZES.values())
    assert (found.sources[0], found.targets[0], found.ids[0]) == ("fr train 0", "en train 0", "train 1")
    assert (found.sources[-1], found.targets[-1], found.ids[-1]) == (
        "fr test_2016_flickr 999",
        "en test_2016_flickr 999",
        "test 1000",
    )


def test_captions_that_are_not_the_published_ones(tmp_path: Path) -> None:
    root = captions(tmp_path, zipped=False, sizes=SIZES | {"val": 100})
    with pytest.raises(DataError, match=r"val.de: this is not the published file: it has 100 captions, not 1,014"):
        read_multi30k([root], "de-en")
    with (root / "multi30k" / "val.de").open("a") as file:
        file.write("one more\n")
    with pytest.raises(DataError, match=r"val.de has 101 lines and .*val.en has 100 lines"):
        read_multi30k([root], "de-en")


def test_downloads_are_compared_with_published_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def fetched(url: str, destination: Path, *, sha256: str | None) -> None:
        asked[url] = sha256
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(gzip.compress(b"x\n" * SIZES[destination.name.split(".")[0]], 1))

    monkeypatch.setattr("zoo.data.download.fetch", fetched)
    read_multi30k([tmp_path], "de-en")
    assert len(asked) == 6
    assert all(value is not None and len(value) == 64 for value in asked.values())
    assert all(url.startswith("https://raw.githubusercontent.com/multi30k/dataset/") for url in asked)


TAGS = """<url>http://www.ted.com/talks/1</url>
<keywords>talks</keywords>
<talkid>1</talkid>
<title>{0} title</title>
<description>{0} description</description>
<reviewer>only some have one</reviewer>
"""


def talks(path: Path, **changes: str) -> Path:
    """An archive with two talks of 30 sentences, and test sets of three segments."""
    files = {}
    for language in ("de", "en"):
        head = TAGS.format(language)
        if language == "en":
            head = head.replace("<reviewer>only some have one</reviewer>\n", "")
        body = "".join(f"{language} sentence {number} & more\n" for number in range(30))
        files[f"de-en/train.tags.de-en.{language}"] = (head + body) * 2
        for part in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            segments = "".join(f'<seg id="{n}"> {language} {part} &amp; {n} </seg>\n' for n in (1, 2, 3))
            files[f"de-en/IWSLT14.{part}.de-en.{language}.xml"] = (
                f'<mteval><doc docid="1">\n{segments}</doc></mteval>\n'
            )
    files["de-en/README"] = "not a text"
    files = {name: changes.get(name, content) for name, content in files.items() if changes.get(name, " ")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            made.addfile(member, io.BytesIO(content.encode()))
    return path


def test_iwslt14(tmp_path: Path) -> None:
    talks(tmp_path / "iwslt14" / "de-en.tgz")
    found = read_iwslt14([tmp_path], "de-en")
    pairs = list(zip(found.sources, found.targets, strict=True))
    assert pairs[:3] == [
        ("de title", "en title"),
        ("de description", "en description"),
        ("de sentence 0 & more", "en sentence 0 & more"),
    ]
    assert [int((found.splits == part).sum()) for part in (TRAIN, VAL, TEST)] == [62, 2, 15]
    assert [found.ids[number] for number in (found.splits == VAL).nonzero()[0]] == ["train 23", "train 46"]
    assert pairs[-1] == ("de TED.tst2012 & 3", "en TED.tst2012 & 3")
    other = read_iwslt14([tmp_path], "en-de")
    assert list(zip(other.targets, other.sources, strict=True)) == pairs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"de-en/train.tags.de-en.en": ""}, "it has no part en"),
        ({"de-en/IWSLT14.TED.tst2010.de-en.de.xml": ""}, "it has no part TED.tst2010.de-en.de.xml"),
        ({"de-en/train.tags.de-en.en": "one\n"}, "its parts de and en have different numbers of texts"),
    ],
)
def test_archives_that_are_not_the_published_one(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    talks(tmp_path / "iwslt14" / "de-en.tgz", **changes)
    with pytest.raises(DataError, match=f"this is not the published file: {message}"):
        read_iwslt14([tmp_path], "de-en")


def test_an_archive_that_is_cut_short(tmp_path: Path) -> None:
    path = talks(tmp_path / "iwslt14" / "de-en.tgz")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="damaged or cut short"):
        read_iwslt14([tmp_path], "de-en")


@pytest.mark.parametrize(
    ("read", "name"), [(read_multi30k, "multi30k/train.de.gz"), (read_iwslt14, "iwslt14/de-en.tgz")]
)
def test_without_a_network(tmp_path: Path, read: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refused)
    with pytest.raises(OfflineError, match=f"It belongs at {tmp_path}/{name}"):
        read([tmp_path], "de-en")


@pytest.mark.real
@pytest.mark.skipif(not REAL or not (Path(REAL) / "multi30k").is_dir(), reason="needs multi30k/ in $ZOO_DATA")
def test_the_published_captions() -> None:
    found = read_multi30k([Path(str(REAL))], "en-de")
    assert found.sources[0] == "Two young, White males are outside near many bushes."
    assert found.targets[0] == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
    for path in (Path(str(REAL)) / "multi30k").glob("*.gz"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == published._SHA256[path.name]
