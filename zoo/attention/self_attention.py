"""What stands in self-attention's place in a block: `MultiHead` around a mechanism, or a mixer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import nn

from zoo.attention.attend import Attend, sized
from zoo.attention.checks import check_causal
from zoo.attention.heads import MultiHead
from zoo.attention.positions.relative import Position


@dataclass(frozen=True)
class MixerFactory:
    """What a net is given in place of an `AttendFactory` where no attention is wanted.

    Args:
        mixer: A class or partial of a `Mixer`; it is given those of `dim`, `length` and `causal` that it asks for and
            does not have.
    """

    mixer: Callable[..., Any]

    @property
    def name(self) -> str:
        """Of the class."""
        return str(getattr(self.mixer, "func", self.mixer).__name__)

    def make(self, *, dim: int, length: int | None, causal: bool = False) -> Any:
        """The mixer of a block.

        Args:
            length: Of the longest sequence, where the net knows it.
            causal: Whether all its supports are; it then has nothing that reads from the end.
        """
        has = {name for name, value in getattr(self.mixer, "keywords", {}).items() if value is not None}
        known = {"dim": dim, "causal": causal} if length is None else {"dim": dim, "causal": causal, "length": length}
        return sized(self.mixer, {name: each for name, each in known.items() if name not in has})

    def __call__(self, dim: int, heads: int) -> NoReturn:
        raise ValueError(
            f"{self.name} stands in the place of a block's self-attention, and this model attends in another way: "
            "give a mechanism of attention, such as attention=softmax"
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
    """A `Mixer`: `MultiHead`, or what a `MixerFactory` makes.

    Args:
        dim, heads, attend, position, bias, out_bias, project: As in `MultiHead`.
        length: Of the longest sequence, for mixers that ask for it.
        causal: Refuses, at start-up, what cannot be, and leaves out what would read from the end.
    """
    if not isinstance(attend, MixerFactory):
        made: nn.Module = MultiHead(
            dim=dim, heads=heads, attend=attend, position=position, bias=bias, out_bias=out_bias, project=project
        )
    elif position is None:
        made = attend.make(dim=dim, length=length, causal=causal)
    else:
        raise ValueError(f"{attend.name} has no queries and keys that relative positions could change: leave them out")
    if causal:
        check_causal(made)
    return made
