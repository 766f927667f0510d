"""Attention is four choices: score a pair, limit its support, normalise, combine.

`Attend` puts injected mechanisms together and owns what they share: dropout of weights, the Tap through which maps are
observed, decoder memory, and the choice of a fused kernel where one computes exactly this combination.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import fused
from zoo.attention.dropout import dropout
from zoo.attention.record import Tap
from zoo.attention.state import AttentionState
from zoo.attention.supports import Support


class Score(Protocol):
    """One number for every pair and head."""

    def prepare(self, key: Tensor) -> Tensor:
        """What depends on the keys alone, once a sequence; `__call__` takes the result as `key`."""
        ...

    def __call__(self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None) -> Tensor: ...


class Normaliser(Protocol):
    """From scores to weights, over the keys that the support permits."""

    def __call__(self, scores: Tensor, support: Support, state: AttentionState | None) -> Tensor: ...


class Attend(nn.Module):
    """score -> normalise -> combine.

    Args:
        score: What a query thinks of a key.
        normalise: How scores become weights.
        dropout: Probability with which a weight is dropped in training, after normalisation.
    """

    def __init__(self, score: nn.Module, normalise: nn.Module, *, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is a probability below 1, got {dropout}")
        self.score = score
        self.normalise = normalise
        self.dropout = dropout
        self.tap = Tap()

    def require(self, support: type, user: str) -> None:
        """Refuses, at start-up, a mechanism that cannot work on this support."""
        for part in (self.score, self.normalise):
            served = getattr(part, "supports", None)
            if served is not None and support not in served:
                names = " or ".join(kind.__name__ for kind in served)
                raise ValueError(
                    f"{type(part).__name__} works on {names} alone; {user} attends over {support.__name__}"
                )

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Keys as `forward` takes them; call it once per sequence, not once per step."""
        return self.score.prepare(key)  # type: ignore[operator,no-any-return]

    def start(self, query: Tensor, key: Tensor, support: Support) -> AttentionState:
        """The memory before the first step. A normaliser with a memory of its own says how it begins."""
        nothing = support.zeros(query, key)
        begin = getattr(self.normalise, "start", None)
        return AttentionState(weights=nothing if begin is None else begin(nothing), total=nothing)

    def weights(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        """The weights, written out, before dropout."""
        return self.normalise(self.score(query, key, support, state), support, state)  # type: ignore[no-any-return]

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, support: Support, state: AttentionState | None = None
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        """Shapes are the support's: see `zoo.attention.supports`. `key` comes from `prepare`.

        Returns:
            The context of each query, and the state after this step (None if none was given).
        """
        key, value = support.clean(key), support.clean(value)
        p = self.dropout if self.training else 0.0
        kernel = fused.find(self.score, self.normalise, support)
        if kernel is not None and state is None and not self.tap.wants_gradient:
            if self.tap.is_open:
                with torch.no_grad():
                    self.tap.emit(self.weights(query, key, support), support)
            return kernel(self.score, query, key, value, support, p), None
        weights = self.weights(query, key, support, state)
        if self.tap.is_open:
            self.tap.emit(weights, support)
        context = support.combine(dropout(weights, p, self.training), value)
        return context, None if state is None else state.step(weights)


@dataclass(frozen=True)
class AttendFactory:
    """`(dim, heads) -> Attend`: what a net is given, so that every site has its own parameters.

    Args:
        score, normalise: Classes or partials; each is given those of `dim` and `heads` that it asks for.
        dropout: Of the weights.
    """

    score: Callable[..., Any]
    normalise: Callable[..., Any]
    dropout: float = 0.0

    def __call__(self, dim: int, heads: int) -> Attend:
        sizes = {"dim": dim, "heads": heads}
        return Attend(_sized(self.score, sizes), _sized(self.normalise, sizes), dropout=self.dropout)


def _sized(part: Callable[..., Any], sizes: dict[str, int]) -> Any:
    asked = inspect.signature(part).parameters
    return part(**{name: size for name, size in sizes.items() if name in asked})
