"""Measures what fine-tuning on few texts gains, by what becomes of the vocabulary, beside TF-IDF.

    python benchmarks/fine_tuning.py --root $ZOO_DATA --seeds 3 --out results/fine-tuning-imdb

A HAN is trained on 5,000 reviews of the first half of IMDB's training reviews. It is then fine-tuned on 50 and on 500
reviews of the second half, drawn by the seed, with `data.vocabulary=unite`, `keep` and `new`; a HAN is trained on them
from scratch, as is logistic regression on TF-IDF. All are chosen on the same 200 reviews of the second half and tested
on 2,000 of the test reviews.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filing import command, file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from zoo.training.environment import find_commit

CHECKOUT = Path(__file__).resolve().parent.parent
SIZES = (50, 500)
POLICIES = ("unite", "keep", "new")
READ, HELD_OUT, TESTED = 5_000, 200, 2_000
SETTINGS = ("data=text_table", "data.max_words=400", "data.num_workers=0", "data.eval_examples=100", "threads=1")


class Review(NamedTuple):
    """A review, with the split of IMDB that it is from."""

    split: str
    label: str
    text: str


def main() -> None:
    options = _options()
    reviews = sorted(_read(options.root / "imdb" / "aclImdb_v1.tar.gz"))
    train = [each for each in reviews if each.split == "train"]
    test = [each for each in reviews if each.split == "test"]
    random.Random(0).shuffle(train)
    random.Random(0).shuffle(test)
    half = len(train) // 2
    first, second, test = train[:half][:READ], train[half:], test[:TESTED]
    held_out, rest = second[:HELD_OUT], second[HELD_OUT:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = _write(folder / "origin.csv", first, held_out, test)
        origin = _train(table, folder / "origin", ["model=han", "data.max_epochs=4", "seed=0"])
        for seed in range(options.seeds):
            figures = {
                str(size): _measure(folder, seed, random.Random(seed).sample(rest, size), held_out, test)
                for size in SIZES
            }
            about = {"seed": seed, "overrides": SETTINGS, "command": command(), "commit": find_commit()}
            file({"origin": origin, **figures, **about}, options.out and options.out / f"{seed}.json")
            print(json.dumps(figures, indent=2))


def _measure(
    folder: Path, seed: int, train: Sequence[Review], val: Sequence[Review], test: Sequence[Review]
) -> dict[str, Any]:
    """Trains on some reviews in every way."""
    run = folder / f"{len(train)}-{seed}"
    run.mkdir()
    table = _write(run / "reviews.csv", train, val, test)
    origin = f"init={folder}/origin/checkpoints/best.ckpt"
    figures = {"scratch": _train(table, run / "scratch", ["model=han", f"seed={seed}"])}
    for policy in POLICIES:
        figures[policy] = _train(table, run / policy, [origin, f"data.vocabulary={policy}", f"seed={seed}"])
    return {**figures, "tfidf": {"test/accuracy": _tfidf(train, test)}}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of data sets, which holds imdb/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures of each seed to a JSON file in this folder")
    return parser.parse_args()


def _read(archive: Path) -> Iterator[Review]:
    with tarfile.open(archive) as tar:
        for member in tar:
            _, split, label, *_ = [*Path(member.name).parts, "", "", ""]
            if member.isfile() and label in ("pos", "neg") and (content := tar.extractfile(member)) is not None:
                yield Review(split, label, content.read().decode("utf-8"))


def _write(path: Path, train: Sequence[Review], val: Sequence[Review], test: Sequence[Review]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "label", "split"])
        for split, reviews in (("train", train), ("val", val), ("test", test)):
            rows.writerows([each.text, each.label, split] for each in reviews)
    return path


def _train(table: Path, run: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Trains a model by the command line; returns its accuracy and the size of its vocabulary."""
    places = [f"data.table={table}", f"paths.cache={run.parent}/cache", f"run_dir={run}"]
    subprocess.run([sys.executable, str(CHECKOUT / "train.py"), *overrides, *SETTINGS, *places], check=True)
    metrics = json.loads((run / "metrics.json").read_text())
    kept = ("test/accuracy", "val/accuracy", "parameters", "epochs", "best_epoch", "seconds")
    return {name: metrics[name] for name in kept}


def _tfidf(train: Sequence[Review], test: Sequence[Review]) -> float:
    """Returns the test accuracy of logistic regression on words and pairs of words, weighted by TF-IDF."""
    weigh = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = LogisticRegression(C=10.0, max_iter=1000)
    model.fit(weigh.fit_transform([each.text for each in train]), [each.label for each in train])
    found = model.predict(weigh.transform([each.text for each in test]))
    return float(sum(label == each.label for label, each in zip(found, test, strict=True)) / len(test))


if __name__ == "__main__":
    main()
