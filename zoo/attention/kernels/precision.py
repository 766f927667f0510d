"""Types for sums and counts, which need at least single precision."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor


def wide(x: Shaped[Tensor, "..."]) -> torch.dtype:
    """Returns fp32 for half precision, which cannot count beyond 256 (bfloat16) or 2,048 (float16), else x's dtype."""
    return torch.promote_types(x.dtype, torch.float32)


def at_least_single(x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Converts x to the dtype `wide(x)`."""
    return x.to(wide(x))
