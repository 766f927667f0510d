"""The bar of `zoo predict` and `zoo evaluate`: on a terminal alone, and gone when the work is done."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

CLEARED = "\x1b[2K"


class Terminal(io.StringIO):
    """What a terminal shows."""

    def isatty(self) -> bool:
        return True


def terminal(patch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal, from the call of a test on: pytest's own capture begins with it."""
    made = Terminal()
    patch.setenv("TERM", "xterm-256color")
    patch.setattr(sys, "stderr", made)
    return made


@pytest.mark.parametrize(("command", "word"), [("predict", "predicting"), ("evaluate", "evaluating")])
def test_a_terminal_has_a_bar_that_is_removed(
    cli: Any, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, command: str, word: str
) -> None:
    error = terminal(monkeypatch)
    assert cli(command, tiny_run / "checkpoints" / "best.ckpt", "--out", "out.jsonl").code == 0
    shown = error.getvalue()
    assert f"{word} " in shown
    assert "1/1" in shown
    assert shown.rindex(CLEARED) > shown.rindex("1/1")


def test_rows_on_a_terminal_have_none_between_them(cli: Any, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli("predict", tiny_run / "checkpoints" / "best.ckpt", "--split", "test").code == 0
    assert error.getvalue() == ""


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_elsewhere_nothing_is_shown(cli: Any, tiny_run: Path, command: str) -> None:
    assert cli(command, tiny_run / "checkpoints" / "best.ckpt", "--out", "out.jsonl").err == ""
