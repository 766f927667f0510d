"""One recording that is drawn: its features, the tokens of its transcript, and when each was heard."""

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
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.speech.alignment_metrics import spoken
from zoo.tasks.speech.batch import SpeechBatch
from zoo.tasks.speech.plots import aligned_figure
from zoo.tasks.speech.timestamps import Times, times_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALIGNMENT, OF_REFERENCE = "alignment", "alignment of the reference"
"""Names of the maps of tokens: of the transcript that the model wrote, and of the given one."""
_NOUNS = {"query": "token", "key": "second"}
_SAID = 12
"""At most so many words are named in a sentence."""


class ExplainedTranscript(ExplainedExample):
    """A recording, its transcript, and how a forced pass over the transcript attended to it.

    Args:
        batch: Batch of one recording.
        stride: Number of frames of a place.
        found: Recording of the pass over the transcript.
        best: The transcript.
        of_best: Weights of the site that aligns, in that pass; None if there are none.
        log_probability: Of each token of the transcript.
        of_reference: Weights of a pass over the given transcript.
    """

    def __init__(
        self,
        batch: SpeechBatch,
        stride: int,
        found: Recording,
        best: Hypothesis,
        of_best: Float[Tensor, "1 n k"] | None,
        log_probability: Float[Tensor, "1 n"],
        of_reference: Float[Tensor, "1 m k"] | None,
    ) -> None:
        assert batch.language is not None
        self.batch, self.stride, self.found, self.best = batch, stride, found, best
        self.language, self.log_probability = batch.language, log_probability[0]
        self.frames = int(batch.source.lengths[0])
        self.of_best = None if of_best is None else of_best[0].float().cpu()
        self.of_reference = None
        if of_reference is not None and batch.targets is not None:
            self.of_reference = of_reference[0, : int(batch.targets.lengths[0]) - 1].float().cpu()

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def about(self) -> Mapping[str, Any]:
        assert self.batch.written is not None
        written = self.batch.written[0]
        found: dict[str, Any] = {
            "transcript": self.language.text(self.best.tokens),
            "score": self.best.score,
            "probability": self.best.probability,
            "seconds": self.frames * self.batch.hop,
        }
        found |= {"speaker": written.speaker} if written.speaker else {}
        found |= {} if written.snr is None else {"snr": written.snr}
        return {**found, "reference": written.references[0]} if written.references else found

    @property
    def said(self) -> str:
        """When each word was spoken, in seconds: 'two 0.12-0.45'."""
        if self.times is None:
            return "no map: this model does not attend to its recording, or its attention has no weights"
        parts = [f"{each.text} {each.start:.2f}-{each.end:.2f}" for each in self.times.words]
        more = [f"and {len(parts) - _SAID} more"] if len(parts) > _SAID else []
        return ", ".join([*parts[:_SAID], *more])

    @property
    def words(self) -> Sequence[str]:
        about = self.about
        given = f" | {about['reference']}" if "reference" in about else ""
        return [f"{self.id}: {about['transcript']} ({number(about['probability'])}){given}; {self.said}"]

    @cached_property
    def times(self) -> Times | None:
        """When each part of the transcript was spoken; None if attention has no weights."""
        if self.of_best is None:
            return None
        count, hop = len(self.best.tokens), self.batch.hop
        spans = spoken(self.of_best, count, self.stride, self.frames)
        chances = self.log_probability[:count].cpu()
        return times_of(self.best.tokens, spans, chances, self.language, hop, self.frames * hop)

    def maps(self) -> Iterator[LabelledAttention]:
        for found in self.found.values():
            yield self._of_site(found)
        tokens = self._of_transcript
        if tokens is not None and len(tokens):
            labels = {"key": self._seconds, "query": self.language.pieces(self.best.tokens)}
            yield LabelledAttention.of_weights(ALIGNMENT, tokens, labels, _NOUNS)
        if self.of_reference is not None and len(self.of_reference):
            labels = {"key": self._seconds, "query": self._reference}
            yield LabelledAttention.of_weights(OF_REFERENCE, self.of_reference, labels, _NOUNS, self._gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        name = picture_name(self.id, number)
        features = self.batch.source.features[0, : self.frames].float().cpu()
        how = {"hop": self.batch.hop, "stride": self.stride}
        if ALIGNMENT in made and self._of_transcript is not None:
            title, tokens = f"{self.id}: {self.about['transcript']}", self.language.pieces(self.best.tokens)
            yield name, aligned_figure(features, self._of_transcript, tokens, title=title, **how)  # type: ignore[arg-type]
        if OF_REFERENCE in made and self.of_reference is not None and self.batch.gold is not None:
            spans = self.batch.gold[0, : len(self.of_reference)].cpu()
            title = f"{self.id}: {OF_REFERENCE}"
            found = aligned_figure(features, self.of_reference, self._reference, title=title, spans=spans, **how)  # type: ignore[arg-type]
            yield f"{name}_reference", found

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
    def _of_transcript(self) -> Float[Tensor, "n k"] | None:
        return None if self.of_best is None else self.of_best[: len(self.best.tokens)]

    @property
    def _reference(self) -> list[str]:
        assert self.batch.targets is not None
        return self.language.pieces(self.batch.targets.texts()[0])

    @property
    def _seconds(self) -> list[str]:
        """The places of the listener by their beginnings."""
        places = -(-self.frames // self.stride)
        return [f"{place * self.stride * self.batch.hop:.2f}" for place in range(places)]

    @cached_property
    def _gold(self) -> Bool[Tensor, "n k"] | None:
        if self.of_reference is None:
            return None
        found = self.batch.gold_places(self.stride, self.of_reference.shape[1])
        return None if found is None else found[0, : len(self.of_reference)].cpu()

    def _of_site(self, found: AttentionMap) -> LabelledAttention:
        """A map of a site, with what its queries and keys stand for."""
        if found.site.startswith("encoder."):
            return LabelledAttention(
                found, {"query": self._seconds, "key": self._seconds}, {"query": "second", "key": "second"}
            )
        steps = self.language.pieces(self.best.target(END))
        axis = "step" if "step" in found.axes else "query"
        return LabelledAttention(found, {axis: steps, "key": self._seconds}, {axis: "token", "key": "second"})
