"""Which examples are held out, where the user does not say so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
_SHARE = 0.2


def stratified(
    labels: Int[np.ndarray, " n"], seed: int, *, held_out: Sequence[int] = (VAL, TEST)
) -> Int[np.ndarray, " n"]:
    """A fifth of each label for each part that is held out, the rest for training: 60/20/20.

    Which example goes where does not depend on the labels' numbers. A label with one or two examples is all training.

    Args:
        labels: -1 where not known, which is in no split.
        seed: of the order from which the parts are cut.
        held_out: the parts.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    shuffled = labels[order]
    split = np.full(len(labels), NONE)
    for value in np.unique(shuffled[shuffled != NONE]):
        members = order[shuffled == value]
        size = round(_SHARE * len(members))
        split[members] = TRAIN
        for place, part in enumerate(held_out):
            split[members[place * size : (place + 1) * size]] = part
    return split
