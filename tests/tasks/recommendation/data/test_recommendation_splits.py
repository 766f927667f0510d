"""Splits without users, and a trained model evaluated on the file that it was trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TINY = ["model=sasrec", "data=interactions", "data.table=own.csv", "data.min_user_items=1", "data.min_item_users=1",
        "data.length=12", "data.max_epochs=2", "data.batch_size=16", "model.net.dim=8", "trainer=cpu", "logger=csv",
        "threads=1", "run_dir=run"]  # fmt: skip


def write(rows: list[str]) -> None:
    Path("own.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")


def pairs_of_items() -> None:
    """Writes users with two items each, of which leave-one-out holds out none."""
    write([f"u{user},i{(user + step) % 7},{step}" for user in range(20) for step in range(2)])


def newcomers_at_the_end() -> None:
    """Writes interactions of which the latest are all by new users."""
    old = [f"u{user},i{(user + step) % 7},{step}" for user in range(20) for step in range(4)]
    write([*old, *[f"late{user},i{(user + step) % 7},{100 + step}" for user in range(3) for step in range(3)]])


@pytest.mark.parametrize(
    ("make", "options", "empty", "why"),
    [
        (pairs_of_items, [], ["val", "test"], "Give longer histories"),
        (newcomers_at_the_end, ["data.split=time"], ["test"], "Raise data.test_share"),
    ],
)
def test_an_empty_split_is_named_before_training_and_nothing_is_lost(
    cli: Any, tmp_path: Path, make: Any, options: list[str], empty: list[str], why: str
) -> None:
    make()
    looked = cli("train", *TINY, *options, "check=true")
    assert looked.code == 0, looked.err
    with pytest.warns(UserWarning, match=f"the split '{empty[0]}' has no example") as said:
        done = cli("train", *TINY, *options)
    assert done.code == 0, done.err
    for split in empty:
        assert f"empty      the split '{split}' has no example" in looked.out
        assert any(f"the split '{split}' has no example" in str(each.message) for each in said)
    assert why in looked.out
    found = json.loads(Path("run/metrics.json").read_text())
    kept = {"train", "val", "test"} - set(empty)
    assert {name.partition("/")[0] for name in found if "/" in name and not name.startswith("truth/")} == kept
    assert Path("run/checkpoints/best.ckpt").exists()
    assert found["best_epoch"] == found["epochs"] - 1 or "val" in kept
    assert "ndcg@10" in done.out


@pytest.mark.parametrize(
    "options",
    [
        ["data.split=time"],
        ["data.duplicates=drop"],
        ["data.min_user_items=5"],
        ["data.split=time", "data.duplicates=drop", "data.min_user_items=5", "data.test_share=0.2"],
        ["data.eval_users=9"],
    ],
)
def test_the_same_file_is_measured_as_in_training(cli: Any, options: list[str]) -> None:
    """The histories differ in length, repeat some items, and overlap in time."""
    steps = [(user, step) for user in range(40) for step in range(2 + user % 7)]
    write([f"u{user},i{(user * step) % 11},{(user * 7 + step * 5) % 60}" for user, step in steps])
    assert cli("train", *TINY, *options).code == 0
    best = "run/checkpoints/best.ckpt"
    for split in ("val", "test"):
        assert cli("evaluate", best, "--split", split, "--out", "alone.json").code == 0
        done = cli("evaluate", best, "--split", split, "--data", "own.csv", "--out", "given.json")
        assert done.code == 0, done.err
        assert json.loads(Path("given.json").read_text()) == json.loads(Path("alone.json").read_text())
    everyone = cli("predict", best, "own.csv", "--top", 1).out.splitlines()[1:]
    assert [line.split(",")[0] for line in everyone] == [f"u{user}" for user in range(40)]


def test_histories_without_times_are_split_otherwise_and_that_is_said(cli: Any) -> None:
    write([f"u{user},i{(user + step) % 7},{step * 20 + user}" for user in range(20) for step in range(5)])
    assert cli("train", *TINY, "data.split=time").code == 0
    best = "run/checkpoints/best.ckpt"
    Path("mine.csv").write_text("user,history\nmia,i1|i2|i3|i4\n")
    assert cli("predict", best, "mine.csv", "--top", 1).code == 0  # no warning, since predicting holds out nothing
    with pytest.warns(UserWarning, match="have no times: the last items of users are held out instead"):
        done = cli("evaluate", best, "--data", "mine.csv", "--out", "found.json")
    assert done.code == 0, done.err
    assert "leave-one-out" in json.loads(Path("found.json").read_text())["protocol"]


def test_items_that_were_too_rare_to_be_learned_are_left_out_on_request(cli: Any) -> None:
    rows = [f"u{user},i{(user + step) % 7},{step}" for user in range(20) for step in range(5)]
    write([*rows, "u3,once,9"])
    assert cli("train", *TINY, "data.min_item_users=2").code == 0
    best = "run/checkpoints/best.ckpt"
    done = cli("evaluate", best, "--data", "own.csv")
    assert done.code == 2
    assert "--unknown=skip" in done.err
    assert cli("evaluate", best, "--data", "own.csv", "--unknown", "skip", "--out", "given.json").code == 0
    assert cli("evaluate", best, "--out", "alone.json").code == 0
    assert json.loads(Path("given.json").read_text()) == json.loads(Path("alone.json").read_text())
