"""Reads IMDB, 20 Newsgroups and Yelp from their published archives; some training texts become the validation split."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from zoo.data.download import find_published, verify_published
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.data.tarballs import iter_contents, iter_open_files, translate_archive_errors
from zoo.errors import ConfigError
from zoo.tasks.documents.data.corpus import Corpus
from zoo.tasks.documents.label_set import Targets

_IMDB_AT = "https://ai.stanford.edu/~amaas/data/sentiment"
_NEWSGROUPS_AT = "http://qwone.com/~jason/20Newsgroups"
_YELP_AT = "https://s3.amazonaws.com/fast-ai-nlp"
_SHA256 = {
    "aclImdb_v1.tar.gz": "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    "20news-bydate.tar.gz": "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    "yelp_review_full_csv.tgz": "56006b0a17a370f1e366504b1f2c3e3754e4a3dda17d3e718a885c552869a559",
}
_LARGEST = 1 << 22
"""Maximum number of bytes of a file in an archive; the longest text of these sets has fewer."""
_SEED = 0
"""Seed of the validation split, which is constant, so that the split is always the same."""

Texts = Iterator[tuple[str, str, int, bytes]]
"""Id, label, split and content of each text."""


def read_imdb(folders: Sequence[Path], *, targets: Targets, validation: int) -> Corpus:
    """Reads imdb/aclImdb_v1.tar.gz: 25,000 texts per part as `aclImdb/{train,test}/{pos,neg}/NUMBER_RATING.txt`."""
    archive = _archive(folders, "imdb", "aclImdb_v1.tar.gz", _IMDB_AT)
    name = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+_(\d+))\.txt")

    def texts() -> Texts:
        for path, content in iter_contents(archive, _LARGEST):
            if found := name.fullmatch(path):
                part, kind, number, rating = found.groups()
                label = rating if targets == "ordinal" else kind
                yield f"{part}/{kind}/{number}", label, TRAIN if part == "train" else TEST, content

    return _corpus(texts(), archive, targets, validation, lambda raw: raw.decode("utf-8"))


def read_newsgroups(folders: Sequence[Path], *, validation: int) -> Corpus:
    """Reads newsgroups20/20news-bydate.tar.gz: `20news-bydate-{train,test}/GROUP/NUMBER`, without headers."""
    archive = _archive(folders, "newsgroups20", "20news-bydate.tar.gz", _NEWSGROUPS_AT)
    name = re.compile(r"(?:\./)?20news-bydate-(train|test)/([^/]+)/([^/]+)")

    def texts() -> Texts:
        for path, content in iter_contents(archive, _LARGEST):
            if found := name.fullmatch(path):
                part, group, number = found.groups()
                yield f"{part}/{group}/{number}", group, TRAIN if part == "train" else TEST, content

    return _corpus(texts(), archive, "single", validation, _remove_header)


def read_yelp(folders: Sequence[Path], *, targets: Targets, validation: int) -> Corpus:
    r"""Reads yelp/yelp_review_full_csv.tgz: train.csv and test.csv with rows `"stars","text"`; `\n` is a line break."""
    archive = _archive(folders, "yelp", "yelp_review_full_csv.tgz", _YELP_AT)

    def texts() -> Texts:
        for path, file in iter_open_files(archive):
            if PurePosixPath(path).name not in ("train.csv", "test.csv"):
                continue
            part = PurePosixPath(path).stem
            rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""), strict=True)
            for number, row in enumerate(rows, start=1):
                good = len(row) == 2 and row[0] in ("1", "2", "3", "4", "5")
                verify_published(good, archive, f"row {number} of {part}.csv is not stars and a text")
                text = row[1].replace("\\n", "\n")
                yield f"{part} {number}", row[0], TRAIN if part == "train" else TEST, text.encode()

    return _corpus(texts(), archive, targets, validation, lambda raw: raw.decode("utf-8"))


def _archive(folders: Sequence[Path], folder: str, name: str, source: str) -> Path:
    paths, _ = find_published([name], [each / folder for each in folders], source=source, sha256=_SHA256)
    return paths[name]


def _corpus(texts: Texts, archive: Path, targets: Targets, validation: int, decoded: Callable[[bytes], str]) -> Corpus:
    with translate_archive_errors(archive):
        found = [(id, label, split, decoded(raw)) for id, label, split, raw in texts]
    ids, cells, parts, read = (list(column) for column in zip(*sorted(found), strict=True)) if found else ([],) * 4
    splits = np.array(parts, dtype=np.int64)
    for part, name in ((TRAIN, "training"), (TEST, "test")):
        verify_published((splits == part).any(), archive, f"it has no {name} texts")
    names = tuple(sorted(set(cells), key=float if targets == "ordinal" else str))
    number = {name: place for place, name in enumerate(names)}
    labels = np.array([number[cell] for cell in cells], dtype=np.int64)
    known = set(labels[splits == TRAIN].tolist())
    verify_published(len(names) > 1 and known == set(range(len(names))), archive, "some label has no training text")
    return Corpus(read, ids, targets, names, labels, _split_off_validation(splits, labels, validation))


def _split_off_validation(splits: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    """Moves training texts to the validation split: the same share of every label, and always the same texts."""
    train = np.flatnonzero(splits == TRAIN)
    if not 0 < count < len(train):
        raise ConfigError(f"data.validation={count}: write a whole number from 1 to {len(train) - 1:,}")
    order = train[np.random.default_rng(_SEED).permutation(len(train))]
    ranked = order[np.argsort(labels[order], kind="stable")]
    chosen = ranked[np.arange(count) * len(ranked) // count]
    splits = splits.copy()
    splits[chosen] = VAL
    return splits


def _remove_header(raw: bytes) -> str:
    """Decodes a message, which is Latin-1, and removes its header, which ends at the first blank line."""
    _, _, body = raw.decode("latin-1").replace("\r\n", "\n").partition("\n\n")
    return body.replace("\0", " ")
