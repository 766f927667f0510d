"""Sums over groups of utterances, such as those of a speaker, of all processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from zoo import distributed


class Groups:
    """A tensor of sums for each group."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def reset(self) -> None:
        self._sums.clear()

    def add(self, group: str, sums: Float[Tensor, "*n"]) -> None:
        known = self._sums.get(group)
        self._sums[group] = sums if known is None else known + sums

    def totals(self) -> dict[str, Float[Tensor, "*n"]]:
        """Returns the sums of each group over all processes, which all call this; the same in all of them."""
        found: dict[str, Tensor] = {}
        for part in distributed.all_gather_object(self._sums):
            for group, sums in part.items():
                found[group] = found[group] + sums if group in found else sums
        return {group: found[group] for group in sorted(found)}


class Classes:
    """Classes of a number, by their ends; the last one has none.

    Args:
        ends: The largest number of each class, in ascending order.
    """

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends = ends

    @property
    def names(self) -> list[str]:
        """The names of the classes, in their order."""
        inner = [f"{low:g} to {high:g}" for low, high in zip(self.ends, self.ends[1:], strict=False)]
        return [f"up to {self.ends[0]:g}", *inner, f"above {self.ends[-1]:g}"]

    def __call__(self, value: float) -> str:
        """Returns the name of the class of a number."""
        return self.names[bisect_left(self.ends, value)]
