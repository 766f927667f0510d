"""The commit that a result names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zoo.training.environment import find_commit


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("train.py", "results/gat/0.json", "results/tables.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "is_change"),
    [("train.py", True), ("results/tables.py", True), ("results/gat/0.json", False), ("results/gat/1.json", False)],
)
def test_code_that_has_changed_is_told_and_a_new_result_is_none(checkout: Path, name: str, is_change: bool) -> None:
    head = git(checkout, "rev-parse", "HEAD").strip()
    assert find_commit(checkout) == head
    (checkout / name).write_text("1\n", encoding="utf-8")
    assert find_commit(checkout) == head + "+changes" * is_change


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    assert find_commit(tmp_path) is None
