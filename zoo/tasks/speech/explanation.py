"""Explains transcripts: all of a split as a table, and some of them drawn over their spectrograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import LabelledMap, plots
from zoo.maps.describe import number
from zoo.maps.explainer import Axis, LabelledAttention, MapOptions, Table, picture_name
from zoo.tasks.seq2seq.explanation import PerturbableSource, Seq2SeqExample, Seq2SeqExplainer
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding
from zoo.tasks.speech.alignment_metrics import count_covered, diagonality, find_spans, find_voiced, monotonic_steps
from zoo.tasks.speech.batch import Frames, ReadableSpeechBatch
from zoo.tasks.speech.plots import aligned_figure
from zoo.tasks.speech.timestamps import Times, times_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.speech.datamodule import SpeechData
    from zoo.tasks.speech.task import Recogniser

ALIGNMENT, OF_REFERENCE = "alignment", "alignment of the reference"
"""Names of the maps of tokens: of the transcript that the model wrote, and of the given one."""
_NOUNS = {"query": "token", "key": "second"}
_SAID = 12
"""Maximum number of words that are named in a sentence."""


class ExplainedTranscript(Seq2SeqExample):
    """A recording, its transcript, and how a forced pass over the transcript attended to the recording."""

    def __init__(
        self,
        module: Recogniser,
        batch: ReadableSpeechBatch,
        found: Recording,
        best: Hypothesis,
        written: ForcedDecoding,
        reference: ForcedDecoding | None,
    ) -> None:
        super().__init__(module, batch, found, best, written, reference)
        self.stride, self.frames = module.stride, int(batch.source.lengths[0])
        self.of_best = None if self.weights is None else self.weights.float().cpu()
        self.of_reference = None
        if self.reference_weights is not None and batch.targets is not None:
            self.of_reference = self.reference_weights[: int(batch.targets.lengths[0]) - 1].float().cpu()

    @property
    def source(self) -> Axis:
        """The places of the encoder by their beginnings."""
        places = -(-self.frames // self.stride)
        return Axis("second", [f"{place * self.stride * self.batch.hop:.2f}" for place in range(places)])

    @property
    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"seconds": self.frames * self.batch.hop}
        facts |= {"speaker": self.as_read.speaker} if self.as_read.speaker else {}
        return facts if self.as_read.snr is None else {**facts, "snr": self.as_read.snr}

    @property
    def description(self) -> str:
        """When each word was spoken, in seconds: 'two 0.12-0.45'."""
        if self.times is None:
            return "no map: this model does not attend to its recording, or its attention has no weights"
        parts = [f"{each.text} {each.start:.2f}-{each.end:.2f}" for each in self.times.words]
        more = [f"and {len(parts) - _SAID} more"] if len(parts) > _SAID else []
        return ", ".join([*parts[:_SAID], *more])

    @property
    def words(self) -> Sequence[str]:
        given = f" | {self.as_read.references[0]}" if self.as_read.references else ""
        return [f"{self.id}: {self.text} ({number(self.best.probability)}){given}; {self.description}"]

    @cached_property
    def times(self) -> Times | None:
        """When each part of the transcript was spoken; None if attention has no weights."""
        if self.of_best is None:
            return None
        count, hop = len(self.best.tokens), self.batch.hop
        spans = find_spans(self.of_best, count, self.stride, self.frames)
        chances = self.log_probability[:count].cpu()
        return times_of(self.best.tokens, spans, chances, self.language, hop, self.frames * hop)

    def derived_maps(self) -> Iterator[LabelledAttention]:
        for name, weights, tokens, gold in (
            (ALIGNMENT, self._transcript_weights, self.best.tokens, None),
            (OF_REFERENCE, self.of_reference, self._reference, self._gold),
        ):
            if weights is not None and len(weights):
                labels = {"key": self.source.labels, "query": self.language.pieces(tokens)}
                yield LabelledAttention.from_weights(name, weights, labels, _NOUNS, gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        draw = partial(
            aligned_figure,
            self.batch.source.features[0, : self.frames].float().cpu(),
            hop=self.batch.hop,
            stride=self.stride,
        )
        if ALIGNMENT in made and self._transcript_weights is not None:
            tokens = self.language.pieces(self.best.tokens)
            yield name, draw(self._transcript_weights, tokens, title=f"{self.id}: {self.text}")
        if OF_REFERENCE in made and self.of_reference is not None and self.batch.gold is not None:
            tokens, spans = self.language.pieces(self._reference), self.batch.gold[0, : len(self.of_reference)].cpu()
            title = f"{self.id}: {OF_REFERENCE}"
            yield f"{name}_reference", draw(self.of_reference, tokens, title=title, spans=spans)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        import pandas as pd

        if self.times is not None:
            parts = {"word": self.times.words, "token": self.times.tokens}
            rows = [
                {"id": self.id, "unit": unit, "place": place, **each._asdict()}
                for unit, every in parts.items()
                for place, each in enumerate(every)
            ]
            yield Table("times", [pd.DataFrame(rows)])

    @property
    def _transcript_weights(self) -> Float[Tensor, "n k"] | None:
        return None if self.of_best is None else self.of_best[: len(self.best.tokens)]

    @property
    def _reference(self) -> Sequence[int]:
        """The tokens of the given transcript."""
        tokens: Sequence[int] = [] if self.batch.targets is None else self.batch.targets.texts()[0]
        return tokens

    @cached_property
    def _gold(self) -> Bool[Tensor, "n k"] | None:
        if self.of_reference is None:
            return None
        found = self.batch.gold_places(self.stride, self.of_reference.shape[1])
        return None if found is None else found[0, : len(self.of_reference)].cpu()


class PerturbableRecording(PerturbableSource):
    """A recording whose inputs are the parts that its encoder makes places of.

    The features of a part that is left out become their means over the recording, so that all others stay where they
    are.
    """

    source: Frames
    noun = "place"
    max_size = 2**14

    def __init__(self, module: Recogniser, batch: ReadableSpeechBatch) -> None:
        super().__init__(module, batch)
        self.stride, self.size = module.stride, int(batch.source.lengths[0])
        self.means = batch.source.features[0, : self.size].mean(0)

    def sum_weights(self, weights: Float[Tensor, "n k"], best: Hypothesis) -> Float[Tensor, " k"]:
        return weights[: len(best.tokens)].double().sum(0)

    def sum_inputs(self, rows: Float[Tensor, " t"]) -> Float[Tensor, " k"]:
        frames = rows[: self.size]
        places = torch.arange(len(frames), device=frames.device) // self.stride
        return frames.new_zeros(len(self.attention)).index_add(0, places, frames)

    def mask(self, keep: Bool[Tensor, "v k"]) -> Frames:
        frames = keep.repeat_interleave(self.stride, 1)[:, : self.size]
        copies = self.source.select(torch.zeros(len(keep), dtype=torch.long, device=keep.device))
        return replace(copies, rows=torch.where(frames.unsqueeze(-1), copies.features, self.means))


class SpeechExplainer(Seq2SeqExplainer):
    """`transcripts` has a row for each recording of the test split, or of the user's own; `times` one for each word and
    token of those that are drawn; `by_speaker`, `by_length` and `by_snr` one for each class of recordings."""

    noun, table, of_reference = "recording", "transcripts", OF_REFERENCE
    example, perturbable = ExplainedTranscript, PerturbableRecording

    def __init__(self, module: Recogniser, data: SpeechData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.corpus, options)
        self.scored = [ALIGNMENT, OF_REFERENCE]

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        self.figures.finalize()
        for name, rows in self.figures.tables.items():
            yield _table(name, rows)

    @property
    def about(self) -> Mapping[str, Any]:
        return {"recordings": len(self.records.numbers(self.split)), "split": self.split}

    def columns(self, batch: ReadableSpeechBatch) -> dict[str, list[Any]]:
        """Transcript and its probability, the recording's length and noise; of given transcripts their loss; numbers of
        the alignment, and the share of the reference's weights on places without any token."""
        best = [texts[0] for texts in self.module.write(batch)]
        frames, stride = batch.source.lengths.tolist(), self.module.stride
        columns: dict[str, list[Any]] = {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "speaker": [each.speaker for each in batch.written],
            "snr": [each.snr for each in batch.written],
            "seconds": [round(each * batch.hop, 6) for each in frames],
            **self.write_columns(batch, best),
        }
        forced = self.module.force_decode(batch, best)
        if batch.targets is not None:
            references, given = self.judge(batch, best, forced)
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
            columns["coverage"] = [_share(*count_covered(each)) for each in rows]
        return columns


def _silence(weights: Any, spans: Any, places: int, stride: int) -> float | None:
    """Returns the share of the weights of tokens with a span that is on places without any token."""
    own = weights[: len(spans), :places][spans[:, 1] > spans[:, 0]]
    return float(own[:, ~find_voiced(spans, stride, places)].double().sum(1).mean()) if len(own) else None


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
