"""Teacher forcing: a decoder reads given texts, which yields their probabilities and maps of its attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.decoding.decoder import Decoder, to_scores


def force_decode(
    decoder: Decoder[Any, Any], source: Any, begin: Int[Tensor, " b"], targets: Sequence[Sequence[int]]
) -> Float[Tensor, "b n"]:
    """Returns the log-probability of every target token, and zero after the last token of a sentence.

    Maps, alignments and explanations are recorded in this pass: `with record(model): force_decode(...)`. A recording of
    a search would have rows of abandoned hypotheses, in an order that changes from step to step.

    The result can be differentiated. If the decoder has the method `whole`, all steps are computed at once, and a site
    records one map for all target positions; otherwise it records one map for each step.

    Args:
        decoder, source, begin: See `BeamSearch.__call__`.
        targets: Tokens of each sentence, including the end: `Hypothesis.target(end)`.
    """
    if len(targets) != len(begin):
        raise ValueError(f"there are {len(begin)} sentences and {len(targets)} targets: give one for each sentence")
    longest = max(map(len, targets), default=0)
    # after its last token a sentence reads its first one again; these steps are computed but not used
    rows = [[*target, *[-1] * (longest - len(target))] for target in targets]
    tokens = torch.tensor(rows, dtype=torch.long, device=begin.device).view(len(begin), longest)
    is_real = tokens >= 0
    inputs = torch.cat([begin.unsqueeze(1), tokens[:, :-1]], 1)[:, :longest]
    inputs = torch.where(inputs >= 0, inputs, begin.unsqueeze(1))
    if not longest:
        return torch.zeros(tokens.shape, device=begin.device)
    scores = to_scores(decoder, _compute_logits(decoder, source, inputs))
    log_probability = scores.gather(2, tokens.clamp(min=0).unsqueeze(2)).squeeze(2)
    return log_probability.where(is_real, log_probability.new_zeros(()))


def _compute_logits(decoder: Decoder[Any, Any], source: Any, inputs: Int[Tensor, "b n"]) -> Float[Tensor, "b n v"]:
    whole = getattr(decoder, "whole", None)
    if whole is not None:
        return whole(source, inputs)  # type: ignore[no-any-return]
    state, steps = decoder.start(source), []
    for number in range(inputs.shape[1]):
        logits, state = decoder.step(inputs[:, number : number + 1], state)
        steps.append(logits)
    return torch.cat(steps, 1)
