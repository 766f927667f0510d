"""Which place of the source each token of a text was made of: the weights of a forced pass over the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import record
from zoo.attention.recording.recorder import Recording
from zoo.decoding.teacher_forcing import force_decode
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.text.tokens import NO_WORD


class ForcedDecoding(NamedTuple):
    """A decoder that has read given texts.

    Attributes:
        log_probability: Of each token; zero behind the last one of a text.
        weights: Weight of each place of the source at each step, averaged over heads; None if the net has none.
    """

    log_probability: Float[Tensor, "b n"]
    weights: Float[Tensor, "b n k"] | None


@torch.no_grad()
def force_decode_texts(net: Seq2SeqModel, source: Any, texts: Sequence[Sequence[int]]) -> ForcedDecoding:
    """Lets a net read texts, and records how it attends to their sources meanwhile.

    Args:
        net: The net, in evaluation mode.
        source: What the texts were made of.
        texts: The tokens of each text, with the end: `Hypothesis.target(END)`.
    """
    if net.align is None:
        return ForcedDecoding(force_decode(net, source, begins(source), texts), None)
    with record(net, layers=[net.align]) as maps:
        log_probability = force_decode(net, source, begins(source), texts)
    return ForcedDecoding(log_probability, weights_of(net, maps))


def weights_of(net: Seq2SeqModel, maps: Recording) -> Float[Tensor, "b n k"] | None:
    """Returns the weights of the site that aligns, averaged over heads; None if it has none."""
    if net.align is None or net.align not in maps:
        return None
    return torch.cat([step.dense().mean(1) for step in maps[net.align].steps()], 1)


def merge_by_word(
    weights: Float[Tensor, "n k"], target: Sequence[int], source: Sequence[int]
) -> Float[Tensor, "words places"]:
    """Merges tokens to words: sums over the tokens of a source word, and means over those of a target word.

    Args:
        weights: Weights of the tokens. Steps and places beyond the given ones, such as the end and padding, are left
            out.
        target: Number of each target token's word, or `NO_WORD`.
        source: The same of the source.
    """
    found = weights[: len(target), : len(source)].double()
    found = _sum_rows(found.T, source).T
    counts = _sum_rows(found.new_ones(len(target), 1), target)
    return _sum_rows(found, target) / counts.clamp(min=1.0)


def links_by_word(
    links: Sequence[tuple[int, int]], target: Sequence[int], source: Sequence[int]
) -> set[tuple[int, int]]:
    """Returns the links of words (target, source) that links of tokens make."""
    found = {(target[to], source[of]) for to, of in links if to < len(target)}
    return {(to, of) for to, of in found if NO_WORD not in (to, of)}


def heaviest_links(weights: Float[Tensor, "n k"]) -> list[tuple[int, int]]:
    """Links each target to its source of greatest weight: (target, source). Weights of zero make no link."""
    if not weights.numel():
        return []
    values, places = weights.max(1)
    return [(to, of) for to, (value, of) in enumerate(zip(values.tolist(), places.tolist(), strict=True)) if value > 0]


def _sum_rows(rows: Float[Tensor, "n d"], owners: Sequence[int]) -> Float[Tensor, "words d"]:
    """Sums the rows of each word."""
    words = max(owners, default=NO_WORD) + 1
    at = torch.tensor([words if owner == NO_WORD else owner for owner in owners], dtype=torch.long, device=rows.device)
    return rows.new_zeros(words + 1, rows.shape[1]).index_add(0, at, rows)[:words]
