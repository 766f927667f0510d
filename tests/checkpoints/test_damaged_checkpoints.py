"""A checkpoint of which some part is another: continuing it, or loading it, works or ends in one sentence."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.checkpoints import checkpoint

NAN = float("nan")
OTHERS = [
    None,
    True,
    -7,
    2**60,
    10**80,
    NAN,
    "seven",
    [],
    [1, "a"],
    {},
    {"a": 1},
    torch.zeros(3),
    torch.zeros(0).long(),
]
GONE = object()


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a content; of parts alike, such as the states of eight parameters, to the first two."""
    if above:
        yield above
    if isinstance(node, dict):
        alike = [key for key in node if isinstance(key, int)]
        for key in node:
            if key not in alike[2:]:
                yield from places(node[key], (*above, key))
    elif isinstance(node, list | tuple):
        for number in range(min(len(node), 2)):
            yield from places(node[number], (*above, number))


def changed(content: dict[str, Any], place: tuple[Any, ...], other: Any) -> dict[str, Any]:
    """A copy with another part at that place, or without it; all else is shared."""
    new = dict(content)
    node: Any = new
    for key in place[:-1]:
        node[key] = copy.copy(node[key]) if not isinstance(node[key], tuple) else list(node[key])
        node = node[key]
    if other is GONE:
        del node[place[-1]]
    else:
        node[place[-1]] = other
    return new


def at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def others(value: Any, number: int) -> Iterator[Any]:
    """Yields replacements of a value: nothing, another type, a tensor of another shape, a larger number."""
    yield GONE
    yield OTHERS[number % len(OTHERS)]
    if isinstance(value, Tensor):
        yield torch.zeros(*value.shape, 2)
        yield torch.full_like(value, 3)
    elif type(value) is int:
        yield value + 1_000_003


def unexplained(cli: Any, run_dir: Path, inside: tuple[str, ...], command: list[str], *, every: int) -> list[Any]:
    """The changes, of which every so many-th is tried, that neither work nor end in one sentence."""
    content = checkpoint.read(run_dir / "checkpoints" / "last.ckpt")
    shutil.copytree(run_dir, "run")
    assert cli(*command).code == 0  # as it is, it works
    found = []
    for number, (place, other) in enumerate(changes(content, inside)):
        if number % every:
            continue
        shutil.rmtree("run")
        shutil.copytree(run_dir, "run")
        checkpoint.write(Path("run/checkpoints/last.ckpt"), changed(content, place, other))
        try:
            done = cli(*command)
        except Exception as error:
            found.append((place, other, repr(error)[:200]))
            continue
        if done.code not in (0, 2) or (done.code == 2 and "\n" in done.err.strip().split("zoo: ", 1)[-1]):
            found.append((place, other, done.code, done.err[-300:]))
    return found


def changes(content: dict[str, Any], inside: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for number, place in enumerate(places(at(content, inside), inside)):
        yield from ((place, other) for other in others(at(content, place), number))


CONTINUED = ["loops", "callbacks", "optimizer_states", "lr_schedulers", "exactly"]
USED = ["data", "sizes", "metrics", "config"]


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", CONTINUED)
def test_one_that_is_continued(cli: Any, tiny_run: Path, part: str, every: int) -> None:
    command = ["train", "resume=run/checkpoints/last.ckpt", "data.max_epochs=5"]
    assert unexplained(cli, tiny_run, (part,), command, every=every) == []


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", USED)
def test_one_that_is_used(cli: Any, tiny_run: Path, part: str, every: int) -> None:
    command = ["predict", "run/checkpoints/last.ckpt", "--out", "out.csv"]
    assert unexplained(cli, tiny_run, ("zoo", part), command, every=every) == []
