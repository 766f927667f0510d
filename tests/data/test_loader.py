"""The one loader: batches are a function of seed, epoch, position and rank, wherever they are made."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.data.loader import Loader
from zoo.errors import ConfigError

EXAMPLES = list(range(23))


def loader(**options: Any) -> Loader:
    return Loader(EXAMPLES, **{"collate": list, "batch_size": 4, "shuffle": True, **options})


def noisy(example: int) -> tuple[int, float, float, float]:
    return example, torch.rand(()).item(), random.random(), float(np.random.rand())


@given(
    count=st.integers(0, 40),
    batch_size=st.integers(1, 7),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
    buckets=st.booleans(),
    even=st.booleans(),
)
def test_processes_share_out_the_batches_of_one(
    count: int, batch_size: int, world_size: int, shuffle: bool, buckets: bool, even: bool
) -> None:
    if even and count and min(count, batch_size) < world_size:
        each = Loader(range(count), collate=list, batch_size=batch_size, even=True)
        each.world_size = world_size
        with pytest.raises(ConfigError, match="cannot be shared out"):
            list(each)
        return
    made = []
    for rank in range(world_size):
        lengths = [number % 5 for number in range(count)] if buckets else None
        each = Loader(range(count), collate=list, batch_size=batch_size, shuffle=shuffle, lengths=lengths, even=even)
        each.rank, each.world_size = rank, world_size
        made.append(list(each))
        assert len(made[-1]) == len(each)
    seen = [number for batches in made for batch in batches for number in batch]
    assert sorted(seen) == list(range(count))
    if even:
        assert len({len(batches) for batches in made}) == 1
    alone = Loader(range(count), collate=list, batch_size=batch_size, shuffle=shuffle, lengths=lengths)
    whole = [set(batch) for batch in alone]
    shared = [set().union(*(b[place] for b in made if place < len(b))) for place in range(len(made[0]))]
    if not shuffle or (even and not 0 < count % batch_size < world_size):  # no batch is missing, none joined another
        assert shared[:-1] == whole[: len(shared) - 1]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("lengths", [None, [number % 5 for number in EXAMPLES]])
def test_it_goes_on_at_the_very_batch(num_workers: int, lengths: list[int] | None) -> None:
    whole = loader(lengths=lengths, augment=noisy)
    epochs = [list(whole) for _ in range(3)]
    first = loader(lengths=lengths, augment=noisy, num_workers=num_workers)
    first.set_epoch(1)
    batches = iter(first)
    begun = [next(batches), next(batches)]
    second = loader(lengths=lengths, augment=noisy, num_workers=num_workers)
    second.load_state_dict(first.state_dict())
    assert begun + list(second) == epochs[1]
    assert list(second) == epochs[2]
    assert list(first) == epochs[2]  # whose pass through epoch 1 was given up


def test_waiting_is_the_time_that_batches_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slowly(examples: list[int]) -> list[int]:
        clock[0] += 2.0
        return examples

    each = loader(collate=slowly)
    for _ in each:
        clock[0] += 5.0  # the reader's own time
    assert each.pop_wait_time() == 2.0 * len(each)
    assert each.pop_wait_time() == 0.0


def test_what_is_drawn_for_an_example_leaves_the_generators_alone() -> None:
    each = loader(augment=noisy)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    found = {values[0]: values[1:] for batch in each for values in batch}
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # type: ignore[union-attr]
    assert len(set(found.values())) == len(EXAMPLES)
    again = {values[0]: values[1:] for batch in each for values in batch}
    assert all(again[number] != found[number] for number in EXAMPLES)  # another epoch
    alone = loader(augment=noisy, batch_size=1, shuffle=False)
    assert {batch[0][0]: batch[0][1:] for batch in alone} == found  # whatever the batch


def test_buckets_hold_similar_lengths_and_all_examples() -> None:
    lengths = torch.randint(1, 100, (4000,), generator=torch.Generator().manual_seed(0)).tolist()
    each = Loader(range(4000), collate=list, batch_size=16, shuffle=True, lengths=lengths)
    first, second = list(each), list(each)
    assert sorted(number for batch in first for number in batch) == list(range(4000))
    assert first != second
    padded = sum(max(lengths[number] for number in batch) * len(batch) for batch in first)
    assert padded < 1.05 * sum(lengths)
    assert [max(lengths[n] for n in batch) for batch in first[:50]] != sorted(lengths[batch[0]] for batch in first[:50])


def test_another_seed_is_another_order() -> None:
    assert list(loader(seed=0)) == list(loader(seed=0))
    assert list(loader(seed=0)) != list(loader(seed=1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "only with max_tokens"),
        ({"num_workers": -1}, "num_workers"),
        ({"lengths": [1]}, "1 lengths for 23"),
        ({"max_tokens": 8}, "goes with lengths"),
        ({"max_tokens": 0, "lengths": EXAMPLES}, "at least 1"),
    ],
)
def test_what_makes_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        loader(**options)


@pytest.mark.parametrize("count", [1, 10, 23])
def test_a_sample_is_of_different_examples_in_their_order_and_always_the_same(count: int) -> None:
    plain = {"shuffle": False, "lengths": [-number for number in EXAMPLES]}
    found = [number for batch in loader(shuffle=False).sample(count) for number in batch]
    assert found == sorted(set(found))
    assert len(found) == count
    assert found == [number for batch in loader(shuffle=False, seed=5).sample(count) for number in batch]
    assert found[::-1] == [number for batch in loader(**plain).sample(count) for number in batch]
    whole = loader(shuffle=False)
    assert list(whole.sample(count)) != list(whole) or count == len(EXAMPLES)
    assert [number for batch in whole for number in batch] == EXAMPLES


def test_all_parts_of_a_sample_are_as_likely() -> None:
    counts = np.zeros(1000)
    for count in range(400, 600):
        chosen = Loader(range(1000), collate=list, batch_size=100).sample(count)
        counts[[number for batch in chosen for number in batch]] += 1
    assert abs(counts.reshape(10, 100).mean(1) - 99.5).max() < 5
