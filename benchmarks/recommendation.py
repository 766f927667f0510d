"""Times SASRec against padded batches and RecBole, per target, in ranking and to a given quality, and at large scale.

    python benchmarks/recommendation.py --root $ZOO_DATA                        # what needs no RecBole
    python benchmarks/recommendation.py --root $ZOO_DATA --recbole PYTHON       # PYTHON: of a venv that has RecBole
    python benchmarks/recommendation.py --root $ZOO_DATA --parts padded --threads 1
    python benchmarks/recommendation.py --root $ZOO_DATA --quick                # a few turns on little: does it run?

padded   A training step with the real lengths of MovieLens-1M, and with a mean length of 9 in windows of 50, against
         the same network on batches that are padded in front (padded_sasrec.py). The peer gets our weights and is
         refused if its outputs differ. Its negatives are drawn beforehand, ours in the step; loading is not counted.
recbole  The same against RecBole, which makes a sample of every prefix, in seconds per target; and full rankings of the
         validation users. RecBole runs in its own process and interpreter, in turns with ours, with the same sizes,
         without anomaly detection; its loader is not counted.
quality  Seconds of training until NDCG@10 reaches .12 in a full ranking of the validation users, seen items included.
         Both use a full softmax. Loaders are counted; evaluations, the same for both, are not.
million  A million items of width 64: a training step with each loss, and a full ranking; time and peak memory.
stream   A table of 1 and of 10 million interactions is read, indexed and trained on for an epoch: time and peak memory.

The output has medians over turns, and ratios to ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from filing import command, file
from padded_sasrec import PaddedSASRec, take_weights
from recommendation_scale import LOSSES, drawn, sasrec, step
from torch import Tensor

from zoo.memory import disable_malloc_trim
from zoo.tasks.batching import BatchOptions
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.datamodule import HistoryData, HistorySource
from zoo.tasks.recommendation.datasets import published
from zoo.tasks.recommendation.losses import BCE, FullSoftmax, Loss
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.ranking.metrics import RankMetrics
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.training.environment import find_commit

OURS = "ours"
DIM, LAYERS, BATCH = 50, 2, 128
ITEMS = 3_416
LARGEST_DIFFERENCE = 1e-4
GOAL = 0.12
THEIR_BATCHES = (128, 2048)  # prefixes; the second is RecBole's own default
EVAL_BATCHES = (128, 512, 4096)
_HERE = Path(__file__).parent


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    if options.allocator == "keeping":
        disable_malloc_trim()
    parts: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "padded": _padded,
        "recbole": _recbole,
        "quality": _quality,
        "million": _million,
        "stream": _stream,
    }
    result: dict[str, Any] = {}
    for name in options.parts or parts:
        if name in ("recbole", "quality") and options.recbole is None:
            print(f"{name} is not measured: --recbole PYTHON names no interpreter that has RecBole", file=sys.stderr)
            continue
        result[name] = parts[name](options)
        print(f"{name}\n{json.dumps(result[name], indent=2)}", flush=True)
    result |= {
        "threads": options.threads,
        "allocator": options.allocator,
        "torch": torch.__version__,
        "command": command() if options.recbole is None else command().replace(options.recbole, "PYTHON"),
        "commit": find_commit(),
    }
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the folder of data sets, with movielens/ml-1m.txt")
    parser.add_argument("--parts", nargs="+", choices=("padded", "recbole", "quality", "million", "stream"))
    parser.add_argument("--recbole", help="the Python of an environment that has RecBole")
    parser.add_argument("--repeats", type=int, default=30, help="turns of each")
    parser.add_argument("--hours", type=float, default=6.0, help="of training to the quality, for each, at most")
    trained = {"nargs": 2, "type": float, "metavar": ("BATCH", "RATE")}
    parser.add_argument("--ours-trained", default=(32, 2e-3), help="users a step and rate, for quality", **trained)
    parser.add_argument("--recbole-trained", default=(64, 1e-3), help="prefixes a step and rate", **trained)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--allocator", choices=("keeping", "default"), default="keeping", help="of freed memory")
    parser.add_argument("--quick", action="store_true", help="three turns, and small data where it is generated")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.hours = 3, 0.005
    return options


def _padded(options: argparse.Namespace) -> dict[str, Any]:
    short = drawn(users=20_000, items=ITEMS, mean=9.0, length=50, seed=0)
    workloads = {
        "ML-1M, windows of 200": (_movielens(options), 0.2),
        "mean length 9, windows of 50": (
            HistoryData(HistorySource(lambda: short), BatchOptions(max_epochs=1, batch_size=BATCH), length=50),
            0.5,
        ),
    }
    return {name: _against_padded(data, dropout, options.repeats) for name, (data, dropout) in workloads.items()}


def _against_padded(data: HistoryData, dropout: float, repeats: int) -> dict[str, Any]:
    batches = _batches(data, 6)
    ours = _sasrec(data, dropout)
    peers: dict[str, PaddedSASRec] = {}
    for name, multihead in (("padded", False), ("padded, MultiheadAttention", True)):
        peers[name] = PaddedSASRec(
            items=data.sizes()["items"],
            length=data.length,
            dim=DIM,
            layers=LAYERS,
            dropout=dropout,
            multihead=multihead,
        )
        take_weights(peers[name], ours.state_dict())
    difference = {name: _difference(ours, peer, batches, data) for name, peer in peers.items()}
    runs = {OURS: _training(ours, BCE(), batches)} | {
        name: _padded_training(peer, batches, data.length) for name, peer in peers.items()
    }
    milliseconds = _interleaved(runs, repeats)
    targets = statistics.mean(len(batch.targets) for batch in batches)
    return {
        "targets": round(targets),
        "mean_length": round(targets / BATCH, 1),
        "step_ms": milliseconds,
        "target_us": {name: round(each / targets * 1e3, 2) for name, each in milliseconds.items()},
        "ratio": {name: round(milliseconds[name] / milliseconds[OURS], 2) for name in peers},
        "largest_difference": difference,
    }


@torch.no_grad()
def _difference(ours: SASRec, peer: PaddedSASRec, batches: Sequence[SequenceBatch], data: HistoryData) -> float:
    """Returns the largest difference at real positions; peers that see padding are compared on full windows."""
    if peer.multihead:
        full = drawn(users=8, items=data.sizes()["items"], mean=1e9, length=data.length, seed=0)
        batches = _batches(
            HistoryData(HistorySource(lambda: full), BatchOptions(max_epochs=1, batch_size=8), length=data.length), 1
        )
    found = 0.0
    for batch in batches:
        items = _in_front(batch, batch.items, data.length)
        expected, outputs = ours.eval()(batch), peer.eval()(items)[items != 0]
        found = max(found, (outputs - expected).abs().max().item() / expected.abs().max().item())
    if not found <= LARGEST_DIFFERENCE:
        raise SystemExit(f"the padded net does not compute what ours computes: outputs differ by {found:.1e} of them")
    return found


def _in_front(batch: SequenceBatch, x: Tensor, length: int) -> Tensor:
    """Pads histories in front to (b, length); item numbers are increased by one, and zero is padding."""
    found = torch.zeros(len(batch), length, dtype=torch.int64)
    found[batch.users, length - (batch.ends[batch.users] - torch.arange(len(x)))] = x + 1
    return found


def _training(net: SASRec, loss: Loss, batches: Sequence[SequenceBatch]) -> Callable[[int], None]:
    optimizer = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98))

    def run(turn: int) -> None:
        step(net, loss, optimizer, batches[turn % len(batches)])

    return run


def _padded_training(net: PaddedSASRec, batches: Sequence[SequenceBatch], length: int) -> Callable[[int], None]:
    optimizer = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98))
    parts = []
    for batch in batches:
        negative = torch.randint(net.items.num_embeddings - 1, batch.targets.shape)
        parts.append([_in_front(batch, x, length) for x in (batch.items, batch.targets, negative)])

    def run(turn: int) -> None:
        net.train()
        optimizer.zero_grad()
        found = net.loss(*parts[turn % len(parts)])
        found.backward()
        optimizer.step()
        found.item()

    return run


def _recbole(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    data = _movielens(options, eval_batch=256)
    batches = _batches(data, 6)
    targets = statistics.mean(len(batch.targets) for batch in batches)
    turns = max(3, options.repeats // 4)
    for name, loss, kind in (("one negative", BCE(), "BPR"), ("full softmax", FullSoftmax(), "CE")):
        net = _sasrec(data, 0.2)
        us: dict[str, float] = {}
        for size in THEIR_BATCHES:
            with tempfile.TemporaryDirectory() as folder:
                peer = _RecBole(options, folder, loss=kind, batch=size, rate=1e-3)
                theirs: list[float] = []

                def their_step(turn: int, peer: _RecBole = peer, theirs: list[float] = theirs) -> None:
                    done = peer.ask("train", steps=1)
                    theirs.append(done["seconds"][0] / done["targets"] * 1e6)

                runs = {OURS: _training(net, loss, batches), "RecBole": their_step}
                us[OURS] = _interleaved(runs, turns)[OURS] / targets * 1e3
                us[f"RecBole, {size} prefixes a batch"] = statistics.median(theirs[2:])
                if kind == "CE" and size == THEIR_BATCHES[-1]:
                    found["full ranking"] = _rankings(options, peer, net, data)
                found["about RecBole"] = peer.about
                peer.close()
        fastest = min(time for who, time in us.items() if who != OURS)
        found[name] = {
            "target_us": {who: round(each, 2) for who, each in us.items()},
            "ratio to the fastest": round(fastest / us[OURS], 1),
        }
    return found


def _rankings(options: argparse.Namespace, peer: _RecBole, net: SASRec, data: HistoryData) -> dict[str, Any]:
    """Returns users ranked per second, metrics included; RecBole is measured with several batch sizes."""
    sizes = {f"RecBole, {size} users a batch": size for size in EVAL_BATCHES}
    seconds: dict[str, list[float]] = {OURS: [], **{name: [] for name in sizes}}
    for _ in range(max(2, options.repeats // 10)):
        seconds[OURS].append(_evaluate(net, data)[1])
        for name, size in sizes.items():
            seconds[name].append(peer.ask("evaluate", users=size)["seconds"])
    medians, users = {name: statistics.median(each) for name, each in seconds.items()}, peer.about["users"]
    return {
        "users": users,
        "users_a_second": {name: round(users / each) for name, each in medians.items()},
        "ratio to the fastest": round(min(medians[name] for name in sizes) / medians[OURS], 2),
    }


@torch.no_grad()
def _evaluate(net: SASRec, data: HistoryData) -> tuple[float, float]:
    """Returns NDCG@10 of the validation users, as RecBole defines it, and the seconds that it takes."""
    net.eval()
    protocol, metrics = Protocol(ks=(10,), seen="rank"), RankMetrics((10,), data.sizes()["items"], lists=False)
    started = time.perf_counter()
    for batch in data.loader("val"):
        vectors = net.last(batch)
        metrics.update(protocol.rank(lambda items, of=vectors: net.scores(of, items), batch, lists=False).ranks)
    return float(metrics.compute()["ndcg@10"]), time.perf_counter() - started


def _quality(options: argparse.Namespace) -> dict[str, Any]:
    """Trains both until they reach the quality; the one with fewer seconds so far continues."""
    (users, rate), (theirs_batch, theirs_rate) = options.ours_trained, options.recbole_trained
    data = _movielens(options, batch=int(users), eval_batch=256)
    net, loss = _sasrec(data, 0.2), FullSoftmax()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, betas=(0.9, 0.98))
    with tempfile.TemporaryDirectory() as folder:
        peer = _RecBole(options, folder, loss="CE", batch=int(theirs_batch), rate=theirs_rate)

        def own() -> tuple[float, float]:
            started = time.perf_counter()
            for batch in data.train_dataloader():
                step(net, loss, optimizer, batch)
            return time.perf_counter() - started, _evaluate(net, data)[0]

        def theirs() -> tuple[float, float]:
            seconds = peer.ask("train", steps=20 if options.quick else 250)["with_loader"]
            return seconds, peer.ask("evaluate", users=EVAL_BATCHES[0])["ndcg@10"]

        runs: dict[str, Callable[[], tuple[float, float]]] = {OURS: own, "RecBole": theirs}
        curves: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        left = set(runs)
        while left:
            name = min(left, key=lambda each: curves[each][-1][0] if curves[each] else 0.0)
            seconds, reached = runs[name]()
            spent = seconds + (curves[name][-1][0] if curves[name] else 0.0)
            curves[name].append((round(spent, 1), round(reached, 4)))
            print(f"{name}: {spent:.0f} s, NDCG@10 {reached:.4f}", file=sys.stderr, flush=True)
            if reached >= GOAL or spent > 3600 * options.hours:
                left.discard(name)
        peer.close()
    reached_by = {name: curve[-1][0] if curve[-1][1] >= GOAL else None for name, curve in curves.items()}
    both = None not in reached_by.values()
    return {
        "goal": f"NDCG@10 {GOAL}, full ranking of the validation users, seen items ranked too",
        "batch and rate": {OURS: options.ours_trained, "RecBole": options.recbole_trained},
        "seconds": reached_by,
        "ratio": round(reached_by["RecBole"] / reached_by[OURS], 1) if both else None,  # type: ignore[operator]
        "curves": curves,
    }


def _million(options: argparse.Namespace) -> dict[str, Any]:
    sizes = {
        "items": 20_000 if options.quick else 1_000_000,
        "dim": 64,
        "steps": 2 if options.quick else 6,
        "users": 128 if options.quick else 512,
        "eval_batch": 128,
    }
    names: list[str | None] = [None, *(name for name in LOSSES if name != "full softmax")]
    return {name or "full ranking": _scaled(options, "million", loss=name, **sizes) for name in names}


def _stream(options: argparse.Namespace) -> dict[str, Any]:
    counts = (20_000, 200_000) if options.quick else (1_000_000, 10_000_000)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            table = str(Path(folder) / f"{count}.csv")
            _scaled(options, "generate", table=table, count=count, users=count // 100, items=20_000)
            found[f"{count:,}"] = _scaled(
                options, "stream", table=table, length=200, dim=DIM, layers=LAYERS, batch=BATCH
            )
    few, many = found.values()
    total = [each["read_s"] + each["epoch_s"] for each in (few, many)]
    return found | {"time_ratio": round(total[1] / total[0], 2)}


def _scaled(options: argparse.Namespace, job: str, **rest: Any) -> dict[str, Any]:
    """Runs a job of recommendation_scale.py."""
    rest |= {"threads": options.threads, "keep_freed_memory": options.allocator == "keeping"}
    script = str(_HERE / "recommendation_scale.py")
    done = subprocess.run(
        [sys.executable, script, job, json.dumps(rest)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class _RecBole:
    """The process of recbole_worker.py."""

    def __init__(self, options: argparse.Namespace, folder: str, **rest: Any) -> None:
        sizes = {"length": 200, "dim": DIM, "layers": LAYERS, "dropout": 0.2, "seed": 0, "threads": options.threads}
        rest |= sizes | {"pairs": str(Path(options.root).resolve() / "movielens" / "ml-1m.txt"), "folder": folder}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if options.allocator == "keeping":  # what `disable_malloc_trim` sets
            environment |= {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
        self.process = subprocess.Popen(
            [options.recbole, str(_HERE / "recbole_worker.py"), json.dumps(rest)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env=environment,
        )
        self.about = self._answer()

    def ask(self, what: str, **rest: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what} | rest) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"RecBole ended with {self.process.wait()}; run recbole_worker.py by hand to see why")
        found: dict[str, Any] = json.loads(line)
        return found


def _movielens(options: argparse.Namespace, batch: int = BATCH, eval_batch: int | None = None) -> HistoryData:
    return published(
        name="ml_1m", root=options.root, max_epochs=1, batch_size=batch, eval_batch_size=eval_batch, length=200
    )


def _batches(data: HistoryData, count: int) -> list[SequenceBatch]:
    loader = iter(data.train_dataloader())
    return [next(loader) for _ in range(count)]


def _sasrec(data: HistoryData, dropout: float) -> SASRec:
    torch.manual_seed(0)
    return sasrec(data, dim=DIM, layers=LAYERS, dropout=dropout)


def _interleaved(runs: dict[str, Callable[[int], None]], repeats: int) -> dict[str, float]:
    """Returns median milliseconds; the sides take turns, so that other load on the machine affects them alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        # the second one starts with warm caches, so the order alternates too
        for name in sorted(runs, reverse=bool(turn % 2)):
            started = time.perf_counter()
            runs[name](turn)
            if turn >= 2:
                times[name].append((time.perf_counter() - started) * 1e3)
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


if __name__ == "__main__":
    main()
