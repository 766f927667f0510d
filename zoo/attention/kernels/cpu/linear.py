"""Linear layers that use the faster of PyTorch's two float32 matrix products on this processor."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.cpu import PROCESSOR, Processor, is_enabled

_ROWS = 256
_PRODUCTS = 2**25
_PACKED_PRODUCTS = 2**20


class Linear(nn.Linear):
    """x W^T + b: `torch.nn.Linear` with the same parameters, computed by `linear`."""

    def forward(self, input: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows e"]:
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], bias: Float[Tensor, " e"] | None = None
) -> Float[Tensor, "*rows e"]:
    """Computes x W^T + b.

    If `use_conv` is true, the product is computed as a convolution of size one over the rows of x; if
    `use_conv_transposed` is true, as one over the rows of W, with x as its weights. PyTorch computes convolutions with
    oneDNN and matrix products with MKL.
    """
    if use_conv(x, weight, PROCESSOR):
        return _convolve(x.reshape(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))
    if use_conv_transposed(x, weight, PROCESSOR):
        product = _convolve(weight, x.reshape(-1, x.shape[-1]), None).t().contiguous()
        return (product if bias is None else product.add_(bias)).view(*x.shape[:-1], len(weight))
    return F.linear(x, weight, bias)


def use_conv(x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], processor: Processor) -> bool:
    """Returns True if a convolution is faster; this depends only on shape, dtype, device and processor.

    oneDNN is about twice as fast as MKL on processors where MKL is slow, and not faster on others. It generates code
    for each new shape (0.3 to 1 ms) and reorders the weights in every call, which does not pay off for few rows or
    small widths.
    """
    rows = x.numel() // max(1, x.shape[-1])
    is_large = rows >= _ROWS and rows * weight.numel() >= _PRODUCTS
    return is_large and is_enabled("linear") and _has_choice(x, processor)


def use_conv_transposed(x: Float[Tensor, "*rows d"], weight: Float[Tensor, "e d"], processor: Processor) -> bool:
    """Returns True if a convolution over the rows of W is faster, which takes a few rows of x for its weights.

    Few rows meet a large matrix in the output layer of a decoder: 64 rows of 512 and 8,000 words take 0.4 times as
    long.
    """
    rows = x.numel() // max(1, x.shape[-1])
    is_wide = 0 < rows < _ROWS and rows * weight.numel() >= _PRODUCTS
    return is_wide and is_enabled("linear") and _has_choice(x, processor)


def addmm(base: Float[Tensor, "n e"], x: Float[Tensor, "n d"], weight: Float[Tensor, "e d"]) -> Float[Tensor, "n e"]:
    """Computes base + x W^T, with the faster of the two products."""
    if use_conv(x, weight, PROCESSOR) or use_conv_transposed(x, weight, PROCESSOR):
        return linear(x, weight).add_(base)
    return torch.addmm(base, x, weight.t())


class PrepackedLinear:
    """W of several products with few rows each, such as the steps of a decoder. No gradient passes through them.

    If `use_prepacked` is true, W is laid out for oneDNN in the first product, and the others take 0.3 to 0.5 times as
    long as MKL's.

    Args:
        weight: W, which must not change meanwhile.
    """

    def __init__(self, weight: Float[Tensor, "e d"]) -> None:
        self.weight = weight.detach()
        self._laid_out: Tensor | None = None

    def product(self, x: Float[Tensor, "n d"], bias: Float[Tensor, " e"] | None = None) -> Float[Tensor, "n e"]:
        """Computes x W^T + b."""
        return (
            self._multiply_prepacked(x, bias)
            if use_prepacked(x, self.weight, PROCESSOR)
            else linear(x, self.weight, bias)
        )

    def addmm(self, base: Float[Tensor, "n e"], x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        """Computes base + x W^T."""
        return (
            self._multiply_prepacked(x).add_(base)
            if use_prepacked(x, self.weight, PROCESSOR)
            else addmm(base, x, self.weight)
        )

    def _multiply_prepacked(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self._laid_out is None:
            self._laid_out = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), len(x))
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._laid_out, bias, "none", [], "")
        return found


def use_prepacked(x: Float[Tensor, "n d"], weight: Float[Tensor, "e d"], processor: Processor) -> bool:
    """Returns True if several products are faster with a weight that is laid out before.

    This depends on shape, dtype, device and processor, and on whether a gradient or a graph is recorded, which oneDNN's
    product cannot take part in.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return len(x) * weight.numel() >= _PACKED_PRODUCTS and is_enabled("prepacked") and _has_choice(x, processor)


def _convolve(x: Float[Tensor, "n d"], weight: Float[Tensor, "e d"], bias: Tensor | None) -> Float[Tensor, "n e"]:
    pixels = x.unsqueeze(0).unsqueeze(2).permute(0, 3, 1, 2)
    # Dilation has no effect on a kernel of size one, but with one thread PyTorch uses oneDNN only for dilated kernels.
    product = F.conv2d(pixels, weight[:, :, None, None], bias, dilation=2)
    return product.permute(0, 2, 3, 1).reshape(len(x), len(weight))


def _has_choice(x: Tensor, processor: Processor) -> bool:
    if not (_HAS_BOTH and processor.has_slow_mkl):
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


_HAS_BOTH = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
