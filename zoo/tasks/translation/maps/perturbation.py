"""Texts without some of their words, and how probable their translation then is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.decoding.teacher_forcing import force_decode
from zoo.errors import ConfigError
from zoo.maps.perturbation import Perturbable
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.gradients import inputs_of
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import by_word
from zoo.tasks.translation.batch import TranslationBatch
from zoo.tasks.translation.metrics import spelled_source
from zoo.text.tokens import NO_WORD

if TYPE_CHECKING:
    from zoo.tasks.translation.task import Translator

_TOKENS = 2**14
"""Maximum number of source tokens in one batch of variants."""


class PerturbableText(Perturbable):
    """A text whose inputs are its words; the answer is the translation that the model wrote of all of them.

    Its probability is the geometric mean over its tokens, so that it does not depend on the length. The map's value of
    a word is its coverage.

    Args:
        module: The translator.
        batch: Batch of one text.
    """

    noun = "word"

    def __init__(self, module: Translator, batch: TranslationBatch) -> None:
        assert batch.language is not None
        self.module, self.source = module, batch.source
        best = module.write(batch)[0][0]
        self.answer = best.target(END)
        found = module.forced(batch, [best]).weights
        if found is None:
            raise ConfigError("--faithfulness: this model has no map of its source")
        source, words = spelled_source(batch, 0), batch.language.spelled(best.tokens)
        self.attention = by_word(found[0], words.owners, source.owners).sum(0)
        self.owners = torch.tensor(source.owners, device=batch.source.tokens.device)

    @torch.no_grad()
    def score(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        if not keep.any(1).all():
            raise ValueError("a variant of a text must keep at least one word")
        keep = keep.to(self.owners.device)
        tokens = torch.where(self.owners == NO_WORD, True, keep[:, self.owners])  # white space stays
        parts = torch.split(tokens, max(1, _TOKENS // tokens.shape[1]))
        return torch.cat([self._log_probability(self._copies(part)).exp() for part in parts])

    def gradient(self) -> Float[Tensor, " n"]:
        with torch.enable_grad(), inputs_of(self.module.net) as found:
            (gradient,) = torch.autograd.grad(self._log_probability(self.source).sum(), found)
        product = (gradient.double() * found[0].detach()).sum(-1).flatten()
        is_word = self.owners != NO_WORD
        return product.new_zeros(len(self.attention)).index_add(0, self.owners[is_word], product[is_word]).abs()

    def _log_probability(self, source: Source) -> Float[Tensor, " b"]:
        targets = [self.answer] * len(source)
        return force_decode(self.module.net, source, begins(source), targets).double().mean(1)

    def _copies(self, keep: Bool[Tensor, "v k"]) -> Source:
        """Returns a text for each variant."""
        rows = self.source.tokens.expand(len(keep), -1)
        return Source.of([row[kept].tolist() for row, kept in zip(rows, keep, strict=True)]).to(rows.device)
