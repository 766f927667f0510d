"""The interface between models that generate and search, sampling, ensembles and the forced pass."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Source = TypeVar("Source", contravariant=True)
State = TypeVar("State")


class Decoder(Protocol[Source, State]):
    """Predicts the next token of every hypothesis. "Sentence" stands for any input of a text, such as a recording.

    A state is a value that is never stored on a module: an operation returns a new one, and the old one stays valid.
    It holds b sentences with w hypotheses each. Tensors of the source are best stored once for each sentence, because
    all its hypotheses can attend to them together: see `DecoderState` and `MultiheadAttention.attend_step` of the core.

    Where the attribute `is_scored` is True, `step` returns scores of the next tokens, which are at most 0 and are added
    up as they are; otherwise it returns logits, and their log-probabilities are added up.

    There are four optional methods. `whole(source, tokens (b,n)) -> logits (b,n,v)` computes all steps in one pass, as
    in training; `force_decode` calls it if it exists. `coverage(state) -> weights (b,w,k)` returns the total weight of
    each place of the source over all steps of a hypothesis, and at least 1 at padding; rankings with a coverage penalty
    need it. `may_end(state) -> mask (b,w)` returns False where a text may not end after this step, for models that see
    a part of their source at each step, and `must_end(state) -> mask (b,w)` True where it may not go on, for models
    that have nothing left to read; None permits everything.
    """

    def start(self, source: Source) -> State:
        """Returns the state before the first token: one hypothesis for each sentence."""
        ...

    def step(self, tokens: Int[Tensor, "b w"], state: State) -> tuple[Float[Tensor, "b w v"], State]:
        """Reads the last token of each hypothesis.

        Returns:
            The logits of the next tokens, and the state after this step.
        """
        ...

    def reorder(self, state: State, beams: Int[Tensor, "b w2"]) -> State:
        """Returns the state of the selected hypotheses of each sentence: `beams[i, j]` becomes hypothesis j."""
        ...

    def select(self, state: State, sentences: Int[Tensor, " s"]) -> State:
        """Returns the state of the selected sentences with all their hypotheses; a sentence may be selected twice."""
        ...


def to_scores(decoder: Any, output: Float[Tensor, "b w v"]) -> Float[Tensor, "b w v"]:
    """Returns the scores of next tokens, of what `step` has returned: log-probabilities, if these are logits."""
    output = output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    return output if getattr(decoder, "is_scored", False) else output.log_softmax(-1)


def get_coverage(decoder: Any, state: Any) -> Float[Tensor, "b w k"]:
    """Returns the total weight of each place of the source, or refuses a decoder without the method `coverage`."""
    if not hasattr(decoder, "coverage"):
        raise ValueError(f"a coverage penalty needs the method `coverage` of {type(decoder).__name__}, which has none")
    return decoder.coverage(state)  # type: ignore[no-any-return]


def may_end(decoder: Any, state: Any) -> Bool[Tensor, "b w"] | None:
    """Returns the mask of the hypotheses that may end after this step; None if all may."""
    return decoder.may_end(state) if hasattr(decoder, "may_end") else None


def must_end(decoder: Any, state: Any) -> Bool[Tensor, "b w"] | None:
    """Returns the mask of the hypotheses that may not go on after this step; None if all may."""
    return decoder.must_end(state) if hasattr(decoder, "must_end") else None


def next_scores(decoder: Any, logits: Float[Tensor, "b w v"], state: Any, end: int) -> Float[Tensor, "b w v"]:
    """Returns the scores of next tokens: minus infinity where a hypothesis may not end, or may not go on.

    Args:
        logits: The first result of `step`.
        state: The second one.
        end: Token that ends a hypothesis.
    """
    scores, may, must = to_scores(decoder, logits), may_end(decoder, state), must_end(decoder, state)
    if may is None and must is None:
        return scores
    is_end = torch.arange(scores.shape[2], device=scores.device) == end
    scores = scores if may is None else scores.masked_fill(~may.unsqueeze(2) & is_end, -torch.inf)
    return scores if must is None else scores.masked_fill(must.unsqueeze(2) & ~is_end, -torch.inf)
