"""Softmax attention in linear time, by random features whose products are its exponentials on average."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.linear import KernelAttention
from zoo.attention.precision import wide
from zoo.attention.ranges import Count
from zoo.attention.state import LinearState


class Performer(KernelAttention):
    """phi(x) = exp(w · x - |x|^2 / 2) / sqrt(m): E[phi(q) · phi(k)] = exp(q · k) (Choromanski et al. 2021, lemma 1).

    The m vectors w are Gaussian, and orthogonal in blocks of d (section 2.4); each head has its own. Queries and keys
    are scaled by d^(-1/4), as softmax attention scales their product. The error falls as 1/sqrt(m), and grows
    exponentially with the norms of queries and keys.

    Each feature is divided by its largest value over the keys (of a long sequence: over those summed so far, and the
    sums are rescaled where it rises), and each query's features by their largest: both cancel. In causal attention a
    feature is at least the smallest positive number, to the power .9, of that value.

    Cost: O(n m d)
    Weights: none; implied on request

    Args:
        dim: Width of one head.
        heads: Number of heads.
        features: m.
        redraw_every: Forward passes in training after which the features are drawn anew; never if not given. Where
            activations are recomputed in the backward pass, call `redraw` between steps instead.
    """

    directions: Float[Tensor, "h f d"]
    seed: Tensor
    passes: Tensor

    def __init__(self, *, dim: Count, heads: Count, features: Count = 256, redraw_every: Count | None = None) -> None:
        super().__init__()
        if features < 1:
            raise ValueError(f"features must be at least 1, got {features}")
        if redraw_every is not None and redraw_every < 1:
            raise ValueError(f"redraw_every must be at least 1, got {redraw_every}")
        self.redraw_every = redraw_every
        # The seed is a buffer: a checkpoint continues the same sequence of features, as do all ranks of a run.
        self.register_buffer("directions", torch.empty(heads, features, dim))
        self.register_buffer("seed", torch.empty((), dtype=torch.int64))
        self.register_buffer("passes", torch.empty((), dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.passes.zero_()
        self._draw(int(torch.randint(2**62, (), device="cpu")))

    def redraw(self) -> None:
        """Other features, from a generator of their own."""
        self._draw(int(self.seed) + 1)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        self.seed.fill_(seed)
        generator = torch.Generator("cpu").manual_seed(seed)
        heads, count, width = self.directions.shape
        self.directions.copy_(_orthogonal(heads, count, width, generator))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _count(self) -> None:
        if self.redraw_every is not None and int(self.passes) >= self.redraw_every:
            self.redraw()
            self.passes.zero_()
        self.passes.add_(1)

    def size(self, width: int) -> int:
        return self.directions.shape[1]

    def projection(self, query: Float[Tensor, "b h q d"]) -> Float[Tensor, "h d f"]:
        if self.training and self.redraw_every is not None:
            self._count()
        projection: Tensor = self.directions.to(wide(query)).mT * query.shape[-1] ** -0.25
        return projection

    def of_query(
        self,
        query: Float[Tensor, "b h q d"],
        projection: Float[Tensor, "h d f"] | None,
        scale: Float[Tensor, "b h f"],
    ) -> Float[Tensor, "b h q f"]:
        assert projection is not None
        # |q|^2 / 2 is the same for all features of a query, and cancels
        of_query = (query @ projection).add_(scale.unsqueeze(2))
        return of_query.sub_(of_query.detach().amax(-1, keepdim=True)).exp_()

    def of_key(
        self,
        key: Float[Tensor, "b h k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        before: LinearState,
        causal: bool,
    ) -> tuple[Float[Tensor, "b h k f"], Float[Tensor, "b h f"]]:
        assert projection is not None
        lowest = torch.finfo(key.dtype)
        of_key = (key @ projection).sub_(key.square().sum(-1, keepdim=True) / (2.0 * math.sqrt(key.shape[-1])))
        if mask is not None:
            of_key = of_key.masked_fill(~mask, lowest.min)
        scale = before.scale
        if of_key.shape[2]:
            scale = torch.maximum(scale, of_key.detach().amax(2))
        of_key = of_key.sub_(scale.unsqueeze(2))
        if causal:  # a key that comes later must not make those that a query sees vanish
            of_key = of_key.clamp(min=0.9 * math.log(lowest.tiny))
        return of_key.exp_(), scale


def _orthogonal(heads: int, count: int, width: int, generator: torch.Generator) -> Float[Tensor, "h f d"]:
    """Blocks of orthogonal directions, each uniform on the sphere, with the norms of independent Gaussian vectors."""

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    orthogonal, upper = torch.linalg.qr(gaussian(heads, math.ceil(count / width), width, width))
    # QR's own choice of signs is not uniform (Mezzadri 2007, section 5)
    signs = upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    directions: Tensor = (orthogonal * signs).mT.flatten(1, 2)[:, :count]
    norms = gaussian(heads, count, width).norm(dim=-1, keepdim=True)
    return directions.mul_(norms)
