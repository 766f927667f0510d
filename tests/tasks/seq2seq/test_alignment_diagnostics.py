"""Alignments that have collapsed are measured, by loops, and told once."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from zoo.tasks.seq2seq.alignment_diagnostics import AlignmentCollapseMonitor, measure

STEPS = torch.tensor([[True] * 5, [True] * 4 + [False], [True] * 2 + [False] * 3])
PLACES = torch.tensor([[True] * 6, [True] * 3 + [False] * 3, [True] * 6])


def masked(weights: Tensor) -> Tensor:
    """Weights with numbers in the padding that nothing may read."""
    return weights.where(STEPS.unsqueeze(2) & PLACES.unsqueeze(1), torch.tensor(7.0))


def test_against_loops() -> None:
    weights = torch.rand(3, 5, 6, generator=torch.Generator().manual_seed(0)) / 6
    found = measure(masked(weights), STEPS, PLACES)
    nothing, everywhere, one_place = [], [], []
    for text in range(3):
        steps, places = int(STEPS[text].sum()), int(PLACES[text].sum())
        rows = [weights[text, step, :places].tolist() for step in range(steps)]
        for row in rows:
            nothing.append(1 - sum(row))
            everywhere.append(-sum(w / sum(row) * math.log(w / sum(row)) for w in row) / math.log(places))
        columns = [sum(row[place] for row in rows) for place in range(places)]
        one_place.append(max(columns) / sum(columns) if steps >= 4 else 0.0)
    for name, values in (("nothing", nothing), ("everywhere", everywhere), ("one_place", one_place)):
        torch.testing.assert_close(found[name], torch.tensor(values).double(), rtol=1e-5, atol=1e-6)


def shaped(kind: str) -> Tensor:
    weights = torch.zeros(3, 5, 6)
    if kind == "one_place":
        weights[..., 1] = 1.0
    if kind == "everywhere":
        weights[:] = 1 / PLACES.sum(1).view(-1, 1, 1)
    if kind == "sound":
        weights[:, torch.arange(5), torch.tensor([0, 1, 1, 2, 2])] = 1.0
    return masked(weights)


@pytest.mark.parametrize("kind", ["nothing", "one_place", "everywhere"])
def test_a_collapse_is_told_once_and_not_at_the_beginning(kind: str) -> None:
    collapse = AlignmentCollapseMonitor("net.decoder", compares=True)
    if kind == "one_place":  # the last text is too short to tell
        steps, places, weights = STEPS[:2], PLACES[:2], shaped(kind)[:2]
    else:
        steps, places, weights = STEPS, PLACES, shaped(kind)
    seen = []
    for _ in range(6):
        collapse.update(weights, steps, places)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            collapse.notice()
        seen.append([str(each.message) for each in caught])
        for metric in collapse.measures.values():
            metric.reset()  # type: ignore[operator]
    assert [len(messages) for messages in seen] == [0, 0, 1, 0, 0, 0]
    assert seen[2][0].startswith(f"the alignment of net.decoder has collapsed (val/alignment_{kind}=1.00 in 3")


def test_what_is_sound_or_spread_on_purpose_is_no_collapse() -> None:
    for kind, compares in (("sound", True), ("everywhere", False)):
        collapse = AlignmentCollapseMonitor("net.decoder", compares=compares)
        for _ in range(4):
            collapse.update(shaped(kind), STEPS, PLACES)
            collapse.notice()
    assert "val/alignment_everywhere" not in collapse.to_log()
