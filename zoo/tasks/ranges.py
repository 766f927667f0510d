"""Ranges of rows in packed tensors and arrays, where each user's stand one after another."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def owners(lengths: Int[Tensor, " b"], total: int) -> Int[Tensor, " n"]:
    """The number of the range to which each of `total` rows belongs, where one begins at the end of another."""
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths, output_size=total)


def ranges(starts: Int[Tensor, " k"], lengths: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """start, start + 1, ... of each start, as many as its length, one after another."""
    before = lengths.cumsum(0) - lengths
    return (starts - before).repeat_interleave(lengths) + torch.arange(int(lengths.sum()), device=starts.device)


def array_ranges(starts: Int[np.ndarray, " k"], lengths: Int[np.ndarray, " k"]) -> Int[np.ndarray, " n"]:
    """`ranges` of arrays."""
    before = np.cumsum(lengths) - lengths
    places: Int[np.ndarray, " n"] = np.repeat(starts - before, lengths)
    places += np.arange(len(places))
    return places
