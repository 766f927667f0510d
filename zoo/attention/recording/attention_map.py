"""Maps of single attention sites: weights, the pairs they belong to, and operations that work on every layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.recording.reductions import Reduction
from zoo.attention.supports.support import Support

MEAN = -1
"""Number of the head that is the average of all heads."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The recorded weights of one site.

    Args:
        site: Qualified name of the module that attends.
        weights: Weights before dropout.
        axes: Names of the axes of `weights`: batch, head, query, key; or edge, head; with a leading `step` if a decoder
            called the site once per step. Gates and views have their own names.
        support: Support of the pairs; a list with one support per step if there is an axis `step`. None if the weights
            do not belong to pairs.
        heads: Numbers of the recorded heads; empty without an axis `head`.
        lengths: For a map with steps, the length of each axis in every step; shorter steps are padded.
        view: Reduction that the weights were reduced by.
        keys: For `TopK`, the key of each weight; -1 at padding.
        probabilities: Probabilities that the weights were drawn from (hard attention).
        alignment: Probability that each query stops at each key, of a normalizer that returns `NormalizerOutput`. The
            weights of MoChA are these, spread over chunks.
        implied: True if the mechanism has no weights and these are the weights that it implies.
    """

    site: str
    weights: Tensor
    axes: tuple[str, ...]
    support: Support | list[Support] | None
    heads: tuple[int, ...]
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    view: Reduction | None = None
    keys: Tensor | None = None
    probabilities: Tensor | None = None
    alignment: Tensor | None = None
    implied: bool = False

    @property
    def nbytes(self) -> int:
        return self.weights.numel() * self.weights.element_size()

    @property
    def has_edges(self) -> bool:
        """True if the weights are a list of edges, without a batch."""
        return "edge" in self.axes

    @property
    def has_pairs(self) -> bool:
        """True if the weights are those of one call of the site, laid out as its support lays out pairs."""
        return isinstance(self.support, Support) and self.support.axes == self.axes

    @property
    def layout(self) -> Support:
        """The support, limited to the recorded heads or merged for their average."""
        if not isinstance(self.support, Support) or not self.has_pairs:
            raise ValueError(
                f"{self.site} has the axes {', '.join(self.axes)}, which are not those of queries and keys"
            )
        return self.support.select_heads(None if self.heads == (MEAN,) else self.heads)

    def dense(self) -> Float[Tensor, "b h q k"]:
        """Returns the weights of every query and key, whatever the layout; zero where there is no pair."""
        layout = self.layout
        return layout.to_dense(self.weights, *layout.sizes(self.weights))

    def row(self, query: int) -> Float[Tensor, "b h k"]:
        """Returns the weights of one query for every key; zero where there is no pair."""
        return self.layout.row(self.weights, query)

    def pair_mask(self) -> Bool[Tensor, "#b #h #q #k"]:
        """Returns a mask of the pairs of `dense` that exist."""
        return self.layout.dense_mask(self.weights)

    def example(self, index: int) -> AttentionMap:
        """Returns the map of one example, as a batch of one."""
        axis = self.axes.index("batch")
        support = self.support.select_example(index) if isinstance(self.support, Support) else self.support
        return self._map(lambda x: x.narrow(axis, index, 1), support=support)

    def steps(self) -> list[AttentionMap]:
        """Returns the map of each call of the site, without padding."""
        if "step" not in self.axes:
            return [self]
        supports = self.support if isinstance(self.support, list) else [self.support] * len(self.weights)
        return [self._step(number, support) for number, support in enumerate(supports)]

    def mean_heads(self) -> AttentionMap:
        """Returns the map of one head, the average of all."""
        axis = self._head_axis
        if self.keys is not None:
            raise ValueError(f"{self.site} has the top keys of each head, which are not the same for all")
        weights = self.weights.mean(axis, keepdim=True)
        return replace(self, weights=weights, heads=(MEAN,), probabilities=None, alignment=None)

    def head(self, number: int) -> AttentionMap:
        axis = self._head_axis
        if number not in self.heads:
            raise ValueError(f"{self.site} has heads {list(self.heads)}, not {number}")
        position = self.heads.index(number)
        return self._map(lambda x: x.narrow(axis, position, 1), heads=(number,))

    def _step(self, number: int, support: Support | None) -> AttentionMap:
        def cut(x: Tensor) -> Tensor:
            x = x[number]
            for dim, axis in enumerate(self.axes[1:]):
                x = x.narrow(dim, 0, self.lengths[axis][number]) if axis in self.lengths else x
            return x

        return self._map(cut, axes=self.axes[1:], support=support, lengths={})

    def _map(self, change: Callable[[Tensor], Tensor], **others: Any) -> AttentionMap:
        """Returns a copy with the same change made to the weights and to what stands beside them."""
        beside = {"keys": self.keys, "probabilities": self.probabilities, "alignment": self.alignment}
        changed: dict[str, Any] = {name: change(x) for name, x in beside.items() if x is not None}
        return replace(self, weights=change(self.weights), **changed, **others)

    @property
    def _head_axis(self) -> int:
        if "head" not in self.axes:
            raise ValueError(f"{self.site} has no heads; its axes are {', '.join(self.axes)}")
        return self.axes.index("head")
