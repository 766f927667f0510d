"""Linear layers: the product with a weight, by whichever of PyTorch's two float32 routines is the faster one."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

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

    Large float32 products on the CPU are computed as a convolution of size one over the rows, in channels_last: the
    same sums, which PyTorch gives to oneDNN instead of the BLAS that it was built with.
    """
    if not _convolves(x, weight):
        return F.linear(x, weight, bias)
    pixels = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    # Dilation means nothing to a kernel of size one; with a single thread PyTorch asks oneDNN only if there is some.
    product = F.conv2d(pixels, weight[:, :, None, None], bias, dilation=2)
    return product.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


def _convolves(x: Tensor, weight: Tensor) -> bool:
    """A function of shape, dtype and device alone.

    oneDNN makes code for a shape that it meets for the first time (0.3 to 1 ms) and rearranges the weights in every
    call: neither is paid for by few rows or small widths.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not _HAS_ONEDNN or torch.is_autocast_enabled("cpu"):
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= _ROWS and rows * weight.numel() >= _PRODUCTS


_HAS_ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
