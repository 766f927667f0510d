"""Runs one configuration with several seeds, each in its own process, and stores the results.

python results/measure.py gat_cora --seeds 20 -- experiment=gat_cora
python results/measure.py flat_attention_imdb --seeds 1 --faithfulness 200 -- experiment=flat_attention_imdb
python results/measure.py nmt-planted_translation --table bleu_by_length -- model=nmt
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="the folder under results/")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--faithfulness", type=int, metavar="N", help="measure it too, with N examples")
    parser.add_argument("--table", metavar="NAME", help="keep the rows of the run's test_NAME.csv too")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the best weights there, as SEED.ckpt")
    parser.add_argument("overrides", nargs="+", help="arguments of train.py, after --")
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.seeds):
        weights = None if options.keep is None else options.keep / f"{seed}.ckpt"
        found = _run([*options.overrides, f"seed={seed}"], options.faithfulness, options.table, weights)
        path = RESULTS / options.experiment / f"{seed}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        first = next(name for name in found if name.startswith("test/"))
        print(f"{path.parent.name}/{path.name}: {first} {found[first]:.4f}, {found['seconds']} s")


def _run(overrides: list[str], faithfulness: int | None, table: str | None, weights: Path | None) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        started, used = time.monotonic(), _cpu_seconds()
        command = [sys.executable, "train.py", *overrides, f"run_dir={folder}/run"]
        subprocess.run(command, cwd=RESULTS.parent, check=True, capture_output=True)
        spent = {"wall_seconds": time.monotonic() - started, "cpu_seconds": _cpu_seconds() - used}
        found = json.loads((Path(folder) / "run" / "metrics.json").read_text(encoding="utf-8"))
        if table is not None:
            found[table] = _rows(Path(folder) / "run" / f"test_{table}.csv")
        if faithfulness is not None:
            found["faithfulness"] = _faithfulness(Path(folder), faithfulness)
        if weights is not None:
            weights.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder) / "run" / "checkpoints" / "best.ckpt", weights)
    shown = shlex.join(["python", "train.py", *overrides])
    return {**found, "command": shown, **{name: round(value, 1) for name, value in spent.items()}}


def _rows(path: Path) -> list[dict[str, object]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _faithfulness(folder: Path, count: int) -> dict[str, object]:
    """Measures the best weights of a run: the command, and the means by kind of input, ranking and measure."""
    shown = ["zoo", "maps", "BEST", "--pictures=0", f"--faithfulness={count}"]
    best = str(folder / "run" / "checkpoints" / "best.ckpt")
    given = [best if word == "BEST" else word for word in shown]
    command = [sys.executable, "-m", *given, "--out", str(folder / "maps")]
    subprocess.run(command, cwd=RESULTS.parent, check=True, capture_output=True)
    scores = json.loads((folder / "maps" / "scores.json").read_text(encoding="utf-8"))
    return {"command": shlex.join(shown), "means": scores["faithfulness"]}


def _cpu_seconds() -> float:
    """Returns the processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
