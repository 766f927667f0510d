"""Monotonic attention, which never moves backwards, and monotonic chunkwise attention (MoChA)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.attention.attention_state import AttentionState, NormalizerOutput
from zoo.attention.cpu import is_transformed
from zoo.attention.kernels.dtypes import upcast
from zoo.attention.kernels.scan import linear_recurrence
from zoo.attention.mechanism import Normalizer, Traits
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import masked_softmax
from zoo.types import AnyFloat, NonNegativeFloat, NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
class Monotonic(Normalizer):
    """alpha_ij = p_ij q_ij, q_ij = (1 - p_{i,j-1}) q_{i,j-1} + alpha_{i-1,j} (Raffel et al. 2017, eq. 9-10).

    Starting from the key of the previous query, each query moves over the keys and stops at each with probability
    p = sigmoid(score + r). Training uses the expected alignment. Inference stops at the first key with p > 1/2
    (section 2.2). A query that passes the last key attends to nothing, and neither do the queries after it, so rows sum
    to at most one. Forbidden keys are passed.

    The paper computes the expectation with cumulative products and a division, which underflow; this class evaluates
    the recursion. The score of section 2.4 is `NormalizedAdditive`.

    Cost: O(q·k), and of one step O(k·log k)

    Args:
        heads: Number of heads, each with its own r.
        offset: Initial value of r; negative, so that early in training weight reaches late keys (section 2.4).
        noise: Standard deviation of the noise on scores in training, which drives p to 0 or 1 (section 2.5).
        noise_steps: Steps of training in which the noise grows from 0, for a caller that tells them
            (`set_training_step`): with certain stops from the first step, most places have no gradient. With 0 it does
            not grow.
        inference: Alignment in evaluation: `"hard"`, or `"expected"` as in training, without noise.
        advance: Number of keys by which a query starts behind the key at which the previous one stopped. With 0, as in
            the paper, both may stop at one key, so that scores must know where the previous query was; with 1 it is
            q_ij = (1 - p_{i,j-1}) q_{i,j-1} + alpha_{i-1,j-1}, and each query has a key of its own.
    """

    traits = Traits(layouts=(DenseSupport,), stateful=True, streaming=True)

    def __init__(
        self,
        *,
        heads: PositiveInt,
        offset: AnyFloat = -4.0,
        noise: NonNegativeFloat = 1.0,
        noise_steps: NonNegativeInt = 0,
        inference: Literal["hard", "expected"] = "hard",
        advance: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        if inference not in ("hard", "expected"):
            raise ValueError(f"inference is hard or expected, got {inference!r}")
        self.initial_offset = offset
        self.noise = noise
        self.noise_steps = noise_steps
        self._grown = 1.0
        self.inference = inference
        self.advance = advance
        self.offset = nn.Parameter(torch.empty(heads))
        self.narrow(streaming=inference == "hard")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.offset, self.initial_offset)

    def set_training_step(self, step: int) -> None:
        """Sets the noise to that of a step of training; before any call it is the largest."""
        self._grown = min(1.0, step / self.noise_steps) if self.noise_steps else 1.0

    def start(self, nothing: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        """Returns the initial alignment, at the first key."""
        first = torch.zeros_like(nothing)
        first[..., :1] = 1.0
        return first

    def forward(
        self, scores: Float[Tensor, "b h q k"], support: DenseSupport, state: AttentionState | None = None
    ) -> NormalizerOutput:
        energies = upcast(scores) + self.offset.view(-1, 1, 1)
        if energies.numel() == 0:
            return NormalizerOutput(energies, energies)
        if self.training and self.noise:
            energies = energies + self.noise * self._grown * torch.randn_like(energies)
        permitted = support.mask_of(scores)
        if permitted is not None:
            energies = energies.masked_fill(~permitted, -torch.inf)
        before = self.start(energies[:, :, :1]) if state is None else self._next_start(state)
        shape, rows = energies.shape, before.shape[2]
        if rows > 1:  # several hypotheses: each query is the next step of its own row
            energies, before = energies.reshape(shape[0], -1, shape[2] // rows, shape[3]), before.flatten(1, 2)
        before = before.reshape(*energies.shape[:2], shape[3])
        hard = not self.training and self.inference == "hard"
        aligned = hard_alignment if hard else expected_alignment
        # where row i is moved left by what the i queries before it advance, all of them start where one stopped
        moved = _shift_rows(energies, self.advance, -torch.inf)
        alignment = _shift_rows(aligned(moved, before), -self.advance, 0.0)
        return NormalizerOutput(alignment.to(energies.dtype).view(shape), alignment.view(shape))

    def is_waiting(self, alignment: Float[Tensor, "b h q k"]) -> Bool[Tensor, "b h q"]:
        """Returns True where a query has passed all keys without a stop, or has more probably passed than stopped."""
        return alignment.sum(-1) < 0.5

    def skip(self, state: AttentionState) -> AttentionState:
        """Returns the state in which queries that passed all keys start at the last one, if they are asked again."""
        at = state.last_alignment
        last = at.shape[-1] - 1 - (0 if state.alignment is None else self.advance)
        place = torch.arange(at.shape[-1], device=at.device)
        start = at.argmax(-1, keepdim=True).clamp_min(last)
        moved = torch.where(at.any(-1, keepdim=True), (place == start).to(at.dtype), at)
        return replace(state, weights=moved) if state.alignment is None else replace(state, alignment=moved)

    def _next_start(self, state: AttentionState) -> Float[Tensor, "b h r k"]:
        """Returns where the next query starts."""
        if state.alignment is None:  # before the first query
            return state.weights
        return F.pad(state.alignment, (self.advance, 0))[..., : state.alignment.shape[-1]]

    def extra_repr(self) -> str:
        advance = f", advance={self.advance}" if self.advance else ""
        return f"heads={len(self.offset)}, noise={self.noise}, inference={self.inference}{advance}"


@validate_ranges
class MonotonicChunkwise(Normalizer):
    """beta_ij = sum_{k=j}^{j+w-1} alpha_ik exp(u_ij) / sum_{l=k-w+1}^{k} exp(u_il) (Chiu & Raffel 2018, section 2.3).

    MoChA is softmax attention over the chunk of w keys that ends where monotonic attention (alpha) stops. It needs two
    scores for each pair from `ScorePair`: the first gives alpha, the second is u. The softmax of each chunk is computed
    on its own, because the paper's moving sums of exponentials underflow far from the largest u of a row.

    Cost: O(q·k·w)

    Args:
        heads: Number of heads.
        chunk: Number of keys in a chunk, w; with 1 this is monotonic attention.
        offset, noise, noise_steps, inference, advance: See `Monotonic`.
    """

    traits = Traits(layouts=(DenseSupport,), stateful=True, streaming=True)

    def __init__(
        self,
        *,
        heads: PositiveInt,
        chunk: PositiveInt = 2,
        offset: AnyFloat = -4.0,
        noise: NonNegativeFloat = 1.0,
        noise_steps: NonNegativeInt = 0,
        inference: Literal["hard", "expected"] = "hard",
        advance: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.monotonic = Monotonic(
            heads=heads,
            offset=offset,
            noise=noise,
            noise_steps=noise_steps,
            inference=inference,
            advance=advance,
        )
        self.lookback = chunk - 1
        self.narrow(streaming=inference == "hard")

    def start(self, nothing: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        return self.monotonic.start(nothing)

    def forward(
        self, scores: Float[Tensor, "..."], support: DenseSupport, state: AttentionState | None = None
    ) -> NormalizerOutput:
        if scores.dim() != 5 or len(scores) != 2:
            raise ValueError(
                "MonotonicChunkwise needs two scores for each pair, (2,b,h,q,k), from ScorePair; "
                f"got the shape {tuple(scores.shape)}"
            )
        stops, alignment = self.monotonic(scores[0], support, state)
        return NormalizerOutput(chunkwise(stops, scores[1], support.mask_of(scores[1]), self.chunk), alignment)

    def is_waiting(self, alignment: Float[Tensor, "b h q k"]) -> Bool[Tensor, "b h q"]:
        return self.monotonic.is_waiting(alignment)

    def skip(self, state: AttentionState) -> AttentionState:
        return self.monotonic.skip(state)

    def extra_repr(self) -> str:
        return f"chunk={self.chunk}"


def expected_alignment(energies: Float[Tensor, "b h q k"], before: Float[Tensor, "b h k"]) -> Float[Tensor, "b h q k"]:
    """Computes the expected alignment (Raffel et al. 2017, eq. 9-10).

    Several queries are computed along the anti-diagonals, whose cells do not depend on each other, in q + k steps. One
    query is a scan over the keys. Both compute and return fp64, as does the state of single steps.

    Args:
        energies: Scores of stopping; -inf never stops.
        before: Alignment of the previous query.
    """
    wide, before = _to_double(energies), _to_double(before)
    if energies.shape[2] > 1:
        return _scan_diagonals(wide, before)  # type: ignore[no-any-return]
    passed = F.pad((-wide).sigmoid()[..., :-1], (1, 0))
    reached: Tensor = linear_recurrence(passed, before.unsqueeze(2))
    return wide.sigmoid() * reached


@torch.no_grad()
def hard_alignment(energies: Float[Tensor, "b h q k"], before: Float[Tensor, "b h k"]) -> Float[Tensor, "b h q k"]:
    """Selects for each query the first key with a positive energy, starting from the previous query's; or none."""
    keys = energies.shape[-1]
    place = torch.arange(keys, device=energies.device)
    stops = torch.where(energies > 0, place, keys).flip(-1).cummin(-1).values.flip(-1)
    stops = F.pad(stops, (0, 1), value=keys)  # a query that passed the last key stays there
    at = torch.where(before.any(-1), before.argmax(-1), keys).unsqueeze(-1)
    chosen = [at := row.gather(-1, at) for row in stops.unbind(2)]
    return (torch.stack(chosen, 2) == place).to(energies.dtype)


def chunkwise(
    alignment: Float[Tensor, "b h q k"],
    energies: Float[Tensor, "b h q k"],
    permitted: Bool[Tensor, "#b #h #q #k"] | None,
    chunk: int,
) -> Float[Tensor, "b h q k"]:
    """Distributes the alignment of each key over the chunk that ends at it (Chiu & Raffel 2018, section 2.3)."""
    if alignment.numel() == 0:
        return alignment
    batch, heads, queries, keys = alignment.shape
    chunk = min(chunk, keys)
    energies = upcast(energies)
    bounds = torch.finfo(energies.dtype)
    if permitted is None:
        permitted = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=energies.device)
    permitted = F.pad(permitted.expand(*permitted.shape[:3], keys), (chunk - 1, 0), value=False)
    # inf - inf would be NaN, so energies are clamped to half of the largest number
    padded = F.pad(energies.clamp(bounds.min / 2, bounds.max / 2), (chunk - 1, 0))
    within = masked_softmax(padded.unfold(-1, chunk, 1), permitted.unfold(-1, chunk, 1))
    shares = (alignment.unsqueeze(-1) * within).flatten(0, 2).transpose(1, 2)
    summed = F.fold(shares, (1, keys + chunk - 1), (1, chunk))
    return summed.view(batch, heads, queries, -1)[..., chunk - 1 :]


def _shift_rows(x: Float[Tensor, "b h q k"], by: int, fill: float) -> Float[Tensor, "b h q k"]:
    """Moves row i left by `by` i keys, right if it is negative, and fills the rest."""
    queries, keys = x.shape[2:]
    if not by or queries == 1:
        return x
    source = torch.arange(keys, device=x.device) + by * torch.arange(queries, device=x.device).unsqueeze(1)
    shifted = x.gather(-1, source.clamp(0, keys - 1).expand(x.shape))
    return shifted.masked_fill((source < 0) | (source >= keys), fill)


def _to_double(x: Tensor) -> Tensor:
    """Converts to fp64, as the rounding of p in fp32 adds up to 2e-5 in 1,000 steps; Apple's GPUs have no fp64."""
    return x if x.device.type == "mps" else x.double()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _scan_diagonals(energies: Tensor, before: Tensor) -> Tensor:
    """Computes the alignment outside of compiled graphs, which would unroll every step."""
    if is_transformed():
        raise NotImplementedError(
            "the expected alignment of monotonic attention has a gradient of its own, which torch.func and "
            "torch.export cannot take"
        )
    alignment = _Expected.apply(energies.flatten(0, 1), before.flatten(0, 1))
    return alignment.view_as(energies)  # type: ignore[no-any-return]


class _Expected(torch.autograd.Function):
    """The recursion over anti-diagonals, and its gradient.

    Anti-diagonal d = i + j holds q_ij at index i. Its left neighbour in the grid is index i of the previous diagonal,
    the one above is index i - 1. With s = 1 - p, the gradients g of q and a of alpha are
    a_ij = dL/dalpha_ij + g_{i+1,j} and g_ij = p_ij a_ij + s_ij g_{i,j+1}.
    """

    @staticmethod
    def forward(ctx: Any, energies: Float[Tensor, "r q k"], before: Float[Tensor, "r k"]) -> Float[Tensor, "r q k"]:
        keys = energies.shape[-1]
        energies = _to_diagonals(energies, -torch.inf)
        stop, go = energies.sigmoid(), (-energies).sigmoid()
        reached = torch.zeros_like(stop)
        reached[:keys, :, 0] = before.T
        here, below = reached.unbind(0), reached[..., 1:].unbind(0)
        goes, above, stops = go.unbind(0), *(x[..., :-1].unbind(0) for x in (reached, stop))
        for d in range(len(stop) - 1):
            here[d + 1].addcmul_(goes[d], here[d])
            below[d + 1].addcmul_(stops[d], above[d])
        ctx.save_for_backward(stop, go, reached)
        ctx.keys = keys
        return _from_diagonals(stop * reached, keys)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "r q k"]) -> tuple[Float[Tensor, "r q k"], Float[Tensor, "r k"]]:
        stop, go, reached = ctx.saved_tensors
        to_alignment = _to_diagonals(gradient, 0.0)
        to_reached = torch.zeros(len(stop) + 1, *stop.shape[1:], dtype=stop.dtype, device=stop.device)
        here, below = to_reached.unbind(0), to_reached[..., 1:].unbind(0)
        ends, above = to_alignment.unbind(0), to_alignment[..., :-1].unbind(0)
        stops, passes = stop.unbind(0), go.unbind(0)
        for d in reversed(range(len(stop))):
            above[d].add_(below[d + 1])
            torch.mul(stops[d], ends[d], out=here[d])
            here[d].addcmul_(passes[d], here[d + 1])
        # dp/de = -ds/de = p s
        to_energies = stop * go * reached * to_alignment.sub_(to_reached[1:])
        return _from_diagonals(to_energies, ctx.keys), to_reached[: ctx.keys, :, 0].T


def _to_diagonals(x: Float[Tensor, "r q k"], fill: float) -> Float[Tensor, "d r q"]:
    """Moves row i right by i, and fills the rest."""
    rows, queries, keys = x.shape
    length = queries + keys - 1
    moved = F.pad(x, (0, queries), value=fill).flatten(1)[:, : queries * length].view(rows, queries, length)
    return moved.permute(2, 0, 1).contiguous()


def _from_diagonals(x: Float[Tensor, "d r q"], keys: int) -> Float[Tensor, "r q k"]:
    length, rows, queries = x.shape
    flat = x.permute(1, 2, 0).reshape(rows, queries * length)
    return F.pad(flat, (0, queries)).view(rows, queries, length + 1)[..., :keys]
