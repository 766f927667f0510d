"""SASRec in its common PyTorch form, where every history is padded in front to the longest window.

It follows the paper (Kang & McAuley 2018, section III) and the defaults of its authors' code, and serves as a peer in
benchmarks/recommendation.py. Item 0 is padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PaddedSASRec(nn.Module):
    """Two forms of SASRec on padded batches.

    Args:
        multihead: If True, `nn.MultiheadAttention` and 1x1 convolutions with only a causal mask, so that real positions
            see padding, as in SASRec.pytorch. If False, linear layers around `scaled_dot_product_attention` with a mask
            that hides padding, as in the paper.
    """

    def __init__(self, *, items: int, length: int, dim: int, layers: int, dropout: float, multihead: bool) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, dim, padding_idx=0)
        self.positions = nn.Embedding(length, dim)
        self.dropout = nn.Dropout(dropout)
        kind = _WithMultihead if multihead else _WithKernel
        self.blocks = nn.ModuleList(kind(dim, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, eps=1e-8)
        self.multihead = multihead

    def forward(self, items: Tensor) -> Tensor:
        """Computes (b, length) -> (b, length, dim)."""
        length = items.shape[1]
        real = (items != 0).unsqueeze(-1)
        x = self.items(items) * math.sqrt(self.items.embedding_dim)
        x = self.dropout(x + self.positions(torch.arange(length))) * real
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        if self.multihead:
            mask = ~mask  # True at forbidden pairs
        else:  # padding sees itself, so that no row is empty
            mask = (mask & real.transpose(1, 2) | torch.eye(length, dtype=torch.bool)).unsqueeze(1)
        for block in self.blocks:
            x = block(x, mask) * real
        return self.norm(x)

    def loss(self, items: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Computes eq. 6 over the targets that are not padding."""
        hidden = self(items)
        above, below = ((hidden * self.items(of)).sum(-1) for of in (positive, negative))
        real = positive != 0
        above, below = above[real], below[real]
        entropy = F.binary_cross_entropy_with_logits
        return entropy(above, torch.ones_like(above)) + entropy(below, torch.zeros_like(below))


class _WithMultihead(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.before, self.between = (nn.LayerNorm(dim, eps=1e-8) for _ in range(2))
        self.attention = nn.MultiheadAttention(dim, 1, dropout=dropout)
        self.expand, self.contract = (nn.Conv1d(dim, dim, 1) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        query = self.before(x)
        x = query + self.attention(query, x, x, attn_mask=mask)[0]
        x = self.between(x.transpose(0, 1))
        hidden = self.dropout(self.expand(x.transpose(1, 2))).relu()
        return x + self.dropout(self.contract(hidden)).transpose(1, 2)


class _WithKernel(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.before, self.between = (nn.LayerNorm(dim, eps=1e-8) for _ in range(2))
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.expand, self.contract = (nn.Linear(dim, dim) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query = self.before(x)
        parts = (each.unsqueeze(1) for each in (self.query(query), self.key(x), self.value(x)))
        dropout = self.dropout.p if self.training else 0.0
        x = query + F.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=dropout).squeeze(1)
        x = self.between(x)
        return x + self.dropout(self.contract(self.dropout(self.expand(x)).relu()))


@torch.no_grad()
def take_weights(net: PaddedSASRec, weights: Mapping[str, Tensor]) -> None:
    """Copies the weights of `zoo.tasks.recommendation.SASRec`; additional projections become the identity."""
    pad = torch.zeros(1, net.items.embedding_dim)
    found = {
        "items.weight": torch.cat([pad, weights["items.weight"]]),
        "positions.weight": weights["position.vectors"],
        "norm.weight": weights["norm.weight"],
        "norm.bias": weights["norm.bias"],
    }
    for layer in range(len(net.blocks)):
        ours, theirs = f"layers.{layer}", f"blocks.{layer}"
        for kind in ("weight", "bias"):
            found[f"{theirs}.before.{kind}"] = weights[f"{ours}.mixed.{kind}"]
            found[f"{theirs}.between.{kind}"] = weights[f"{ours}.fed.{kind}"]
            for part in ("expand", "contract"):
                found[f"{theirs}.{part}.{kind}"] = weights[f"{ours}.feed_forward.{part}.{kind}"]
            parts = {part: weights[f"{ours}.mixer.{part}.{kind}"] for part in ("query", "key", "value")}
            if net.multihead:
                found[f"{theirs}.attention.in_proj_{kind}"] = torch.cat(list(parts.values()))
            else:
                found |= {f"{theirs}.{part}.{kind}": each for part, each in parts.items()}
        if net.multihead:
            found[f"{theirs}.attention.out_proj.weight"] = torch.eye(net.items.embedding_dim)
            found[f"{theirs}.attention.out_proj.bias"] = torch.zeros(net.items.embedding_dim)
    shapes = net.state_dict()
    net.load_state_dict({name: each.reshape(shapes[name].shape) for name, each in found.items()})
