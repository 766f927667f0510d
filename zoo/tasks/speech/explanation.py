"""The maps of recordings: all of a split as a table, and some of them drawn over their spectrograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import plots
from zoo.maps.explainer import MapOptions, Table
from zoo.tasks.seq2seq.explanation import Seq2SeqExplainer
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding
from zoo.tasks.speech.alignment_metrics import covered, diagonality, monotonic_steps, sounding
from zoo.tasks.speech.batch import SpeechBatch
from zoo.tasks.speech.maps.example import ALIGNMENT, OF_REFERENCE, ExplainedTranscript
from zoo.tasks.speech.maps.perturbation import PerturbableRecording
from zoo.tasks.speech.metrics import SpeechMetrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.speech.datamodule import SpeechData
    from zoo.tasks.speech.task import Recogniser


class SpeechExplainer(Seq2SeqExplainer):
    """`transcripts` has a row for each recording of the test split, or of the user's own; `times` one for each word and
    token of those that are drawn; `by_speaker`, `by_length` and `by_snr` one for each class of recordings."""

    noun, table, of_reference = "recording", "transcripts", OF_REFERENCE

    def __init__(self, module: Recogniser, data: SpeechData, options: MapOptions) -> None:
        figures = SpeechMetrics(module.wer, module.cer, module.stride)
        super().__init__(module, data, data.content.corpus, figures, options)
        self.scored = [ALIGNMENT, OF_REFERENCE]

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        self.figures.close()
        for name, rows in self.figures.tables.items():
            yield _table(name, rows)

    @property
    def about(self) -> Mapping[str, Any]:
        return {"recordings": len(self.records.numbers(self.split)), "split": self.split}

    def drawn(
        self, batch: SpeechBatch, found: Recording, best: Hypothesis, of_best: ForcedDecoding, of_reference: Any
    ) -> ExplainedTranscript:
        return ExplainedTranscript(
            batch, self.module.stride, found, best, of_best.weights, of_best.log_probability, of_reference
        )

    def occludable(self, position: int) -> list[PerturbableRecording]:
        return [PerturbableRecording(self.module, self.batch(position))]

    def columns(self, batch: SpeechBatch) -> dict[str, list[Any]]:
        """Transcript and its probability, the recording's length and noise; of given transcripts their loss; numbers of
        the alignment, and the share of the reference's weights on places without any token."""
        assert batch.language is not None
        assert batch.written is not None
        best = [texts[0] for texts in self.module.write(batch)]
        frames, stride = batch.source.lengths.tolist(), self.module.stride
        columns: dict[str, list[Any]] = {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "speaker": [each.speaker for each in batch.written],
            "snr": [each.snr for each in batch.written],
            "seconds": [round(each * batch.hop, 6) for each in frames],
            "transcript": [batch.language.text(each.tokens) for each in best],
            "score": [each.score for each in best],
            "probability": [each.probability for each in best],
            "ended": [each.ended for each in best],
        }
        forced = self.module.forced(batch, best)
        if batch.targets is not None:
            references, given = self.judged(batch, best, forced)
            columns |= given
            if batch.gold is not None and references.weights is not None:
                columns["weight_on_silence"] = [
                    _silence(references.weights[row], batch.gold[row], -(-count // stride), stride)
                    for row, count in enumerate(frames)
                ]
        if forced.weights is not None:
            rows = [
                weights[: len(each.tokens), : -(-count // stride)]
                for weights, each, count in zip(forced.weights, best, frames, strict=True)
            ]
            columns["monotonicity"] = [_share(*monotonic_steps(each)) for each in rows]
            columns["diagonality"] = [float(diagonality(each).mean()) if len(each) else None for each in rows]
            columns["coverage"] = [_share(*covered(each)) for each in rows]
        return columns


def _silence(weights: Any, spans: Any, places: int, stride: int) -> float | None:
    """Returns the share of the weights of tokens with a span that is on places without any token."""
    own = weights[: len(spans), :places][spans[:, 1] > spans[:, 0]]
    return float(own[:, ~sounding(spans, stride, places)].double().sum(1).mean()) if len(own) else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    import pandas as pd

    return Table(name, [pd.DataFrame(rows)], _classes_figure(rows) if name != "by_speaker" else None)


def _classes_figure(rows: list[dict[str, Any]]) -> Figure:
    """Draws error rates, and where it is known the weight on silence, over classes of recordings."""
    from matplotlib.figure import Figure

    classes, *_ = rows[0]
    figure = Figure(figsize=(5.4, 3.2), layout="constrained", facecolor="white")
    axes = figure.subplots()
    places = range(len(rows))
    lines = {"wer": ("word error rate", "#173a6d"), "cer": ("character error rate", "#3f78b5")}
    lines["weight_on_silence"] = ("weight on silence and noise", plots.GOLD)
    for column, (label, colour) in lines.items():
        if column in rows[0]:
            axes.plot(places, [row[column] for row in rows], marker="o", color=colour, label=label)
    axes.set_xticks(places, labels=[row[classes] for row in rows], fontsize=8, color=plots.INK)
    axes.set_ylim(bottom=0)
    axes.set_xlabel({"snr": "ratio of signal and noise in dB"}.get(classes, classes), color=plots.QUIET, fontsize=9)
    axes.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure
