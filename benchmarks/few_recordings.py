"""Measures what the defaults for few recordings gain: words as tokens, a CTC branch, more steps.

    python benchmarks/few_recordings.py --root $ZOO_DATA --seeds 0 1 2 --out results/few-recordings

Takes of FSDD are joined to strings of words, as a user's recordings would be: 35 strings of 8 words out of two ("yes
and no", the form of the YesNo corpus), or 35 strings of 3 to 7 of the ten digits ("digits"). A seed draws the training
strings; 60 strings for validation are of other training takes, and 200 test strings are of FSDD's test takes.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from filing import command, file

from zoo.training.environment import find_commit

CHECKOUT = Path(__file__).resolve().parent.parent
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TRAINED, HELD_OUT, TESTED = 35, 60, 200
TEST_TAKES = range(5)
"""Takes of a speaker and a digit that FSDD tests on."""
VAL_TAKES = range(5, 10)
SAMPLE_RATE = 8_000
PAUSE = (0.05, 0.3)
"""Shortest and longest pause between words, in seconds."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "words": ("data.tokeniser=words", "model.ctc=0"),
    "words, CTC": ("data.tokeniser=words", "model.ctc=0.3"),
    "characters": ("data.tokeniser=characters", "model.ctc=0"),
    "characters, CTC": ("data.tokeniser=characters", "model.ctc=0.3"),
    "words, batches of 4, 60 epochs": (
        *("data.tokeniser=words", "model.ctc=0"),
        *("data.batch_size=4", "data.max_epochs=60"),
    ),
}
"""The first ones are the defaults for few recordings of few different words."""
FIGURES = ("test/wer", "test/cer", "val/wer", "epochs", "best_epoch", "seconds")


class Corpus(NamedTuple):
    """What is said in a set of recordings: strings of some words."""

    words: Sequence[int]
    shortest: int
    longest: int


CORPORA = {"digits": Corpus(range(10), 3, 7), "yes and no": Corpus((0, 1), 8, 8)}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        for seed in options.seeds:
            figures = {
                corpus: _measure(Path(name) / corpus.replace(" ", "_") / str(seed), corpus, seed, options)
                for corpus in options.corpora
            }
            about = {"seed": seed, "command": command(), "commit": find_commit()}
            file({**figures, **about}, options.out and options.out / f"{seed}.json")
            print(json.dumps(figures, indent=2), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of data sets, which holds fsdd/")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=["yes and no"])
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--out", type=Path, help="write the figures of each seed to a JSON file in this folder")
    return parser.parse_args()


def _measure(folder: Path, corpus: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Trains on one set of recordings with each choice of options."""
    folder.mkdir(parents=True)
    table = _write(folder, options.root / "fsdd" / "recordings", CORPORA[corpus], seed)
    return {
        name: _train(folder, name.replace(",", "").replace(" ", "_"), [f"data.table={table}", *OPTIONS[name]], seed)
        for name in options.options
    }


def _write(folder: Path, takes: Path, corpus: Corpus, seed: int) -> Path:
    """Writes the strings of a corpus as recordings, and a table of them."""
    speakers = sorted({path.stem.split("_")[1] for path in takes.glob("*.wav")})
    rows = []
    splits = {"train": (TRAINED, range(10, 50)), "val": (HELD_OUT, VAL_TAKES), "test": (TESTED, TEST_TAKES)}
    for split, (count, numbers) in splits.items():
        draw = random.Random(f"{split} {seed if split == 'train' else ''}")
        for index in range(count):
            speaker = draw.choice(speakers)
            words = draw.choices(corpus.words, k=draw.randint(corpus.shortest, corpus.longest))
            parts = []
            for word in words:
                sound, _ = soundfile.read(takes / f"{word}_{speaker}_{draw.choice(numbers)}.wav", dtype="float32")
                parts += [sound, np.zeros(round(draw.uniform(*PAUSE) * SAMPLE_RATE), dtype=np.float32)]
            soundfile.write(folder / f"{split}_{index}.wav", np.concatenate(parts), SAMPLE_RATE)
            rows.append([f"{split}_{index}.wav", " ".join(DIGITS[word] for word in words), split])
    table = folder / "recordings.csv"
    with table.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([["path", "text", "split"], *rows])
    return table


def _train(folder: Path, run: str, overrides: Sequence[str], seed: int) -> dict[str, Any]:
    """Trains LAS by the command line; returns its word error rate."""
    fixed = ["model=las", "data=audio_manifest", "data.num_workers=0", "threads=1", f"seed={seed}"]
    places = [f"paths.cache={folder}/cache", f"run_dir={folder / run}"]
    log = folder / f"{run}.log"
    with log.open("w") as out:
        subprocess.run(
            [sys.executable, str(CHECKOUT / "train.py"), *fixed, *overrides, *places],
            check=True, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    metrics = json.loads((folder / run / "metrics.json").read_text())
    return {name: metrics[name] for name in FIGURES if name in metrics}


if __name__ == "__main__":
    main()
