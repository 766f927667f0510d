"""The log, compared with dictionaries and lists: sorting, filters, numbering, and the items of a trained model."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import ConfigError, DataError
from zoo.tasks.recommendation.batch import UNKNOWN
from zoo.tasks.recommendation.data.interaction_log import Log, make_log, renumber

USERS = ["ann", "bob", "cyn", "dan", "eve"]
ITEMS = ["a", "b", "c", "d", "e", "f"]
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=40)


def made(rows: list[tuple[int, int, int]], *, timed: bool = True, **options: object) -> Log:
    users, items, times = (np.array(column) for column in zip(*rows, strict=True))
    return make_log(users, items, times if timed else None, user_names=USERS, item_names=ITEMS, **options)  # type: ignore[arg-type]


def histories(log: Log) -> dict[str, list[str]]:
    bounds = zip(log.offsets[:-1], log.offsets[1:], strict=True)
    of_users = zip(log.user_names, bounds, strict=True)
    return {user: [log.item_names[item] for item in log.items[start:end]] for user, (start, end) in of_users}


def reference(rows: list[tuple[int, int, int]], *, timed: bool, drop: bool) -> list[tuple[str, str]]:
    """Returns pairs of user and item, sorted by user, then time, then position in the file."""
    found: list[tuple[str, str]] = []
    for user in range(len(USERS)):
        own = [(row[2] if timed else 0, row[1]) for row in rows if row[0] == user]
        for _, item in sorted(own, key=lambda pair: pair[0]):
            pair = (USERS[user], ITEMS[item])
            if not (drop and pair in found):
                found.append(pair)
    return found


def core(pairs: list[tuple[str, str]], of_user: int, of_item: int) -> list[tuple[str, str]]:
    """Applies the filters by removing one user or item at a time."""
    while pairs:
        users, items = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
        few = [user for user in users if users[user] < of_user]
        rare = [item for item in items if items[item] < of_item]
        if few:
            pairs = [pair for pair in pairs if pair[0] != few[0]]
        elif rare:
            pairs = [pair for pair in pairs if pair[1] != rare[0]]
        else:
            break
    return pairs


def listed(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for user, item in pairs:
        found.setdefault(user, []).append(item)
    return found


@given(rows=ROWS, timed=st.booleans(), drop=st.booleans(), of_user=st.integers(1, 4), of_item=st.integers(1, 4))
def test_sorting_duplicates_and_filters(
    rows: list[tuple[int, int, int]], timed: bool, drop: bool, of_user: int, of_item: int
) -> None:
    wanted = core(reference(rows, timed=timed, drop=drop), of_user, of_item)
    options = {"min_user_items": of_user, "min_item_users": of_item, "duplicates": "drop" if drop else "keep"}
    if not wanted:
        with pytest.raises(DataError, match="no user is left"):
            made(rows, timed=timed, **options)
        return
    log = made(rows, timed=timed, **options)
    assert histories(log) == listed(wanted)
    assert sorted(log.item_names) == sorted({item for _, item in wanted})  # every item occurs, and no name occurs twice
    assert (log.items.dtype, log.offsets.dtype) == (np.int32, np.int64)
    assert (log.times is not None) == timed
    if log.times is not None:
        assert all((np.diff(log.times[a:b]) >= 0).all() for a, b in zip(log.offsets, log.offsets[1:], strict=False))


@given(rows=ROWS, of_user=st.integers(1, 3), of_item=st.integers(1, 4))
def test_rare_items_share_a_row(rows: list[tuple[int, int, int]], of_user: int, of_item: int) -> None:
    pairs = core(reference(rows, timed=True, drop=False), of_user, 1)
    if not pairs:
        return
    log = made(rows, min_user_items=of_user, min_item_users=of_item, rare="unknown")
    counts = Counter(item for _, item in pairs)
    wanted = [(user, item if counts[item] >= of_item else UNKNOWN) for user, item in pairs]
    assert histories(log) == listed(wanted)
    assert (UNKNOWN in log.item_names) == any(item == UNKNOWN for _, item in wanted)
    assert UNKNOWN not in log.item_names[:-1]


def test_titles_and_times_go_with_their_items() -> None:
    titles = [f"the {name}" for name in ITEMS]
    rows = [(1, 5, 30), (0, 3, 20), (1, 3, 10), (0, 2, 25)]
    log = made(rows, titles=titles, min_item_users=2)
    assert histories(log) == {"ann": ["d"], "bob": ["d"]}
    assert log.titles == ["the d"]
    assert log.times is not None
    assert log.times.tolist() == [20, 10]
    lumped = made(rows, titles=titles, min_item_users=2, rare="unknown")
    assert (lumped.item_names, lumped.titles) == (["d", UNKNOWN], ["the d", ""])
    assert histories(lumped) == {"ann": ["d", UNKNOWN], "bob": ["d", UNKNOWN]}


def test_bad_options_and_names() -> None:
    with pytest.raises(ConfigError, match=r"data.min_item_users=0: write a whole number from 1"):
        made([(0, 0, 0)], min_item_users=0)
    with pytest.raises(DataError, match="an item is called '<unknown>'"):
        make_log(np.array([0]), np.array([0]), user_names=["u"], item_names=[UNKNOWN])
    log = made([(0, 0, 0)])
    with pytest.raises(ValueError, match="offsets"):
        replace(log, user_names=["a", "b"])
    with pytest.raises(ValueError, match="2 titles for 1 items"):
        replace(log, titles=["x", "y"])


@given(rows=ROWS, known=st.permutations(ITEMS), count=st.integers(1, 6))
def test_a_trained_models_numbers(rows: list[tuple[int, int, int]], known: list[str], count: int) -> None:
    vocabulary, log = known[:count], made(rows)
    kept = {user: [item for item in items if item in vocabulary] for user, items in histories(log).items()}
    kept = {user: items for user, items in kept.items() if items}
    if kept:
        skipped = renumber(log, vocabulary, "skip", titles=None)
        assert histories(skipped) == kept
        assert list(skipped.item_names) == vocabulary
        assert skipped.times is not None
        assert len(skipped.times) == len(skipped.items)
    else:
        with pytest.raises(DataError, match="no history has an item that the model knows"):
            renumber(log, vocabulary, "skip")
    shared = renumber(log, [*vocabulary, UNKNOWN], "row")
    wanted = {user: [i if i in vocabulary else UNKNOWN for i in items] for user, items in histories(log).items()}
    assert histories(shared) == wanted
    strange = [item for item in log.item_names if item not in vocabulary]
    if strange:
        with pytest.raises(DataError, match=f"'{strange[0]}'.* not among the {count} items that the model knows"):
            renumber(log, vocabulary, "error")
        with pytest.raises(ConfigError, match=r"data\.rare=unknown"):
            renumber(log, vocabulary, "row")
    else:
        assert histories(renumber(log, vocabulary, "error")) == histories(log)


def test_what_is_skipped_is_said_and_titles_are_the_models(caplog: pytest.LogCaptureFixture) -> None:
    log = made([(0, 0, 0), (0, 1, 1), (1, 1, 0), (2, 2, 5), (2, 1, 6)], titles=[f"own {name}" for name in ITEMS])
    found = renumber(log, ["c", "a"], "skip", titles=["C", "A"])
    assert histories(found) == {"ann": ["a"], "cyn": ["c"]}
    assert found.titles == ["C", "A"]
    assert "3 actions with items that the model does not know are left out, and 1 user without any other" in caplog.text
    same = renumber(log, ["a", "b", "c"], "error", titles=["A", "B", "C"])
    assert same.titles == ["A", "B", "C"]
    assert same.items is log.items
