"""Data sets composed of a source, the options that all domains share, and those of a domain."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.config import compose, instantiate
from zoo.data.transfer import to_device
from zoo.errors import DataError
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.dataset_registry import dataset
from zoo.types import PositiveInt, Seed, get_hints


class Words(TaskData):
    """Words of a source, in order."""

    def __init__(self, source: list[str], batching: BatchOptions, *, upper: bool = False) -> None:
        super().__init__(source, batching)
        self.upper = upper
        self.reads = 0

    def read(self) -> list[str]:
        self.reads += 1
        return [word.upper() if self.upper else word for word in self.source]

    def names(self, content: list[str]) -> dict[str, Sequence[str]]:
        return {"words": sorted(set(content))}

    def sizes(self) -> dict[str, int]:
        return {"words": len(self.content)}

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> list[str]:
        return [path.name for path in paths]

    def examples(self, split: str, *, training: bool = False) -> Examples:
        return Examples(entries=self.content, collate=list)


def drawn(*, count: PositiveInt = 3, seed: Seed = 0) -> list[str]:
    return [f"word {number + seed}" for number in range(count)]


@dataset(Words)
def listed(*, words: list[str]) -> list[str]:
    """A source of given words."""
    return words


@dataset(Words, generator=drawn)
def planted(generate: Any) -> list[str]:
    """A source of generated words."""
    found: list[str] = generate()
    return found


def test_the_options_of_all_parts_are_the_signature() -> None:
    shared = ["max_epochs", "batch_size", "eval_batch_size", "eval_examples", "num_workers"]
    assert list(inspect.signature(listed).parameters) == ["words", *shared, "upper"]
    assert list(inspect.signature(planted).parameters) == ["count", "seed", *shared, "upper"]
    assert listed.__doc__ == "A source of given words."
    hints = get_hints(planted)
    assert hints["count"] == PositiveInt
    assert hints["batch_size"] == PositiveInt | None
    assert hints["return"] is Words
    assert inspect.signature(planted).parameters["max_epochs"].default is inspect.Parameter.empty


def test_each_part_is_given_its_options() -> None:
    data = planted(count=2, seed=5, upper=True, max_epochs=3, eval_batch_size=1)
    assert data.content == ["WORD 5", "WORD 6"]
    assert data.batching == BatchOptions(max_epochs=3, eval_batch_size=1)
    assert data.max_epochs == 3
    with pytest.raises(TypeError, match="listed has no option lower"):
        listed(words=[], max_epochs=1, lower=True)


def test_two_parts_have_no_option_of_one_name() -> None:
    def source(*, upper: bool) -> list[str]:
        return []

    with pytest.raises(TypeError, match="an option of the same name"):
        dataset(Words)(source)


def test_data_is_read_once_and_again_for_a_checkpoint() -> None:
    data = listed(words=["a", "b"], max_epochs=1)
    data.setup()
    assert (data.sizes(), data.state(), data.train_size(), data.reads) == ({"words": 2}, {"words": ["a", "b"]}, 2, 1)
    data.restore({"words": ["a", "b"]})
    assert data.content == ["a", "b"]
    assert data.reads == 2
    data.restore({"words": ["a"]})
    for _ in range(2):  # the second time too
        with pytest.raises(DataError, match=r"trained on other words than this data has \(1 against 2\); fine-tune it"):
            data.setup()


def test_ones_own_examples_have_the_options_of_the_data_that_was_trained_on() -> None:
    data = listed(words=["a", "b"], upper=True, max_epochs=1, eval_batch_size=2)
    mine = data.from_files([Path("b"), Path("a")], data.state())
    assert isinstance(mine, Words)
    assert (mine.content, mine.is_input, data.is_input) == (["B", "A"], True, False)
    assert list(mine.loader("all")) == [["B", "A"]]
    assert data.content == ["A", "B"]


@pytest.mark.parametrize(("batch_size", "sizes"), [(2, [2, 2, 1]), (None, [5])])
def test_batches(batch_size: int | None, sizes: list[int]) -> None:
    data = listed(words=list("abcde"), max_epochs=1, batch_size=batch_size)
    assert [len(batch) for batch in data.loader("val")] == sizes
    assert [len(batch) for batch in data.train_dataloader()] == sizes
    assert [word for batch in data.loader("val") for word in batch] == list("abcde")
    other = listed(words=list("abcde"), max_epochs=1, batch_size=batch_size, eval_batch_size=4)
    assert [len(batch) for batch in other.loader("val")] == [4, 1]
    assert list(listed(words=[], max_epochs=1).train_dataloader()) == []


@pytest.mark.parametrize("name", ["batch_size", "eval_batch_size"])
def test_a_batch_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is to be a whole number of at least 1 or null"):
        BatchOptions(max_epochs=1, **{name: 0})


@dataclass(frozen=True)
class Pair:
    left: Tensor
    right: Tensor | None
    names: tuple[str, ...]


def test_a_batch_that_is_there_already_stays_itself() -> None:
    batch = Pair(torch.ones(2), None, ("a", "b"))
    assert to_device(batch, "cpu") is batch
    away = to_device(batch, "meta")
    assert away.left.is_meta
    assert (away.right, away.names) == (None, ("a", "b"))


@pytest.mark.parametrize("name", compose.describe_choices("data"))
def test_an_option_of_a_file_is_one_of_its_parts(name: str) -> None:
    node = compose.compose_unresolved([f"data={name}", "model=gat"])[0]["data"]
    target = instantiate.resolve_target(node["_target_"], "data")
    assert set(node) - {"_target_"} <= set(inspect.signature(target).parameters)
    assert issubclass(get_hints(target)["return"], TaskData)
