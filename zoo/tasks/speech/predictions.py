"""The answers of `zoo predict`: transcripts, their probability, and when each word was spoken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.predictions import PredictionTable
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import force_decode_texts
from zoo.tasks.speech.alignment_metrics import find_spans, focus
from zoo.tasks.speech.batch import ReadableSpeechBatch
from zoo.tasks.speech.timestamp_writers import time_file
from zoo.tasks.speech.timestamps import TOLERANCE, Timed, Times, times_of

if TYPE_CHECKING:
    from zoo.tasks.speech.task import Recogniser

TIME_OPTIONS = (
    CommandOption(
        name="times", kind=None, help="when each word was spoken, in seconds: two 0.12-0.45; poor times: 0.60-0.98?"
    ),
    CommandOption(
        name="times-out",
        kind=Path,
        metavar="PATH",
        help="write times: a .ctm file of words, a .csv file of words and tokens, or a folder of TextGrids of both",
    ),
)
_TIMES = "times"


def answers(
    module: Recogniser, batch: ReadableSpeechBatch, writing: DecodingConfig, *, timed: bool = False
) -> dict[str, list[Any]]:
    """id, split, seconds, reference, transcript, score and probability; the rank among several; on request `Times`.

    Args:
        module: The recogniser.
        batch: The recordings.
        writing: How transcripts are written.
        timed: Whether a column has the times of each transcript.
    """
    seconds = [round(frames * batch.hop, 6) for frames in batch.source.lengths.tolist()]
    rows = PredictionTable(batch, module.write(batch, writing), writing)
    columns = rows.columns(module.text_noun, about={"seconds": seconds})
    if not timed:
        return columns
    chosen = torch.tensor(rows.examples, device=batch.source.lengths.device)
    found = force_decode_texts(module.net, batch.source.select(chosen), [each.target(END) for each in rows.written])
    if found.weights is None:
        raise ConfigError("--times, --times-out: the attention of this model has no weights, which times come from")
    columns[_TIMES] = [
        _times(batch, number, each, weights, chances, module.stride)
        for number, each, weights, chances in zip(
            rows.examples, rows.written, found.weights, found.log_probability, strict=True
        )
    ]
    return columns


def write_times(
    examples: Iterator[list[dict[str, Any]]], *, times: bool, path: Path | None
) -> Iterator[list[dict[str, Any]]]:
    """Passes rows on, with their times in words or without them, and writes those of the best transcripts to files."""
    with nullcontext() if path is None else time_file(path) as write:
        for rows in examples:
            for row in rows:
                of_row = row.pop(_TIMES)
                if write is not None and row.get("rank", 1) == 1:
                    write(row["id"], of_row)
                if times:
                    row[_TIMES] = ", ".join(map(_format_word, of_row.words))
            yield rows


def _format_word(word: Timed) -> str:
    """Returns a word and its time, with a question mark where that is poor: `two 0.12-0.45, six 0.60-0.98?`."""
    return f"{word.text} {word.start:.2f}-{word.end:.2f}{'?' * word.is_poor}"


def _times(
    batch: ReadableSpeechBatch,
    number: int,
    written: Hypothesis,
    weights: Float[Tensor, "n k"],
    log_probability: Float[Tensor, " n"],
    stride: int,
) -> Times:
    """Returns the times of a transcript of one recording of a batch."""
    frames, count = int(batch.source.lengths[number]), len(written.tokens)
    steps, places = len(written.target(END)), -(-frames // stride)
    weights = weights[:steps, :places]
    spans = find_spans(weights, count, stride, frames)
    measure = partial(focus, weights=weights[:count], stride=stride, frames=frames, tolerance=TOLERANCE / batch.hop)
    seconds = frames * batch.hop
    return times_of(written.tokens, spans, log_probability[:count], batch.language, batch.hop, seconds, measure)
