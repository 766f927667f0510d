"""`zoo predict CKPT --stream`: rows as the sound arrives, and the text that is said at the end."""

from __future__ import annotations

import csv
import io
import os
from argparse import Namespace
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from run_cases import DOMAINS
from streaming_cases import MONOTONIC
from torch import nn

from zoo.cli import commands
from zoo.decoding import BeamSearch, Constraints
from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.nn import Bahdanau
from zoo.optim import OptimizerConfig
from zoo.tasks.seq2seq.decoding_config import MaxLength
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.speech import Features, ListenAttendSpell, PyramidalRNNEncoder, Recogniser
from zoo.tasks.speech.batch import Frames
from zoo.tasks.speech.data.features import Normalised, Scale
from zoo.tasks.speech.data.resampling import resample
from zoo.text import Characters

MELS = 8


def language() -> TextCodec:
    return TextCodec.from_counts(Characters(), Counter("abcd "))


def module(normalise: Any = "global", **options: Any) -> Recogniser:
    of = language()
    features = Features(mels=MELS, normalise=normalise)
    scale = Scale(np.full(MELS, -5, np.float32), np.full(MELS, 2, np.float32)) if normalise == "global" else None
    net = partial(
        ListenAttendSpell,
        attend=MONOTONIC,
        listener=partial(PyramidalRNNEncoder, hidden=5, joined=(2, 2), bidirectional=False),
        decoder=partial(Bahdanau, dim=4, hidden=6, compared=6),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Recogniser(
            net=net,
            optimization=OptimizerConfig(optimizer=torch.optim.Adam),
            features=MELS,
            tokens=len(of),
            search=BeamSearch(width=1, constraints=Constraints(shortest=6)),
            longest=MaxLength(factor=0.2, constant=4),
            **options,
        )
        for name, parameter in made.named_parameters():
            nn.init.constant_(parameter, -2.0) if name.endswith("offset") else nn.init.normal_(parameter, std=0.6)
    state = {"target_tokens": of.vocabulary.tokens, "tokeniser": of.tokeniser.state()}
    made.about = {"path": "x.ckpt", "data": {**state, "features": Normalised(features, MELS, scale).state()}}
    return made.eval()


def recording(path: Path, seconds: float = 0.9, rate: int = 16000) -> str:
    count = round(seconds * rate)
    x = np.random.default_rng(0).normal(scale=0.1, size=count) * np.linspace(0.1, 1, count)
    soundfile.write(path, x, rate)
    return str(path)


def predicted(monkeypatch: pytest.MonkeyPatch, made: Recogniser, **options: Any) -> None:
    monkeypatch.setattr(commands, "_build_module", lambda _: made)
    commands.predict(Namespace(**{"input": None, "out": None, "format": None, **options}))


def test_rows_are_the_text_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, path = module(), recording(tmp_path / "x.wav")
    predicted(monkeypatch, made, stream=path)
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    normalised = Normalised.from_state(made.about["data"]["features"])
    samples, rate = soundfile.read(path, dtype="float32")
    x = normalised(normalised.features.compute(resample(samples, rate, 8000)))
    source = Frames(torch.from_numpy(x).unsqueeze(0), torch.tensor([len(x)]))
    [[expected]] = made.writing(made.net, source, ["x"])
    assert [row["token"] for row in rows] == language().pieces(expected.tokens)
    assert len(rows) >= 6
    for row in rows:
        assert float(row["time"]) <= float(row["heard"]) <= 0.9
        assert int(row["frames_waited"]) == pytest.approx((float(row["heard"]) - float(row["time"])) * 100, abs=0.1)
    assert err.startswith(f"{language().text(expected.tokens)!r}: a token waited ")
    predicted(monkeypatch, made, stream=path, out=tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == out


@pytest.mark.parametrize(
    ("options", "given", "reason"),
    [
        ({"normalise": "utterance"}, {}, "normalised over the whole recording: train with data.features.normalise=glo"),
        ({}, {"beam": 5}, "--stream writes the most probable token at once and for good: leave out --beam"),
        ({"ctc": 0.3, "joint": 0.2}, {}, "a joint search needs the whole recording"),
        ({}, {"input": [Path("x.csv")]}, "leave out the files"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        predicted(monkeypatch, module(**options), stream=recording(tmp_path / "x.wav"), **given)


def test_a_recording_without_a_frame_and_a_damaged_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recording(tmp_path / "short.wav", seconds=0.004)
    with pytest.raises(DataError, match=r"short\.wav: the recording is shorter than a frame, 0\.01 s"):
        predicted(monkeypatch, module(), stream=path)
    damaged = module()
    damaged.about["data"]["features"] = {}
    with pytest.raises(CheckpointError, match=r"x\.ckpt is not a sound checkpoint"):
        predicted(monkeypatch, damaged, stream=path)


TINY = [each for each in DOMAINS["speech"].tiny if not each.startswith("attention.")]


def test_a_trained_model_writes_the_same_text_from_a_file_a_pipe_and_the_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Any
) -> None:
    """Through the command line; an offset above 0 stops early without much training, and four letters are asked for."""
    forwards = ["data.features.normalise=global", "model.net.listener.bidirectional=false"]
    stops = ["attention=monotonic", "attention.normalizer.offset=0.5", "model.search.constraints.shortest=4"]
    done = cli("train", *TINY, *forwards, *stops, "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    checkpoint, path = "run/checkpoints/best.ckpt", recording(tmp_path / "x.wav")
    done = cli("predict", checkpoint, path, "--beam", "1")
    assert done.code == 0, done.err
    [whole] = csv.DictReader(io.StringIO(done.out))
    file = cli("predict", checkpoint, "--stream", path)
    assert file.code == 0, file.err
    assert file.err.startswith(f"{whole['transcript']!r}: a token waited ")
    assert len(list(csv.DictReader(io.StringIO(file.out)))) >= 4
    reading, writing = os.pipe()
    feeding = Thread(
        target=lambda: Path(f"/dev/fd/{writing}").write_bytes(Path(path).read_bytes()) and os.close(writing)
    )
    feeding.start()
    with os.fdopen(reading) as arriving:
        monkeypatch.setattr("sys.stdin", arriving)
        pipe = cli("predict", checkpoint, "--stream", "-")
    feeding.join()
    assert (pipe.code, pipe.out, pipe.err) == (0, file.out, file.err)


def test_a_listener_of_both_directions_is_refused_in_one_sentence(tmp_path: Path, cli: Any, trained_on: Any) -> None:
    done = cli("predict", trained_on("speech") / "checkpoints" / "best.ckpt", "--stream", recording(tmp_path / "x.wav"))
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert "cannot write while it listens, because" in done.err
