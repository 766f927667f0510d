"""Self-attention of a block: `MultiheadAttention` around a mechanism, or a mixer in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from torch import nn

from zoo.attention.factories import make_sized
from zoo.attention.mechanism import Position, Use, check
from zoo.attention.multihead import MultiheadAttention
from zoo.attention.site import AttentionSite


@dataclass(frozen=True)
class MixerFactory:
    """Makes a mixer without attention for each block of a net, in place of an `AttentionFactory`.

    Args:
        mixer: Class or partial of a `Mixer`; called with `dim`, `length` and `causal`, if its signature has them and
            the partial does not set them.
    """

    mixer: Callable[..., Any]

    @property
    def name(self) -> str:
        """Name of the mixer's class."""
        mixer = self.mixer.func if isinstance(self.mixer, partial) else self.mixer
        return mixer.__name__

    def make(self, *, dim: int, length: int | None, causal: bool = False) -> Any:
        """Makes the mixer of one block.

        Args:
            length: Length of the longest sequence, if the net knows it.
            causal: If True, all supports are causal, and the mixer leaves out parameters that read backwards.
        """
        options = self.mixer.keywords if isinstance(self.mixer, partial) else {}
        has = {name for name, value in options.items() if value is not None}
        known = {"dim": dim, "causal": causal} if length is None else {"dim": dim, "causal": causal, "length": length}
        return make_sized(self.mixer, {name: value for name, value in known.items() if name not in has})

    def __call__(self, dim: int, heads: int) -> NoReturn:
        raise ValueError(
            f"{self.name} replaces self-attention over a whole sequence, which this model does not have: "
            "choose a mechanism of attention, such as attention=softmax"
        )


def self_attention(
    *,
    dim: int,
    heads: int,
    attend: Callable[[int, int], AttentionSite] | MixerFactory,
    position: Callable[..., Position] | None = None,
    length: int | None = None,
    causal: bool = False,
    bias: bool = True,
    out_bias: bool | None = None,
    project: bool = True,
) -> nn.Module:
    """Makes the `Mixer` of a block: `MultiheadAttention`, or the mixer of a `MixerFactory`.

    Args:
        dim, heads, attend, position, bias, out_bias, project: See `MultiheadAttention`.
        length: Length of the longest sequence, for mixers that need it.
        causal: If True, refuses mechanisms that cannot be causal, and mixers leave out parameters that read backwards.
    """
    if not isinstance(attend, MixerFactory):
        module: nn.Module = MultiheadAttention(
            dim=dim, heads=heads, attend=attend, position=position, bias=bias, out_bias=out_bias, project=project
        )
    elif position is None:
        module = attend.make(dim=dim, length=length, causal=causal)
    else:
        raise ValueError(f"{attend.name} has no queries and keys, so it cannot use relative positions: leave them out")
    if causal:
        check(module, Use.CAUSAL)
    return module
