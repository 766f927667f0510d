"""Gates: channel and spatial attention, maps of features multiplied by gates that are computed from them.

A gate compares nothing with a query, so it is no score and has no support; it shares the Tap, through which its values
are observed.

Goes: after a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.kernels.precision import wide
from zoo.attention.observing.record import Tap
from zoo.attention.ranges import Count

Pooling = Literal["avg", "max", "both"]
Order = Literal["channel", "spatial"]


class SqueezeExcitation(nn.Module):
    """s = sigmoid(W2 relu(W1 z)), z the mean of each channel (Hu et al. 2018, eq. 2-4).

    Cost: O(c (n + c / reduction))

    Args:
        channels: Of the features.
        reduction: What the channels are divided by between W1 and W2; at least one is left.
    """

    def __init__(self, *, channels: Count, reduction: Count = 16) -> None:
        super().__init__()
        self.squeeze, self.excite = _bottleneck(channels, reduction)
        self.tap = Tap()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        gates = self.excite(self.squeeze(_mean(x)).relu()).sigmoid()
        return _gated_channels(x, gates, self.tap)


class EfficientChannel(nn.Module):
    """s = sigmoid(conv_k(z)), z the mean of each channel, over the channels in their order (Wang et al. 2020, eq. 9).

    Cost: O(c (n + kernel))

    Args:
        channels: Of the features.
        kernel: How many neighbouring channels a gate depends on, an odd number; if not given, `efficient_kernel`'s.
    """

    def __init__(self, *, channels: Count, kernel: Count | None = None) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"a gate has at least 1 channel, got {channels}")
        self.kernel = efficient_kernel(channels) if kernel is None else _odd(kernel)
        self.conv = nn.Conv1d(1, 1, self.kernel, padding=self.kernel // 2, bias=False)
        self.tap = Tap()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        gates = self.conv(_mean(x).unsqueeze(1)).squeeze(1).sigmoid()
        return _gated_channels(x, gates, self.tap)


def efficient_kernel(channels: int, gamma: float = 2.0, b: float = 1.0) -> int:
    """|log2(C) / gamma + b / gamma|_odd (Wang et al. 2020, eq. 12).

    The nearest odd number is read as their code has it: the whole part, and the next one where that is even.
    """
    whole = int(abs((math.log2(channels) + b) / gamma))
    return whole if whole % 2 else whole + 1


class ChannelGate(nn.Module):
    """M_c = sigmoid(MLP(avg) + MLP(max)), one MLP for both (Woo et al. 2018, eq. 2).

    Cost: O(c (n + c / reduction))

    Args:
        channels: Of the features.
        reduction: What the channels are divided by inside the MLP; at least one is left.
        pooling: What of each channel the MLP is given; the results of both are added.
    """

    def __init__(self, *, channels: Count, reduction: Count = 16, pooling: Pooling = "both") -> None:
        super().__init__()
        self.pools = _pools(pooling)
        self.squeeze, self.excite = _bottleneck(channels, reduction)
        self.tap = Tap()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        pooled = [self.excite(self.squeeze(pool(x)).relu()) for pool in self.pools]
        return _gated_channels(x, torch.stack(pooled).sum(0).sigmoid(), self.tap)


class SpatialGate(nn.Module):
    """M_s = sigmoid(conv_k([avg; max])), pooled over the channels (Woo et al. 2018, eq. 3).

    As in the equation, without the batch normalisation that the authors' code has behind the convolution.

    Cost: O(n (c + kernel^2))

    Args:
        kernel: Side of the convolution's square, an odd number.
        pooling: What of each place the convolution is given.
    """

    def __init__(self, *, kernel: Count = 7, pooling: Pooling = "both") -> None:
        super().__init__()
        self.pools = _pools(pooling, over_channels=True)
        self.conv = nn.Conv2d(len(self.pools), 1, _odd(kernel), padding=kernel // 2, bias=False)
        self.tap = Tap()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        # In channels_last, where the convolution of so few channels takes a third of the time.
        pooled = torch.stack([pool(x) for pool in self.pools], dim=-1).permute(0, 3, 1, 2)
        gates = self.conv(pooled).sigmoid()
        if self.tap.is_open:
            self.tap.emit(gates.squeeze(1), None, ("batch", "height", "width"))
        gated: Tensor = x * gates
        return gated


class CBAM(nn.Module):
    """F' = M_c(F) F, F'' = M_s(F') F' (Woo et al. 2018, eq. 1).

    Cost: O(n (c + kernel^2) + c^2 / reduction)

    Args:
        channels: Of the features.
        reduction: What the channels are divided by inside the channel gate's MLP; at least one is left.
        kernel: Side of the spatial gate's convolution.
        pooling: What both gates are given.
        first: Which gate comes first; the paper found the channel gate to be the better one (table 2).
    """

    def __init__(
        self,
        *,
        channels: Count,
        reduction: Count = 16,
        kernel: Count = 7,
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


def _gated_channels(x: Float[Tensor, "b c h w"], gates: Float[Tensor, "b c"], tap: Tap) -> Float[Tensor, "b c h w"]:
    if tap.is_open:
        tap.emit(gates, None, ("batch", "channel"))
    return x * gates[:, :, None, None]


def _mean(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
    return _averaged(x, (2, 3))


def _max(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
    return _highest(x, (2, 3))


def _mean_of_channels(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    return _averaged(x, (1,))


def _max_of_channels(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    return _highest(x, (1,))


def _averaged(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Half precision is added up in fp32.

    The gradient of a sum is a view of few numbers; that of torch's mean is as large as x, and never channels_last.
    """
    count = math.prod(x.shape[axis] for axis in axes)
    return (x.sum(axes, dtype=wide(x)) / count).to(x.dtype)


def _highest(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    highest: Tensor = _Highest.apply(x, axes)
    return highest.squeeze(axes)


class _Highest(torch.autograd.Function):
    """`amax`, axes kept. Equal highest numbers share the gradient as torch has it, in fewer passes."""

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
        is_highest = (x - highest).detach().sign_().add_(1.0)  # nothing is above: 0 or 1, with no boolean in between
        count = is_highest.sum(ctx.axes, keepdim=True, dtype=wide(x))
        return is_highest * (gradients[0] / count).to(x.dtype), None


def _pools(pooling: str, over_channels: bool = False) -> list[Callable[[Tensor], Tensor]]:
    if pooling not in ("avg", "max", "both"):
        raise ValueError(f"pooling is 'avg', 'max' or 'both', not {pooling!r}")
    pools: list[Callable[[Tensor], Tensor]] = [_mean_of_channels, _max_of_channels] if over_channels else [_mean, _max]
    return {"avg": pools[:1], "max": pools[1:], "both": pools}[pooling]


def _bottleneck(channels: int, reduction: int) -> tuple[nn.Linear, nn.Linear]:
    if channels < 1 or reduction < 1:
        raise ValueError(f"channels and reduction are at least 1, got channels={channels} and reduction={reduction}")
    inner = max(1, channels // reduction)
    return nn.Linear(channels, inner), nn.Linear(inner, channels)


def _odd(kernel: int) -> int:
    if kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"a kernel is an odd number, so that it has a middle, got {kernel}")
    return kernel
