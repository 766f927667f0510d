"""Types for sums and counts, which need at least single precision, and for products under autocast."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor


def accumulation_dtype(x: Shaped[Tensor, "..."]) -> torch.dtype:
    """Returns fp32 for half precision, which cannot count beyond 256 (bfloat16) or 2,048 (float16), else x's dtype."""
    return torch.promote_types(x.dtype, torch.float32)


def upcast(x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Converts x to the dtype `accumulation_dtype(x)`."""
    return x.to(accumulation_dtype(x))


def unify_dtypes(*tensors: Shaped[Tensor, "..."]) -> tuple[Shaped[Tensor, "..."], ...]:
    """Converts the inputs of products as autocast would if their dtypes differ; without autocast nothing changes.

    For kernels that switch autocast off or choose their path by dtype: queries and keys may come from different layers,
    of which autocast computes one in half precision and leaves the other alone.
    """
    device = tensors[0].device.type
    if len({x.dtype for x in tensors}) == 1 or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)
