"""Names of splits, and the choice of the examples that are held out where the user does not choose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
SPLITS = ("train", "val", "test")
"""The names of `TRAIN`, `VAL` and `TEST`."""
_SHARE = 0.2


class SplitSet:
    """Examples that are in one split each, or in none. `splits` holds `TRAIN`, `VAL`, `TEST` or `NONE` of each."""

    splits: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.splits)

    def numbers(self, split: str) -> Int[np.ndarray, " k"]:
        """Returns the numbers of the examples of a split (train, val, test), or of all."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == SPLITS.index(split))


def split_stratified(
    labels: Int[np.ndarray, " n"], seed: int, *, held_out: Sequence[int] = (VAL, TEST)
) -> Int[np.ndarray, " n"]:
    """Holds out a fifth of each label's examples for each part; the rest is for training: 60/20/20.

    The split does not depend on how labels are numbered. Labels with one or two examples are for training alone.

    Args:
        labels: -1 where unknown; such examples are in no split.
        seed: The seed of the order from which the parts are taken.
        held_out: The parts.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = labels[order]
    split = np.full(len(labels), NONE)
    for value in np.unique(shuffled[shuffled != NONE]):
        members = order[shuffled == value]
        size = round(_SHARE * len(members))
        split[members] = TRAIN
        for index, part in enumerate(held_out):
            split[members[index * size : (index + 1) * size]] = part
    return split
