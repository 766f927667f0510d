"""Softmax attention in linear time, approximated with random features."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention_state import LinearState
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.linear.kernel_attention import KernelAttention, append_count, append_later, concatenate
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import masked_softmax
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class Performer(KernelAttention):
    """phi(x) = exp(w · x - |x|^2 / 2) / sqrt(m): E[phi(q) · phi(k)] = exp(q · k) (Choromanski et al. 2021, lemma 1).

    The m vectors w are Gaussian, and orthogonal in blocks of d (section 2.4); each head has its own. Queries and keys
    are scaled by d^(-1/4), so that their product is scaled as in softmax attention. The error falls as 1/sqrt(m) and
    grows exponentially with the norms of queries and keys.

    For numerical stability each feature is divided by its largest value over the keys, and the features of each query
    by their largest value; both factors cancel. In a long sequence the maximum is over the keys summed so far, and the
    sums are rescaled whenever it rises. Causal attention is computed in blocks: one softmax combines the pairs within a
    block with the sums of earlier blocks, and each key in the block is scaled on its own, so that rounding never
    depends on later keys.

    Cost: O(n m d)
    Weights: none; implied on request

    Args:
        dim: Width of one head.
        heads: Number of heads.
        features: Number of random features, m.
        redraw_every: Number of training passes after which the features are redrawn. Default: never. With activation
            checkpointing, call `redraw` between steps instead.
    """

    directions: Float[Tensor, "h f d"]
    seed: Tensor
    passes: Tensor

    def __init__(
        self,
        *,
        dim: PositiveInt,
        heads: PositiveInt,
        features: PositiveInt = 256,
        redraw_every: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.redraw_every = redraw_every
        # The seed is a buffer, so that a resumed run and all ranks of a run draw the same sequence of features.
        self.register_buffer("directions", torch.empty(heads, features, dim))
        self.register_buffer("seed", torch.empty((), dtype=torch.int64))
        self.register_buffer("passes", torch.empty((), dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.passes.zero_()
        self._draw(int(torch.randint(2**62, (), device="cpu")))

    def redraw(self) -> None:
        """Redraws the features with the next seed; torch's global generator is not used."""
        self._draw(int(self.seed) + 1)

    @torch.no_grad()
    def _draw(self, seed: int) -> None:
        self.seed.fill_(seed)
        if self.directions.is_meta:  # the decompositions would not be on `meta`
            return
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
        projection: Tensor = self.directions.to(accumulation_dtype(query)).mT * query.shape[-1] ** -0.25
        return projection

    def map_query(
        self,
        query: Float[Tensor, "b h q d"],
        projection: Float[Tensor, "h d f"] | None,
        scale: Float[Tensor, "b h f"],
    ) -> Float[Tensor, "b h q f"]:
        assert projection is not None
        # |q|^2 / 2 is left out: it is the same for all features of a query and cancels
        of_query = (query @ projection).add_(scale.unsqueeze(2))
        return of_query.sub_(of_query.detach().amax(-1, keepdim=True)).exp_()

    def map_key(
        self,
        key: Float[Tensor, "b h k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #k 1"] | None,
        before: LinearState,
    ) -> tuple[Float[Tensor, "b h k f"], Float[Tensor, "b h f"]]:
        exponents, scale = _exponents(key, projection, mask), before.scale
        if exponents.shape[2]:
            scale = torch.maximum(scale, exponents.detach().amax(2))
        return (exponents - scale.unsqueeze(2)).exp_(), scale

    def compute_implied(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h _k d"],
        projection: Float[Tensor, "h d f"] | None,
        mask: Bool[Tensor, "#b #h #_k 1"] | None,
        support: DenseSupport,
    ) -> Float[Tensor, "b h q k"]:
        if not key.shape[2]:
            return support.zeros(query, append_later(key, support))
        exponents = _exponents(upcast(key), projection, mask)
        scale = _first(exponents, mask)
        pairs = _log_pairs(self.map_query(upcast(query), projection, scale), exponents, scale)
        return support.softmax(append_later(pairs.mT, support).mT)

    def _follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h n d"],
        value: Float[Tensor, "b h n v"],
        mask: Bool[Tensor, "#b #h #n 1"] | None,
        projection: Float[Tensor, "h d f"] | None,
        sums: LinearState,
    ) -> tuple[Float[Tensor, "b h n v"], LinearState]:
        contexts = []
        for queries, keys, values, exists in self.split_blocks(query, key, value, mask):
            context, sums = self._follow_block(queries, keys, values, exists, projection, sums)
            contexts.append(context)
        return concatenate(contexts), sums

    def _follow_block(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h n d"],
        value: Float[Tensor, "b h n v"],
        mask: Bool[Tensor, "#b #h #n 1"] | None,
        projection: Float[Tensor, "h d f"] | None,
        sums: LinearState,
    ) -> tuple[Float[Tensor, "b h n v"], LinearState]:
        if not key.shape[2]:
            return torch.zeros_like(value), sums
        exponents, counting = _exponents(upcast(key), projection, mask), append_count(value, mask)
        scale = torch.maximum(sums.scale, _first(exponents, mask))
        of_query = self.map_query(upcast(query), projection, scale)
        before, count = (
            (of_query @ sums.sums_at(scale))
            .expand(*query.shape[:3], counting.shape[3])
            .split_with_sizes([value.shape[3], 1], -1)
        )
        exists = count > 0
        of_before = count.masked_fill(~exists, 1.0)
        permitted = torch.ones(key.shape[2], key.shape[2], dtype=torch.bool, device=key.device).tril()
        permitted = permitted if mask is None else permitted & mask.mT
        rows = torch.cat([_log_pairs(of_query, exponents, scale), of_before.log()], -1)
        permitted = torch.cat([permitted.expand(*exists.shape[:3], -1), exists], -1)
        within, share = masked_softmax(rows, permitted).split_with_sizes([key.shape[2], 1], -1)
        context = within @ counting[..., :-1] + share * (before / of_before)
        later = torch.maximum(scale, exponents.detach().amax(2))
        of_key = (exponents - later.unsqueeze(2)).exp()
        return context.to(value.dtype), sums.step(sums.sums_at(later) + of_key.mT @ counting, later, key.shape[2])


def _exponents(
    key: Float[Tensor, "b h k d"], projection: Float[Tensor, "h d f"] | None, mask: Bool[Tensor, "#b #h #k 1"] | None
) -> Float[Tensor, "b h k f"]:
    """Computes log phi(k) up to a constant; the lowest number at masked keys."""
    assert projection is not None
    exponents = (key @ projection).sub_(key.square().sum(-1, keepdim=True) / (2.0 * math.sqrt(key.shape[-1])))
    return exponents if mask is None else exponents.masked_fill(~mask, torch.finfo(key.dtype).min)


def _first(exponents: Float[Tensor, "b h k f"], mask: Bool[Tensor, "#b #h #k 1"] | None) -> Float[Tensor, "b h f"]:
    """Returns the exponents of the first key that is not masked, which every later causal query sees."""
    if mask is None:
        return exponents[:, :, 0].detach()
    at = mask.expand(*exponents.shape[:3], 1).to(torch.uint8).argmax(2, keepdim=True)
    return exponents.detach().gather(2, at.expand(-1, -1, -1, exponents.shape[3])).squeeze(2)


def _log_pairs(
    of_query: Float[Tensor, "b h q f"], exponents: Float[Tensor, "b h k f"], scale: Float[Tensor, "b h f"]
) -> Float[Tensor, "b h q k"]:
    """Computes log(phi(q) · phi(k)) up to a constant of each query; the features of a key are scaled to at most 1."""
    exponents = exponents - scale.unsqueeze(2)
    largest = exponents.detach().amax(-1, keepdim=True)
    pairs = of_query @ (exponents - largest).exp_().mT
    return pairs.clamp(min=torch.finfo(pairs.dtype).tiny).log() + largest.mT


def _orthogonal(heads: int, count: int, width: int, generator: torch.Generator) -> Float[Tensor, "h f d"]:
    """Draws blocks of orthogonal vectors with uniform directions and the norms of independent Gaussian vectors."""

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    orthogonal, upper = torch.linalg.qr(gaussian(heads, math.ceil(count / width), width, width))
    # the signs that QR chooses are not uniform (Mezzadri 2007, section 5)
    signs = upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    directions: Tensor = (orthogonal * signs).mT.flatten(1, 2)[:, :count]
    norms = gaussian(heads, count, width).norm(dim=-1, keepdim=True)
    return directions.mul_(norms)
