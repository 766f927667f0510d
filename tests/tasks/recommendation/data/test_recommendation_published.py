"""MovieLens and Beauty: generated files of the published formats, damaged ones, and real ones."""

import gzip
import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import DataError, OfflineError
from zoo.tasks.recommendation import datasets as data
from zoo.tasks.recommendation.data import published
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.data.published import (
    BEAUTY,
    ML_1M,
    ML_100K,
    SASREC_ML_1M,
    MovieLens,
    read_movielens,
    read_pairs,
    read_reviews,
)

USERS, FILMS = 30, 40
DEAD = "http://127.0.0.1:9"
Rating = tuple[int, int, int]
"""User, film and time."""


def ratings() -> list[Rating]:
    """Generates ratings of every user and film; some films have few. The ratings of a user are not sorted by time."""
    draw = np.random.default_rng(0)
    found = []
    popularity = 1 / np.arange(1, FILMS + 1)
    for user in range(1, USERS + 1):
        films = set(draw.choice(FILMS, 12, replace=False, p=popularity / popularity.sum()).tolist()) | {
            user % FILMS,
            (user + 9) % FILMS,
        }
        times = draw.permutation(1000)[: len(films)]
        found += [(user, 10 * film + 10, int(time)) for film, time in zip(films, times, strict=True)]
    return found


def title(film: int) -> str:
    return f"L'été {film}, Le (19{film % 100:02d})"


def publish(root: Path, kind: MovieLens, rows: list[Rating], *, zipped: bool = True) -> MovieLens:
    """Writes the archive or the unpacked folder; returns `kind` with the counts of these ratings."""
    ratings_by, films_by = kind.separators
    films = sorted({film for _, film, _ in rows})
    tables = {
        kind.ratings: "".join(ratings_by.join(map(str, (u, f, 1 + t % 5, t))) + "\n" for u, f, t in rows),
        kind.films: "".join(films_by.join((str(film), title(film), "Drama")) + "\n" for film in [*films, 9999]),
    }
    folder = root / kind.folder / kind.archive.removesuffix(".zip")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        with zipfile.ZipFile(folder.parent / kind.archive, "w") as archive:
            for name, content in tables.items():
                archive.writestr(f"{folder.name}/{name}", content.encode("latin-1"))
    else:
        folder.mkdir()
        for name, content in tables.items():
            (folder / name).write_bytes(content.encode("latin-1"))
    return replace(kind, users=len({row[0] for row in rows}), items=len(films), actions=len(rows))


def sequences(rows: list[Rating], least: int) -> dict[int, list[int]]:
    """Returns the films of each user in the order of time, without films that have fewer than `least` ratings."""
    counts = Counter(film for _, film, _ in rows)
    found = {}
    for user in sorted({row[0] for row in rows}):
        own = sorted((time, film) for who, film, time in rows if who == user)
        found[user] = [film for _, film in own if counts[film] >= least]
        assert len(found[user]) >= least
    return found


def histories(log: Log) -> list[list[str]]:
    bounds = zip(log.offsets[:-1], log.offsets[1:], strict=True)
    return [[log.item_names[item] for item in log.items[start:end]] for start, end in bounds]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", [ML_1M, ML_100K], ids=["1m", "100k"])
def test_movielens(tmp_path: Path, kind: MovieLens, zipped: bool) -> None:
    rows = ratings()
    log = read_movielens(publish(tmp_path, kind, rows, zipped=zipped), [tmp_path])
    wanted = sequences(rows, 5)
    assert histories(log) == [list(map(str, films)) for films in wanted.values()]
    assert list(log.user_names) == list(map(str, wanted))
    assert len(log.item_names) < FILMS  # the filter removes some films
    assert log.titles == [title(int(name)) for name in log.item_names]
    assert log.times is not None
    assert log.times[: log.offsets[1]].tolist() == sorted(
        time for user, film, time in rows if user == 1 and str(film) in log.item_names
    )


def sasrec(root: Path, rows: list[Rating], least: int) -> published.Pairs:
    """Writes the authors' file of these ratings: users in another order, items numbered by first occurrence."""
    wanted = sequences(rows, least)
    users = np.random.default_rng(1).permutation(list(wanted)).tolist()
    number: dict[int, int] = {}
    lines = []
    for place, user in enumerate(users, start=1):
        lines += [f"{place} {number.setdefault(film, len(number) + 1)}\n" for film in wanted[user]]
    folder = root / SASREC_ML_1M.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ml-1m.txt").write_text("".join(lines))
    originals = "".join(f"{place} {film}\n" for film, place in number.items())
    (folder / "sas_to_original_items.txt").write_text(originals)
    return replace(SASREC_ML_1M, users=len(users), items=len(number), actions=len(lines))


def test_the_authors_file_and_the_ratings_that_it_was_made_of_are_the_same(tmp_path: Path) -> None:
    rows = ratings()
    ours = read_movielens(publish(tmp_path, ML_1M, rows, zipped=False), [tmp_path])
    theirs = sasrec(tmp_path, rows, 5)
    (tmp_path / "movielens" / "movies.dat").write_bytes((tmp_path / "movielens/ml-1m/movies.dat").read_bytes())
    log = read_pairs(theirs, [tmp_path])
    assert sorted(histories(log)) == sorted(histories(ours))
    shown = dict(zip(log.item_names, log.titles or (), strict=True))
    assert shown == dict(zip(ours.item_names, ours.titles or (), strict=True))


def test_without_the_original_ids_no_number_passes_for_one(tmp_path: Path) -> None:
    theirs = sasrec(tmp_path, ratings(), 5)
    (tmp_path / "movielens" / "sas_to_original_items.txt").unlink()
    log = read_pairs(theirs, [tmp_path / "nothing", tmp_path])
    assert log.titles is None
    assert set(log.item_names) == {f"item {number}" for number in range(1, theirs.items + 1)}
    assert histories(log)[0][0] == "item 1"


def _swap(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="latin-1")), encoding="latin-1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text + "1 1\n", "its users do not stand one after another"),
        (lambda text: text.replace("\n1 2\n", "\n"), r"it has \d+ actions, not \d+|its items are not numbered"),
        (lambda text: text.replace("1 1\n", "1 0\n", 1), "its items are not numbered from 1 to"),
        (lambda text: text.replace("\n30 ", "\n31 "), "its users are not numbered from 1 to 30"),
        (lambda text: text.replace("1 1\n", "1 one\n", 1), "these are not columns of whole numbers"),
        (lambda text: "", "these are not columns of whole numbers"),
        (lambda text: "1\n2\n", "these are not columns of whole numbers"),
    ],
)
def test_another_file_in_the_place_of_the_authors(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    theirs = sasrec(tmp_path, ratings(), 5)
    if "stand one" in message or "actions" in message:
        theirs = replace(theirs, actions=None if "stand one" in message else theirs.actions)
    _swap(tmp_path / "movielens" / "ml-1m.txt", change)
    with pytest.raises(DataError, match=message):
        read_pairs(theirs, [tmp_path])


def test_another_list_of_ids(tmp_path: Path) -> None:
    theirs = sasrec(tmp_path, ratings(), 5)
    _swap(tmp_path / "movielens" / "sas_to_original_items.txt", lambda text: text.replace("\n2 ", "\n3 "))
    with pytest.raises(DataError, match="it does not give each item an id of its own"):
        read_pairs(theirs, [tmp_path])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ratings.dat", lambda text: text[text.index("\n") + 1 :], r"it has [\d,]+ ratings, not"),
        ("ratings.dat", lambda text: text.replace("1::", "99::", 1), "it has 31 users, not 30"),
        ("ratings.dat", lambda text: text.replace("::", ";"), "these are not columns of whole numbers"),
        ("movies.dat", lambda text: text.replace("::", ":"), "a line has less than three cells"),
    ],
)
def test_other_tables_in_the_place_of_grouplens(
    tmp_path: Path, name: str, change: Callable[[str], str], message: str
) -> None:
    kind = publish(tmp_path, ML_1M, ratings(), zipped=False)
    _swap(tmp_path / "movielens" / "ml-1m" / name, change)
    with pytest.raises(DataError, match=f"{name}: .*{message}"):
        read_movielens(kind, [tmp_path])


def test_damaged_archives_and_incomplete_folders(tmp_path: Path) -> None:
    kind = publish(tmp_path, ML_1M, ratings())
    path = tmp_path / "movielens" / "ml-1m.zip"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="the archive is damaged or cut short"):
        read_movielens(kind, [tmp_path])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("elsewhere/ratings.dat", "")
    with pytest.raises(DataError, match=r"there is no ml-1m/ratings\.dat in it"):
        read_movielens(kind, [tmp_path])
    (tmp_path / "movielens" / "ml-1m").mkdir()
    with pytest.raises(DataError, match=r"there is no ratings\.dat, movies\.dat\. Complete the folder"):
        read_movielens(kind, [tmp_path])


def reviews(root: Path) -> list[dict[str, object]]:
    draw = np.random.default_rng(2)
    found: list[dict[str, object]] = [
        {
            "reviewerID": f"A{user}",
            "asin": f"B{item:03d}",
            "reviewText": 'as "good" as \\u00e9ver',
            "overall": 5.0,
            "unixReviewTime": 86_400 * int(draw.integers(3)),
        }
        for item in range(9)
        for user in draw.choice(12, 7, replace=False).tolist()
    ]
    folder = root / BEAUTY.folder
    folder.mkdir(parents=True)
    with gzip.open(folder / BEAUTY.file, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(review) + "\n" for review in found)
    return found


def test_reviews(tmp_path: Path) -> None:
    found = reviews(tmp_path)
    users = list(dict.fromkeys(review["reviewerID"] for review in found))
    kind = replace(BEAUTY, users=len(users), items=9, actions=len(found))
    log = read_reviews(kind, [tmp_path])
    wanted = [
        [r["asin"] for r in sorted((r for r in found if r["reviewerID"] == user), key=lambda r: r["unixReviewTime"])]
        for user in users
    ]
    assert list(log.user_names) == users
    assert histories(log) == wanted
    with pytest.raises(DataError, match=r"it has 9 items, not 10"):
        read_reviews(replace(kind, items=10), [tmp_path])
    path = tmp_path / BEAUTY.folder / BEAUTY.file
    with gzip.open(path, "at") as file:
        file.write('{"reviewerID": "A1"}\n')
    with pytest.raises(DataError, match=rf"line {len(found) + 1}: this is no review"):
        read_reviews(kind, [tmp_path])


def test_without_a_network_it_says_what_belongs_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "_GROUPLENS", DEAD)
    with pytest.raises(OfflineError, match=r"ml-100k\.zip is needed .*movielens/ml-100k\.zip"):
        read_movielens(ML_100K, [tmp_path])
    with pytest.raises(OfflineError, match=r"ml-1m\.txt is needed"):
        read_pairs(replace(SASREC_ML_1M, source=DEAD), [tmp_path])
    with pytest.raises(OfflineError, match=r"reviews_Beauty_5\.json\.gz is needed"):
        read_reviews(replace(BEAUTY, source=DEAD), [tmp_path])


def test_what_a_configuration_names_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, found = ratings(), reviews(tmp_path)
    users = {review["reviewerID"] for review in found}
    small = {
        "ml_100k": partial(read_movielens, publish(tmp_path, ML_100K, rows), min_user_items=1, min_item_users=1),
        "ml_1m_ratings": partial(read_movielens, publish(tmp_path, ML_1M, rows)),
        "ml_1m": partial(read_pairs, sasrec(tmp_path, rows, 5)),
        "amazon_beauty": partial(read_reviews, replace(BEAUTY, users=len(users), items=9, actions=len(found))),
    }
    assert set(small) < set(published.READERS)
    for name, read in small.items():
        assert published.READERS[name].func is read.func  # type: ignore[attr-defined]
        monkeypatch.setitem(published.READERS, name, read)
    common = {"root": str(tmp_path), "cache": str(tmp_path / "cache"), "max_epochs": 2, "batch_size": 8, "length": 6}
    few = data.published(name="ml_100k", **common)  # type: ignore[arg-type]
    assert few.sizes() == {"items": FILMS, "length": 6}
    assert few.train_size() == USERS
    theirs = data.published(name="ml_1m", **common)  # type: ignore[arg-type]
    ours = data.published(name="ml_1m_ratings", split="time", **common)  # type: ignore[arg-type]
    assert theirs.sizes() == ours.sizes()
    assert next(iter(ours.loader("test"))).times is not None
    assert next(iter(theirs.loader("test"))).times is None
    assert data.published(name="amazon_beauty", **common).sizes()["items"] == 9  # type: ignore[arg-type]


@pytest.mark.real
def test_the_real_file() -> None:
    if "ZOO_DATA" not in os.environ:
        pytest.skip("ML-1M is not there: set ZOO_DATA to the folder that holds movielens/ml-1m.txt")
    root = Path(os.environ["ZOO_DATA"])
    log = read_pairs(SASREC_ML_1M, [root])
    assert (len(log.user_names), len(log.item_names), len(log.items)) == (6040, 3416, 999_611)
    assert np.bincount(log.items).min() >= 5
    most = int(np.bincount(log.items).argmax())
    assert log.titles is not None
    assert (log.item_names[most], log.titles[most]) == ("2858", "American Beauty (1999)")
