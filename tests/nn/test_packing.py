"""Packing: groups of least cost, rows that return in order, zero padding, gradients."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from zoo.attention import AttentionFactory, DenseSupport, GatedRecurrent, MultiheadAttention, ScaledDot, Softmax
from zoo.nn import packing as module
from zoo.nn.packing import Packing, groups, mix_sequences

LENGTHS = torch.tensor([3, 12, 1, 7, 7, 5, 12])


def cost(lengths: list[int], cuts: tuple[int, ...]) -> int:
    bounds = [0, *cuts, len(lengths)]
    parts = [lengths[start:stop] for start, stop in pairwise(bounds)]
    return sum(len(part) * (part[0] ** 2 + module.ROW_COST * part[0]) + module.CALL_COST for part in parts)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_cuts_cost_less(seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(1, 200, 9)
    lengths = sorted(drawn.tolist(), reverse=True)
    every = (cuts for count in range(9) for cuts in combinations(range(1, 9), count))
    found = groups(drawn)
    assert [drawn[user] for group in found for user in group.sequences] == lengths
    stops = np.cumsum([len(group.sequences) for group in found])[:-1]
    assert cost(lengths, tuple(stops.tolist())) == min(cost(lengths, cuts) for cuts in every)


@pytest.mark.parametrize(("longest", "mean", "most"), [(200, 165, 1.05), (50, 9, 1.5)])
def test_padding_is_small(longest: int, mean: int, most: float) -> None:
    drawn = np.random.default_rng(0).geometric(1 / mean, 128).clip(3, longest)
    found = groups(drawn)
    assert sorted(user for group in found for user in group.sequences) == list(range(128))
    assert all(drawn[list(group.sequences)].max() == group.length for group in found)
    assert sum(len(group.sequences) * group.length for group in found) < most * drawn.sum()
    assert sum(len(group.sequences) * group.length**2 for group in found) < most**2 * (drawn**2).sum()


def test_a_group_has_no_more_pairs_than_it_may() -> None:
    found = groups(np.full(1000, 200))
    assert max(len(group.sequences) for group in found) == 13
    assert [len(group.sequences) for group in groups(np.array([10_000, 10_000]))] == [1, 1]
    assert groups(np.zeros(0, np.int64)) == []


def test_the_users_of_a_group_alone_are_one_group() -> None:
    drawn = np.random.default_rng(1).integers(1, 200, 200)
    for group in groups(drawn):
        (alone,) = groups(drawn[list(group.sequences)])
        assert alone.length == group.length
        assert alone.sequences == tuple(range(len(group.sequences)))


@pytest.mark.parametrize("front", [False, True])
def test_groups_hold_each_users_rows_and_zeros(front: bool) -> None:
    packing, x = Packing(LENGTHS, causal=True), torch.arange(1.0, 95.0).view(47, 2)
    users = x.split(LENGTHS.tolist())
    grouped = packing.to_groups(x, front=front)
    for group, rows in zip(packing.groups, grouped, strict=True):
        assert rows.shape == (len(group.sequences), group.length, 2)
        for user, row in zip(group.sequences, rows, strict=True):
            size = len(users[user])
            assert torch.equal(row[-size:] if front else row[:size], users[user])
            assert not (row[:-size] if front else row[size:]).any()
    assert front or torch.equal(packing.back(grouped), x)
    assert torch.equal(x[packing.last], torch.stack([rows[-1] for rows in users]))
    assert packing.longest == 12


def test_real_rows_as_a_mask() -> None:
    packing = Packing(LENGTHS, causal=True)
    for group, real in zip(packing.groups, packing.to_groups(torch.ones(47, dtype=torch.bool)), strict=True):
        assert real.dtype == torch.bool
        assert real.sum(1).tolist() == [LENGTHS[user] for user in group.sequences]


def test_gradients() -> None:
    packing = Packing(torch.tensor([2, 1, 40]), causal=True)
    x = torch.randn(43, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return packing.back([(each.cumsum(1) ** 2) for each in packing.to_groups(x)])

    assert torch.autograd.gradcheck(there_and_back, x)
    assert torch.autograd.gradgradcheck(lambda x: there_and_back(x)[::9], x)


def test_a_sequence_without_rows() -> None:
    with pytest.raises(ValueError, match="every sequence of a batch must have a row or more"):
        Packing(torch.tensor([3, 0]), causal=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["attention", "recurrent"])
def test_rows_are_mixed_within_their_sequence_alone(kind: str, causal: bool) -> None:
    torch.default_generator.manual_seed(0)
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    mixer = MultiheadAttention(dim=4, heads=2, attend=attend) if kind == "attention" else GatedRecurrent(dim=4)
    mixer, x = mixer.double(), torch.randn(47, 4, dtype=torch.float64)
    packing = Packing(LENGTHS, causal=causal)
    found = mix_sequences(mixer, x, x, packing)
    for part, rows in zip(found.split(LENGTHS.tolist()), x.split(LENGTHS.tolist()), strict=True):
        expected, _ = mixer(rows.unsqueeze(0), support=DenseSupport(causal=causal))
        torch.testing.assert_close(part.unsqueeze(0), expected, rtol=0.0, atol=1e-12)
