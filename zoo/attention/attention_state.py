"""States that a decoder passes from one step to the next: previous weights, coverage, and sums of linear attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F


class NormalizerOutput(NamedTuple):
    """The result of a normalizer whose next step needs an alignment that differs from its weights."""

    weights: Float[Tensor, "b h q k"]
    alignment: Float[Tensor, "b h q k"]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """The attention of a decoder so far; an argument and a return value, never stored on a module.

    With one row, the queries of a call are consecutive steps. With several rows, one for each of several hypotheses
    that share their keys, each query is the next step of its own hypothesis.
    """

    weights: Float[Tensor, "b h r k"]
    """Weights of the previous step."""
    total: Float[Tensor, "b h r k"]
    """Sum of the weights of all steps so far: coverage."""
    alignment: Float[Tensor, "b h r k"] | None = None
    """Alignment of the previous step, from a normalizer that returns `NormalizerOutput`."""
    of_score: Any = None
    """What the score has computed before the first step for all steps: see `Score`."""

    @property
    def rows(self) -> int:
        return self.weights.shape[2]

    @property
    def last_alignment(self) -> Float[Tensor, "b h r k"]:
        """Where the previous step stands: its alignment if there is one, otherwise its weights."""
        return self.weights if self.alignment is None else self.alignment

    def step(
        self, weights: Float[Tensor, "b h q k"], alignment: Float[Tensor, "b h q k"] | None = None
    ) -> AttentionState:
        """Returns the state after these queries."""
        queries = weights.shape[2]
        self.check(queries)
        if queries == self.rows:
            return AttentionState(weights, self.total + weights, alignment, self.of_score)
        if not queries:
            return self
        last = None if alignment is None else alignment[:, :, -1:]
        return AttentionState(weights[:, :, -1:], self.total + weights.sum(2, keepdim=True), last, self.of_score)

    def check(self, queries: int) -> None:
        """Refuses a number of queries that does not fit the number of rows."""
        if self.rows not in (1, queries):
            raise ValueError(f"the state is of {self.rows} hypotheses, one query each, and there are {queries} queries")

    def extend(self, keys: int) -> AttentionState:
        """Returns the state with `keys` more keys at the end, whose weights so far are zero.

        What the score has computed was for fewer keys, and is left out.
        """
        return replace(self._map(lambda x: F.pad(x, (0, keys))), of_score=None)

    def drop_first(self, first: int) -> AttentionState:
        """Returns the state without the first keys; what the score has computed was for all, and is left out."""
        return replace(self._map(lambda x: x[..., first:]), of_score=None)

    def reorder(self, beams: Int[Tensor, " beams"]) -> AttentionState:
        """Returns the state of the selected hypotheses, in the order of their indices `beams`."""
        return self._map(lambda x: x.index_select(0, beams))

    def select_rows(self, beams: Int[Tensor, "b w"]) -> AttentionState:
        """Returns the state whose rows are the selected hypotheses of each sentence, which share its keys."""
        return self._map(lambda x: select_beams(x.transpose(1, 2), beams).transpose(1, 2))

    def _map(self, change: Callable[[Tensor], Tensor]) -> AttentionState:
        """Returns the state with each tensor of hypotheses and keys changed."""
        alignment = None if self.alignment is None else change(self.alignment)
        return replace(self, weights=change(self.weights), total=change(self.total), alignment=alignment)

    @classmethod
    def concatenate(cls, states: Sequence[AttentionState]) -> AttentionState:
        """Returns the state with the rows of all these."""
        first = states[0]
        weights = torch.cat([state.weights for state in states], 2)
        total = torch.cat([state.total for state in states], 2)
        if first.alignment is None:
            return replace(first, weights=weights, total=total)
        alignment = torch.cat([state.alignment for state in states if state.alignment is not None], 2)
        return replace(first, weights=weights, total=total, alignment=alignment)


def select_beams(x: Shaped[Tensor, "b w *d"], beams: Int[Tensor, "b v"]) -> Shaped[Tensor, "b v *d"]:
    """Selects hypotheses of each sentence: row j of sentence i becomes `x[i, beams[i, j]]`."""
    return x[torch.arange(len(beams), device=x.device).unsqueeze(1), beams]


def flatten_beams(beams: Int[Tensor, "b v"], hypotheses: int) -> Int[Tensor, " rows"]:
    """Returns the same selection as indices of rows, if all hypotheses of all sentences are rows, sentence by sentence.

    Args:
        hypotheses: Number of hypotheses of each sentence before the selection.
    """
    first = torch.arange(len(beams), device=beams.device) * hypotheses
    return (first.unsqueeze(1) + beams).flatten()


@dataclass(frozen=True, eq=False)
class LinearState:
    """The sums over keys of causal linear attention; their size does not grow with the number of keys."""

    sums: Float[Tensor, "b h f v"]
    """sum_j phi(k_j) v_j^T, with sum_j phi(k_j) as the last column; before the first key, that column alone."""
    scale: Float[Tensor, "b h f"]
    """Logarithm of the number that each feature was divided by, for exponential features."""
    length: int
    """Number of keys so far, which is the position of the next one."""

    def sums_at(self, scale: Float[Tensor, "b h f"] | None) -> Float[Tensor, "b h f v"]:
        """Returns the sums with features divided by exp(scale)."""
        return self.sums if scale is None else self.sums * (self.scale - scale).exp().unsqueeze(-1)

    def step(self, sums: Float[Tensor, "b h f v"], scale: Float[Tensor, "b h f"] | None, keys: int) -> LinearState:
        return LinearState(sums, self.scale if scale is None else scale, self.length + keys)

    def reorder(self, beams: Int[Tensor, " beams"]) -> LinearState:
        """Returns the state of the selected hypotheses, in the order of their indices `beams`."""
        return LinearState(self.sums.index_select(0, beams), self.scale.index_select(0, beams), self.length)
