"""Commands on recordings of the user's own, good and bad, as a user runs them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from run_cases import DOMAINS

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "speech"
LAS = [each for each in DOMAINS["speech"].tiny if not each.startswith("data.")]
"""The options of the model, without those of its data."""
OWN = ["data=audio_manifest", "data.table=own.csv"]


def tone(seconds: float = 0.5) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * 8000)) / 8000)).astype(np.float32)


def recordings(*rows: str) -> None:
    """Writes eight recordings into the current directory, and a table of them."""
    for number in range(8):
        soundfile.write(f"{number}.wav", tone(0.3 + 0.05 * number), 8000)
    good = [
        f"{number}.wav,{'ab ba'[number % 3 :]}," + split
        for number, split in enumerate(["train"] * 4 + ["val", "test"] * 2)
    ]
    Path("own.csv").write_text("\n".join(["path,text,split", *good, *rows]) + "\n")


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("speech") / "checkpoints" / "best.ckpt"


def test_the_preflight_names_all_bad_recordings_of_a_table(cli: Any) -> None:
    recordings("8.wav,a,train", "9.wav,a,train", "../0.wav,a,train", "0.wav,,train")
    Path("8.wav").write_bytes(b"no sound")
    done = cli("check", *LAS, *OWN)
    assert done.code == 2
    for said in (
        "own.csv, line 10, column 'path': 8.wav: it cannot be decoded",
        "own.csv, line 11, column 'path': 9.wav: the file does not exist",
        "own.csv, line 12, column 'path': 0.wav: the file does not exist",
        "own.csv, line 13, column 'text': the cell is empty",
    ):
        assert said in done.err
    done = cli("train", *LAS, *OWN)
    assert (done.code, "own.csv, line 13" in done.err) == (2, True)
    assert "Traceback" not in done.err


def test_training_leaves_out_bad_recordings_and_counts_them(cli: Any) -> None:
    recordings("8.wav,a,train", "9.wav,a,train")
    Path("8.wav").touch()
    options = [*LAS, *OWN, "data.on_bad_row=skip", "data.max_epochs=1", "run_dir=run"]
    with pytest.warns(UserWarning, match=r"skipped 2 bad recordings. The first: own.csv, line 10"):
        done = cli("train", *options)
    assert done.code == 0, done.err


@pytest.mark.parametrize("place", ["data.table=recordings.csv", "data.table=talk.jsonl", "data.folder=words"])
def test_the_samples_can_be_trained_on(cli: Any, place: str) -> None:
    option, _, name = place.partition("=")
    done = cli("check", *LAS, "data=audio_manifest", f"{option}={SAMPLES}/{name}")
    assert done.code == 0, done.err
    assert "no problem found" in done.out


def test_files_folders_and_tables_are_transcribed(cli: Any, trained: Path) -> None:
    recordings()
    done = cli("predict", trained, f"{SAMPLES}/clips", "own.csv", "0.wav")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 29
    assert {"clips:01.flac", "own.csv:7.wav", "0.wav"} <= {row["id"] for row in rows}


def test_bad_input_of_a_trained_model(cli: Any, trained: Path) -> None:
    recordings()
    soundfile.write("long.wav", tone(61.0), 8000)
    done = cli("predict", trained, "long.wav")
    assert (done.code, "long.wav: the recording has 61.0 s, and 60 are the most" in done.err) == (2, True)
    assert "--on-bad-row=skip leaves such rows out" in done.err
    assert "--longest-seconds" in done.err
    Path("new.csv").write_text("path,text\n0.wav,ab\n1.wav,aß\n")
    done = cli("evaluate", trained, "new.csv")
    assert (done.code, "new.csv, line 3, column 'text': 'ß' is not one of the" in done.err) == (2, True)
    np.save("0.npy", np.zeros((20, 40)))
    done = cli("predict", trained, "0.npy")
    assert (done.code, "0.npy: it is a file of features" in done.err) == (2, True)


def test_fine_tuning_to_another_alphabet(cli: Any, trained: Path) -> None:
    """Letters are matched by name, features are the checkpoint's, and bad files are named."""
    recordings("0.wav,öü,train")
    Path("own.csv").write_text(Path("own.csv").read_text().replace("0.wav,ab ba,train\n", "", 1))
    done = cli("train", f"init={trained}", *OWN, "data.features.mels=20", "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    done = cli("evaluate", "run/checkpoints/best.ckpt", "--out", "found.json")
    assert done.code == 0, done.err
    assert "test/cer" in json.loads(Path("found.json").read_text())
    from zoo.checkpoints import checkpoint

    about = checkpoint.read(Path("run/checkpoints/best.ckpt"))["zoo"]["data"]
    assert {"ö", "ü", "a", "b"} <= set(about["target_tokens"])
    assert about["features"]["mels"] == 40
    assert all(type(value) in (str, int, float, list) for value in about["features"].values())
