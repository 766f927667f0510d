"""Compares HAN on texts of one's own, with the options that are chosen for them and without, with TF-IDF.

    python benchmarks/own_texts.py imdb --root $ZOO_DATA --size 1000 --out results/own-texts-imdb-1000
    python benchmarks/own_texts.py packages --root package_texts --size 1000 --out results/own-texts-packages-1000

Texts are read as one's own (`data=text_table`). Of IMDB's training reviews, 1,000 that are drawn once choose weights
and others are trained on; 5,000 of its test reviews are the test. `benchmarks/package_texts.py` makes the tables of
packages.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filing import command, file

from zoo.tasks.documents.data.published import read_imdb
from zoo.training.environment import find_commit

CHECKOUT = Path(__file__).resolve().parent.parent
PLAIN = ["model.vectors=null", "model.net.skip=false", "data.min_count=1", "data.augmentation.word_dropout=0"]
WAYS = {"plain": ["model=han", *PLAIN], "chosen": ["model=han"]}
HELD_OUT, TESTED = 1_000, 5_000
SETTINGS = ("data=text_table", "data.num_workers=0", "data.eval_examples=100", "threads=1")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = options.root / f"{options.size}.csv"
        if options.texts == "imdb":
            table = _write_imdb(folder / "imdb.csv", options.root, options.size)
        given = [*SETTINGS, *([] if options.epochs is None else [f"data.max_epochs={options.epochs}"])]
        baseline = _measure_baseline(table, folder)
        for seed in range(options.first, options.first + options.seeds):
            seeded = [*given, f"seed={seed}"]
            figures = {
                way: _train(table, folder / f"{way}-{seed}", [*WAYS[way], *seeded]) for way in options.ways or WAYS
            }
            about = {"size": options.size, "seed": seed, "ways": WAYS, "settings": given, "command": command()}
            found = {**figures, "tfidf": baseline, **about, "commit": find_commit()}
            file(found, options.out and options.out / f"{seed}.json")
            print(json.dumps(figures, indent=2), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", choices=("imdb", "packages"))
    parser.add_argument("--root", type=Path, required=True, help="folder with imdb/, or with the tables of packages")
    parser.add_argument("--size", type=int, required=True, help="training texts")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="default: both")
    parser.add_argument("--epochs", type=int, help="default: that of the data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, help="write the figures of each seed to a JSON file in this folder")
    return parser.parse_args()


def _write_imdb(path: Path, root: Path, size: int) -> Path:
    """Writes a table of reviews; the training reviews of a smaller table are a part of a larger one's."""
    corpus = read_imdb([root], targets="single", validation=1)
    pool = [*corpus.numbers("train").tolist(), *corpus.numbers("val").tolist()]
    test = corpus.numbers("test").tolist()
    draw = random.Random(0)
    for numbers in (pool, test):
        numbers.sort()
        draw.shuffle(numbers)
    if size > len(pool) - HELD_OUT:
        raise SystemExit(f"there are {len(pool) - HELD_OUT:,} reviews for training, and {size:,} are asked for")
    chosen = {"train": pool[HELD_OUT:][:size], "val": pool[:HELD_OUT], "test": test[:TESTED]}
    with path.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["text", "label", "split"])
        for split, numbers in chosen.items():
            rows.writerows([corpus.texts[each], corpus.label_names[corpus.labels[each]], split] for each in numbers)
    return path


def _measure_baseline(table: Path, folder: Path) -> dict[str, float]:
    """Returns the metrics of TF-IDF with logistic regression, which needs no seed."""
    _run("-m", "zoo", "baseline", "data=text_table", f"data.table={table}", f"run_dir={folder}/baseline")
    found = json.loads((folder / "baseline" / "baseline.json").read_text())["baselines"]
    metrics: dict[str, float] = next(each["metrics"] for each in found if each["name"].startswith("TF-IDF"))
    return {name: metrics[name] for name in ("val/accuracy", "test/accuracy")}


def _train(table: Path, run: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Trains a model by the command line; returns its metrics and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run("train.py", *overrides, f"data.table={table}", f"paths.cache={run.parent}/cache", f"run_dir={run}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    metrics = json.loads((run / "metrics.json").read_text())
    kept = ("val/accuracy", "test/accuracy", "parameters", "epochs", "best_epoch", "seconds")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**{name: metrics[name] for name in kept}, "cpu_seconds": round(seconds, 1)}


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
