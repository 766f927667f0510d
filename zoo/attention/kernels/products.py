"""Linear layers that use the faster of PyTorch's two float32 matrix products on this processor."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.processor import PROCESSOR, Processor

_ROWS = 256
_PRODUCTS = 2**25


class Linear(nn.Linear):
    """x W^T + b: `torch.nn.Linear` with the same parameters, computed by `linear`."""

    def forward(self, input: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows e"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], bias: Float[Tensor, " e"] | None = None
) -> Float[Tensor, "*rows e"]:
    """Computes x W^T + b.

    If `convolves` is true, the product is computed as a convolution of size one over the rows, in channels_last.
    PyTorch computes convolutions with oneDNN and matrix products with MKL.
    """
    if not convolves(x, weight, PROCESSOR):
        return F.linear(x, weight, bias)
    pixels = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    # Dilation has no effect on a kernel of size one, but with one thread PyTorch uses oneDNN only for dilated kernels.
    product = F.conv2d(pixels, weight[:, :, None, None], bias, dilation=2)
    return product.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


def convolves(x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], processor: Processor) -> bool:
    """Returns True if a convolution is faster; this depends only on shape, dtype, device and processor.

    oneDNN is about twice as fast as MKL on processors where MKL is slow, and not faster on others. It generates code
    for each new shape (0.3 to 1 ms) and reorders the weights in every call, which does not pay off for few rows or
    small widths.
    """
    if not (_HAS_BOTH and processor.has_slow_mkl):
        return False
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= _ROWS and rows * weight.numel() >= _PRODUCTS


_HAS_BOTH = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
