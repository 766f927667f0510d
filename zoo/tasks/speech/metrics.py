"""The figures of transcripts: error rates, also by speaker, length and noise, and where attention is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo import distributed
from zoo.maps.metrics import gold_mass, pointing
from zoo.tasks.seq2seq.metrics import CorpusScore, Scored, TextMetrics
from zoo.tasks.seq2seq.score_metrics import RatioMetric
from zoo.tasks.speech.alignment_metrics import (
    centres,
    count_covered,
    diagonality,
    distances,
    find_spans,
    find_voiced,
    monotonic_steps,
    runs,
)
from zoo.tasks.speech.bootstrap import Limit, interval, resample
from zoo.tasks.speech.grouped_sums import Classes, Groups
from zoo.text import CER, WER

NEAR = 2
"""`truth/within_2_frames`: the share of tokens whose centre of attention is at most so many places from their span."""
SECONDS = Classes([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
DECIBELS = Classes([0, 5, 10, 15, 20, 30])
_PARTS = ("", "_substitutions", "_deletions", "_insertions")


class SpeechMetrics(TextMetrics):
    """The figures of an evaluation of transcripts.

    Args:
        wer, cer: The error rates.
        stride: Number of frames of a place that is attended to.
    """

    def __init__(self, wer: WER, cer: CER, stride: int) -> None:
        scores = {"wer": wer, "cer": cer}
        sides = {"low": False, "high": True}
        limits = {
            f"test/{name}_{side}": Limit(score, name, upper=upper)
            for name, score in scores.items()
            for side, upper in sides.items()
        }
        super().__init__(
            [CorpusScore(score, [f"{name}{part}" for part in _PARTS]) for name, score in scores.items()],
            {
                **limits,
                "test/unended": RatioMetric(),
                "test/monotonicity": RatioMetric(),
                "test/coverage": RatioMetric(),
                "test/diagonality": distributed.GlobalMean(),
                "truth/within_2_frames": distributed.GlobalMean(),
                "truth/distance": distributed.GlobalMean(),
                "truth/pointing": distributed.GlobalMean(),
                "truth/mass": distributed.GlobalMean(),
                "truth/silence": distributed.GlobalMean(),
                "truth/start_ms": distributed.GlobalMean(),
                "truth/end_ms": distributed.GlobalMean(),
            },
        )
        self.wer, self.cer, self.stride = wer, cer, stride
        self.limits = list(limits)
        self.speakers, self.lengths, self.noises = Groups(), Groups(), Groups()

    def reset(self) -> None:
        super().reset()
        for each in (self.speakers, self.lengths, self.noises):
            each.reset()

    def add_example(self, scored: Scored) -> None:
        batch, number = scored.batch, scored.number
        frames, written = int(batch.source.lengths[number]), batch.written[number]
        of_words, of_characters = (resample(batch.ids[number], scored.sums[name]) for name in ("wer", "cer"))
        for name in self.limits:
            self.update(name, of_words if "wer" in name else of_characters)
        self.update("test/unended", [not scored.hypothesis.ended, 1])
        sums = torch.tensor([1.0, *scored.sums["wer"], *scored.sums["cer"]], dtype=torch.float64)
        self.lengths.add(SECONDS(frames * batch.hop), sums)
        if written.speaker:
            self.speakers.add(
                written.speaker, torch.cat([torch.ones_like(of_words[:, :1]), of_words, of_characters], 1)
            )
        places = -(-frames // self.stride)
        if scored.weights is not None:
            self._add_attention(scored.weights[: len(scored.hypothesis.tokens), :places])
        silence = None
        if batch.gold is not None and scored.of_reference is not None:
            tokens = int(batch.targets.lengths[number]) - 1
            spans = batch.gold[number, :tokens]
            weights = scored.of_reference[: tokens + 1, :places]
            silence = self._add_alignment(weights[:tokens], spans, frames)
            self._add_times(find_spans(weights, tokens, self.stride, frames), spans, batch.hop)
        if written.snr is not None:
            known = [0.0, 0.0] if silence is None else [float(silence.sum()), len(silence)]
            self.noises.add(DECIBELS(written.snr), torch.cat([sums, torch.tensor(known, dtype=torch.float64)]))

    def finalize(self) -> None:
        """Makes the tables of error rates by speaker, by seconds of a recording, and by signal-to-noise ratio."""
        self.tables = {}
        speakers = [self._describe_speaker(name, totals) for name, totals in self.speakers.totals().items()]
        if speakers:
            self.tables["by_speaker"] = speakers
        lengths = self.lengths.totals()
        rows = [{"seconds": name, **self._rates(lengths[name].tolist())} for name in SECONDS.names if name in lengths]
        if rows:
            self.tables["by_length"] = rows
        noises = self.noises.totals()
        rows = [
            {"snr": name, **self._describe_noise(noises[name].tolist())} for name in DECIBELS.names if name in noises
        ]
        if rows:
            self.tables["by_snr"] = rows

    def _describe_speaker(self, speaker: str, totals: Float[Tensor, "resamples sums"]) -> dict[str, Any]:
        row = {"speaker": speaker, **self._rates(totals[0].tolist())}
        words, characters = totals[:, 1 : 1 + self.wer.size], totals[:, 1 + self.wer.size :]
        row["wer_low"], row["wer_high"] = interval(self.wer, "wer", words)
        row["cer_low"], row["cer_high"] = interval(self.cer, "cer", characters)
        return row

    def _rates(self, sums: Sequence[float]) -> dict[str, Any]:
        """Utterances, and the error rates with their parts."""
        count, words, characters = sums[0], sums[1 : 1 + self.wer.size], sums[1 + self.wer.size :]
        return {"utterances": int(count), **self.wer.compute(words), **self.cer.compute(characters)}

    def _describe_noise(self, sums: Sequence[float]) -> dict[str, Any]:
        *errors, silence, tokens = sums
        return {**self._rates(errors), "weight_on_silence": silence / tokens if tokens else math.nan}

    def _add_attention(self, weights: Float[Tensor, "n k"]) -> None:
        """Of a transcript: how its alignment goes on, and how much of the recording it covers."""
        self.update("test/monotonicity", monotonic_steps(weights))
        self.update("test/coverage", count_covered(weights))
        self.update("test/diagonality", diagonality(weights))

    def _add_times(self, found: Float[Tensor, "n 2"], spans: Int[Tensor, "n 2"], hop: float) -> None:
        """Of the tokens that have a span: how far off their begins and ends are; the letters of a digit are one."""
        first, last = runs(spans)
        found = torch.stack([found[first, 0], found[last, 1]], 1)
        spans = spans[first]
        errors = (found - spans)[spans[:, 1] > spans[:, 0]].abs() * (1000.0 * hop)
        self.update("truth/start_ms", errors[:, 0])
        self.update("truth/end_ms", errors[:, 1])

    def _add_alignment(
        self, weights: Float[Tensor, "n k"], spans: Int[Tensor, "n 2"], frames: int
    ) -> Float[Tensor, " m"]:
        """Of the tokens that have a span, where their weights are; returns the shares on places without any token."""
        has_span = spans[:, 1] > spans[:, 0]
        sounds = find_voiced(spans, self.stride, weights.shape[1])
        weights, spans = weights[has_span].double(), spans[has_span]
        if not len(spans):
            return weights[:, :0].sum(1)
        away = distances(centres(weights, self.stride, frames), spans) / self.stride
        self.update("truth/distance", away)
        self.update("truth/within_2_frames", (away <= NEAR).double())
        gold = torch.stack([find_voiced(span.unsqueeze(0), self.stride, weights.shape[1]) for span in spans])
        self.update("truth/pointing", pointing(weights, gold))
        self.update("truth/mass", gold_mass(weights, gold))
        silence = weights[:, ~sounds].sum(1)
        self.update("truth/silence", silence)
        return silence
