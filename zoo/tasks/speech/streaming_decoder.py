"""Text while a recording is still arriving: `zoo predict CKPT --stream FILE`.

A listener that reads forwards makes places of the frames so far. The speller writes a token as soon as its monotonic
attention has found the place to stop at; a query that has not found it waits, and its step is taken again when there
are more places. The text is that of greedy search over the whole recording.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32

from zoo.attention import DenseSupport
from zoo.decoding.decoder import next_scores
from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.nn.seq2seq.state import Encoded, RecurrentState
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD, TextCodec
from zoo.tasks.speech.data.features import Normalised
from zoo.tasks.speech.datamodule import SpeechData
from zoo.tasks.speech.streaming_audio import StreamingFeatures, StreamingResampler, read_audio_stream, refusal
from zoo.validation import ValidationError, validate

_AT_ONCE = 64
"""Places that a query looks at before it looks at later ones, so that a token takes as long in a long recording."""
STREAM = CommandOption(
    name="stream", metavar="FILE", help="write the text of one recording while it arrives; - is standard input"
)


class Token(NamedTuple):
    """A token that has been written.

    Attributes:
        number: Its number.
        end: Number of frames up to the end of the last place that it attended to; `heard` if to none.
        heard: Number of frames that had arrived.
    """

    number: int
    end: int
    heard: int

    @property
    def frames_waited(self) -> int:
        """Number of frames that arrived behind its place before it was written."""
        return self.heard - self.end


@dataclass
class Streaming:
    """Writes the text of one recording while its frames arrive.

    Args:
        net: A net with a one-directional listener and monotonic attention, in evaluation mode; see `check_streams`.
        writing: Limits of texts.
    """

    net: Any
    writing: DecodingConfig

    def __post_init__(self) -> None:
        check_streams(self.net)
        given = self.writing.search.constraints
        self.constraints = replace(given, never=(*given.never, PAD, BEGIN))
        nothing = next(self.net.parameters()).new_zeros(1, 0, self.net.encoder.width)
        summary = nothing.new_zeros(1, self.net.encoder.summary_width)
        self.state: RecurrentState = self.net.decoder.start(Encoded(nothing, DenseSupport(), summary))
        self.heard: Any = None
        self.frames = 0
        self.unread: deque[torch.Tensor] = deque()
        """States of places that no query has looked at yet."""
        self.trimmed = 0
        """Number of first places that are no longer in memory: no later query reads them."""
        self.written: list[int] = []
        self.history = torch.zeros(1, 1, 0, dtype=torch.long, device=nothing.device)
        self.has_ended = False

    @torch.no_grad()
    def hear(self, frames: Float32[np.ndarray, "t f"], *, last: bool = False) -> list[Token]:
        """Reads the next frames, and returns the tokens that they decide."""
        self.frames += len(frames)
        like = next(self.net.parameters())
        x = torch.from_numpy(np.ascontiguousarray(frames)).to(like)
        places, self.heard = self.net.encoder.hear(x, self.heard, last=last)
        self.unread.extend(places.split(_AT_ONCE) if len(places) else ())
        found = []
        while not self.has_ended:
            if len(self.written) >= int(self.writing.longest(torch.tensor([self.frames]))):
                self.has_ended = last
                break
            token = self._next(last and not self.unread)
            if token is not None:
                found.append(token)
            elif self.unread:
                self._read(self.unread.popleft())
            else:
                self.has_ended |= last
                break
        return found

    def _read(self, places: Float[torch.Tensor, "k d"]) -> None:
        """Appends places to the memory, which keeps none that will not be read again."""
        attention = self.net.decoder.attention
        memory, count = attention.trim(self.state.memory)
        self.trimmed += count
        self.state = replace(self.state, memory=attention.extend(memory, places.unsqueeze(0)))

    def _next(self, last: bool) -> Token | None:
        """Returns the next token, or None if it needs more places or if the text has ended."""
        attention, memory = self.net.decoder.attention, self.state.memory
        if not memory.length:
            return None
        read = torch.tensor([[self.written[-1] if self.written else BEGIN]], device=memory.key.device)
        logits, after = self.net.step(read, self.state)
        if not last and bool(attention.is_waiting(after.memory)):
            self.state = replace(self.state, memory=attention.skip(memory))
            return None
        scores = next_scores(self.net, logits, after, END)
        score, number = self.constraints.apply(scores, self.history, END)[0, 0].topk(1)
        self.has_ended = int(number) == END or bool(score == -torch.inf)
        if self.has_ended:
            return None
        self.state = after
        self.written.append(int(number))
        self.history = torch.cat([self.history, number.view(1, 1, 1)], 2)
        return Token(int(number), self._end(after), self.frames)

    def _end(self, state: RecurrentState) -> int:
        """Returns the frame behind the last place that has a weight."""
        attention = state.memory.attention
        assert attention is not None
        places = attention.weights[0].amax((0, 1)).nonzero()
        if not len(places):
            return self.frames
        end: int = (self.trimmed + int(places[-1]) + 1) * self.net.stride
        return min(self.frames, end)


def check_streams(net: Any) -> None:
    """Refuses a net that needs all of a recording before it can write."""
    reason = None
    if net.encoder.bidirectional:
        reason = "its listener reads recordings from both ends: train with model.net.listener.bidirectional=false"
    elif not net.decoder.attention.is_streaming:
        reason = "its attention weighs all of a recording: train with attention=monotonic or attention=mocha"
    if reason is not None:
        raise ConfigError(f"--stream: this model cannot write while it listens, because {reason}")


def stream_rows(module: Any, path: str, others: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns the rows of `zoo predict --stream`: the tokens, each as soon as it is written.

    Args:
        module: The recogniser of a checkpoint.
        path: A file, or "-".
        others: The other options of the command.
    """
    if others:
        name = next(iter(others)).replace("_", "-")
        raise ConfigError(f"--stream writes the most probable token at once and for good: leave out --{name}")
    if module.joint:
        raise ConfigError("--stream: a joint search needs the whole recording: train with model.joint=0")
    language, normalised = _read_state(module.about)
    reason = refusal(normalised)
    if reason is not None:
        raise ConfigError(f"--stream: this model cannot write while it listens, because {reason}")
    streaming = Streaming(module.net, module.writing)
    return _rows(streaming, normalised, language, path)


def _rows(streaming: Streaming, normalised: Normalised, language: TextCodec, path: str) -> Iterator[dict[str, Any]]:
    hop, waited = normalised.features.hop, list[int]()
    with read_audio_stream(path) as sound:
        resampling, framing = StreamingResampler(sound.rate, normalised.features.rate), StreamingFeatures(normalised)
        for frames, last in _frames(sound.blocks, resampling.hear, framing.hear):
            for token in streaming.hear(frames, last=last):
                waited.append(token.frames_waited)
                yield {
                    "token": language.pieces([token.number])[0],
                    "time": round(token.end * hop, 3),
                    "heard": round(token.heard * hop, 3),
                    "frames_waited": token.frames_waited,
                }
    if not streaming.frames:
        raise DataError(f"{path}: the recording is shorter than a frame, {hop:g} s")
    mean, most = (sum(waited) / len(waited), max(waited)) if waited else (0.0, 0)
    text = language.text(streaming.written)
    print(f"{text!r}: a token waited {mean:.1f} frames of {hop:g} s, at most {most}", file=sys.stderr)


def _frames(
    blocks: Iterator[Any], resampled: Callable[..., Any], framed: Callable[..., Any]
) -> Iterator[tuple[Float32[np.ndarray, "t f"], bool]]:
    """Yields the frames of each block, and whether they are the last."""
    nothing = np.zeros(0, dtype=np.float32)
    for block in blocks:
        yield framed(resampled(block)), False
    yield framed(resampled(nothing, last=True), last=True), True


def _read_state(about: Mapping[str, Any]) -> tuple[TextCodec, Normalised]:
    """Returns the language and the features of a checkpoint."""
    state = about["data"]
    try:
        validate(state, SpeechData.form, "zoo.data")
    except ValidationError as error:
        raise CheckpointError(f"{about['path']} is not a sound checkpoint: {error}") from error
    return TextCodec.from_state(state["tokeniser"], state["target_tokens"]), Normalised.from_state(state["features"])
