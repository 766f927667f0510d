"""The maps of translations: all of a split as a table, and some of them drawn word by word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import plots
from zoo.maps.explainer import MapOptions, Table
from zoo.tasks.seq2seq.explanation import Seq2SeqExplainer
from zoo.tasks.seq2seq.gradients import GradientByDistance, GradientDistanceTally, gradient_norms, reach_figure
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding, by_word, heaviest_links
from zoo.tasks.translation.batch import TranslationBatch
from zoo.tasks.translation.maps.example import ALIGNMENT, OF_REFERENCE, ExplainedTranslation
from zoo.tasks.translation.maps.perturbation import PerturbableText
from zoo.tasks.translation.metrics import TranslationMetrics, reordered, spelled_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.translation.datamodule import PairData
    from zoo.tasks.translation.task import Translator

_GRADIENTS = 24
"""Number of pairs whose gradients are measured."""


class TranslationExplainer(Seq2SeqExplainer):
    """`translations` has a row for each pair of the test split, or of the user's own texts; `alignments` one for each
    word of those that are drawn; `gradients` one for each distance; `bleu_by_length` one for each class of lengths."""

    noun, table, of_reference = "text", "translations", OF_REFERENCE

    def __init__(self, module: Translator, data: PairData, options: MapOptions) -> None:
        figures = TranslationMetrics(module.bleu, module.chrf)
        super().__init__(module, data, data.content.corpus, figures, options)
        self.scored = [ALIGNMENT, OF_REFERENCE]

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        self.figures.close()
        for lengths in self.figures.tables.values():
            yield _table("bleu_by_length", lengths, _length_figure(lengths))
        if self._is_known:
            reach = self._reach()
            of = f"{self.module.about['model']}, attention={self.module.about['config']['names'].get('attention', '-')}"
            yield _table("gradients", [row._asdict() for row in reach], reach_figure(reach, title=of))

    def drawn(
        self, batch: TranslationBatch, found: Recording, best: Hypothesis, of_best: ForcedDecoding, of_reference: Any
    ) -> ExplainedTranslation:
        return ExplainedTranslation(self.module.net, batch, found, best, of_best.weights, of_reference)

    def occludable(self, position: int) -> list[PerturbableText]:
        return [PerturbableText(self.module, self.batch(position))]

    @property
    def _is_known(self) -> bool:
        """Whether each text has a given translation."""
        return self.data.content.targets is not None

    def _reach(self) -> list[GradientByDistance]:
        reached = GradientDistanceTally()
        for position in self.typical(_GRADIENTS):
            batch = self.batch(position)
            assert batch.targets is not None
            norms = gradient_norms(self.module.net, batch.source, [*batch.targets.texts()[0], END])
            reached.add(norms, None if batch.gold is None else batch.gold[0])
        return reached.rows()

    def columns(self, batch: TranslationBatch) -> dict[str, list[Any]]:
        """Text, translation, its probability and numbers of words; of given translations their loss; of attention the
        share of links that go back, and the least coverage of a word."""
        assert batch.language is not None
        assert batch.written is not None
        best = [texts[0] for texts in self.module.write(batch)]
        language, sources = batch.language, [spelled_source(batch, number) for number in range(len(batch))]
        words = [language.spelled(each.tokens) for each in best]
        columns: dict[str, list[Any]] = {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "text": [each.source for each in batch.written],
            "translation": [language.text(each.tokens) for each in best],
            "score": [each.score for each in best],
            "probability": [each.probability for each in best],
            "ended": [each.ended for each in best],
            "source_words": [len(each.words) for each in sources],
            "words": [len(each.words) for each in words],
        }
        forced = self.module.forced(batch, best)
        if batch.targets is not None:
            columns |= self.judged(batch, best, forced)[1]
        if forced.weights is not None:
            pairs = zip(forced.weights, words, sources, strict=True)
            merged = [by_word(weights, to.owners, of.owners) for weights, to, of in pairs]
            back = [reordered(heaviest_links(weights)) for weights in merged]
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
