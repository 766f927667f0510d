"""Graph attention networks: GAT (Velickovic et al. 2018) and GATv2 (Brody et al. 2022), by the score they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attend, EdgeSupport, dropout
from zoo.attention.ranges import Count, Rate
from zoo.tasks.graph.features import SparseFeatures
from zoo.tasks.graph.field import Field, Hop, whole


class _ELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.clamp(max=0.0).exp_().sub_(1.0).add_(x.clamp(min=0.0))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        out: Tensor = ctx.saved_tensors[0]
        return gradient * (out.clamp(max=0.0) + 1.0)


def elu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """ELU by `exp` where torch takes `expm1`, which on CPUs costs nine times as much for 6e-8 of precision."""
    return _ELU.apply(x) if x.device.type == "cpu" else nn.functional.elu(x)


class Projection(nn.Module):
    """Features of each node, once for every head: x W, with W (features, heads, dim)."""

    def __init__(self, features: Count, heads: Count, dim: Count, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, heads, dim))
        self.bias = nn.Parameter(torch.zeros(heads, dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot & Bengio 2010, each head a layer of its own, as GAT's authors have it."""
        for head in range(self.weight.shape[1]):
            nn.init.xavier_uniform_(self.weight[:, head])
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "n f"] | Float[Tensor, "n h f"] | SparseFeatures) -> Float[Tensor, "n h d"]:
        """One input for all heads, or one for each."""
        if isinstance(x, SparseFeatures):
            projected = x.project(self.weight)
        elif x.dim() == 3:
            projected = torch.einsum("nhf,fhd->nhd", x, self.weight)
        else:
            projected = (x @ self.weight.flatten(1)).view(len(x), *self.weight.shape[1:])
        return projected if self.bias is None else projected + self.bias


class GraphAttention(nn.Module):
    """One layer: h_i' = sum_j alpha_ij W h_j for each head (GAT, eq. 4), heads concatenated or averaged (eqs. 5, 6).

    Args:
        features: Width of the input.
        dim: Width of one head.
        heads: Number of heads.
        attend: `(dim, heads) -> Attend`.
        shared: One projection for both ends of an edge (GAT) or one for each (GATv2); the target's has no place where
            nothing is compared (uniform attention).
        merge: What becomes of the heads.
        skip: A linear map of the input is added to each head (GAT, section 3.3, inductive).
        dropout: Of the input and of the projected features (the authors' `in_drop`); that of weights is `attend`'s.
        drop_by_head: Each head drops the input on its own, as in the authors' code; else all share one mask.
    """

    compared = ("target",)
    """What a mechanism that compares nothing does without."""

    def __init__(
        self,
        *,
        features: Count,
        dim: Count,
        heads: Count,
        attend: Callable[[int, int], Attend],
        shared: bool = True,
        merge: Literal["concat", "mean"] = "concat",
        skip: bool = False,
        dropout: Rate = 0.0,
        drop_by_head: bool = False,
    ) -> None:
        super().__init__()
        self.source = Projection(features, heads, dim, bias=not shared)
        self.target = None if shared else Projection(features, heads, dim, bias=True)
        self.skip = Projection(features, heads, dim) if skip else None
        self.attend = attend(dim, heads)
        self.attend.require(EdgeSupport, "a graph", of_one_graph=True)
        if not self.attend.compares:
            self.target = None
        self.bias = nn.Parameter(torch.zeros(heads * dim if merge == "concat" else dim))
        self.merge = merge
        self.dropout = dropout
        self.input_masks = heads if drop_by_head else 1

    def forward(self, x: Float[Tensor, "n f"] | SparseFeatures, hop: Hop) -> Float[Tensor, "outputs o"]:
        dropped = self._drop_input(x)
        source = self.source(dropped)
        target = hop.at_outputs(source if self.target is None else self.target(dropped))
        value = dropout(source, self.dropout, self.training)
        context, _ = self.attend(target, source, value, hop.support)
        if self.skip is not None:
            context = context + hop.at_outputs(self.skip(dropped))
        merged: Tensor = context.flatten(1) if self.merge == "concat" else context.mean(1)
        return merged + self.bias

    def _drop_input(
        self, x: Float[Tensor, "n f"] | SparseFeatures
    ) -> Float[Tensor, "n f"] | Float[Tensor, "n h f"] | SparseFeatures:
        if not self.training or self.dropout == 0.0:
            return x
        if isinstance(x, SparseFeatures):
            return x.dropout(self.dropout, masks=self.input_masks)
        if self.input_masks > 1:
            x = x.unsqueeze(1).expand(-1, self.input_masks, -1)
        return dropout(x, self.dropout, training=True)


class GraphAttentionNet(nn.Module):
    """Layers of graph attention with ELU between them; the last gives the logits (GAT, section 3.3).

    Args:
        features, classes: From the data.
        dim: Width of one hidden head.
        heads: Heads of the hidden layers.
        merge: What becomes of them.
        out_heads: Heads of the last layer, averaged.
        layers: Number of layers, the last included.
        attend, shared, skip, dropout, drop_by_head: As in `GraphAttention`.
    """

    def __init__(
        self,
        *,
        features: Count,
        classes: Count,
        attend: Callable[[int, int], Attend],
        dim: Count = 8,
        heads: Count = 8,
        out_heads: Count = 1,
        layers: Count = 2,
        merge: Literal["concat", "mean"] = "concat",
        shared: bool = True,
        skip: bool = False,
        dropout: Rate = 0.0,
        drop_by_head: bool = False,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be at least 1, got {layers}")
        widths = [features] + [heads * dim if merge == "concat" else dim] * (layers - 1)
        last = layers - 1
        self.layers = nn.ModuleList(
            GraphAttention(
                features=width,
                dim=classes if number == last else dim,
                heads=out_heads if number == last else heads,
                attend=attend,
                shared=shared,
                merge="mean" if number == last else merge,
                skip=skip,
                dropout=dropout,
                drop_by_head=drop_by_head,
            )
            for number, width in enumerate(widths)
        )

    def forward(self, x: Float[Tensor, "n f"] | SparseFeatures, support: EdgeSupport) -> Float[Tensor, "n classes"]:
        """Every node of a graph."""
        return self.on_field(whole(x, support, len(self.layers)))

    def on_field(self, field: Field) -> Float[Tensor, "outputs classes"]:
        """The nodes that a receptive field is of."""
        first, *rest = zip(self.layers, field.hops, strict=True)
        hidden: Tensor = first[0](field.x, first[1])
        for layer, hop in rest:
            hidden = layer(elu(hidden), hop)
        return hidden

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Which axis of which parameter has one entry for each feature, and for each label, of the data."""
        last = f"layers.{len(self.layers) - 1}."
        features = {n: 0 for n, _ in self.named_parameters() if n.startswith("layers.0.") and n.endswith(".weight")}
        labels = {n: -1 for n, _ in self.named_parameters() if n.startswith(last)}
        return {"features": features, "labels": labels}
