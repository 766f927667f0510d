"""Counts how many hostile or broken checkpoints run code when loaded, and how many are refused with an explanation.

python benchmarks/hostile.py --out results/hostile-checkpoints/0.json
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT / "tests"), str(CHECKOUT / "tests" / "checkpoints")]

from conftest import TINY  # noqa: E402
from filing import file  # noqa: E402
from hostile_cases import corpus  # noqa: E402

from zoo.commandline.cli import main as zoo  # noqa: E402
from zoo.training.provenance import commit_of_checkout  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    out = options.out and options.out.absolute()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
            assert zoo(["train", *TINY, "run_dir=run"]) == 0
        executed, explained = 0, 0
        trap = folder / "trap"
        files = corpus(folder / "run" / "checkpoints" / "best.ckpt", folder / "files", trap)
        for label, path in files.items():
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = zoo(["evaluate", str(path)])
            executed += trap.exists()
            one_sentence = code == 2 and said.getvalue().count("\n") == 1 and str(path) in said.getvalue()
            explained += one_sentence
            if not one_sentence:
                print(f"{label}: exit {code}: {said.getvalue()}", file=sys.stderr)
    found = {
        "files": len(files),
        "executed": executed,
        "explained": explained,
        "command": "python benchmarks/hostile.py --out results/hostile-checkpoints/0.json",
        "commit": commit_of_checkout(),
    }
    print(json.dumps(found, indent=2))
    file(found, out)


if __name__ == "__main__":
    main()
