"""Measures how long the command line takes to answer: best of five.

python benchmarks/startup.py --out results/startup/0.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from filing import file

from zoo.training.environment import find_commit

CHECKOUT = Path(__file__).resolve().parent.parent
LIST = [sys.executable, "-c", "import sys; from zoo.cli.main import main; sys.exit(main(['list']))"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    train = [sys.executable, str(CHECKOUT / "train.py")]
    found = {
        "help_seconds": _best([*train, "model=gat", "--help"], 0, options.times),
        "cfg_seconds": _best([*train, "model=gat", "--cfg", "job"], 0, options.times),
        "typo_seconds": _best([*train, "model=gat", "optimizer.lrr=1"], 2, options.times),
        "list_seconds": _best(LIST, 0, options.times),
        "first_step_seconds": _first_step([*train, "model=gat", "trainer=cpu"], options.times),
        "command": "python benchmarks/startup.py --out results/startup/0.json",
        "commit": find_commit(),
    }
    print(json.dumps(found, indent=2))
    file(found, options.out)


def _best(command: list[str], code: int, times: int) -> float:
    return round(min(_seconds(command, code) for _ in range(times)), 3)


def _seconds(command: list[str], code: int) -> float:
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done
    return time.monotonic() - started


def _first_step(command: list[str], times: int) -> float:
    """Returns the seconds from the command to the end of the first step, in a run of one step (wall clock)."""
    code = (
        "import sys, time\n"
        "import pytorch_lightning as pl\n"
        "from zoo.cli.main import main\n"
        "pl.Trainer.__init__ = (lambda real: lambda self, *a, callbacks, **k: real("
        "self, *a, callbacks=[Stop(), *callbacks], **k))(pl.Trainer.__init__)\n"
        "class Stop(pl.Callback):\n"
        "    def on_train_batch_end(self, *_):\n"
        "        print('stepped', time.time(), flush=True); import os; os._exit(0)\n"
        "sys.exit(main(['train', *sys.argv[1:]]))\n"
    )
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            started = time.time()
            run = [sys.executable, "-c", code, *command[2:], f"run_dir={folder}/run"]
            done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            (line,) = [each for each in done.stdout.splitlines() if each.startswith("stepped")]
            found.append(float(line.split()[1]) - started)
    return round(min(found), 3)


if __name__ == "__main__":
    main()
