"""Batches by a budget of tokens: what they come to when padded, how many there are, and who gets which."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.data.loader import Loader
from zoo.errors import ConfigError


def budgeted(lengths: list[int], max_tokens: int, **options: Any) -> Loader:
    chosen = {"collate": list, "batch_size": None, "shuffle": True, **options}
    return Loader(range(len(lengths)), lengths=lengths, max_tokens=max_tokens, **chosen)


def of_ranks(world_size: int, lengths: list[int], max_tokens: int, **options: Any) -> list[Loader]:
    made = [budgeted(lengths, max_tokens, **options) for _ in range(world_size)]
    for rank, each in enumerate(made):
        each.rank, each.world_size = rank, world_size
    return made


def padded(batch: list[int], lengths: list[int]) -> int:
    return len(batch) * max(lengths[number] for number in batch)


@given(
    lengths=st.lists(st.integers(0, 30), max_size=60),
    max_tokens=st.integers(1, 90),
    batch_size=st.none() | st.integers(1, 7),
    shuffle=st.booleans(),
)
def test_every_batch_fits_and_every_example_is_in_one(
    lengths: list[int], max_tokens: int, batch_size: int | None, shuffle: bool
) -> None:
    each = budgeted(lengths, max_tokens, batch_size=batch_size, shuffle=shuffle)
    epochs = [list(each) for _ in range(3)]
    for batches in epochs:
        assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
        assert len(batches) == len(each)
        for batch in batches:
            assert len(batch) == 1 or padded(batch, lengths) <= max_tokens
            assert batch_size is None or len(batch) <= batch_size
    if not shuffle:
        assert epochs[0] == epochs[1]


@given(
    lengths=st.lists(st.integers(1, 30), max_size=60),
    max_tokens=st.integers(1, 90),
    world_size=st.integers(2, 4),
    even=st.booleans(),
    shuffle=st.booleans(),
)
def test_processes_share_out_the_batches_of_one(
    lengths: list[int], max_tokens: int, world_size: int, even: bool, shuffle: bool
) -> None:
    each = of_ranks(world_size, lengths, max_tokens, even=even, shuffle=shuffle)
    if even and 0 < len(lengths) < world_size:
        with pytest.raises(ConfigError, match="cannot be shared out"):
            list(each[0])
        return
    made = [list(rank) for rank in each]
    assert [len(batches) for batches in made] == [len(rank) for rank in each]
    assert sorted(number for batches in made for batch in batches for number in batch) == list(range(len(lengths)))
    if even:
        assert len({len(batches) for batches in made}) == 1
        joined = [[number for share in shares for number in share] for shares in zip(*made, strict=True)]
        over = [batch for batch in joined if len(batch) > world_size and padded(batch, lengths) > max_tokens]
        assert len(over) <= 1
        for batch in over:  # which took in the few shortest examples that were not enough for all processes
            assert min(lengths[number] for number in batch) == min(lengths)
            kept = sorted(batch, key=lengths.__getitem__, reverse=True)[: 1 - world_size]
            assert len(kept) <= world_size or padded(kept, lengths) <= max_tokens
        return
    alone = [set(batch) for batch in budgeted(lengths, max_tokens, shuffle=shuffle)]
    left = [batch for rank in made for batch in rank]
    assert all(sum(set(batch) <= whole for whole in alone) == 1 for batch in left)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_goes_on_at_the_very_batch(num_workers: int) -> None:
    lengths = [number % 5 + 1 for number in range(40)]
    whole = budgeted(lengths, 12)
    epochs = [list(whole) for _ in range(3)]
    first = budgeted(lengths, 12, num_workers=num_workers)
    first.set_epoch(1)
    batches = iter(first)
    begun = [next(batches), next(batches)]
    second = budgeted(lengths, 12, num_workers=num_workers)
    second.load_state_dict(first.state_dict())
    assert begun + list(second) == epochs[1]
    assert list(second) == epochs[2]


def test_examples_of_one_length_meet_others_in_every_epoch() -> None:
    lengths = [3] * 20 + [7] * 20
    each = budgeted(lengths, 21)
    first, second = [{frozenset(batch) for batch in each} for _ in range(2)]
    assert first != second
    assert sorted(map(len, first)) == sorted(map(len, second))
    assert list(budgeted(lengths, 21, seed=1)) != list(budgeted(lengths, 21))


def test_unsorted_evaluation_keeps_near_examples_together() -> None:
    lengths = torch.randint(1, 40, (20_000,), generator=torch.Generator().manual_seed(0)).tolist()
    each = budgeted(lengths, 80, shuffle=False)
    reached = 0
    for batch in each:
        assert min(batch) >= reached - 1000  # 100 batches of 80 tokens, of 20 an example: about 400 examples
        reached = max(reached, *batch)


def test_long_tails_cost_no_padding_and_no_batch_is_huge() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.empty(4000).log_normal_(5.5, 1.0, generator=generator).long().clamp(1, 20_000).tolist()
    batches = list(budgeted(lengths, 20_000))
    sizes = [padded(batch, lengths) for batch in batches]
    assert max(sizes) <= 20_000
    assert sum(sizes) < 1.03 * sum(lengths)
    assert sizes[:20] != sorted(sizes[:20])


def test_a_sample_has_its_own_number_of_batches() -> None:
    lengths = [number % 5 + 1 for number in range(40)]
    whole = budgeted(lengths, 12, shuffle=False)
    assert len(whole) > len(whole.sample(7)) == len(list(whole.sample(7)))


def test_a_budget_that_no_batch_can_exceed_changes_nothing() -> None:
    """Then batches are those of the batch size, in a new order each epoch."""
    lengths = [1 + number % 7 for number in range(50)]
    for shuffle in (True, False):
        alone = Loader(range(50), collate=list, batch_size=8, lengths=lengths, shuffle=shuffle)
        wide = Loader(range(50), collate=list, batch_size=8, lengths=lengths, shuffle=shuffle, max_tokens=8 * 7)
        assert list(wide) == list(alone)
        assert list(wide) == list(alone)
    tight = Loader(range(50), collate=list, batch_size=8, lengths=lengths, max_tokens=8 * 7 - 1)
    assert all(padded(batch, lengths) < 8 * 7 for batch in tight)


def test_the_largest_batch_has_the_most_padded_tokens() -> None:
    lengths = [2, 90, 2, 2, 40, 40, 40, 2]
    for options in ({"max_tokens": 120}, {"batch_size": 3}):
        chosen = {"batch_size": None, "shuffle": True} | options
        loader = Loader(range(8), collate=list, lengths=lengths, **chosen)
        assert padded(loader.largest(), lengths) == max(padded(batch, lengths) for batch in loader)
