"""Measures large catalogues and long files, each in its own process, whose peak memory is that of the job.

    python benchmarks/recommendation_scale.py million '{"loss": "sampled_softmax", "items": 1000000, ...}'
    python benchmarks/recommendation_scale.py stream '{"table": "x.csv", ...}'

benchmarks/recommendation.py starts these; each prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoo.attention import AttentionFactory, ScaledDot, Softmax
from zoo.memory import disable_malloc_trim
from zoo.tasks.batching import BatchOptions
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.datamodule import HistoryData, HistorySource
from zoo.tasks.recommendation.datasets import interactions
from zoo.tasks.recommendation.losses import BCE, FullSoftmax, Loss, SampledSoftmax
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.ranking.protocol import Protocol

_CHUNK = 1_000_000

LOSSES: dict[str, Callable[[], Loss]] = {
    "bce": BCE,
    "bce, 64 shared negatives": lambda: BCE(negatives=64, shared=True),
    "sampled softmax, 1024 negatives": lambda: SampledSoftmax(negatives=1024),
    "full softmax": FullSoftmax,
}


def sasrec(data: HistoryData, *, dim: int, layers: int, dropout: float) -> SASRec:
    """Makes SASRec as in the paper, with one head."""
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=dropout)
    return SASRec(**data.sizes(), attend=attend, dim=dim, layers=layers, heads=1, dropout=dropout)


def step(net: SASRec, loss: Loss, optimizer: torch.optim.Optimizer, batch: SequenceBatch) -> float:
    """Trains one step in which every position has a target; returns the loss per target."""
    net.train()
    optimizer.zero_grad()
    found = loss(net(batch), batch.targets, net.items.weight, batch.users, batch) / len(batch.targets)
    found.backward()
    optimizer.step()
    return found.item()


def drawn(*, users: int, items: int, mean: float, length: int, seed: int) -> Log:
    """Draws random histories of geometric length; training reads `mean` items on average, at most `length`."""
    generator = np.random.default_rng(seed)
    lengths = np.minimum(generator.geometric(1 / (mean - 1), users) + 1, length) + 3  # a target more, and two held out
    offsets = np.concatenate([[0], lengths.cumsum()])
    chosen = generator.integers(0, items, offsets[-1]).astype(np.int32)
    return Log(
        items=chosen, offsets=offsets, item_names=list(map(str, range(items))), user_names=list(map(str, range(users)))
    )


def million(*, loss: str | None, items: int, dim: int, steps: int, users: int, eval_batch: int) -> dict[str, Any]:
    """Measures training steps with one loss and a fused optimizer, or without a loss a full ranking of all users."""
    log = drawn(users=users, items=items, mean=100, length=200, seed=0)
    data = HistoryData(
        HistorySource(lambda: log), BatchOptions(max_epochs=1, batch_size=128, eval_batch_size=eval_batch), length=200
    )
    torch.manual_seed(0)
    net = sasrec(data, dim=dim, layers=2, dropout=0.2)
    before = _peak()
    if loss is None:
        seconds = ranking(net, data, Protocol(), "test")
        found = {"users": users, "users_a_second": round(users / seconds, 1)}
    else:
        optimizer = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98), fused=True)
        batch, times = next(iter(data.train_dataloader())), []
        for _ in range(steps):
            started = time.perf_counter()
            step(net, LOSSES[loss](), optimizer, batch)
            times.append(time.perf_counter() - started)
        found = {"targets": len(batch.targets), "step_ms": round(statistics.median(times[1:]) * 1e3, 1)}
    return found | {"mib_before": before, "peak_mib": _peak()}


@torch.no_grad()
def ranking(net: SASRec, data: HistoryData, protocol: Protocol, split: str) -> float:
    """Returns the seconds of a full ranking with lists of the best items, loading included."""
    net.eval()
    started = time.perf_counter()
    for batch in data.loader(split):
        vectors = net.last(batch)
        protocol.rank(lambda items, of=vectors: net.scores(of, items), batch)
    return time.perf_counter() - started


def stream(*, table: str, length: int, dim: int, layers: int, batch: int) -> dict[str, Any]:
    """Reads and indexes a table, and trains a model on it for one epoch."""
    start = _peak()
    began = time.perf_counter()
    data = interactions(table=table, max_epochs=1, batch_size=batch, length=length)
    data.setup()
    log, read = data.log, time.perf_counter()
    after_reading = _peak()
    torch.manual_seed(0)
    net = sasrec(data, dim=dim, layers=layers, dropout=0.2)
    optimizer, targets = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98)), 0
    for each in data.train_dataloader():
        step(net, BCE(), optimizer, each)
        targets += len(each.targets)
    return {
        "interactions": len(log.items),
        "users": len(log.user_names),
        "targets": targets,
        "read_s": round(read - began, 2),
        "epoch_s": round(time.perf_counter() - read, 2),
        "mib_before": start,
        "mib_after_reading": after_reading,
        "peak_mib": _peak(),
    }


def generate(*, table: str, count: int, users: int, items: int) -> dict[str, Any]:
    """Writes a table of interactions in chunks, ordered by time, with users mixed."""
    generator = np.random.default_rng(0)
    with Path(table).open("w") as out:
        out.write("user,item,timestamp\n")
        for start in range(0, count, _CHUNK):
            size = min(_CHUNK, count - start)
            user, item = generator.integers(users, size=size), generator.zipf(1.2, size) % items
            rows = zip(user.tolist(), item.tolist(), range(start, start + size), strict=True)
            out.writelines(f"u{u},i{i},{1_000_000_000 + t}\n" for u, i, t in rows)
    return {"interactions": count}


def _peak() -> int:
    """Returns the peak memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    torch.set_num_threads(options.pop("threads"))
    if options.pop("keep_freed_memory"):
        disable_malloc_trim()
    warnings.filterwarnings("ignore")
    print(json.dumps({"million": million, "stream": stream, "generate": generate}[sys.argv[1]](**options)))
