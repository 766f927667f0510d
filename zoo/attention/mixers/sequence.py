"""Layers that mix the positions of a sequence without attention, in place of self-attention in a block.

`FourierMixer`, `GatedRecurrent` and `DilatedConvolution` are defined here, `AttentionFree` in `attention_free.py`,
`StateSpace` and `SelectiveStateSpace` in `state_space.py`. All of them can be causal and can decode step by step.

All mixers keep these rules. The content of padding changes no output at real positions, and the output at padding is
zero. A causal support makes a layer causal. With any other support, recurrent layers read in both directions, so they
refuse it if they were made with `causal=True` and have no parameters for the backward direction.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mechanism import Mechanism, Traits, Use
from zoo.attention.recording.recorder import AttentionProbe
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support
from zoo.types import PositiveInt, validate_ranges

_WHOLE = "sees the whole sequence at once; to be causal it must be given a length"


class Mixer(Mechanism):
    """A layer in the place of self-attention in `EncoderBlock` and `DecoderBlock`."""

    arguments = ("x", "support")

    causal: bool = False
    """Whether the layer was made without the parameters that read from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = AttentionProbe()

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], Any]:
        """Mixes x (b,n,d) over the positions that the support permits. Default for `support`: all positions.

        Returns:
            The mixed positions, (b,n,d), and None or a state.
        """

    @abstractmethod
    def step(
        self, x: Float[Tensor, "b n d"], state: Any = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], Any]:
        """Computes the positions of the causal pass that follow those in `state`.

        Args:
            state: State returned by the previous step, with a method `reorder(beams)`; None before the first position.
            support: Causal support from these positions to all positions so far, including these. Default: no mask.

        Returns:
            The output at these positions, and the state after them.
        """


@dataclass(frozen=True, eq=False)
class MixerState:
    """The state of a mixer after the positions so far: tensors whose first axis is the batch."""

    parts: tuple[Tensor, ...]

    def reorder(self, beams: Int[Tensor, " beams"]) -> MixerState:
        """Returns the state of the selected hypotheses, in the order of their indices `beams`."""
        return MixerState(tuple(part.index_select(0, beams) for part in self.parts))


class Sequences(NamedTuple):
    """The part of a support that a mixer needs: the mask of real positions (None: all are real), and causality."""

    real: Bool[Tensor, "b n 1"] | None
    causal: bool

    def zero_masked(self, x: Float[Tensor, "b n *d"]) -> Float[Tensor, "b n *d"]:
        """Sets padding to zero."""
        if self.real is None:
            return x
        return torch.where(self.real.view(*x.shape[:2], *[1] * (x.dim() - 2)), x, x.new_zeros(()))


def sequences(mixer: Mixer, support: Support | None, x: Float[Tensor, "b n d"], step: bool = False) -> Sequences:
    """Converts the support of a mixer, and refuses supports that a mixer cannot follow.

    Args:
        step: If True, the mask of the support may also cover earlier positions than those of x.
    """
    name = type(mixer).__name__
    if support is not None and not isinstance(support, DenseSupport):
        layout = type(support).__name__
        raise ValueError(f"{name} mixes one sequence with itself: it takes a DenseSupport and no source, not {layout}")
    is_causal = step if support is None else support.causal
    if mixer.causal and not is_causal:
        raise ValueError(f"{name} was made with causal=True and reads in one direction: its support must be causal too")
    if support is None:
        return Sequences(None, step)
    if step and not support.causal:
        raise ValueError(f"the steps of {name} are causal: their support must be causal too")
    mask = support.permitted
    if mask is None:
        return Sequences(None, support.causal)
    if mask.shape[1] != 1 or mask.shape[2] != 1:
        raise ValueError(
            f"{name} has no pairs to forbid: its mask must be of keys, (b, 1, 1, k), not {tuple(mask.shape)}"
        )
    if mask.shape[3] not in (1, x.shape[1]) and not (step and mask.shape[3] > x.shape[1]):
        raise ValueError(f"{name} got {x.shape[1]} positions and a mask of {mask.shape[3]}")
    real = mask[:, 0, 0, -x.shape[1] :] if x.shape[1] else mask[:, 0, 0, :0]
    return Sequences(real.expand(x.shape[:2]).unsqueeze(-1), support.causal)


@validate_ranges
class FourierMixer(Mixer):
    """Re(F_seq F_hidden x): Fourier transforms along the sequence and the width (Lee-Thorp et al. 2022, eq. 3).

    The layer has no parameters, and every position contributes to every other. The transform covers the padded length
    with zeros at padding, so the output of a sequence changes with the length of its batch.

    Under a causal support y_t = Re sum_(s<=t) exp(-2 pi i s t / length) (F_hidden x)_s: the transform of `length`
    positions restricted to the past. The paper has only the full transform. The frequencies are set by `length` because
    the length of the input is not known before its end.

    Cost: O(n d log(n d)) time, O(n d) memory; causal O(n^2 d) time, causal O(n^2 + n d) memory.
    Weights: none; fixed complex waves.

    Args:
        length: Length of the longest sequence under a causal support. Default: causal supports are refused.
    """

    traits = Traits(
        unsupported={
            Use.PADDED: "transforms the padded length, so that the result of a sequence would change with its batch",
        }
    )

    def __init__(self, *, length: PositiveInt | None = None) -> None:
        super().__init__()
        self.length = length
        if length is None:
            self.narrow(unsupported={**self.traits.unsupported, Use.CAUSAL: _WHOLE})

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        if of.causal:
            return self._follow(x, of, None)[0], None
        self._be_silent()
        if not x.numel():
            return x, None
        mixed = torch.fft.fft2(upcast(of.zero_masked(x)), dim=(-2, -1)).real
        return of.zero_masked(mixed.to(x.dtype)), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        return self._follow(x, sequences(self, support, x, step=True), state)

    def _follow(
        self, x: Float[Tensor, "b n d"], of: Sequences, state: MixerState | None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        """Computes the causal transform; the state holds F_hidden x at the positions so far."""
        start = 0 if state is None else state.parts[0].shape[1]
        stop = start + x.shape[1]
        if self.length is None:
            raise ValueError(f"FourierMixer {_WHOLE}")
        if stop > self.length:
            raise ValueError(f"FourierMixer was made for {self.length} positions, got {stop}")
        self._be_silent()
        signal = upcast(of.zero_masked(x))
        spectrum = torch.fft.fft(signal, dim=-1) if x.numel() else signal.to(signal.dtype.to_complex())
        if state is not None:
            spectrum = torch.cat([state.parts[0], spectrum], 1)
        at = torch.arange(stop, device=x.device)
        angles = (at[start:, None] * at % self.length).to(signal.dtype) * (2.0 * math.pi / self.length)
        with torch.autocast(x.device.type, enabled=False):
            cosine, sine = angles.cos().tril(start), angles.sin().tril(start)
            mixed = cosine @ spectrum.real + sine @ spectrum.imag
        return of.zero_masked(mixed.to(x.dtype)), MixerState((spectrum,))

    def _be_silent(self) -> None:
        if self.probe.is_open:
            self.probe.silent("the Fourier transform mixes positions with fixed complex waves, not with weights")


@validate_ranges
class GatedRecurrent(Mixer):
    """y = W_f h_f + W_b h_b + b, where h_f and h_b are GRU states from the two ends (Cho et al. 2014).

    r = sigmoid(W_r x_t + U_r h + b_r), z = sigmoid(W_z x_t + U_z h + b_z), c = tanh(W x_t + b + r (U h + b_u)),
    h_t = (1 - z) c + z h. This is the GRU of `torch.nn.GRU`, where r gates U h; in the paper r gates h. Padding is
    skipped. Under a causal support h_b = 0.

    Cost: O(n d^2) time in n steps, O(n d) memory; a step O(d^2).
    Weights: none; a state is passed on.

    Args:
        dim: Width of the input and of the output.
        causal: If True, the layer has no backward GRU and takes causal supports only, with half the parameters.
    """

    def __init__(self, *, dim: PositiveInt, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.ahead = nn.GRU(dim, dim, batch_first=True)
        self.out_ahead = nn.Linear(dim, dim)
        if not causal:
            self.back = nn.GRU(dim, dim, batch_first=True)
            self.out_back = nn.Linear(dim, dim, bias=False)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        self._be_silent()
        hidden = self.out_ahead(_states(self.ahead, x, of, None)[0])
        if not of.causal:
            turned = of._replace(real=None if of.real is None else of.real.flip(1))
            hidden = hidden + self.out_back(_states(self.back, x.flip(1), turned, None)[0].flip(1))
        return of.zero_masked(hidden), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        of = sequences(self, support, x, step=True)
        self._be_silent()
        states, last = _states(self.ahead, x, of, None if state is None else state.parts[0])
        return of.zero_masked(self.out_ahead(states)), MixerState((last,))

    def _be_silent(self) -> None:
        if self.probe.is_open:
            self.probe.silent("a recurrent layer passes on a state and has no weights over positions")


def _states(
    gru: nn.GRU, x: Float[Tensor, "b n d"], of: Sequences, first: Float[Tensor, "b d"] | None
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b d"]]:
    """Returns the state at every real position, and the one after the last.

    Padding between real positions is moved to the end for the GRU, and the states are moved back.
    """
    first = x.new_zeros(len(x), gru.hidden_size) if first is None else first
    if not x.numel():
        return x.new_zeros(*x.shape[:2], gru.hidden_size), first
    dtype = next(gru.parameters()).dtype
    with torch.autocast(x.device.type, enabled=False):
        if of.real is None:
            states, last = gru(x.to(dtype), first.to(dtype).unsqueeze(0))
            return states, last.squeeze(0)
        order = of.real.squeeze(-1).long().argsort(dim=1, descending=True, stable=True).unsqueeze(-1)
        together = of.zero_masked(x).gather(1, order.expand_as(x))
        states, _ = gru(together.to(dtype), first.to(dtype).unsqueeze(0))
    # The initial state is put in front: it is the last state of a sequence without real positions.
    counts = of.real.sum(1, keepdim=True).expand(-1, -1, states.shape[-1])
    last = torch.cat([first.unsqueeze(1).to(states.dtype), states], 1).gather(1, counts).squeeze(1)
    return torch.zeros_like(states).scatter(1, order.expand_as(states), states), last


@validate_ranges
class DilatedConvolution(Mixer):
    """y = sum_l u_l, u_l = W_l (tanh(F_l * x_l) sigmoid(G_l * x_l)), x_l = x + sum_(i<l) u_i (Oord et al. 2016, eq. 2).

    The filters F_l and G_l have `kernel` taps, 2^(l-1) positions apart; under a causal support they cover past
    positions only. The block adds the residual connection around the sum. Padding is zero in every layer.

    Cost: O(n d^2 layers) time, O(n d layers) memory; a step O(d^2 layers).
    Weights: none; filters, the same for every input.

    Args:
        dim: Width of the input and of the output.
        layers: Number of convolutions. The receptive field is a position and (kernel - 1) (2^layers - 1) others.
        kernel: Size of a filter, an odd number.
    """

    def __init__(self, *, dim: PositiveInt, layers: PositiveInt = 4, kernel: PositiveInt = 3) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that it has a middle, got {kernel}")
        self.filters = nn.ModuleList(nn.Conv1d(dim, 2 * dim, kernel, dilation=2**layer) for layer in range(layers))
        self.outs = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers))
        self.spans = [(kernel - 1) * 2**layer for layer in range(layers)]

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        ahead = [0 if of.causal else span // 2 for span in self.spans]
        before = [span - zeros for span, zeros in zip(self.spans, ahead, strict=True)]
        return self._mix(x, of, [x.new_zeros(len(x), count, x.shape[2]) for count in before], ahead)[0], None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        of = sequences(self, support, x, step=True)
        before = [x.new_zeros(len(x), span, x.shape[2]) for span in self.spans] if state is None else list(state.parts)
        y, after = self._mix(x, of, before, [0] * len(self.spans))
        return y, MixerState(tuple(after))

    def _mix(
        self, x: Float[Tensor, "b n d"], of: Sequences, before: list[Tensor], ahead: list[int]
    ) -> tuple[Float[Tensor, "b n d"], list[Tensor]]:
        """Applies all layers.

        Args:
            before: Input of each layer at the positions before x.
            ahead: Number of zeros after x, for each layer.
        """
        if self.probe.is_open:
            self.probe.silent("a convolution's weights are its filters, the same for every input")
        x = of.zero_masked(x)
        total, after = torch.zeros_like(x), []
        for convolve, out, earlier, zeros in zip(self.filters, self.outs, before, ahead, strict=True):
            window = torch.cat([earlier.to(x.dtype), x + total], 1)
            after.append(window[:, x.shape[1] :])
            if x.numel():
                filtered = convolve(F.pad(window, (0, 0, 0, zeros)).transpose(1, 2)).transpose(1, 2)
                values, gates = filtered.chunk(2, -1)
                total = total + of.zero_masked(out(values.tanh() * gates.sigmoid()))
        return total if x.numel() else x, after
