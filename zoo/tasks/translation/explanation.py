"""Explains translations: all of a split as a table, and some of them drawn word by word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import LabelledMap, plots
from zoo.maps.describe import number
from zoo.maps.explainer import Axis, LabelledAttention, MapOptions, Table, picture_name
from zoo.maps.plots import heat_map, short
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.explanation import PerturbableSource, Seq2SeqExample, Seq2SeqExplainer
from zoo.tasks.seq2seq.gradients import GradientByDistance, GradientDistanceTally, gradient_norms, reach_figure
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.text_codec import END, WordSegmentation
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding, heaviest_links, merge_by_word
from zoo.tasks.translation.batch import ReadableTranslationBatch
from zoo.tasks.translation.metrics import count_reordered, gold_links, gold_of, segment_source
from zoo.text.tokens import NO_WORD

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zoo.tasks.translation.datamodule import PairData
    from zoo.tasks.translation.task import Translator

ALIGNMENT, OF_REFERENCE = "alignment", "alignment of the reference"
"""Names of the maps of words: of the translation that the model wrote, and of the given one."""
_NOUNS = {"query": "word of the translation", "key": "word of the source"}
_SAID = 12
"""Maximum number of words that are named in a sentence."""
_GRADIENTS = 24
"""Number of pairs whose gradients are measured."""


class ExplainedTranslation(Seq2SeqExample):
    """A source, its translation, and how a forced pass over the translation attended to the words of the source."""

    def __init__(
        self,
        module: Translator,
        batch: ReadableTranslationBatch,
        found: Recording,
        best: Hypothesis,
        written: ForcedDecoding,
        reference: ForcedDecoding | None,
    ) -> None:
        super().__init__(module, batch, found, best, written, reference)
        self.source_words = segment_source(batch, 0)
        self.target = self.language.segment(best.tokens)
        self.reference = None if batch.targets is None else segment_target(batch, 0)
        self.of_best = None if self.weights is None else self._merge_words(self.weights, self.target)
        self.of_reference = None
        if self.reference_weights is not None and self.reference is not None:
            self.of_reference = self._merge_words(self.reference_weights, self.reference)

    @property
    def source(self) -> Axis:
        return Axis("source token", [piece.strip() or piece for piece in self.as_read.pieces])

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"text": self.as_read.source}

    @property
    def description(self) -> str:
        """The source word that each word attended to most: 'dog < hund .97'."""
        if self.of_best is None:
            return "no map: this model does not attend to its source, or its attention has no weights"
        parts = [
            f"{self.target.words[to]} < {self.source_words.words[of]} {number(float(self.of_best[to, of]))}"
            for to, of in heaviest_links(self.of_best)
        ]
        more = [f"and {len(parts) - _SAID} more"] if len(parts) > _SAID else []
        return ", ".join([*parts[:_SAID], *more])

    @property
    def words(self) -> Sequence[str]:
        probability = number(self.best.probability)
        return [f"{self.id}: {self.as_read.source} | {self.text} ({probability}); {self.description}"]

    def derived_maps(self) -> Iterator[LabelledAttention]:
        for name, weights, words, gold in (
            (ALIGNMENT, self.of_best, self.target, None),
            (OF_REFERENCE, self.of_reference, self.reference, self._gold),
        ):
            if weights is not None and words is not None and len(weights):
                labels = {"key": self.source_words.words, "query": words.words}
                yield LabelledAttention.from_weights(name, weights, labels, _NOUNS, gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        if ALIGNMENT in made:
            title = f"{self.id}: {short(self.text, 70)}"
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
        return gold_of(gold_links(self.batch.gold[0], self.reference, self.source_words), self.of_reference).cpu()

    def _merge_words(self, weights: Float[Tensor, "n k"], words: WordSegmentation) -> Float[Tensor, "words places"]:
        return merge_by_word(weights, words.owners, self.source_words.owners).float().cpu()

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
            row |= {"source_word": self.source_words.words[at], "weight": float(weights[to, at])}
            if self._gold is not None:
                origins = [] if gold is None else gold[to].nonzero().flatten().tolist()
                row["gold"] = " ".join(map(str, origins))
            rows.append(row)
        return pd.DataFrame(rows)


class PerturbableText(PerturbableSource):
    """A text whose inputs are its words; the map's value of a word is its coverage."""

    source: Source
    noun = "word"
    max_size = 2**14
    may_be_empty = False

    def __init__(self, module: Translator, batch: ReadableTranslationBatch) -> None:
        self.words = segment_source(batch, 0)
        self.language = batch.language
        self.size = batch.source.tokens.shape[1]
        self.owners = torch.tensor(self.words.owners, device=batch.source.tokens.device)
        super().__init__(module, batch)

    def sum_weights(self, weights: Float[Tensor, "n k"], best: Hypothesis) -> Float[Tensor, " words"]:
        return merge_by_word(weights, self.language.segment(best.tokens).owners, self.words.owners).sum(0)

    def sum_inputs(self, rows: Float[Tensor, " k"]) -> Float[Tensor, " words"]:
        is_word = self.owners != NO_WORD
        return rows.new_zeros(len(self.attention)).index_add(0, self.owners[is_word], rows[is_word])

    def mask(self, keep: Bool[Tensor, "v words"]) -> Source:
        return self.source.keep_tokens((self.owners == NO_WORD) | keep[:, self.owners])  # white space stays


class TranslationExplainer(Seq2SeqExplainer):
    """`translations` has a row for each pair of the test split, or of the user's own texts; `alignments` one for each
    word of those that are drawn; `gradients` one for each distance; `bleu_by_length` one for each class of lengths."""

    noun, table, of_reference = "text", "translations", OF_REFERENCE
    example, perturbable = ExplainedTranslation, PerturbableText

    def __init__(self, module: Translator, data: PairData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.corpus, options)
        self.scored = [ALIGNMENT, OF_REFERENCE]

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        self.figures.finalize()
        for lengths in self.figures.tables.values():
            yield _table("bleu_by_length", lengths, _length_figure(lengths))
        if self._is_known:
            reach = self._reach()
            of = f"{self.module.about['model']}, attention={self.module.about['config']['names'].get('attention', '-')}"
            yield _table("gradients", [row._asdict() for row in reach], reach_figure(reach, title=of))

    @property
    def _is_known(self) -> bool:
        """Whether each text has a given translation."""
        return self.data.content.targets is not None

    def _reach(self) -> list[GradientByDistance]:
        reached = GradientDistanceTally()
        for position in self.sample(_GRADIENTS):
            batch = self.batch(position)
            norms = gradient_norms(self.module.net, batch.source, [*batch.known_targets.texts()[0], END])
            reached.add(norms, None if batch.gold is None else batch.gold[0])
        return reached.rows()

    def columns(self, batch: ReadableTranslationBatch) -> dict[str, list[Any]]:
        """Text, translation, its probability and numbers of words; of given translations their loss; of attention the
        share of links that go back, and the least coverage of a word."""
        best = [texts[0] for texts in self.module.write(batch)]
        language, sources = batch.language, [segment_source(batch, number) for number in range(len(batch))]
        words = [language.segment(each.tokens) for each in best]
        columns: dict[str, list[Any]] = {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "text": [each.source for each in batch.written],
            **self.write_columns(batch, best),
            "source_words": [len(each.words) for each in sources],
            "words": [len(each.words) for each in words],
        }
        forced = self.module.force_decode(batch, best)
        if batch.targets is not None:
            columns |= self.judge(batch, best, forced)[1]
        if forced.weights is not None:
            pairs = zip(forced.weights, words, sources, strict=True)
            merged = [merge_by_word(weights, to.owners, of.owners) for weights, to, of in pairs]
            back = [count_reordered(heaviest_links(weights)) for weights in merged]
            columns["reordered"] = [count / links if links else None for count, links in back]
            columns["least_covered"] = [float(weights.sum(0).min()) for weights in merged]
        return columns


def _table(name: str, rows: list[dict[str, Any]], figure: Figure) -> Table:
    import pandas as pd

    return Table(name, [pd.DataFrame(rows)], figure)


def _length_figure(rows: list[dict[str, Any]]) -> Figure:
    """Draws BLEU over classes of lengths."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.2), layout="constrained", facecolor="white")
    axes = figure.subplots()
    places = range(len(rows))
    axes.plot(places, [row["bleu"] for row in rows], marker="o", color="#3f78b5")
    axes.set_xticks(places, labels=[row["source words"] for row in rows], fontsize=8, color=plots.INK)
    axes.set_ylim(0, 102)
    axes.set_xlabel("words of the source", color=plots.QUIET, fontsize=9)
    axes.set_ylabel("BLEU", color=plots.QUIET, fontsize=9)
    axes.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
