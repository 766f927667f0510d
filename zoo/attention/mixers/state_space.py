"""State-space layers: linear recurrences in place of attention, with fixed or input-dependent coefficients."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import upcast
from zoo.attention.kernels.scan import linear_recurrence
from zoo.attention.mixers.sequence import Mixer, MixerState, sequences
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges

_REASON = "a state-space layer passes on a state and has no weights over positions"


@validate_ranges
class StateSpace(Mixer):
    """y = GLU(W gelu(K * x + D x)), K_l = 2 Re sum_n C_n B_n exp(l delta A_n) per channel (Gu et al. 2022, S4D).

    B_n = (exp(delta A_n) - 1) / A_n (zero-order hold); A_n is initialized to -1/2 + i pi n (S4D-Lin). The convolution
    with K is computed by Fourier transform. A support that is not causal adds a second kernel for later positions.
    Padding is zero in the convolution, and the state decays over it.

    Cost: O(n d (log n + states)) time, O(n d) memory; a step O(d states).
    Weights: none; a state is passed on.

    Args:
        dim: Width of the input and of the output.
        states: Size of the state of a channel, in conjugate pairs; an even number.
        causal: If True, the layer has no kernel for later positions and takes causal supports only.
    """

    def __init__(self, *, dim: PositiveInt, states: PositiveInt = 64, causal: bool = False) -> None:
        super().__init__()
        if states % 2:
            raise ValueError(f"states come in conjugate pairs: states must be even, got {states}")
        pairs = states // 2
        self.causal = causal
        self.log_step = nn.Parameter(_log_uniform(dim))
        self.log_decay = nn.Parameter(torch.full((dim, pairs), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(pairs).float().repeat(dim, 1))
        self.ahead = nn.Parameter(torch.randn(dim, pairs, 2) * math.sqrt(0.5))
        if not causal:
            self.back = nn.Parameter(torch.randn(dim, pairs, 2) * math.sqrt(0.5))
        self.skip = nn.Parameter(torch.ones(dim))
        self.out = nn.Linear(dim, 2 * dim)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        if self.probe.is_open:
            self.probe.silent(_REASON)
        if not x.numel():
            return x, None
        with torch.autocast(x.device.type, enabled=False):
            signal = upcast(of.zero_masked(x))
            mixed = self._convolve(signal, of.causal)
        return of.zero_masked(self._out(mixed, signal, x)), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        of = sequences(self, support, x, step=True)
        if self.probe.is_open:
            self.probe.silent(_REASON)
        with torch.autocast(x.device.type, enabled=False):
            signal = upcast(of.zero_masked(x))
            powers = self._powers(x.shape[1] + 1)
            hidden = powers.new_zeros(len(x), *powers.shape[:2]) if state is None else state.parts[0]
            if not x.numel():
                return x, MixerState((hidden,))
            mixed = self._convolve(signal, causal=True)
            before = torch.einsum("bds,dsn->bnd", hidden * self._complex(self.ahead), powers[..., 1:])
            arriving = torch.einsum("bnd,dsn->bds", signal.to(powers.dtype), powers[..., :-1].flip(-1))
            hidden = hidden * powers[..., -1] + self._inputs() * arriving
        return of.zero_masked(self._out(mixed + 2.0 * before.real, signal, x)), MixerState((hidden,))

    def _out(self, mixed: Float[Tensor, "b n d"], signal: Float[Tensor, "b n d"], x: Tensor) -> Float[Tensor, "b n d"]:
        skipped = mixed + upcast(self.skip) * signal
        return F.glu(self.out(F.gelu(skipped).to(x.dtype)))

    def _convolve(self, signal: Float[Tensor, "b n d"], causal: bool) -> Float[Tensor, "b n d"]:
        length = signal.shape[1]
        kernel = self._kernel(self.ahead, length)
        later = torch.zeros_like(kernel) if causal else self._kernel(self.back, length).flip(-1)
        # The transform has twice the length, so that it does not wrap around; negative delays stand at the end.
        spectrum = torch.fft.rfft(torch.cat([kernel, later], -1).T, dim=0)
        mixed: Tensor = torch.fft.irfft(torch.fft.rfft(signal, 2 * length, dim=1) * spectrum, 2 * length, dim=1)
        return mixed[:, :length]

    def _kernel(self, readout: nn.Parameter, length: int) -> Float[Tensor, "d n"]:
        """Computes K. With l = i span + j, exp(l delta A) is a product of two powers, and K one of small matrices."""
        span = math.isqrt(max(length - 1, 0)) + 1
        near, far = self._powers(span), self._powers(-(-length // span), span)
        of_far = far * (self._complex(readout) * self._inputs()).unsqueeze(-1)
        return 2.0 * (of_far.mT @ near).real.flatten(1)[:, :length]

    def _decay(self) -> Tensor:
        """Returns the complex A."""
        return torch.complex(-upcast(self.log_decay).exp(), upcast(self.frequency))

    def _delta(self) -> Float[Tensor, "d 1"]:
        return upcast(self.log_step).exp().unsqueeze(-1)

    def _inputs(self) -> Tensor:
        """Returns B."""
        return torch.expm1(self._delta() * self._decay()) / self._decay()

    def _powers(self, count: int, every: int = 1) -> Tensor:
        """Computes exp(l delta A) for l = 0, every, 2 every, ...: (d, pairs, count)."""
        exponent = self._delta() * self._decay() * every
        return (exponent.unsqueeze(-1) * torch.arange(count, device=exponent.device)).exp()

    @staticmethod
    def _complex(pairs: nn.Parameter) -> Tensor:
        return torch.view_as_complex(upcast(pairs))


@validate_ranges
class SelectiveStateSpace(Mixer):
    """y = W (S(u) silu(z)), (u, z) = V x, with S a recurrence whose coefficients depend on u (Gu & Dao 2023, alg. 2).

    h_t = exp(delta_t A) h_(t-1) + delta_t B_t u_t, S(u)_t = C_t · h_t + D u_t for each channel, with delta, B and C
    linear in u_t (delta through softplus); A_n is initialized to -n. A support that is not causal adds a second
    recurrence from the end. Padding is skipped. Mamba's short convolution and its wider u are left out.

    Cost: O(n log n d states) time, O(n d states) memory; a step O(d states).
    Weights: none; a state is passed on.

    Args:
        dim: Width of the input and of the output.
        states: Size of the state of a channel.
        rank: Width of the projection from which delta is computed. Default: dim / 16, rounded up.
        causal: If True, the layer has no recurrence from the end and takes causal supports only.
    """

    def __init__(
        self, *, dim: PositiveInt, states: PositiveInt = 16, rank: PositiveInt | None = None, causal: bool = False
    ) -> None:
        super().__init__()
        rank = math.ceil(dim / 16) if rank is None else rank
        self.causal = causal
        self.into = nn.Linear(dim, 2 * dim)
        self.ahead = _Selection(dim, states, rank)
        if not causal:
            self.back = _Selection(dim, states, rank)
        self.out = nn.Linear(dim, dim)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        if self.probe.is_open:
            self.probe.silent(_REASON)
        if not x.numel():
            return x, None
        u, z = self.into(of.zero_masked(x)).chunk(2, -1)
        mixed, _ = self.ahead(u, of.real, None)
        if not of.causal:
            turned = None if of.real is None else of.real.flip(1)
            mixed = mixed + self.back(u.flip(1), turned, None)[0].flip(1)
        return of.zero_masked(self.out(mixed.to(x.dtype) * F.silu(z))), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        of = sequences(self, support, x, step=True)
        if self.probe.is_open:
            self.probe.silent(_REASON)
        u, z = self.into(of.zero_masked(x)).chunk(2, -1)
        mixed, last = self.ahead(u, of.real, None if state is None else state.parts[0])
        return of.zero_masked(self.out(mixed.to(x.dtype) * F.silu(z))), MixerState((last,))


class _Selection(nn.Module):
    """One recurrence S(u), from the first position to the last."""

    def __init__(self, dim: int, states: int, rank: int) -> None:
        super().__init__()
        self.sizes = [rank, states, states]
        self.select = nn.Linear(dim, rank + 2 * states, bias=False)
        self.delta = nn.Linear(rank, dim)
        self.log_decay = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(dim, 1))
        self.skip = nn.Parameter(torch.ones(dim))
        with torch.no_grad():  # softplus of the bias is the step of an average input: 0.001 to 0.1
            self.delta.bias.copy_(torch.expm1(_log_uniform(dim).exp()).log())

    def forward(
        self, u: Float[Tensor, "b n d"], real: Tensor | None, first: Float[Tensor, "b ds"] | None
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b ds"]]:
        step, into, readout = self.select(u).split(self.sizes, -1)
        with torch.autocast(u.device.type, enabled=False):
            step = F.softplus(upcast(self.delta(step.to(self.delta.weight.dtype))))
            u, into, readout = upcast(u), upcast(into), upcast(readout)
            step = step if real is None else step.masked_fill(~real, 0.0)  # a step of zero leaves the state as it is
            rate = -upcast(self.log_decay).exp()
            decay = (step.unsqueeze(-1) * rate).exp().flatten(2)
            arriving = ((step * u).unsqueeze(-1) * into.unsqueeze(2)).flatten(2)
            hidden = carry_on(decay, arriving, first)
            read = torch.einsum("bnds,bns->bnd", hidden.view(*hidden.shape[:2], *rate.shape), readout)
        last = hidden[:, -1] if u.shape[1] else hidden.new_zeros(len(u), rate.numel()) if first is None else first
        return read + upcast(self.skip) * u, last


def carry_on(
    decay: Float[Tensor, "b n c"], x: Float[Tensor, "b n c"], first: Float[Tensor, "b c"] | None
) -> Float[Tensor, "b n c"]:
    """Computes h_t = decay_t h_(t-1) + x_t for every t, with h_0 = first or zero."""
    if first is not None and x.shape[1]:
        x = torch.cat([x[:, :1] + decay[:, :1] * first.unsqueeze(1), x[:, 1:]], 1)
    return linear_recurrence(decay, x, dim=1)


def _log_uniform(dim: int) -> Float[Tensor, " d"]:
    """Draws logarithms of steps between 0.001 and 0.1, uniformly (Gu et al. 2022)."""
    return torch.empty(dim).uniform_(math.log(0.001), math.log(0.1))
