"""Text while a recording arrives is the text of the whole recording, whatever parts it comes in."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streaming_cases import MOCHA, MONOTONIC
from torch import nn

from zoo.attention import Additive, AttentionFactory, Monotonic, Softmax
from zoo.decoding import BeamSearch, Constraints
from zoo.errors import ConfigError
from zoo.nn import Bahdanau, InputFeeding
from zoo.tasks.seq2seq.decoding_config import DecodingConfig, MaxLength
from zoo.tasks.speech import ConvRNNEncoder, ListenAttendSpell, PyramidalRNNEncoder
from zoo.tasks.speech.batch import Frames
from zoo.tasks.speech.streaming_decoder import Streaming

FEATURES, TOKENS = 3, 9
WRITING = DecodingConfig(BeamSearch(width=1, constraints=Constraints(shortest=2)), MaxLength(0.2, 4))
SOFTMAX = AttentionFactory(score=Additive, normalizer=Softmax)
LISTENERS: dict[str, Any] = {
    "pyramidal": partial(PyramidalRNNEncoder, hidden=5, joined=(2, 2)),
    "convolutional": partial(ConvRNNEncoder, channels=(4,), hidden=5),
}


def net(attend: Any = MONOTONIC, listener: str = "pyramidal", *, seed: int = 0, **options: Any) -> Any:
    options = {"bidirectional": False, **options}
    kind = InputFeeding if listener == "convolutional" else Bahdanau
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = ListenAttendSpell(
            features=FEATURES,
            tokens=TOKENS,
            attend=attend,
            listener=partial(LISTENERS[listener], **options),
            decoder=partial(kind, dim=4, hidden=6, compared=6),
        )
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.6)
        for name, parameter in made.named_parameters():
            if name.endswith("offset"):
                nn.init.constant_(parameter, -2.0)
    return made.double().eval()


def recording(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(length, FEATURES))


@pytest.mark.parametrize("attend", [MONOTONIC, MOCHA], ids=["monotonic", "mocha"])
@pytest.mark.parametrize("listener", LISTENERS)
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    ends=st.booleans(),
)
def test_text_of_parts_is_text_of_the_whole(
    attend: Any, listener: str, seed: int, length: int, cuts: list[int], ends: bool
) -> None:
    made, x = net(attend, listener, seed=seed % 7), recording(seed, length)
    made.decoder.attention.attend.stops_at_end = ends
    source = Frames(torch.from_numpy(x).unsqueeze(0), torch.tensor([length]))
    [[expected]] = WRITING(made, source, ["x"])
    streaming, tokens = Streaming(made, WRITING), []
    stops = [*sorted(min(cut, length) for cut in cuts), length]
    for start, end in zip([0, *stops], stops, strict=False):
        tokens += streaming.hear(x[start:end], last=False)
    tokens += streaming.hear(x[length:], last=True)
    assert tuple(token.number for token in tokens) == expected.tokens
    assert all(token.frames_waited >= 0 and token.heard <= length for token in tokens)
    assert [token.end for token in tokens] == sorted(token.end for token in tokens)
    assert streaming.has_ended


def test_a_token_is_written_as_soon_as_its_place_is_there() -> None:
    """Of frames that come one by one, a token waits for no more than its place and those that filters need."""
    made, x = net(), recording(5, 80)
    long = DecodingConfig(BeamSearch(width=1, constraints=Constraints(shortest=12)), MaxLength(1.0, 12))
    streaming, tokens = Streaming(made, long), []
    for frame in x:
        tokens += streaming.hear(frame[None])
    assert len(tokens) > 3
    assert max(token.frames_waited for token in tokens) == 0
    assert tokens[0].heard < 80 - made.stride


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bidirectional": True}, r"from both ends: train with model\.net\.listener\.bidirectional=false"),
        ({"attend": SOFTMAX}, "weighs all of a recording: train with attention=monotonic"),
        (
            {"attend": AttentionFactory(score=Additive, normalizer=partial(Monotonic, inference="expected"))},
            "weighs all of a recording",
        ),
    ],
)
def test_what_needs_all_of_a_recording_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Streaming(net(**options), WRITING)


@pytest.mark.parametrize("stops", [True, False], ids=["stops", "waits"])
@pytest.mark.parametrize("attend", [MONOTONIC, MOCHA], ids=["monotonic", "mocha"])
def test_a_long_recording_takes_no_more_memory_and_each_place_is_read_once(attend: Any, *, stops: bool) -> None:
    """Before, each token read all places so far, and so did each part while a query waited."""
    made = net(attend)
    if not stops:
        for name, parameter in made.named_parameters():
            if name.endswith("offset"):
                nn.init.constant_(parameter, -100.0)
    streaming, read = Streaming(made, DecodingConfig(BeamSearch(width=1), MaxLength(0.05, 20))), list[int]()
    attention = made.decoder.attention
    asked = attention.attend.read
    attention.attend.read = lambda query, memory, *rest: read.append(memory.length) or asked(query, memory, *rest)
    for part in np.split(recording(0, 2000), 50):
        streaming.hear(part)
    later = sum(map(len, streaming.unread))
    assert streaming.trimmed + streaming.state.memory.length + later == 2000 // made.stride
    assert max(read) <= 80
    assert streaming.state.memory.length <= 80
    assert len(streaming.written) > 10 or not stops


def test_a_backlog_behind_the_longest_text_is_not_read_again() -> None:
    """Where a text has its largest length, places wait outside of the memory until later frames make it longer."""
    made, x = net(), recording(3, 900)
    short = DecodingConfig(BeamSearch(width=1, constraints=Constraints(shortest=500)), MaxLength(0.01, 1))
    parts, whole = Streaming(made, short), Streaming(made, short)
    found = [token.number for part in np.split(x, 30) for token in parts.hear(part)]
    found += [token.number for token in parts.hear(x[:0], last=True)]
    assert found == [token.number for token in whole.hear(x, last=True)]
    assert parts.state.memory.length <= 80
