"""One translation that is drawn: its words, and those of the source that they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import ExplainedExample, LabelledAttention, Table, picture_name
from zoo.maps.plots import heat_map, short
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.text_codec import BEGIN, END, WordSegmentation
from zoo.tasks.seq2seq.word_alignment import by_word, heaviest_links
from zoo.tasks.translation.batch import TranslationBatch
from zoo.tasks.translation.metrics import gold_links, gold_of, spelled_source

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALIGNMENT, OF_REFERENCE = "alignment", "alignment of the reference"
"""Names of the maps of words: of the translation that the model wrote, and of the given one."""
_NOUNS = {"query": "word of the translation", "key": "word of the source"}
_SAID = 12
"""At most so many words are named in a sentence."""


class ExplainedTranslation(ExplainedExample):
    """A source, its translation, and how a forced pass over the translation attended to the source.

    Args:
        net: The net.
        batch: Batch of one pair.
        found: Recording of the pass over the translation.
        best: The translation.
        of_best: Weights of the site that aligns, in that pass; None if there are none.
        of_reference: The same of a pass over the given translation.
    """

    def __init__(
        self,
        net: Seq2SeqModel,
        batch: TranslationBatch,
        found: Recording,
        best: Hypothesis,
        of_best: Float[Tensor, "1 n k"] | None,
        of_reference: Float[Tensor, "1 n k"] | None,
    ) -> None:
        assert batch.language is not None
        self.net, self.batch, self.found, self.best = net, batch, found, best
        self.language = batch.language
        self.source = spelled_source(batch, 0)
        self.target = self.language.spelled(best.tokens)
        self.reference = None if batch.targets is None else segment_target(batch, 0)
        self.of_best = None if of_best is None else self._of_words(of_best, self.target)
        self.of_reference = None
        if of_reference is not None and self.reference is not None:
            self.of_reference = self._of_words(of_reference, self.reference)

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def about(self) -> Mapping[str, Any]:
        assert self.batch.written is not None
        written = self.batch.written[0]
        found: dict[str, Any] = {
            "text": written.source,
            "translation": self.language.text(self.best.tokens),
            "score": self.best.score,
            "probability": self.best.probability,
        }
        return {**found, "reference": written.references[0]} if written.references else found

    @property
    def said(self) -> str:
        """The source word that each word attended to most: 'dog < hund .97'."""
        if self.of_best is None:
            return "no map: this model does not attend to its source, or its attention has no weights"
        parts = [
            f"{self.target.words[to]} < {self.source.words[of]} {number(float(self.of_best[to, of]))}"
            for to, of in heaviest_links(self.of_best)
        ]
        more = [f"and {len(parts) - _SAID} more"] if len(parts) > _SAID else []
        return ", ".join([*parts[:_SAID], *more])

    @property
    def words(self) -> Sequence[str]:
        about = self.about
        return [f"{self.id}: {about['text']} | {about['translation']} ({number(about['probability'])}); {self.said}"]

    def maps(self) -> Iterator[LabelledAttention]:
        for found in self.found.values():
            yield self._of_tokens(found)
        labels = {"key": self.source.words}
        if self.of_best is not None and len(self.of_best):
            yield LabelledAttention.of_weights(ALIGNMENT, self.of_best, {**labels, "query": self.target.words}, _NOUNS)
        if self.of_reference is not None and self.reference is not None and len(self.of_reference):
            labels["query"] = self.reference.words
            yield LabelledAttention.of_weights(OF_REFERENCE, self.of_reference, labels, _NOUNS, self._gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        if ALIGNMENT in made:
            title = f"{self.id}: {short(self.about['translation'], 70)}"
            yield name, heat_map(made[ALIGNMENT], title=title, totals="coverage")
        if OF_REFERENCE in made and made[OF_REFERENCE].gold is not None:
            yield (
                f"{name}_reference",
                heat_map(made[OF_REFERENCE], title=f"{self.id}: {OF_REFERENCE}", totals="coverage"),
            )

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        if self.of_best is not None:
            yield Table("alignments", [self._table("translation", self.target, self.of_best, None)])
        if self.of_reference is not None and self.reference is not None:
            yield Table("alignments", [self._table("reference", self.reference, self.of_reference, self._gold)])

    @cached_property
    def _gold(self) -> Bool[Tensor, "words places"] | None:
        if self.batch.gold is None or self.reference is None or self.of_reference is None:
            return None
        return gold_of(gold_links(self.batch, 0, self.reference, self.source), self.of_reference).cpu()

    def _of_words(self, weights: Float[Tensor, "1 n k"], words: WordSegmentation) -> Float[Tensor, "words places"]:
        return by_word(weights[0], words.owners, self.source.owners).float().cpu()

    def _of_tokens(self, found: AttentionMap) -> LabelledAttention:
        """A map of a site, with the tokens that its queries and keys stand for."""
        assert self.batch.written is not None
        source = [piece.strip() or piece for piece in self.batch.written[0].pieces]
        written = self.best.target(END)
        read = self.language.pieces([BEGIN, *written[:-1]])
        if found.site.startswith("encoder."):
            return LabelledAttention(
                found, {"query": source, "key": source}, {"query": "source token", "key": "source token"}
            )
        if "step" in found.axes:  # a recurrent decoder
            return LabelledAttention(found, {"step": self.language.pieces(written), "key": source})
        if found.site == self.net.align or "cross" in found.site.split("."):
            labels = {"query": self.language.pieces(written), "key": source}
            return LabelledAttention(found, labels, {"query": "token", "key": "source token"})
        return LabelledAttention(found, {"query": read, "key": read}, {"query": "token", "key": "token"})

    def _table(
        self,
        of: str,
        words: WordSegmentation,
        weights: Float[Tensor, "words places"],
        gold: Bool[Tensor, "words places"] | None,
    ) -> pd.DataFrame:
        """id, of, place, word, source_place, source_word, weight and, where it is known, gold: the heaviest links."""
        import pandas as pd

        rows = []
        for to, at in heaviest_links(weights):
            row = {"id": self.id, "of": of, "place": to, "word": words.words[to], "source_place": at}
            row |= {"source_word": self.source.words[at], "weight": float(weights[to, at])}
            if self._gold is not None:
                origins = [] if gold is None else gold[to].nonzero().flatten().tolist()
                row["gold"] = " ".join(map(str, origins))
            rows.append(row)
        return pd.DataFrame(rows)
