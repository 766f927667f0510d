"""Documents without some of their words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.maps.occludable import Occludable, gradient_at_rows
from zoo.tasks.documents.batch import Documents

if TYPE_CHECKING:
    from zoo.tasks.documents.module import DocumentClassifier

_WORDS = 2**16
"""Maximum number of words in one batch of variants, before words are left out."""


class OccludableDocument(Occludable):
    """A document whose inputs are its words. Words are removed, and sentences without words with them.

    If documents can have several labels, the answer is the most probable one.

    Args:
        module: Classifier.
        batch: Batch of one document.
    """

    noun = "word"

    def __init__(self, module: DocumentClassifier, batch: Documents) -> None:
        self.module = module
        self.attention = module.explain(batch).weights[:, 0]
        with torch.no_grad():
            self.answer = int(module(batch)[0].argmax())
        assert batch.label_set is not None
        self.has_several = batch.label_set.targets == "multi"
        self.batch = replace(batch, gold_words=None, gold_sentences=None, spelled=None, planted=None)

    @torch.no_grad()
    def score(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        if not keep.any(1).all():
            raise ValueError("a variant of a document must keep at least one word")
        parts = torch.split(keep.to(self.batch.words.device), max(1, _WORDS // len(self.batch.words)))
        return torch.cat([self._log_probability(self._copies(part)).exp() for part in parts])

    def gradient(self) -> Float[Tensor, " n"]:
        net: Any = self.module.net
        return gradient_at_rows(lambda: self._log_probability(self.batch).sum(), net.vectors.table, self.batch.words)

    def _log_probability(self, batch: Documents) -> Float[Tensor, " b"]:
        logits = self.module(batch).double()
        return (F.logsigmoid(logits) if self.has_several else logits.log_softmax(-1))[:, self.answer]

    def _copies(self, keep: Bool[Tensor, "v n"]) -> Documents:
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
