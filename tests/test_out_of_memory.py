"""One sentence where memory does not suffice."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zoo import memory
from zoo.cli import commands
from zoo.cli.main import main
from zoo.data.loader import Loader
from zoo.training import run

FAR_TOO_MUCH = 1 << 46


def ask_torch(*_: Any) -> None:
    torch.empty(FAR_TOO_MUCH)


def ask_numpy(*_: Any) -> None:
    np.empty(FAR_TOO_MUCH)


def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (ask_torch, "the memory does not suffice: the program asked for 256.0 TiB; do it"),
        (ask_numpy, "the memory does not suffice: the program asked for 512. TiB; do it"),
        (lambda: raise_error(MemoryError()), "the program asked for more than there is; do it"),
        (lambda: raise_error(OSError(errno.ENOMEM, "Cannot allocate memory")), "asked for more than there is; do it"),
        (
            lambda: raise_error(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has")),
            "the memory of the GPU does not suffice: the program asked for 20.00 GiB; do it",
        ),
        (lambda: torch.empty(2**62, 2**62), "asked for more than there is; do it"),
    ],
)
def test_what_asked_for_how_much(ask: Any, said: str) -> None:
    with pytest.raises((RuntimeError, MemoryError, OSError)) as caught:
        ask()
    assert memory.is_out_of_memory(caught.value)
    assert said in str(memory.explain(caught.value, "do it"))


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), OSError(errno.ENOENT, "none"), ValueError()])
def test_other_errors_are_none(error: Exception) -> None:
    assert not memory.is_out_of_memory(error)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_line_that_asked_is_named(num_workers: int) -> None:
    """Also in a worker, which sends its traceback as text."""
    loader = Loader(range(2), collate=ask_torch, num_workers=num_workers)
    with pytest.raises(RuntimeError) as caught:
        list(loader)
    loader.close()
    said = str(memory.explain(caught.value, "do it"))
    assert "does not suffice: zoo/data/loader.py, line " in said
    assert said.endswith(" (_batch), asked for 256.0 TiB; do it")


@pytest.mark.parametrize("ask", [ask_torch, ask_numpy])
def test_commands_end_with_a_sentence(
    cli: Any, tiny: list[str], tiny_run: Path, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    monkeypatch.setattr(run, "setup_data", ask)
    monkeypatch.setattr("zoo.training.preflight.try_batch", ask)
    for name in ("evaluate", "predict", "maps"):
        monkeypatch.setattr(commands, name, ask)
    best = tiny_run / "checkpoints" / "best.ckpt"
    remedies = {
        ("train", *tiny): "lower data.batch_size",
        ("check", *tiny): "lower data.batch_size",
        ("evaluate", best): "give fewer inputs at a time, or shorter ones",
        ("predict", best): "give fewer inputs at a time, or shorter ones",
        ("maps", best, "--out", "maps"): "lower --budget, name fewer examples with --ids, or shorten them",
    }
    for command, remedy in remedies.items():
        done = cli(*command)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert done.err.startswith("zoo: the memory does not suffice: ")
        assert remedy in done.err


def test_what_texts_can_lower() -> None:
    assert memory.advise(["max_length", "seed", "batch_size"]) == (
        "lower data.batch_size or data.max_length, or the sizes of the model"
    )


def test_the_traceback_can_be_seen(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "predict", ask_torch)
    monkeypatch.setenv("ZOO_DEBUG", "1")
    with pytest.raises(RuntimeError, match="allocate"):
        main(["predict", os.fspath(tiny_run / "checkpoints" / "best.ckpt")])
