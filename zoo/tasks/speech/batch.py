"""A batch of utterances, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from zoo.tasks.seq2seq.batch import Seq2SeqBatch, W, all_known, collate_written
from zoo.tasks.seq2seq.source import Padded
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import TextCodec


@dataclass(frozen=True)
class WrittenUtterance:
    """An utterance as people know it, which training does not need.

    Args:
        references: What was said, as written; none if it is not known.
        speaker: Name of the speaker; "" if it is not known.
        snr: Signal-to-noise ratio in dB; None if it is not known.
    """

    references: Sequence[str]
    speaker: str = ""
    snr: float | None = None


@dataclass(frozen=True, eq=False)
class Utterance:
    """A recording and what was said.

    Args:
        features: A row for each frame, at least one.
        target: Numbers of the tokens of what was said, without the end; None if it is not known.
        id: Name of the utterance.
        split: train, val or test, or "" if it is in none.
        spans: For each token of the target, its first frame and the frame after its last, equal for a token that has no
            frames, such as a space; None if they are not known.
        written: The utterance as people know it; None in training.
    """

    features: Float32[np.ndarray, "t f"]
    target: Sequence[int] | None
    id: str
    split: str = ""
    spans: Int[np.ndarray, "n 2"] | None = None
    written: WrittenUtterance | None = None

    def shorten(self, length: int) -> Utterance:
        """Returns the first frames, and as much of the text, for the net."""
        share = min(1.0, length / len(self.features))
        target = None if self.target is None else self.target[: round(share * len(self.target))]
        return Utterance(self.features[:length], target, self.id, self.split)


class Frames(Padded):
    """Recordings as rows of features, one for each frame."""

    @classmethod
    def pad(cls, recordings: Sequence[Float32[np.ndarray, "_ f"]]) -> Frames:
        lengths = [len(each) for each in recordings]
        features = torch.zeros(len(recordings), max(lengths, default=0), recordings[0].shape[1] if recordings else 0)
        for row, each in zip(features.numpy(), recordings, strict=True):
            row[: len(each)] = each
        return cls(features, torch.tensor(lengths))

    @property
    def features(self) -> Float[Tensor, "b t f"]:
        return self.rows


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeechBatch(Seq2SeqBatch[Frames, W]):
    """A batch of recordings and what was said in them.

    Args:
        gold: For each target token, its first frame and the frame after its last, equal for a token that has no frames,
            such as the end; None if they are not known of all utterances.
        hop: Seconds from one frame to the next.
    """

    gold: Int[Tensor, "b n 2"] | None = None
    hop: float = 0.01

    @classmethod
    def collate(cls, utterances: Sequence[Utterance], language: TextCodec, hop: float = 0.01) -> SpeechBatch[Any]:
        """Collates utterances, in their order."""
        targets, spans = all_known([each.target for each in utterances]), all_known([e.spans for e in utterances])
        tokens = None if targets is None else Targets.pad(targets)
        return cls(
            source=Frames.pad([each.features for each in utterances]),
            targets=tokens,
            ids=tuple(each.id for each in utterances),
            splits=tuple(each.split for each in utterances),
            gold=None if tokens is None or spans is None else _padded_spans(spans, tokens.tokens.shape[1]),
            language=language,
            written=collate_written([each.written for each in utterances]),
            hop=hop,
        )

    def select_gold(
        self, gold: Int[Tensor, "b n 2"], numbers: Int[Tensor, " s"], source: Frames, targets: Targets
    ) -> Int[Tensor, "s m 2"]:
        return gold[numbers, : targets.tokens.shape[1]]

    def gold_places(self, stride: int, places: int) -> Bool[Tensor, "b n k"] | None:
        """Returns the gold as a mask of the places of an encoder, or None if it is not known.

        Args:
            stride: Number of frames that an encoder makes one place of.
            places: Number of places.
        """
        if self.gold is None:
            return None
        first = torch.arange(places, device=self.gold.device) * stride
        start, end = self.gold.unsqueeze(-1).unbind(-2)
        return (end > start) & (first + stride > start) & (first < end)


ReadableSpeechBatch: TypeAlias = SpeechBatch[tuple[WrittenUtterance, ...]]


def _padded_spans(spans: Sequence[Int[np.ndarray, "_ 2"]], steps: int) -> Int[Tensor, "b n 2"]:
    padded = torch.zeros(len(spans), steps, 2, dtype=torch.int64)
    for row, each in zip(padded, spans, strict=True):
        row[: len(each)] = torch.from_numpy(np.asarray(each))
    return padded
