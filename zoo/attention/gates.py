"""Gates: channel and spatial attention, which multiply feature maps by gates computed from the same features.

A gate compares no query with keys, so it has neither a score nor a support. Its values are observed through a probe,
as attention weights are.

Goes: after a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.kernels.dtypes import accumulation_dtype
from zoo.attention.recording.recorder import AttentionProbe
from zoo.types import PositiveInt, validate_ranges

Pooling = Literal["avg", "max", "both"]
Order = Literal["channel", "spatial"]


@validate_ranges
class SqueezeExcitation(nn.Module):
    """s = sigmoid(W2 relu(W1 z)), where z is the mean of each channel (Hu et al. 2018, eq. 2-4).

    Cost: O(c (n + c / reduction))

    Args:
        channels: Number of input channels.
        reduction: Divisor of the number of channels between W1 and W2, where at least one channel remains.
    """

    def __init__(self, *, channels: PositiveInt, reduction: PositiveInt = 16) -> None:
        super().__init__()
        self.squeeze, self.excite = _bottleneck(channels, reduction)
        self.probe = AttentionProbe()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        gates = self.excite(self.squeeze(_mean(x)).relu()).sigmoid()
        return _gate_channels(x, gates, self.probe)


@validate_ranges
class EfficientChannel(nn.Module):
    """s = sigmoid(conv_k(z)), a convolution over the channels, where z is the mean of each (Wang et al. 2020, eq. 9).

    Cost: O(c (n + kernel))

    Args:
        channels: Number of input channels.
        kernel: Number of neighbouring channels that a gate depends on, odd. Default: `efficient_kernel(channels)`.
    """

    def __init__(self, *, channels: PositiveInt, kernel: PositiveInt | None = None) -> None:
        super().__init__()
        self.kernel = efficient_kernel(channels) if kernel is None else _odd(kernel)
        self.conv = nn.Conv1d(1, 1, self.kernel, padding=self.kernel // 2, bias=False)
        self.probe = AttentionProbe()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        gates = self.conv(_mean(x).unsqueeze(1)).squeeze(1).sigmoid()
        return _gate_channels(x, gates, self.probe)


def efficient_kernel(channels: int, gamma: float = 2.0, b: float = 1.0) -> int:
    """Computes |log2(C) / gamma + b / gamma|_odd (Wang et al. 2020, eq. 12).

    As in the authors' code, the fraction is cut off, and one is added to an even number.
    """
    whole = int(abs((math.log2(channels) + b) / gamma))
    return whole if whole % 2 else whole + 1


@validate_ranges
class ChannelGate(nn.Module):
    """M_c = sigmoid(MLP(avg) + MLP(max)), with one MLP for both (Woo et al. 2018, eq. 2).

    Cost: O(c (n + c / reduction))

    Args:
        channels: Number of input channels.
        reduction: Divisor of the number of channels inside the MLP, where at least one channel remains.
        pooling: Pooling of each channel over its positions. For `"both"`, the two results of the MLP are added.
    """

    def __init__(self, *, channels: PositiveInt, reduction: PositiveInt = 16, pooling: Pooling = "both") -> None:
        super().__init__()
        self.pools = _pools(pooling)
        self.squeeze, self.excite = _bottleneck(channels, reduction)
        self.probe = AttentionProbe()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        pooled = [self.excite(self.squeeze(pool(x)).relu()) for pool in self.pools]
        return _gate_channels(x, torch.stack(pooled).sum(0).sigmoid(), self.probe)


@validate_ranges
class SpatialGate(nn.Module):
    """M_s = sigmoid(conv_k([avg; max])), with avg and max taken over the channels (Woo et al. 2018, eq. 3).

    This follows the equation; the authors' code also applies batch normalization after the convolution.

    Cost: O(n (c + kernel^2))

    Args:
        kernel: Side of the convolution's kernel, an odd number.
        pooling: Pooling of each position over its channels.
    """

    def __init__(self, *, kernel: PositiveInt = 7, pooling: Pooling = "both") -> None:
        super().__init__()
        self.pools = _pools(pooling, over_channels=True)
        self.conv = nn.Conv2d(len(self.pools), 1, _odd(kernel), padding=kernel // 2, bias=False)
        self.probe = AttentionProbe()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        # In channels_last a convolution of one or two channels takes a third of the time.
        pooled = torch.stack([pool(x) for pool in self.pools], dim=-1).permute(0, 3, 1, 2)
        gates = self.conv(pooled).sigmoid()
        if self.probe.is_open:
            self.probe.emit(gates.squeeze(1), None, ("batch", "height", "width"))
        gated: Tensor = x * gates
        return gated


@validate_ranges
class CBAM(nn.Module):
    """F' = M_c(F) F, F'' = M_s(F') F': a channel gate, then a spatial gate (Woo et al. 2018, eq. 1).

    Cost: O(n (c + kernel^2) + c^2 / reduction)

    Args:
        channels: Number of input channels.
        reduction: Divisor of the number of channels inside the channel gate's MLP, where at least one channel remains.
        kernel: Side of the spatial gate's kernel, an odd number.
        pooling: Pooling of both gates.
        first: Gate that is applied first. The paper reports better results with the channel gate first (table 2).
    """

    def __init__(
        self,
        *,
        channels: PositiveInt,
        reduction: PositiveInt = 16,
        kernel: PositiveInt = 7,
        pooling: Pooling = "both",
        first: Order = "channel",
    ) -> None:
        super().__init__()
        if first not in ("channel", "spatial"):
            raise ValueError(f"first is 'channel' or 'spatial', not {first!r}")
        self.channel = ChannelGate(channels=channels, reduction=reduction, pooling=pooling)
        self.spatial = SpatialGate(kernel=kernel, pooling=pooling)
        self.first = first

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        gated: Tensor = self.spatial(self.channel(x)) if self.first == "channel" else self.channel(self.spatial(x))
        return gated


def _gate_channels(
    x: Float[Tensor, "b c h w"], gates: Float[Tensor, "b c"], probe: AttentionProbe
) -> Float[Tensor, "b c h w"]:
    if probe.is_open:
        probe.emit(gates, None, ("batch", "channel"))
    return x * gates[:, :, None, None]


def _mean(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
    return _average(x, (2, 3))


def _max(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
    return _highest(x, (2, 3))


def _mean_of_channels(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    return _average(x, (1,))


def _max_of_channels(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    return _highest(x, (1,))


def _average(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Computes the mean over the axes; half precision is summed in fp32.

    A sum is used because its gradient is an expanded view. The gradient of `torch.mean` takes as much memory as x and
    is never channels_last.
    """
    count = math.prod(x.shape[axis] for axis in axes)
    return (x.sum(axes, dtype=accumulation_dtype(x)) / count).to(x.dtype)


def _highest(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    highest: Tensor = _Highest.apply(x, axes)
    return highest.squeeze(axes)


class _Highest(torch.autograd.Function):
    """Computes `amax` and keeps the axes. As in torch, equal maxima share the gradient; this takes fewer passes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return x.amax(axes, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, tuple[int, ...]], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.axes = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, highest = ctx.saved_tensors
        is_highest = (x - highest).detach().sign_().add_(1.0)  # the sign is -1 or 0, so no boolean mask is needed
        count = is_highest.sum(ctx.axes, keepdim=True, dtype=accumulation_dtype(x))
        return is_highest * (gradients[0] / count).to(x.dtype), None


def _pools(pooling: str, over_channels: bool = False) -> list[Callable[[Tensor], Tensor]]:
    if pooling not in ("avg", "max", "both"):
        raise ValueError(f"pooling is 'avg', 'max' or 'both', not {pooling!r}")
    pools: list[Callable[[Tensor], Tensor]] = [_mean_of_channels, _max_of_channels] if over_channels else [_mean, _max]
    return {"avg": pools[:1], "max": pools[1:], "both": pools}[pooling]


def _bottleneck(channels: int, reduction: int) -> tuple[nn.Linear, nn.Linear]:
    inner = max(1, channels // reduction)
    return nn.Linear(channels, inner), nn.Linear(inner, channels)


def _odd(kernel: int) -> int:
    if kernel % 2 == 0:
        raise ValueError(f"a kernel is an odd number, so that it has a middle, got {kernel}")
    return kernel
