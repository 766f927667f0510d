"""The interface of a net that writes texts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn


class Seq2SeqModel(nn.Module):
    """Writes a text step by step; a `Decoder` of `zoo.decoding` as well.

    Training computes `features` of all steps at once, and the output layer `head` once for all steps that are not
    padding. `start`, `step`, `reorder` and `select` are those of `zoo.decoding.Decoder`; `coverage`,
    `may_end` and `must_end` too, if the model attends to its source.
    """

    encoder: nn.Module
    """Everything that reads the source. The queries of its sites are places of the source, those of all other sites are
    steps of the text."""
    head: nn.Module
    """The output layer: (t,d) -> logits (t,v)."""
    align: str | None
    """Name of the site whose weights say which place of the source a step has written; None: the net has none."""

    @abstractmethod
    def features(self, source: Any, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """Returns the input of `head` at every step, if the decoder reads these tokens."""

    def whole(self, source: Any, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n v"]:
        """Returns the logits of all steps: `features`, then `head`."""
        logits: Tensor = self.head(self.features(source, tokens))
        return logits

    @property
    @abstractmethod
    def inputs(self) -> nn.Module:
        """The module that gradients with respect to inputs are taken at.

        It is called once for a source, and its output has a row for each place, before places meet: (b,k,d), or (t,d)
        without padding.
        """

    @abstractmethod
    def vocabularies(self) -> Mapping[str, Mapping[str, int]]:
        """Returns vocabulary ("target_tokens", and that of the source if it has one) -> parameter -> axis.

        The axis has one entry for each token; see `Task.vocabularies`.
        """

    @abstractmethod
    def start(self, source: Any) -> Any: ...

    @abstractmethod
    def step(self, tokens: Int[Tensor, "b w"], state: Any) -> tuple[Float[Tensor, "b w v"], Any]: ...

    def reorder(self, state: Any, beams: Int[Tensor, "b w2"]) -> Any:
        return state.reorder(beams)

    def select(self, state: Any, sentences: Int[Tensor, " s"]) -> Any:
        return state.select(sentences)
