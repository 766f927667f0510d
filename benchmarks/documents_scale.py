"""Measures documents at scale: a JSONL file larger than memory should be, and the cost of long texts.

    python benchmarks/documents_scale.py file
    python benchmarks/documents_scale.py length
    python benchmarks/documents_scale.py length --clock processor    # on a machine that does other things too
    python benchmarks/documents_scale.py file --quick                # a small file: does it run?

`file` writes a JSONL file of reviews and trains HAN on it by the command line, for some minutes. It reports the peak
memory of each process, that of both together (pages that they share count once), and the share of the time in which
training waited for batches.

`length` times a training step and a pass without gradients of HAN and of LongDocument, in the sizes of their
configurations, on texts of equal length, and measures the memory that they add in a process of its own. The two take
turns. A batch has 32 texts of up to 1,000 words, and fewer longer ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from documents import interleaved, peak_memory, status
from filing import command, file
from measuring import CLOCKS
from torch import nn
from torch.nn import functional as F

from zoo.config import compose
from zoo.config.instantiate import build
from zoo.memory import disable_malloc_trim
from zoo.tasks.documents.batch import DocumentBatch
from zoo.training.environment import find_commit

CHECKOUT = Path(__file__).resolve().parent.parent
MODELS = ("han", "long_document")
LENGTHS = (250, 1_000, 4_000, 8_000)
SENTENCE = 20
BATCH_WORDS, BATCH_TEXTS = 32_000, 32
WORDS, CLASSES = 5_000, 4


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    found = _of_file(options) if options.part == "file" else _of_lengths(options)
    result = {
        **found,
        "threads": options.threads,
        "torch": torch.__version__,
        "command": command(),
        "commit": find_commit(),
    }
    print(json.dumps(result, indent=2))
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("file", "length"))
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the file")
    parser.add_argument("--minutes", type=int, default=5, help="of training on it")
    parser.add_argument("--repeats", type=int, default=10, help="turns of each length")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="what is measured of steps")
    parser.add_argument("--quick", action="store_true", help="a small file, or short texts")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args()
    if options.quick:
        options.gigabytes, options.minutes, options.repeats = 0.002, 1, 2
    return options


def _of_file(options: argparse.Namespace) -> dict[str, Any]:
    """Trains on a file that was made, and watches the memory of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "reviews.jsonl"
        texts, words = _write(table, round(options.gigabytes * 1e9))
        settings = ["model=han", "data=text_table", "data.max_vocabulary=50000", "data.max_tokens=16000"]
        settings += ["data.eval_examples=1000", f"trainer.max_time=00:00:{options.minutes:02}:00"]
        places = [f"data.table={table}", f"paths.cache={folder}/cache", f"run_dir={folder}/run"]
        train = [sys.executable, str(CHECKOUT / "train.py"), *settings, f"threads={options.threads}", *places]
        process = subprocess.Popen(train, stdout=subprocess.DEVNULL)
        memory = _watched(process)
        run = json.loads((Path(folder) / "run" / "metrics.json").read_text())
        rows = (Path(folder) / "run" / "metrics.csv").read_text().splitlines()
        return {
            "bytes": table.stat().st_size,
            "texts": texts,
            "words": words,
            "steps": max(int(row.split(",")[0]) for row in rows[1:]) + 1,
            **{name: run[name] for name in ("seconds", "data_wait", "parameters")},
            **memory,
            "overrides": settings,
        }


def _write(path: Path, size: int) -> tuple[int, int]:
    """Writes reviews of 15 sentences on average, one sentence of five with a word of the class; returns their number
    and that of their words."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    names = ["".join(letters[random.integers(len(letters), size=n)]) for n in random.integers(2, 11, 60_000)]
    names += ["superb", "pleasant", "awful", "terrible"]
    chances = 1 / (np.arange(len(names)) + 10.0)  # Zipf's law
    ends = (chances / chances.sum()).cumsum()
    written = texts = words = 0
    with path.open("w", encoding="utf-8") as out:
        while written < size:
            labels, counts = random.integers(2, size=1000), random.integers(1, 30, 1000)
            lengths = random.integers(5, 31, int(counts.sum()))
            bounds = np.concatenate([[0], lengths.cumsum()])
            drawn = np.searchsorted(ends, random.random(int(bounds[-1])))
            speaks = np.flatnonzero(random.random(len(lengths)) < 0.2)
            of = labels.repeat(counts)[speaks]
            drawn[bounds[speaks]] = len(names) - 4 + 2 * of + random.integers(2, size=len(speaks))
            spelled = np.array(names, dtype=object)[drawn].tolist()
            sentences = [" ".join(spelled[a:b]).capitalize() + "." for a, b in itertools.pairwise(bounds.tolist())]
            reviews = itertools.pairwise([0, *counts.cumsum().tolist()])
            for (first, last), label in zip(reviews, labels.tolist(), strict=True):
                split = {0: "val", 1: "test"}.get(texts % 100, "train")
                row = {"text": " ".join(sentences[first:last]), "label": ("good", "bad")[label], "split": split}
                written += out.write(json.dumps(row) + "\n")
                texts += 1
            words += len(drawn)
    return texts, words


def _watched(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Waits for a process; returns the peak memory of it, of its largest child, and of all together, in MiB."""
    own = child = together = 0
    while process.poll() is None:
        found = [process.pid, *_children(process.pid)]
        total = 0
        for pid in found:
            try:
                peak = status("VmHWM", pid)
                total += status("Pss", pid, of="smaps_rollup")
            except (OSError, StopIteration):  # it has ended
                continue
            own, child = (max(own, peak), child) if pid == process.pid else (own, max(child, peak))
        together = max(together, total)
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit("training failed")
    return {"peak_mib": own // 1024, "worker_peak_mib": child // 1024, "together_peak_mib": together // 1024}


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _of_lengths(options: argparse.Namespace) -> dict[str, Any]:
    clock = CLOCKS[options.clock]
    lengths = LENGTHS[:2] if options.quick else LENGTHS
    # memory first: a process that has computed gradients cannot be forked to compute more
    found: dict[int, dict[str, Any]] = {
        words: {name: {f"{kind}_mib": _of_process(kind, name, words) for kind in KINDS} for name in MODELS}
        for words in lengths
    }
    for words in lengths:
        batch = _batch(words)
        nets = {name: _made(name) for name in MODELS}
        runs = {(name, kind): KINDS[kind](net, batch) for name, net in nets.items() for kind in KINDS}
        for (name, kind), taken in interleaved(runs, options.repeats, clock).items():
            found[words][name][f"{kind}_ms"] = taken
        found[words]["texts"] = len(batch)
    return {"lengths": found, "clock": options.clock}


def _batch(words: int) -> DocumentBatch[None]:
    """Texts of sentences of 20 words, with random words."""
    random = torch.Generator().manual_seed(0)
    texts = min(BATCH_TEXTS, BATCH_WORDS // words)
    count = words // SENTENCE + (words % SENTENCE > 0)
    lengths = torch.full((count,), SENTENCE)
    lengths[-1] = words - SENTENCE * (count - 1)
    return DocumentBatch(
        words=torch.randint(WORDS, (texts * words,), generator=random),
        sentences=torch.arange(texts * count).repeat_interleave(lengths.repeat(texts)),
        documents=torch.arange(texts).repeat_interleave(count),
        labels=torch.randint(CLASSES, (texts,), generator=random),
        ids=tuple(map(str, range(texts))),
        spelled=None,
    )


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    task = build(compose.compose([f"model={name}"])["model"], "model", words=WORDS, classes=CLASSES)
    net: nn.Module = task.net
    return net


def _step(net: nn.Module, batch: DocumentBatch) -> Any:
    optimizer = torch.optim.Adam(net.parameters())

    def run(_: int) -> None:
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(batch), batch.labels).backward()
        optimizer.step()

    return run


def _pass(net: nn.Module, batch: DocumentBatch) -> Any:
    @torch.no_grad()
    def run(_: int) -> None:
        net.eval()
        net(batch)

    return run


KINDS = {"step": _step, "pass": _pass}


def _of_process(kind: str, name: str, words: int) -> float:
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_peak, (kind, name, words))


def _peak(kind: str, name: str, words: int) -> float:
    return peak_memory(KINDS[kind](_made(name), _batch(words)))


if __name__ == "__main__":
    main()
