"""Output that cannot be written: one sentence, and the exit code of an error; a reader who has seen enough is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from zoo.cli.main import main
from zoo.console import name_streams

COMMANDS = {
    "list": ["list"],
    "attention": ["list", "attention"],
    "help": ["train", "model=gat", "--help"],
    "cfg": ["train", "model=gat", "--cfg", "job"],
    "evaluate": ["evaluate", "{best}"],
    "predict": ["predict", "{best}"],
    "maps": ["maps", "{best}", "--out", "maps", "--pictures=0"],
}


@pytest.fixture
def on_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_run: Path) -> Any:
    """`on_file(command, path)` runs a command whose standard output is a file that was opened there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["zoo"])

    def run(name: str, handle: int) -> int:
        with monkeypatch.context() as patch, os.fdopen(handle, "w", closefd=False) as stream:
            patch.setattr(sys, "stdout", stream)
            return main([each.format(best=tiny_run / "checkpoints" / "best.ckpt") for each in COMMANDS[name]])

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(on_file: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    handle = os.open("/dev/full", os.O_WRONLY)
    assert on_file(name, handle) == 2
    assert capsys.readouterr().err.endswith("zoo: standard output: No space left on device\n")
    os.close(handle)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_closed_pipe(on_file: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    reading, handle = os.pipe()
    os.close(reading)
    assert on_file(name, handle) == 0
    assert "Error" not in capsys.readouterr().err
    os.close(handle)


def test_a_closed_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "zoo: standard output: Bad file descriptor\n"


def test_an_encoding_without_the_letters(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with open(os.devnull, "w", encoding="ascii") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert main(["list", "attention"]) == 2
    assert capsys.readouterr().err.endswith("; set PYTHONIOENCODING=utf-8\n")


def test_what_is_written_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for buffering, mode in ((-1, "w"), (1, "a")):
        with (tmp_path / "out").open(mode, buffering) as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            print("before")
            with name_streams():
                print("ü" * 20_000)
            print("after")
    assert (tmp_path / "out").read_text() == ("before\n" + "ü" * 20_000 + "\nafter\n") * 2


def test_a_message_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        assert main(["evaluate", "none.ckpt"]) == 2
