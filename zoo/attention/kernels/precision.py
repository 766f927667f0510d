"""Half precision adds up and counts too coarsely: what does so is at least single."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor


def wide(x: Shaped[Tensor, "..."]) -> torch.dtype:
    """fp32 for half precision, which cannot count beyond 256 (bfloat16) or 2,048 (float16); what is wider stays so."""
    return torch.promote_types(x.dtype, torch.float32)


def at_least_single(x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """In the type that `wide` names."""
    return x.to(wide(x))
