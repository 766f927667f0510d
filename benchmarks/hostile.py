"""Counts how many hostile or broken checkpoints run code when loaded, how they are answered, and what memory it takes.

python benchmarks/hostile.py --out results/hostile-checkpoints/0.json

To the files that were made to do harm come others in which one entry of the description, drawn at random, is another:
of tiny models of all domains. Each file is evaluated in a process of its own. An answer is a sentence and exit code 2,
or, where the entry does not matter, the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT / "tests" / part) for part in ("", "checkpoints", "tasks")]

from filing import file  # noqa: E402
from hostile_cases import corpus, mutants  # noqa: E402
from run_cases import DOMAINS  # noqa: E402

from zoo.cli.main import main as zoo  # noqa: E402
from zoo.training.environment import find_commit  # noqa: E402

_SECONDS = 120
_MOST = 2 << 30
"""Bytes that a command may reserve beyond those of the process that it is forked from."""


class Answer(NamedTuple):
    """What a command did with a file.

    Attributes:
        code: Its exit code; None if it raised an exception, or did not end.
        said: What it wrote to standard error.
        peak: Its peak memory in MB.
    """

    code: int | None
    said: str
    peak: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=300, help="how many, those made by hand included")
    parser.add_argument("--seed", type=int, default=0, help="of what is changed at random")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    out = options.out and options.out.absolute()
    torch.set_num_threads(1)
    answers: dict[str, Answer] = {}
    executed = 0
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        trap = Path(name) / "trap"
        for label, path in _files(Path(name), trap, options.files, options.seed):
            answers[label] = _answer(path)
            executed += trap.exists()
            trap.unlink(missing_ok=True) if trap.is_file() else None
            path.unlink()
            print(f"{label}: {answers[label].code}, {answers[label].peak} MB", file=sys.stderr, flush=True)
    bad = {label: each for label, each in answers.items() if not _is_explained(each) and each.code != 0}
    for label, each in bad.items():
        print(f"{label}: exit {each.code}: {each.said[-2000:]}", file=sys.stderr)
    heaviest = max(answers, key=lambda label: answers[label].peak)
    found = {
        "files": len(answers),
        "executed": executed,
        "explained": sum(map(_is_explained, answers.values())),
        "without_effect": sum(each.code == 0 for each in answers.values()),
        "unexplained": sorted(bad),
        "peak_mb": answers[heaviest].peak,
        "heaviest": heaviest,
        "command": "python benchmarks/hostile.py --out results/hostile-checkpoints/0.json",
        "commit": find_commit(),
    }
    print(json.dumps(found, indent=2))
    file(found, out)


def _files(folder: Path, trap: Path, count: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Yields a name and a file of each hostile checkpoint."""
    made = 0
    for number, (domain, about) in enumerate(DOMAINS.items()):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert zoo(["train", *about.tiny, "data.max_epochs=1", f"run_dir={domain}"]) == 0
        best = folder / domain / "checkpoints" / "best.ckpt"
        if not number:
            by_hand = corpus(best, folder / "files", trap)
            made = len(by_hand)
            yield from by_hand.items()
        content = torch.load(best, weights_only=True)
        share = -(-max(0, count - made) // (len(DOMAINS) - number))
        for name, changed in mutants(content, share, seed * len(DOMAINS) + number):
            made += 1
            path = folder / f"{made}.ckpt"
            torch.save(changed, path)
            yield f"{domain} {made}: {name}", path


def _answer(path: Path) -> Answer:
    """Evaluates a checkpoint in a process of its own, which is forked so that nothing is imported again."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(_SECONDS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MOST, used + _MOST))
        said, code = io.StringIO(), None
        quiet = contextlib.redirect_stdout(io.StringIO())
        with contextlib.suppress(BaseException), contextlib.redirect_stderr(said), quiet:
            code = zoo(["evaluate", str(path)])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        os.write(writing, json.dumps([code, said.getvalue()[-20_000:], peak]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return Answer(*json.loads(written)) if written else Answer(None, f"ended after {_SECONDS} s", 0)


def _is_explained(answer: Answer) -> bool:
    lines = [line for line in answer.said.splitlines() if line.startswith("zoo: ")]
    return answer.code == 2 and bool(lines) and "Traceback" not in answer.said


if __name__ == "__main__":
    main()
