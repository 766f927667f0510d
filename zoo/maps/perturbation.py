"""Examples whose inputs can be left out, and controls of the net's attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, Normalizer, Traits, Uniform
from zoo.attention.attention_state import AttentionState, NormalizerOutput
from zoo.attention.supports.support import Support


class Perturbable(ABC):
    """One example, whose answer can be scored without some of its inputs.

    Attributes:
        noun: Word for an input, such as "word", "cell" or "neighbour".
        attention: Value of the scored map for each input.
        size: Amount of memory that one variant takes, in the unit of `max_size`, such as tokens.
        max_size: Maximum of all variants in one batch.
        may_be_empty: Whether a variant may keep none of its inputs.
    """

    noun: str
    attention: Float[Tensor, " n"]
    size: int = 1
    max_size: ClassVar[int] = 2**14
    may_be_empty: ClassVar[bool] = True

    @torch.no_grad()
    def score(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        """Computes the probability of the whole example's answer for variants that keep only some of its inputs.

        Variants are passed through the net in batches of bounded size. The result is in float64, because probabilities
        close to 1 differ in the last digits only.

        Args:
            keep: Mask of the inputs that each variant keeps.
        """
        if not self.may_be_empty and not keep.any(1).all():
            raise ValueError(f"a variant must keep at least one {self.noun}")
        variants = torch.split(keep.to(self.attention.device), max(1, self.max_size // max(1, self.size)))
        return torch.cat([self.score_batch(each) for each in variants])

    @abstractmethod
    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        """Computes `score` for variants that are passed through the net at once."""

    @abstractmethod
    def gradient(self) -> Float[Tensor, " n"]:
        """Computes |sum_d x_d ∂ log m / ∂x_d| for each input x, the gradient of the answer times the input."""


def gradient_at_rows(
    log_probability: Callable[[], Float[Tensor, ""]],
    table: nn.Module,
    numbers: Int[Tensor, "*n"],
    inputs: Int[Tensor, " n"] | None = None,
) -> Float[Tensor, "*m"]:
    """Computes `Perturbable.gradient` if inputs consist of rows of a table of embeddings.

    Args:
        log_probability: Function that computes log m in one pass.
        table: Table of embeddings, which the pass calls with `numbers`; it must be the same tensor object.
        numbers: Indices of the rows.
        inputs: Index of the input that each row is part of: 0, 1, 2, ... without gaps. Default: each row is an input.
    """
    found: list[Tensor] = []

    def begin_here(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        if given[0] is not numbers:
            return None
        found.append(out.detach().requires_grad_())
        return found[-1]

    handle = table.register_forward_hook(begin_here)
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(log_probability(), found)
    finally:
        handle.remove()
    product = (gradient.double() * found[0].detach()).sum(-1)
    if inputs is not None:
        product = product.new_zeros(int(inputs.max()) + 1).index_add(0, inputs, product)
    return product.abs()


def has_weights(net: nn.Module) -> bool:
    """Returns True if the net has attention that `make_uniform`, `freeze_weights` and `permute_weights` can change."""
    return any(isinstance(module, Attention) for module in net.modules())


def make_uniform(net: nn.Module) -> AbstractContextManager[None]:
    """Makes all attention weights of a trained net uniform within the context.

    Wiegreffe & Pinter 2019 (section 3.2) train a model with uniform weights instead; `attention=uniform` does that.
    """
    return _replace_normalizers(net, lambda normalise: Uniform())


def freeze_weights(net: nn.Module) -> AbstractContextManager[None]:
    """Makes attention weights constant for gradients within the context (Jain & Wallace 2019, section 4.1)."""
    return _replace_normalizers(net, lambda normalise: _Changed(normalise, lambda weights, support: weights.detach()))


def permute_weights(net: nn.Module, generator: torch.Generator) -> AbstractContextManager[None]:
    """Permutes the weights of each query among its keys within the context (Jain & Wallace 2019, algorithm 2).

    Permutations are drawn separately for each head and example.
    """

    def permute_row(
        weights: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None
    ) -> Float[Tensor, "... k"]:
        is_key = torch.ones_like(weights, dtype=torch.bool) if permitted is None else permitted.expand(weights.shape)
        noise = torch.rand(weights.shape, generator=generator).to(weights.device)
        drawn = noise.masked_fill(~is_key, 2.0).argsort(-1)  # keys come first, in random order
        in_order = is_key.logical_not().int().argsort(stable=True, dim=-1)
        moved = torch.zeros_like(weights).scatter(-1, in_order, weights.gather(-1, drawn))
        return moved.masked_fill(~is_key, 0.0)

    return _replace_normalizers(
        net,
        lambda normalise: _Changed(normalise, lambda weights, support: support.apply_per_query(permute_row, weights)),
    )


class _Changed(Normalizer):
    """A normaliser whose weights are changed by a function."""

    traits = Traits(hard=True)

    def __init__(self, normalise: Normalizer, change: Callable[[Tensor, Support], Tensor]) -> None:
        super().__init__()
        self.normalizer, self.change = normalise, change
        self.traits = replace(normalise.traits, streaming=False)

    def start(self, nothing: Tensor) -> Tensor:
        return self.normalizer.start(nothing)

    def draw(self, probabilities: Tensor, support: Support) -> Tensor:
        return self.normalizer.draw(probabilities, support)

    def forward(
        self, scores: Tensor, support: Support, state: AttentionState | None = None
    ) -> Tensor | NormalizerOutput:
        found = self.normalizer(scores, support, state)
        if isinstance(found, NormalizerOutput):
            return NormalizerOutput(*(self.change(weights, support) for weights in found))
        return self.change(found, support)


@contextmanager
def _replace_normalizers(net: nn.Module, changed: Callable[[Normalizer], Normalizer]) -> Iterator[None]:
    """Replaces the normalisers of all sites within the context."""
    found = [(module, module.normalizer) for module in net.modules() if isinstance(module, Attention)]
    try:
        for site, normalise in found:
            site.normalizer = changed(normalise).train(normalise.training)
        yield
    finally:
        for site, normalise in found:
            site.normalizer = normalise
