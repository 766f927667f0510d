"""Self-attention of a block: `MultiHead` around a mechanism, or a mixer in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import nn

from zoo.attention.attend import Attend
from zoo.attention.checks import check_causal
from zoo.attention.factories import sized
from zoo.attention.heads import MultiHead
from zoo.attention.positions.relative import Position


@dataclass(frozen=True)
class MixerFactory:
    """Makes a mixer without attention for each block of a net, in place of an `AttendFactory`.

    Args:
        mixer: Class or partial of a `Mixer`; called with `dim`, `length` and `causal`, if its signature has them and
            the partial does not set them.
    """

    mixer: Callable[..., Any]

    @property
    def name(self) -> str:
        """Name of the mixer's class."""
        return str(getattr(self.mixer, "func", self.mixer).__name__)

    def make(self, *, dim: int, length: int | None, causal: bool = False) -> Any:
        """Makes the mixer of one block.

        Args:
            length: Length of the longest sequence, if the net knows it.
            causal: If True, all supports are causal, and the mixer leaves out parameters that read backwards.
        """
        has = {name for name, value in getattr(self.mixer, "keywords", {}).items() if value is not None}
        known = {"dim": dim, "causal": causal} if length is None else {"dim": dim, "causal": causal, "length": length}
        return sized(self.mixer, {name: each for name, each in known.items() if name not in has})

    def __call__(self, dim: int, heads: int) -> NoReturn:
        raise ValueError(
            f"{self.name} replaces self-attention over a whole sequence, which this model does not have: "
            "choose a mechanism of attention, such as attention=softmax"
        )


def self_attention(
    *,
    dim: int,
    heads: int,
    attend: Callable[[int, int], Attend] | MixerFactory,
    position: Callable[..., Position] | None = None,
    length: int | None = None,
    causal: bool = False,
    bias: bool = True,
    out_bias: bool | None = None,
    project: bool = True,
) -> nn.Module:
    """Makes the `Mixer` of a block: `MultiHead`, or the mixer of a `MixerFactory`.

    Args:
        dim, heads, attend, position, bias, out_bias, project: See `MultiHead`.
        length: Length of the longest sequence, for mixers that need it.
        causal: If True, refuses mechanisms that cannot be causal, and mixers leave out parameters that read backwards.
    """
    if not isinstance(attend, MixerFactory):
        made: nn.Module = MultiHead(
            dim=dim, heads=heads, attend=attend, position=position, bias=bias, out_bias=out_bias, project=project
        )
    elif position is None:
        made = attend.make(dim=dim, length=length, causal=causal)
    else:
        raise ValueError(f"{attend.name} has no queries and keys, so it cannot use relative positions: leave them out")
    if causal:
        check_causal(made)
    return made
