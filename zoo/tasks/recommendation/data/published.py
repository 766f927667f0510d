"""Reads MovieLens and Amazon's Beauty reviews, as GroupLens, McAuley and the authors of SASRec published them.

The authors of SASRec published pairs of user and item numbers, sorted by time; the others published ratings with times.
Each file is checked by its numbers of users, items and actions.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from zoo.data.compressed import FREE, RATIO, open_bytes
from zoo.data.download import find_published, verify_published
from zoo.errors import DataError
from zoo.tasks.recommendation.data.interaction_log import Log, make_log


@dataclass(frozen=True)
class Pairs:
    """A file of the SASRec authors, with lines `user item`, both numbered from 1, user after user, oldest first.

    Args:
        folder: Folder of the file, below the folder of the data sets.
        file: Name of the file.
        source: Address of the folder in which the file is published.
        users: Number of users.
        items: Number of items.
        actions: Number of actions, if it is known.
        sha256: SHA-256 digest of the file, if it is known.
        originals: Name of a file in the same folder with lines `number id`: the items' ids in the original data.
        films: Name of a file in the same folder with the titles by these ids, in the format of MovieLens-1M.
    """

    folder: str
    file: str
    source: str
    users: int
    items: int
    actions: int | None = None
    sha256: str | None = None
    originals: str | None = None
    films: str | None = None


@dataclass(frozen=True)
class MovieLens:
    """A data set of GroupLens: a folder of tables without headers, or its archive.

    Args:
        folder: Folder of the data set, below the folder of the data sets.
        archive: Name of the archive; the unpacked folder has the same name without `.zip`.
        ratings: Name of the table of users, films, ratings and times.
        films: Name of the table whose first columns are film and title.
        separators: Separators of cells in the two tables.
        users: Number of users.
        items: Number of films that are rated.
        actions: Number of ratings.
        sha256: SHA-256 digest of the archive.
    """

    folder: str
    archive: str
    ratings: str
    films: str
    separators: tuple[str, str]
    users: int
    items: int
    actions: int
    sha256: str


@dataclass(frozen=True)
class Reviews:
    """A data set of McAuley's: a gzipped file with one JSON object a line.

    Args:
        folder: Folder of the file, below the folder of the data sets.
        file: Name of the file.
        source: Address of the folder in which the file is published.
        users: Number of users.
        items: Number of items.
        actions: Number of reviews.
    """

    folder: str
    file: str
    source: str
    users: int
    items: int
    actions: int


SASREC_ML_1M = Pairs(
    folder="movielens",
    file="ml-1m.txt",
    source="https://raw.githubusercontent.com/kang205/SASRec/master/data",
    users=6_040,
    items=3_416,
    actions=999_611,
    sha256="b725f3acb3986fe3130bffd1e77a74d182a1f51799567a236dbd60270f95b0a2",
    originals="sas_to_original_items.txt",
    films="movies.dat",
)
SASREC_BEAUTY = Pairs(
    folder="amazon",
    file="Beauty.txt",
    source="https://raw.githubusercontent.com/kang205/SASRec/master/data",
    users=52_204,
    items=57_289,
)
ML_1M = MovieLens(
    folder="movielens",
    archive="ml-1m.zip",
    ratings="ratings.dat",
    films="movies.dat",
    separators=("::", "::"),
    users=6_040,
    items=3_706,
    actions=1_000_209,
    sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
)
ML_100K = MovieLens(
    folder="movielens",
    archive="ml-100k.zip",
    ratings="u.data",
    films="u.item",
    separators=("\t", "|"),
    users=943,
    items=1_682,
    actions=100_000,
    sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
)
BEAUTY = Reviews(
    folder="amazon",
    file="reviews_Beauty_5.json.gz",
    source="http://snap.stanford.edu/data/amazon/productGraph/categoryFiles",
    users=22_363,
    items=12_101,
    actions=198_502,
)
_GROUPLENS = "https://files.grouplens.org/datasets/movielens"


def read_pairs(published: Pairs, roots: Sequence[Path]) -> Log:
    """Reads a file of the SASRec authors; downloads it if it is missing.

    Items have their original ids if the file `originals` exists, else ids "item <number>", so that the two kinds of id
    are never confused.

    Args:
        published: The data set.
        roots: Folders of data sets, searched in order; downloads go to the first that can be written.
    """
    folders = [root / published.folder for root in roots]
    digests = {} if published.sha256 is None else {published.file: published.sha256}
    path = find_published([published.file], folders, source=published.source, sha256=digests)[0][published.file]
    users, items = _columns(path.read_bytes(), path, " ", [0, 1])
    for kind, numbers, count in (("users", users, published.users), ("items", items, published.items)):
        fits = numbers.min(initial=1) >= 1 and len(numbers) > 0 and numbers.max() == count == len(np.unique(numbers))
        verify_published(fits, path, f"its {kind} are not numbered from 1 to {count:,}")
    if published.actions is not None:
        verify_published(
            len(users) == published.actions, path, f"it has {len(users):,} actions, not {published.actions:,}"
        )
    verify_published((users[1:] >= users[:-1]).all(), path, "its users do not stand one after another")
    names, titles = _originals(published, folders)
    return make_log(
        users - 1,
        items - 1,
        user_names=[str(number) for number in range(1, published.users + 1)],
        item_names=names,
        titles=titles,
    )


def read_movielens(
    published: MovieLens, roots: Sequence[Path], *, min_user_items: int = 5, min_item_users: int = 5
) -> Log:
    """Reads a data set of GroupLens; downloads its archive if it is missing. Every rating is an action, high or low.

    With the default filters MovieLens-1M has the 3,416 items and 999,611 actions of the SASRec authors' file. Their
    users are numbered differently, and actions at the same second may be in another order.

    Args:
        published: The data set.
        roots: Folders of data sets, searched in order; downloads go to the first that can be written.
        min_user_items, min_item_users: See `make_log`.
    """
    tables = _tables(published, [root / published.folder for root in roots])
    path, content = tables[published.ratings]
    users, films, times = _columns(content, path, published.separators[0], [0, 1, 3])
    verify_published(len(users) == published.actions, path, f"it has {len(users):,} ratings, not {published.actions:,}")
    user_ids, users = np.unique(users, return_inverse=True)
    film_ids, items = np.unique(films, return_inverse=True)
    verify_published(len(user_ids) == published.users, path, f"it has {len(user_ids):,} users, not {published.users:,}")
    verify_published(len(film_ids) == published.items, path, f"it has {len(film_ids):,} films, not {published.items:,}")
    path, content = tables[published.films]
    titles = _titles(content, path, published.separators[1])
    names = [str(film) for film in film_ids.tolist()]
    return make_log(
        users,
        items,
        times,
        user_names=[str(user) for user in user_ids.tolist()],
        item_names=names,
        titles=[titles.get(name, "") for name in names],
        min_user_items=min_user_items,
        min_item_users=min_item_users,
    )


def read_reviews(published: Reviews, roots: Sequence[Path]) -> Log:
    """Reads a data set of McAuley's; downloads it if it is missing. Reviews of one day stay in the order of the file.

    Args:
        published: The data set.
        roots: Folders of data sets, searched in order; downloads go to the first that can be written.
    """
    folders = [root / published.folder for root in roots]
    path = find_published([published.file], folders, source=published.source)[0][published.file]
    users, items, times = [], [], []
    user_numbers: dict[str, int] = {}
    item_numbers: dict[str, int] = {}
    with open_bytes(path) as file:
        for line, text in enumerate(file, start=1):
            try:
                review = json.loads(text)
                user, item, time = review["reviewerID"], review["asin"], int(review["unixReviewTime"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}, line {line}: this is no review ({error!r}). Remove the file.") from error
            users.append(user_numbers.setdefault(user, len(user_numbers)))
            items.append(item_numbers.setdefault(item, len(item_numbers)))
            times.append(time)
    for kind, found, count in (
        ("users", len(user_numbers), published.users),
        ("items", len(item_numbers), published.items),
        ("reviews", len(users), published.actions),
    ):
        verify_published(found == count, path, f"it has {found:,} {kind}, not {count:,}")
    return make_log(
        np.array(users), np.array(items), np.array(times), user_names=list(user_numbers), item_names=list(item_numbers)
    )


def _columns(content: bytes, path: Path, separator: str, columns: list[int]) -> list[Int[np.ndarray, " n"]]:
    """Reads columns of whole numbers. A separator is replaced by a tab if pandas' fast parser cannot read it."""
    if len(separator) > 1:
        content, separator = content.replace(separator.encode(), b"\t"), "\t"
    try:
        table = pd.read_csv(io.BytesIO(content), sep=separator, header=None, usecols=columns, dtype=np.int64)
    except ValueError as error:  # also pandas' own errors
        raise DataError(f"{path}: these are not columns of whole numbers ({error}). Remove the file.") from error
    return [table[column].to_numpy() for column in columns]


def _originals(published: Pairs, folders: Sequence[Path]) -> tuple[list[str], list[str] | None]:
    """Returns the ids of the items, and their titles if the files with them exist."""
    numbered = [f"item {number}" for number in range(1, published.items + 1)]
    path = _find_file(published.originals, folders)
    if path is None:
        return numbered, None
    numbers, originals = _columns(path.read_bytes(), path, " ", [0, 1])
    fits = np.array_equal(np.sort(numbers), np.arange(1, published.items + 1))
    verify_published(
        fits and len(np.unique(originals)) == len(originals), path, "it does not give each item an id of its own"
    )
    names = [str(original) for original in originals[np.argsort(numbers)].tolist()]
    films = _find_file(published.films, folders)
    if films is None:
        return names, None
    titles = _titles(films.read_bytes(), films, "::")
    return names, [titles.get(name, "") for name in names]


def _find_file(name: str | None, folders: Sequence[Path]) -> Path | None:
    return next((folder / name for folder in folders if name is not None and (folder / name).is_file()), None)


def _titles(content: bytes, path: Path, separator: str) -> Mapping[str, str]:
    """Returns the title of each film id. GroupLens' files are in Latin-1."""
    rows = [line.split(separator) for line in content.decode("latin-1").splitlines() if line]
    verify_published(
        all(len(row) >= 3 for row in rows), path, f"a line has less than three cells between {separator!r}"
    )
    return {row[0]: row[1] for row in rows}


def _tables(published: MovieLens, folders: Sequence[Path]) -> dict[str, tuple[Path, bytes]]:
    """Returns the content of each table, with its path for messages."""
    names = (published.ratings, published.films)
    inner = published.archive.removesuffix(".zip")
    for folder in (folder / inner for folder in folders):
        if folder.is_dir():
            lacking = [name for name in names if not (folder / name).is_file()]
            if lacking:
                raise DataError(f"{folder}: there is no {', '.join(lacking)}. Complete the folder, or remove it.")
            return {name: (folder / name, (folder / name).read_bytes()) for name in names}
    digests = {published.archive: published.sha256}
    path = find_published([published.archive], folders, source=_GROUPLENS, sha256=digests)[0][published.archive]
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: (path / inner / name, _member(archive, f"{inner}/{name}", path)) for name in names}
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(f"{path}: the archive is damaged or cut short ({error}). Remove it.") from error


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """Reads a file of an archive into memory; nothing is unpacked to the disk."""
    verify_published(name in archive.namelist(), path, f"there is no {name} in it")
    size = archive.getinfo(name).file_size
    verify_published(size <= max(FREE, RATIO * path.stat().st_size), path, f"{name} has {size:,} bytes")
    return archive.read(name)


READERS: dict[str, Callable[[list[Path]], Log]] = {
    "ml_1m": partial(read_pairs, SASREC_ML_1M),
    "ml_1m_ratings": partial(read_movielens, ML_1M),
    "ml_100k": partial(read_movielens, ML_100K),
    "amazon_beauty": partial(read_reviews, BEAUTY),
    "amazon_beauty_sasrec": partial(read_pairs, SASREC_BEAUTY),
}
"""Name of a data set -> the function that reads it from the first of some folders that has it."""
