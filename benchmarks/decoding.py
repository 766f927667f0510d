"""Measures one decoding step in CPU time of one thread, against the same formulas written by hand.

    python benchmarks/decoding.py

The cases are additive attention to 64 sentences of 20 words and location-aware attention to 8 recordings of 400 frames,
with padding and a source that is prepared once, each against a few lines of torch; and a step of self-attention at
16,000 positions: over all keys, in a window, and with the sums of linear attention. Steps alternate between the two
sides. The output has medians and their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filing import command, file
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import (
    Additive,
    Attention,
    AttentionFactory,
    DenseSupport,
    LinearAttention,
    LocationAware,
    MechanismFactory,
    MultiheadAttention,
    ScaledDot,
    SlidingWindow,
    Softmax,
)
from zoo.memory import disable_malloc_trim
from zoo.training.environment import find_commit

Step = Callable[[], Any]
LONG = 16_000
WINDOW = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    disable_malloc_trim()  # as `zoo train` does, for both sides
    result: dict[str, Any] = {"ms": {}, "ratio": {}}
    with torch.no_grad():
        for name, (ours, by_hand) in {"additive, 64 x 20": additive(), "location-aware, 8 x 400": location()}.items():
            ms = _interleaved({"ours": ours, "by hand": by_hand}, options.steps)
            result["ms"][name], result["ratio"][name] = ms, round(ms["ours"] / ms["by hand"], 3)
            print(f"{name}: {ms['ours']:.3f} ms, by hand {ms['by hand']:.3f} ms, x{result['ratio'][name]:.2f}")
        ms = _interleaved(own(), max(10, options.steps // 5))
        result["ms"][f"own positions, {LONG}"] = ms
        print(f"a step at {LONG:,} positions: " + ", ".join(f"{kind} {each:.3f} ms" for kind, each in ms.items()))
    result |= {"threads": 1, "torch": torch.__version__, "command": command(), "commit": find_commit()}
    file(result, options.out)


def additive(batch: int = 64, keys: int = 20, dim: int = 256) -> tuple[Step, Step]:
    """Times v · tanh(q + k), softmax and sum (Bahdanau et al. 2015)."""
    attend = Attention(Additive(dim=dim, heads=1), Softmax()).eval()
    query, key, value, real = _inputs(batch, keys, dim)
    support = DenseSupport.from_key_mask(real)
    memory = attend.prepare(key[:, None], value[:, None], support)
    vector, forbidden = attend.score.vector[0], ~real

    def by_hand() -> tuple[Tensor, Tensor]:
        scores = torch.tanh(query + key) @ vector
        weights = scores.masked_fill(forbidden, -torch.inf).softmax(-1)
        return (weights.unsqueeze(1) @ value).squeeze(1), weights

    def ours() -> tuple[Tensor, Any]:
        return attend.read(query[:, None], memory)

    _check(ours, by_hand)
    return ours, by_hand


def location(batch: int = 8, keys: int = 400, dim: int = 128) -> tuple[Step, Step]:
    """Times v · tanh(q + k + U f + b), with f the filtered previous weights (Chorowski et al. 2015)."""
    attend = Attention(LocationAware(dim=dim, heads=1, filters=10, kernel_size=31), Softmax()).eval()
    query, key, value, real = _inputs(batch, keys, dim)
    support = DenseSupport.from_key_mask(real)
    memory = attend.prepare(key[:, None], value[:, None], support)
    score, forbidden = attend.score, ~real
    state = attend.start(query[:, None], memory.key, support)
    state = attend.read(query[:, None], memory, None, state)[1]
    previous, total = state.weights[:, 0], state.total[:, 0]

    def by_hand() -> tuple[Tensor, Tensor, Tensor]:
        seen = F.conv1d(previous, score.filters[0].unsqueeze(1), padding=15)
        hidden = torch.tanh(query + key + seen.transpose(1, 2) @ score.from_filters[0] + score.bias[0])
        weights = (hidden @ score.vector[0]).masked_fill(forbidden, -torch.inf).softmax(-1)
        return (weights.unsqueeze(1) @ value).squeeze(1), weights, total + weights.unsqueeze(1)

    def ours() -> tuple[Tensor, Any]:
        return attend.read(query[:, None], memory, None, state)

    _check(ours, by_hand)
    return ours, by_hand


def own(batch: int = 1, dim: int = 256, heads: int = 4) -> dict[str, Step]:
    """Times the next position of a sequence that attends to itself."""
    kinds = {
        "dense": AttentionFactory(score=ScaledDot, normalizer=Softmax),
        "window": AttentionFactory(score=ScaledDot, normalizer=Softmax, restrict=partial(SlidingWindow, radius=WINDOW)),
        "linear": MechanismFactory(LinearAttention),
    }
    x, found = torch.randn(batch, LONG, dim), {}
    for name, attend in kinds.items():
        layer = MultiheadAttention(dim=dim, heads=heads, attend=attend).eval()
        found[name] = _advancing(layer, x)
    return found


def _advancing(layer: MultiheadAttention, x: Tensor) -> Step:
    state = layer.step(x[:, -1:], layer.prepare(x[:, :-1]))[1]

    def step() -> None:
        nonlocal state
        _, state = layer.step(x[:, :1], state)

    return step


def _inputs(batch: int, keys: int, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    real = torch.arange(keys) < torch.randint(keys // 2, keys + 1, (batch, 1))
    return torch.randn(batch, 1, dim), torch.randn(batch, keys, dim), torch.randn(batch, keys, dim), real


def _check(ours: Step, by_hand: Step) -> None:
    torch.testing.assert_close(ours()[0].flatten(1), by_hand()[0])


def _interleaved(sides: dict[str, Step], steps: int) -> dict[str, float]:
    """Returns the median CPU time of each side in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(steps + 10):
        for name, step in sides.items():
            started = time.process_time_ns()
            step()
            if number >= 10:
                times[name].append((time.process_time_ns() - started) / 1e6)
    return {name: round(statistics.median(each), 4) for name, each in times.items()}


if __name__ == "__main__":
    main()
