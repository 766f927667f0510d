"""Documents without some of their words or sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.maps.perturbation import Perturbable, gradient_at_rows
from zoo.tasks.documents.batch import DocumentBatch
from zoo.tasks.documents.word_importance import sentence_weights

if TYPE_CHECKING:
    from zoo.tasks.documents.task import DocumentClassifier

_WORDS = 2**16
"""Maximum number of words in one batch of variants, before words are left out."""


class PerturbableDocument(Perturbable):
    """A document whose inputs are its words or its sentences. Occlusion removes them, and sentences left without words.

    If documents can have several labels, the answer is the combination of all decisions, as in `zoo predict`.

    Args:
        module: Classifier.
        batch: Batch of one document.
        noun: Kind of inputs, `word` or `sentence`. The weight of a sentence is the sum over its words.
    """

    max_size = _WORDS
    may_be_empty = False

    def __init__(
        self, module: DocumentClassifier, batch: DocumentBatch[Any], noun: Literal["word", "sentence"] = "word"
    ) -> None:
        self.module, self.noun, self.size = module, noun, len(batch.words)
        of_words = module.explain(batch).weights[:, 0]
        self.attention = of_words if noun == "word" else sentence_weights(of_words, batch)
        self.inputs = torch.arange(len(of_words), device=of_words.device) if noun == "word" else batch.sentences
        self.has_several = batch.known_label_set.targets == "multi"
        with torch.no_grad():
            logits = module(batch)[0]
        self.answer = logits > 0 if self.has_several else logits.argmax()
        self.batch = replace(batch, gold_words=None, gold_sentences=None, spelled=None, planted=None)

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        return self._log_probability(self._copies(keep[:, self.inputs])).exp()

    def gradient(self) -> Float[Tensor, " n"]:
        """Returns gradients of the vectors of words. Those of pairs of words (`HAN(pairs=...)`) are not among them."""
        net: Any = self.module.net
        return gradient_at_rows(
            lambda: self._log_probability(self.batch).sum(), net.vectors.table, self.batch.words, self.inputs
        )

    def _log_probability(self, batch: DocumentBatch[Any]) -> Float[Tensor, " b"]:
        logits: Tensor = self.module(batch).double()
        if self.has_several:
            return F.logsigmoid(torch.where(self.answer, logits, -logits)).sum(-1)
        return logits.log_softmax(-1)[:, self.answer]

    def _copies(self, keep: Bool[Tensor, "v n"]) -> DocumentBatch[Any]:
        """Returns a document for each variant."""
        count, batch = len(keep), self.batch
        of = torch.arange(count, device=keep.device)[:, None] * len(batch.documents) + batch.sentences
        found, sentences = torch.unique(of[keep], return_inverse=True)  # sorted, so that the order of the text stays
        return replace(
            batch,
            words=batch.words.expand(count, -1)[keep],
            sentences=sentences,
            documents=found // len(batch.documents),
            labels=batch.labels.repeat(count, *[1] * (batch.labels.dim() - 1)),
            ids=batch.ids * count,
            splits=batch.splits * count,
        )
