"""Numbers of alignments, on alignments that are known."""

from __future__ import annotations

import math

import pytest
import torch

from zoo.tasks.speech.alignment_metrics import (
    centres,
    count_covered,
    diagonality,
    distances,
    find_voiced,
    monotonic_steps,
    runs,
)

DIAGONAL = torch.eye(4, dtype=torch.float64)


def test_centres_are_in_frames_and_the_last_place_may_be_shorter() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.2], [0.0, 0.0, 0.0]])
    assert centres(weights, 4, 10).tolist() == pytest.approx([2.0, 4.0, 9.0, 10.0])


def test_distances_are_zero_inside() -> None:
    spans = torch.tensor([[2, 5], [2, 5], [2, 5]])
    assert distances(torch.tensor([1.0, 3.5, 7.0]), spans).tolist() == [1.0, 0.0, 2.0]


def test_steps_that_go_back_are_not_monotonic() -> None:
    assert monotonic_steps(DIAGONAL) == (3, 3)
    assert monotonic_steps(DIAGONAL[[0, 2, 1, 1]]) == (2, 3)
    assert monotonic_steps(DIAGONAL[:1]) == (0, 0)


def test_the_diagonal_has_diagonality_one() -> None:
    assert diagonality(DIAGONAL).tolist() == pytest.approx([1.0] * 4)
    far = diagonality(DIAGONAL.flip(1))[0]
    assert float(far) == pytest.approx(math.exp(-((0.75) ** 2) / (2 * 0.2**2)))


def test_places_are_covered_by_the_weights_of_all_steps() -> None:
    assert count_covered(DIAGONAL[:2]) == (2, 4)
    assert count_covered(torch.full((2, 4), 0.25)) == (0, 4)
    assert count_covered(torch.full((3, 4), 0.25)) == (4, 4)


def test_a_place_sounds_if_it_has_a_frame_of_a_token() -> None:
    spans = torch.tensor([[2, 3], [3, 3], [9, 11]])
    assert find_voiced(spans, 4, 4).tolist() == [True, False, True, False]
    assert find_voiced(spans[1:2], 4, 4).tolist() == [False] * 4


def test_neighbours_with_one_span_are_one_run() -> None:
    spans = torch.tensor([[2, 5], [2, 5], [5, 5], [7, 9], [9, 9], [2, 5]])
    first, last = runs(spans)
    assert (first.tolist(), last.tolist()) == ([0, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert [each.tolist() for each in runs(spans[:1])] == [[0], [0]]
    assert [each.tolist() for each in runs(spans[:0])] == [[], []]
