"""Graph attention networks; the score makes them GAT (Velickovic et al. 2018) or GATv2 (Brody et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attention, EdgeSupport
from zoo.attention.dropout import dropout
from zoo.attention.initialization import glorot_
from zoo.tasks.graph.receptive_field import Field, Hop, full_field
from zoo.tasks.graph.sparse_features import SparseFeatures
from zoo.types import PositiveInt, Probability, validate_ranges


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
    """Computes ELU with `exp`; torch's `expm1` costs nine times as much on CPUs and gains 6e-8 of precision."""
    return _ELU.apply(x) if x.device.type == "cpu" else nn.functional.elu(x)


@validate_ranges
class Projection(nn.Module):
    """Projects the features of each node for every head: x W, with W (features, heads, dim)."""

    def __init__(self, features: PositiveInt, heads: PositiveInt, dim: PositiveInt, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, heads, dim))
        self.bias = nn.Parameter(torch.zeros(heads, dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises each head as a layer of its own, as in the code of GAT's authors."""
        features, heads, dim = self.weight.shape
        with torch.no_grad():
            self.weight.copy_(glorot_(self.weight.new_empty(heads, features, dim)).transpose(0, 1))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "n f"] | Float[Tensor, "n h f"] | SparseFeatures) -> Float[Tensor, "n h d"]:
        """Projects `x`, which is the same for all heads, (n,f), or differs, (n,h,f)."""
        if isinstance(x, SparseFeatures):
            projected = x.project(self.weight)
        elif x.dim() == 3:
            projected = torch.einsum("nhf,fhd->nhd", x, self.weight)
        else:
            projected = (x @ self.weight.flatten(1)).view(len(x), *self.weight.shape[1:])
        return projected if self.bias is None else projected + self.bias


@validate_ranges
class GraphAttention(nn.Module):
    """A layer h_i' = sum_j alpha_ij W h_j for each head (GAT, eq. 4), heads concatenated or averaged (eqs. 5, 6).

    Args:
        features: Width of the input.
        dim: Width of one head.
        heads: Number of heads.
        attend: `(dim, heads) -> Attention`.
        shared: If True, both ends of an edge share a projection (GAT); if False, each has its own (GATv2), except that
            mechanisms that compare nothing (`Uniform`) have none for the target.
        merge: Whether heads are concatenated or averaged.
        skip: If True, a linear map of the input is added to each head (GAT, section 3.3, inductive).
        dropout: Dropout rate of the input and of projected features (the authors' `in_drop`). Dropout of weights is
            an option of `attend`.
        drop_by_head: If True, each head has its own dropout mask of the input, as in the authors' code.
    """

    compared = ("target",)
    """Names of the projections that are left out if the mechanism compares nothing."""

    def __init__(
        self,
        *,
        features: PositiveInt,
        dim: PositiveInt,
        heads: PositiveInt,
        attend: Callable[[int, int], Attention],
        shared: bool = True,
        merge: Literal["concat", "mean"] = "concat",
        skip: bool = False,
        dropout: Probability = 0.0,
        drop_by_head: bool = False,
    ) -> None:
        super().__init__()
        self.source = Projection(features, heads, dim, bias=not shared)
        self.target = None if shared else Projection(features, heads, dim, bias=True)
        self.skip = Projection(features, heads, dim) if skip else None
        self.attend = attend(dim, heads)
        self.attend.check_layout(EdgeSupport, "a graph")
        if not self.attend.is_content_based:
            self.target = None
        self.bias = nn.Parameter(torch.zeros(heads * dim if merge == "concat" else dim))
        self.merge = merge
        self.dropout = dropout
        self.input_masks = heads if drop_by_head else 1

    def forward(self, x: Float[Tensor, "n f"] | SparseFeatures, hop: Hop) -> Float[Tensor, "outputs o"]:
        dropped = self._drop_input(x)
        source = self.source(dropped)
        target = hop.select_outputs(source if self.target is None else self.target(dropped))
        value = dropout(source, self.dropout, self.training)
        context, _ = self.attend(target, source, value, hop.support)
        if self.skip is not None:
            context = context + hop.select_outputs(self.skip(dropped))
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


@validate_ranges
class GraphAttentionNet(nn.Module):
    """Layers of graph attention with ELU between them; the last gives the logits (GAT, section 3.3).

    Args:
        features, classes: Numbers of features and classes of the data.
        dim: Width of a head in the hidden layers.
        heads: Number of heads in the hidden layers.
        merge: Whether the heads of the hidden layers are concatenated or averaged.
        out_heads: Number of heads in the last layer, which are averaged.
        layers: Number of layers, including the last.
        attend, shared, skip, dropout, drop_by_head: As in `GraphAttention`.
    """

    def __init__(
        self,
        *,
        features: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 8,
        heads: PositiveInt = 8,
        out_heads: PositiveInt = 1,
        layers: PositiveInt = 2,
        merge: Literal["concat", "mean"] = "concat",
        shared: bool = True,
        skip: bool = False,
        dropout: Probability = 0.0,
        drop_by_head: bool = False,
    ) -> None:
        super().__init__()
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
        """Computes the logits of every node."""
        return self.on_field(full_field(x, support, len(self.layers)))

    def on_field(self, field: Field) -> Float[Tensor, "outputs classes"]:
        """Computes the logits of the scored nodes of a receptive field."""
        first, *rest = zip(self.layers, field.hops, strict=True)
        hidden: Tensor = first[0](field.x, first[1])
        for layer, hop in rest:
            hidden = layer(elu(hidden), hop)
        return hidden

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns vocabulary -> parameter -> the axis that has one entry for each feature or label."""
        last = f"layers.{len(self.layers) - 1}."
        features = {n: 0 for n, _ in self.named_parameters() if n.startswith("layers.0.") and n.endswith(".weight")}
        labels = {n: -1 for n, _ in self.named_parameters() if n.startswith(last)}
        return {"features": features, "labels": labels}
