"""The interface of a decoder: all that searches, samplers, ensembles and the forced pass ask of a model."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

Source = TypeVar("Source", contravariant=True)
State = TypeVar("State")


class Decoder(Protocol[Source, State]):
    """Predicts the next token of every hypothesis. A sentence is whatever the output is read from: also a recording.

    A state is a value that is never stored on a module: an operation returns a new one, and the old one stays valid.
    It holds b sentences with w hypotheses each. What belongs to the source is best kept once for each sentence, because
    its hypotheses can attend to it side by side: see `DecoderState` and `MultiHead.look` of the core.

    Optional methods: `whole(source, tokens (b,n)) -> logits (b,n,v)` computes all steps in one pass, as in training,
    and `forced` then calls it. `covered(state) -> weights (b,w,k)` returns the weight that each place of the source has
    had in all steps of a hypothesis, and 1 or more at padding; rankings with a coverage penalty need it.
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
        """Returns the state of the selected sentences, each with all of its hypotheses; one may be selected twice."""
        ...


def covered(decoder: Any, state: Any) -> Float[Tensor, "b w k"]:
    """Returns the weight that each place of the source has had, or refuses a decoder that does not know it."""
    if not hasattr(decoder, "covered"):
        raise ValueError(f"a coverage penalty needs the method `covered` of {type(decoder).__name__}, which has none")
    return decoder.covered(state)  # type: ignore[no-any-return]
