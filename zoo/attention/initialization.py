"""Initial weights of layers that each head has for itself."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


@torch.no_grad()
def glorot_(weights: Float[Tensor, "h *outputs inputs"]) -> Float[Tensor, "h *outputs inputs"]:
    """Initializes each head's matrix, or vector, as a layer of its own (Glorot & Bengio 2010, eq. 16).

    All heads are drawn at once: a loop over them would be long where a stranger's checkpoint asks for a million.
    """
    inputs = weights.shape[-1]
    outputs = weights.shape[1] if weights.dim() == 3 else 1
    bound = math.sqrt(3.0) * math.sqrt(2.0 / (inputs + outputs))
    return weights.uniform_(-bound, bound)
