"""Splits, windows and batches, compared with lists made one user at a time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recommendation_cases import data_of

from zoo.errors import ConfigError, DataError
from zoo.tasks.recommendation.batch import UNKNOWN, SequenceBatch
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.datamodule import HistoryData

ITEMS = 7
USERS = st.lists(st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=9), min_size=1, max_size=8)


def log_of(users: list[list[int]], *, times: list[list[int]] | None = None, **changes: object) -> Log:
    return Log(
        items=np.array([item for items in users for item in items], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, users)]),
        item_names=[f"i{number}" for number in range(ITEMS)],
        user_names=[f"u{number}" for number in range(len(users))],
        times=None if times is None else np.array([time for each in times for time in each]),
        **changes,  # type: ignore[arg-type]
    )


def rows(data: HistoryData, split: str) -> dict[str, dict[str, object]]:
    """Returns the fields of each user in the batches of a split."""
    found: dict[str, dict[str, object]] = {}
    for batch in data.loader(split):
        items, targets = batch.items.split(batch.lengths.tolist()), batch.targets.split(batch.lengths.tolist())
        seen = batch.seen.split(batch.seen_lengths.tolist())
        for row, user in enumerate(batch.ids):
            assert user not in found
            found[user] = {
                "items": items[row].tolist(),
                "targets": targets[row].tolist(),
                "held_out": int(batch.held_out[row]),
                "seen": seen[row].tolist(),
                "split": batch.splits[row],
            }
    return found


def wanted(known: list[int], held_out: int, seen: list[int], split: str, length: int) -> dict[str, object]:
    window = known[-length:]
    return {
        "items": window,
        "targets": [*window[1:], -1],
        "held_out": held_out,
        "seen": sorted(set(seen)),
        "split": split,
    }


@settings(max_examples=50)
@given(users=USERS, length=st.integers(1, 10))
def test_leave_one_out(users: list[list[int]], length: int) -> None:
    data = data_of(log_of(users), length=length)
    train, val, test, everything = {}, {}, {}, {}
    for number, items in enumerate(users):
        name, learned = f"u{number}", items[:-2] if len(items) >= 3 else items
        everything[name] = wanted(items, -1, items, "", length)
        if len(items) >= 3:
            val[name] = wanted(learned, items[-2], learned, "val", length)
            test[name] = wanted(items[:-1], items[-1], learned, "test", length)
        if len(learned) >= 2:
            train[name] = wanted(learned[:-1], learned[-1], learned, "train", length)
            train[name]["targets"] = learned[1:][-length:]
    assert rows(data, "train") == train
    assert rows(data, "val") == val
    assert rows(data, "test") == test
    assert rows(data, "all") == everything
    assert data.train_size() == len(train)
    learned_items = [item for items in users for item in (items[:-2] if len(items) >= 3 else items)]
    assert data.catalogue.counts.tolist() == np.bincount(learned_items, minlength=ITEMS).tolist()
    assert data.sizes() == {"items": ITEMS, "length": length}


@st.composite
def timed(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    users = draw(USERS)
    times = [sorted(draw(st.lists(st.integers(0, 30), min_size=len(u), max_size=len(u)))) for u in users]
    return users, times


@settings(max_examples=50)
@given(timed(), st.sampled_from([(0.1, 0.1), (0.3, 0.2), (0.4, 0.5)]))
def test_by_time(case: tuple[list[list[int]], list[list[int]]], shares: tuple[float, float]) -> None:
    users, times = case
    data = data_of(log_of(users, times=times), length=3, split="time", val_share=shares[0], test_share=shares[1])
    flat = sorted(time for each in times for time in each)
    first, second = (flat[-max(round(share * len(flat)), 1)] for share in (sum(shares), shares[1]))
    train, val, test = {}, {}, {}
    for number, (items, when) in enumerate(zip(users, times, strict=True)):
        early = [item for item, time in zip(items, when, strict=True) if time < first]
        middle = [item for item, time in zip(items, when, strict=True) if first <= time < second]
        late = [item for item, time in zip(items, when, strict=True) if second <= time]
        if len(early) >= 2:
            train[f"u{number}"] = wanted(early[:-1], early[-1], early, "train", 3)
            train[f"u{number}"]["targets"] = early[1:][-3:]
        if early and middle:
            val[f"u{number}"] = wanted(early, middle[0], early, "val", 3)
        if (early or middle) and late:
            test[f"u{number}"] = wanted(early + middle, late[0], early + middle, "test", 3)
    assert rows(data, "train") == train
    assert rows(data, "val") == val
    assert rows(data, "test") == test


@settings(max_examples=50)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=10), st.integers(1, 12))
def test_a_held_out_item_is_nowhere_in_its_input(lengths: list[int], length: int) -> None:
    """Every interaction has a different item, so that a leak shows."""
    counter = iter(range(200))
    users = [[next(counter) for _ in range(each)] for each in lengths]
    total = sum(lengths)
    log = Log(
        items=np.arange(total, dtype=np.int32),
        offsets=np.cumsum([0, *lengths]),
        item_names=list(map(str, range(total))),
        user_names=list(map(str, range(len(users)))),
    )
    data = data_of(log, length=length)
    held = {items[-place] for items in users if len(items) >= 3 for place in (1, 2)}
    tests = {items[-1] for items in users if len(items) >= 3}
    for split, hidden in (("train", held), ("val", held), ("test", tests)):
        for batch in data.loader(split):
            assert not hidden & set(batch.items.tolist() + batch.targets.tolist() + batch.seen.tolist())
            assert not (set(batch.held_out.tolist()) - {-1}) & set(batch.items.tolist())
    assert data.catalogue.counts.tolist() == [int(item not in held) for item in range(total)]


def test_an_epoch_has_every_user_once_in_another_order() -> None:
    data = data_of(log_of([[user % ITEMS] * (3 + user % 5) for user in range(20)]), batch_size=6)
    data.order_seed = 3
    loader = data.train_dataloader()
    epochs = [[user for batch in loader for user in batch.ids] for _ in range(2)]
    trained = [f"u{user}" for user in range(20) if user % 5]  # a single item has no target
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(trained)
    assert [len(batch) for batch in loader] == [6, 6, 4]
    assert data.train_size() == 16


def test_bucketed_batches_have_windows_of_similar_length() -> None:
    users = [[0] * (3 + number % 20) for number in range(60)]
    spread = {}
    for bucketed in (True, False):
        data = data_of(log_of(users), batch_size=6, length=12, bucketed=bucketed)
        spread[bucketed] = sum(int(batch.lengths.max() - batch.lengths.min()) for batch in data.train_dataloader())
    assert spread[True] * 3 < spread[False]


def test_times_and_gold_lie_beside_their_items() -> None:
    gold = np.array([-1, 1, 0, 3, 2, -1, 0], dtype=np.int32)
    times = [[10, 20, 30, 40, 50], [5, 6]]
    data = data_of(log_of([[1, 2, 3, 4, 5], [6, 0]], times=times, gold=gold), length=3)
    (batch,) = data.loader("test")
    assert batch.times is not None
    assert batch.gold is not None
    assert batch.items.tolist() == [2, 3, 4]
    assert batch.times.tolist() == [20, 30, 40]
    assert batch.gold.tolist() == [-1, 0, -1]  # items before the window are not in the batch
    (full,) = data.loader("all")
    assert full.gold.tolist() == [0, -1, 2, -1, 0]
    (train,) = data.train_dataloader()
    order = [train.ids.index(user) for user in ("u0", "u1")]
    assert [train.gold.split(train.lengths.tolist())[row].tolist() for row in order] == [[-1, 1], [-1]]


def test_the_shared_row_is_neither_learned_nor_ranked() -> None:
    names = [f"i{number}" for number in range(ITEMS - 1)] + [UNKNOWN]
    log = log_of([[1, 6, 2, 3, 6], [1, 2, 6, 6, 4], [1, 2, 3]])
    data = data_of(Log(log.items, log.offsets, names, log.user_names), length=9)
    assert data.catalogue.unknown == 6
    assert rows(data, "train")["u0"]["targets"] == [-1, 2]
    assert rows(data, "train")["u0"]["items"] == [1, 6]
    assert rows(data, "train")["u1"]["held_out"] == -1
    assert set(rows(data, "val")) == {"u0", "u2"}
    assert set(rows(data, "test")) == {"u1", "u2"}
    assert rows(data, "test")["u1"]["targets"] == [2, -1, -1, -1]


def test_a_draw_of_users_is_evaluated() -> None:
    data = data_of(log_of([[1, 2, 3, 4]] * 30), eval_users=10)
    drawn = list(rows(data, "test"))
    assert len(drawn) == 10
    assert drawn == sorted(drawn, key=lambda user: int(user[1:]))
    assert drawn == list(rows(data, "val"))
    assert len(rows(data, "all")) == len(rows(data, "train")) == 30


def test_a_checkpoint_brings_its_items() -> None:
    own = data_of(log_of([[0, 1, 2, 0], [1, 2, 1]], titles=[f"title {number}" for number in range(ITEMS)]), length=3)
    state = own.state()
    assert state == {
        "items": [f"i{number}" for number in range(ITEMS)],
        "titles": [f"title {number}" for number in range(ITEMS)],
        "counts": [1, 2, 0, 0, 0, 0, 0],
        "length": 3,
    }
    other = Log(
        items=np.array([0, 1, 2], dtype=np.int32),
        offsets=np.array([0, 3]),
        item_names=["i5", "new", "i0"],
        user_names=["someone"],
    )
    data = data_of(other, length=50, unknown="skip")
    data.restore(state)
    assert rows(data, "all")["someone"]["items"] == [5, 0]
    assert data.sizes() == {"items": ITEMS, "length": 3}
    assert data.catalogue.title_of(5) == "title 5"
    assert data.catalogue.counts.tolist() == state["counts"]
    strict = data_of(other)
    strict.restore(state)
    with pytest.raises(DataError, match="'new' is not among the 7 items"):
        strict.setup()


def test_histories_from_the_command_line() -> None:
    titles = ["Heat (1995)", "Matrix, The (1999)", "", "", "Heat (1995)", "", "Fargo (1996)"]
    own = data_of(log_of([[0, 1, 2, 0]], titles=titles), length=3, unknown="skip")
    data = own.from_texts(["i3, i0,i2,i1", '"Matrix, The (1999)",Fargo (1996)', "i3,other"], own.state())
    found = rows(data, "all")
    assert [each["items"] for each in found.values()] == [[0, 2, 1], [1, 6], [3]]
    assert list(found) == ["history 1", "history 2", "history 3"]
    assert next(iter(found.values()))["seen"] == [0, 1, 2, 3]
    assert own.written is not None
    assert own.written.name == "history"
    with pytest.raises(DataError, match=r"--history.*the history is empty"):
        own.from_texts([" , "], own.state()).setup()
    with pytest.raises(DataError, match="no history has an item that the model knows"):
        own.from_texts(["x,Heat (1995)"], own.state()).setup()
    with pytest.raises(DataError, match=r"'i33'.*Did you mean 'i3'"):
        data_of(own.source.read()).from_texts(["i33"], own.state()).setup()
    with pytest.raises(DataError, match=r"'Fargo' is not.*Did you mean 'Fargo \(1996\)'"):
        data_of(own.source.read()).from_texts(["Fargo"], own.state()).setup()


def test_long_histories_and_single_items() -> None:
    draw = np.random.default_rng(0)
    users = [draw.integers(0, ITEMS, 10_000).tolist(), [3]]
    data = data_of(log_of(users), length=50)
    assert rows(data, "train")["u0"]["targets"] == users[0][:-2][-50:]
    assert list(rows(data, "train")) == list(rows(data, "test")) == ["u0"]
    assert rows(data, "all")["u1"]["items"] == [3]


def test_bad_options_are_refused() -> None:
    log = log_of([[1, 2, 3]])
    for name in ("batch_size", "eval_batch_size", "length", "eval_users"):
        with pytest.raises(ValueError, match=f"{name} is to be a whole number of at least 1"):
            data_of(log, **{name: 0})
    with pytest.raises(ConfigError, match=r"data\.split=random: write leave_one_out or time"):
        data_of(log, split="random")
    with pytest.raises(ConfigError, match=r"data\.val_share=0\.5 and data\.test_share=0\.5"):
        data_of(log, split="time", val_share=0.5, test_share=0.5)
    with pytest.raises(DataError, match=r"data\.split=time needs a time of each interaction"):
        data_of(log, split="time").setup()
    with pytest.raises(DataError, match="nothing to learn"):
        data_of(log).train_dataloader()


def test_batches_move_and_share_the_catalogue() -> None:
    data = data_of(log_of([[1, 2, 3, 4]] * 5))
    first, second = data.loader("val")
    assert isinstance(first, SequenceBatch)
    assert first.catalogue is second.catalogue is data.catalogue
    assert data.transfer_batch_to_device(first, torch.device("cpu"), 0) is first
    assert data.transfer_batch_to_device(first, torch.device("meta"), 0).items.device.type == "meta"
    for earlier, later in pairwise([first.ids, second.ids]):
        assert not set(earlier) & set(later)
