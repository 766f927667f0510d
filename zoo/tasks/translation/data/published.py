"""Multi30k and IWSLT 2014, as they were published."""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from zoo.data.download import find_published, verify_published
from zoo.data.splits import SPLITS, TEST, TRAIN, VAL
from zoo.data.tarballs import iter_contents, translate_archive_errors
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.readers import Aligned, ReaderOptions, read_pair_files

_MULTI30K_AT = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K = {"train": ("train", 29_000), "val": ("val", 1_014), "test": ("test_2016_flickr", 1_000)}
"""Split -> name and number of captions."""
_SHA256 = {  # those of French are not known
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
}
_IWSLT14_AT = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14"
_IWSLT14_TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
"""The sets that are the test set together, as in Ranzato et al. 2016."""
_EVERY = 23
"""One training pair of so many is for validation, as in Ranzato et al. 2016."""
_LARGEST = 1 << 26
"""Bytes of a file in the archive; the longest has fewer."""
_KEPT = re.compile(r"<(title|description)>(.*)</\1>")
_SEGMENT = re.compile(r'<seg id="\d+">(.*?)</seg>')


def read_multi30k(folders: Sequence[Path], direction: str) -> Corpus:
    """multi30k/{train,val,test_2016_flickr}.{de,en,fr}, also with .gz: captions of images, one on each line."""
    sides = direction.split("-")
    names = [f"{stem}.{language}" for stem, _ in _MULTI30K.values() for language in sides]
    places = [folder / "multi30k" for folder in folders]
    found = {name: next((each / name for each in places if (each / name).is_file()), None) for name in names}
    zipped = [f"{name}.gz" for name, path in found.items() if path is None]
    downloaded, _ = find_published(zipped, places, source=_MULTI30K_AT, sha256=_SHA256)
    paths = {name: path or downloaded[f"{name}.gz"] for name, path in found.items()}
    files = {split: Aligned(*(paths[f"{stem}.{side}"] for side in sides)) for split, (stem, _) in _MULTI30K.items()}
    corpus = read_pair_files(files, ReaderOptions(), cache=None, split_seed=0)
    for number, split in enumerate(SPLITS):
        count, wanted = int((corpus.splits == number).sum()), _MULTI30K[split][1]
        verify_published(count == wanted, files[split].source, f"it has {count:,} captions, not {wanted:,}")
    return corpus


def read_iwslt14(folders: Sequence[Path], direction: str) -> Corpus:
    """iwslt14/de-en.tgz: `train.tags.de-en.{de,en}`, lines among tags, and `IWSLT14.*.de-en.{de,en}.xml`, segments."""
    places = [folder / "iwslt14" for folder in folders]
    archive = find_published(["de-en.tgz"], places, source=_IWSLT14_AT)[0]["de-en.tgz"]
    texts: dict[str, list[str]] = {}
    with translate_archive_errors(archive):
        for path, raw in iter_contents(archive, _LARGEST):
            name = PurePosixPath(path).name
            if name.startswith("train.tags.de-en."):
                texts[name.removeprefix("train.tags.de-en.")] = list(_lines(raw.decode("utf-8")))
            elif name.startswith("IWSLT14.") and name.endswith(".xml"):
                texts[name.removeprefix("IWSLT14.")] = [_plain(each) for each in _SEGMENT.findall(raw.decode("utf-8"))]
    sources, targets, ids, splits = list[str](), list[str](), list[str](), list[int]()
    for part, suffix in [("train", "{}"), *((each, f"{each}.de-en.{{}}.xml") for each in _IWSLT14_TESTS)]:
        names = [suffix.format(language) for language in direction.split("-")]
        for name in names:
            verify_published(name in texts, archive, f"it has no part {name}")
        both = [texts[name] for name in names]
        verify_published(
            len(both[0]) == len(both[1]), archive, f"its parts {' and '.join(names)} have different numbers of texts"
        )
        for number, (source, target) in enumerate(zip(*both, strict=True), start=1):
            if source and target:
                sources.append(source)
                targets.append(target)
                ids.append(f"{part} {number}")
                splits.append(TEST if part != "train" else VAL if number % _EVERY == 0 else TRAIN)
    for split, count in zip(SPLITS, (Counter(splits)[each] for each in (TRAIN, VAL, TEST)), strict=True):
        verify_published(count > 0, archive, f"it has no pair for {split}")
    return Corpus(sources, targets, ids, np.array(splits, dtype=np.int64))


def _lines(text: str) -> Iterator[str]:
    """The sentences of a training file, its titles and descriptions; other lines with tags are about a talk."""
    for line in io.StringIO(text):
        line = line.strip()
        kept = _KEPT.fullmatch(line)
        if kept or not line.startswith("<"):
            yield kept[2].strip() if kept else line


def _plain(segment: str) -> str:
    return html.unescape(segment).strip()
