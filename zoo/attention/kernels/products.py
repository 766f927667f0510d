"""Linear layers: the product with a weight, by the faster of PyTorch's two float32 routines on this processor."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.processor import PROCESSOR, Processor

_ROWS = 256
_PRODUCTS = 2**25


class Linear(nn.Linear):
    """x W^T + b, as torch's, whose parameters it has; computed by `linear`."""

    def forward(self, input: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows e"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], bias: Float[Tensor, " e"] | None = None
) -> Float[Tensor, "*rows e"]:
    """x W^T + b.

    Where `convolves` says so, it is computed as a convolution of size one over the rows, in channels_last: the same
    sums, which PyTorch gives to oneDNN instead of the BLAS that it was built with.
    """
    if not convolves(x, weight, PROCESSOR):
        return F.linear(x, weight, bias)
    pixels = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    # Dilation means nothing to a kernel of size one; with a single thread PyTorch asks oneDNN only if there is some.
    product = F.conv2d(pixels, weight[:, :, None, None], bias, dilation=2)
    return product.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


def convolves(x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], processor: Processor) -> bool:
    """Whether a convolution is faster: a function of shape, dtype, device and processor alone.

    Where MKL, PyTorch's BLAS, is slow oneDNN is about twice as fast, elsewhere not. oneDNN makes code for a shape
    that it meets for the first time (0.3 to 1 ms) and rearranges the weights in every call: neither is paid for by few
    rows or small widths.
    """
    if not (_HAS_BOTH and processor.has_slow_mkl):
        return False
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= _ROWS and rows * weight.numel() >= _PRODUCTS


_HAS_BOTH = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
