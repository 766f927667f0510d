"""Ranges of rows in packed tensors and arrays, in which the rows of one sequence follow those of another."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def owners(lengths: Int[Tensor, " b"], total: int) -> Int[Tensor, " n"]:
    """Returns the index of the range to which each of `total` rows belongs, for adjacent ranges."""
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths, output_size=total)


def ranges(starts: Int[Tensor, " k"], lengths: Int[Tensor, " k"]) -> Int[Tensor, " n"]:
    """Concatenates the ranges start, ..., start + length - 1."""
    before = lengths.cumsum(0) - lengths
    return (starts - before).repeat_interleave(lengths) + torch.arange(int(lengths.sum()), device=starts.device)


def array_ranges(starts: Int[np.ndarray, " k"], lengths: Int[np.ndarray, " k"]) -> Int[np.ndarray, " n"]:
    """Computes `ranges` of NumPy arrays."""
    before = np.cumsum(lengths) - lengths
    indices: Int[np.ndarray, " n"] = np.repeat(starts - before, lengths)
    indices += np.arange(len(indices))
    return indices
