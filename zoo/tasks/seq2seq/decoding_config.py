"""How a model writes texts on its own: by search, or at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.data.loader import hash_seed
from zoo.decoding.beam import BeamSearch
from zoo.decoding.decoder import Decoder
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.sampling import Sampling
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.types import validate_ranges


@validate_ranges
@dataclass(frozen=True)
class MaxLength:
    """The largest number of tokens of a text, its end included: factor times the length of its source, plus constant.

    Args:
        factor: Share of the length of the source.
        constant: Tokens that every text may have.
    """

    factor: Annotated[float, ">= 0", "<= 100"] = 1.5
    constant: Annotated[int, ">= 1", "<= 10000"] = 10

    def __call__(self, lengths: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        return (lengths * self.factor).long() + self.constant


@dataclass(frozen=True)
class DecodingConfig:
    """A way to write the texts of a batch. Padding and the begin are never written.

    Args:
        search: Beam search, greedy search if its width is 1, or sampling.
        longest: Limit of lengths.
        seed: Seed of samples. What is drawn for an example depends on this seed and its name alone.
    """

    search: BeamSearch | Sampling
    longest: MaxLength
    seed: int = 0

    def __call__(self, decoder: Decoder[Any, Any], source: Any, ids: Sequence[str]) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each example, best first.

        Args:
            decoder: The net, in evaluation mode, or a decoder that has it decide with others.
            source: What is read, with `lengths`.
            ids: Names of the examples.
        """
        given = self.search.constraints
        search = replace(self.search, constraints=replace(given, never=(*given.never, PAD, BEGIN)))
        begin = begins(source)
        limits = self.longest(source.lengths)
        if isinstance(search, Sampling):
            seeds = [hash_seed("writing", self.seed, name) for name in ids]
            return search(decoder, source, begin, end=END, longest=limits, seeds=seeds)
        return search(decoder, source, begin, end=END, longest=limits)

    @property
    def count(self) -> int:
        """The largest number of texts for each example."""
        return self.search.draws if isinstance(self.search, Sampling) else self.search.best

    def protocol(self) -> str:
        """Describes the search of figures that are measured with it."""
        assert isinstance(self.search, BeamSearch)
        ranking, constraints = self.search.ranking, self.search.constraints
        parts = [f"beam {self.search.width}", f"length {ranking.length}", f"coverage {ranking.coverage:g}"]
        parts += [f"shortest {constraints.shortest}"] * bool(constraints.shortest)
        parts += [f"no {constraints.unrepeated} tokens twice"] * (constraints.unrepeated is not None)
        parts += [f"at most {self.longest.factor:g} x source + {self.longest.constant} tokens"]
        return ", ".join(parts)

    def greedy(self) -> DecodingConfig:
        """Returns greedy search with the same limits and constraints."""
        return replace(self, search=BeamSearch(width=1, constraints=self.search.constraints))


def begins(source: Any) -> Int[Tensor, " b"]:
    """Returns the first token that a decoder reads, for each example."""
    return torch.full_like(source.lengths, BEGIN)
