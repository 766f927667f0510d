"""Times the core's mechanisms at growing lengths against their peer packages: forward and backward, interleaved.

    python benchmarks/attention.py                       # 512 to 32,768 positions; about a quarter of an hour
    python benchmarks/attention.py --longest 4096 --kinds window performer
    python benchmarks/attention.py --maps                # memory of exporting the map of 32,768 positions

The input is one sequence with four heads of width 64 in float32, without a mask. Peers are installed by
benchmarks/peers.sh; missing ones are reported and left out. The output has medians, their ratios, the exponent of time
over length (least squares of the logarithms) and the peak memory that a step adds to an otherwise idle process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filing import command, file
from measuring import build_available
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    Attention,
    BigBird,
    DenseSupport,
    Entropy,
    LinearAttention,
    Linformer,
    Performer,
    Pooled,
    Rows,
    ScaledDot,
    SlidingWindow,
    Softmax,
    TopK,
    record,
)
from zoo.training.environment import find_commit

HEADS, WIDTH, WINDOW, FEATURES, SLOTS = 4, 64, 128, 256, 256
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
QUADRATIC = ("softmax",)
LONGEST_QUADRATIC = 8192
VIEWS: dict[str, Callable[[], Any]] = {
    "256 rows": lambda: Rows(256, 512),
    "pooled to 512 x 512": lambda: Pooled(512),
    "top 8 of each row": lambda: TopK(8),
    "entropy of each row": Entropy,
}


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    if options.peak:
        name, side, length = options.peak.rsplit(":", 2)
        print(_peak(name, side, int(length)))
        return
    if options.map_peak:
        print(_map_peak(options.map_peak, options.longest))
        return
    lengths = [n for n in LENGTHS if n <= options.longest]
    result: dict[str, Any] = {"kinds": {}, "maps": {}}
    if not options.maps:
        for name in options.kinds:
            result["kinds"][name] = _measured(name, lengths, options.repeats)
            _show(name, result["kinds"][name])
    if options.maps or not options.kinds_given:
        for name in VIEWS:
            result["maps"][name] = found = _in_a_process("--map-peak", name, "--longest", str(options.longest))
            print(f"map of {options.longest:,} positions, {name}: {found['mib']:.0f} MiB, {found['seconds']:.1f} s")
    result |= {
        "length": options.longest,
        "threads": options.threads,
        "torch": torch.__version__,
        "command": command(),
        "commit": find_commit(),
    }
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="what to measure; all if not given")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--repeats", type=int, default=30, help="of short inputs; long ones are repeated less")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--maps", action="store_true", help="the memory of exporting maps alone")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--map-peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.kinds_given = options.kinds is not None
    options.kinds = options.kinds or list(KINDS)
    return options


Step = Callable[[], Tensor]
"""Computes forward and backward of one module on one input, and returns the loss."""


def _attend(attend: nn.Module, n: int) -> Step:
    query, key, value = (_draw(1, HEADS, n, WIDTH) for _ in range(3))
    support = DenseSupport()
    return lambda: _backward(attend(query, key, value, support)[0], query, key, value)


def _function(function: Callable[..., Tensor], n: int) -> Step:
    query, key, value = (_draw(1, HEADS, n, WIDTH) for _ in range(3))
    return lambda: _backward(function(query, key, value), query, key, value)


def _draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def _backward(context: Tensor, *inputs: Tensor) -> Tensor:
    loss = context.square().mean()
    for x in inputs:
        x.grad = None
    loss.backward()
    return loss.detach()


def _softmax(n: int) -> Step:
    return _attend(Attention(ScaledDot(), Softmax()), n)


def _sdpa(n: int) -> Step:
    return _function(F.scaled_dot_product_attention, n)


def _window(n: int) -> Step:
    return _attend(Attention(ScaledDot(), Softmax(), restrict=SlidingWindow(radius=WINDOW)), n)


def _local_attention(n: int) -> Step:
    from local_attention import LocalAttention

    peer = LocalAttention(WINDOW, causal=False, look_backward=1, look_forward=1, use_rotary_pos_emb=False)
    return _function(peer, n)


def _big_bird(n: int) -> Step:
    return _attend(Attention(ScaledDot(), Softmax(), restrict=BigBird()), n)


def _linear(n: int) -> Step:
    return _attend(LinearAttention(), n)


def _linear_attention(n: int) -> Step:
    from performer_pytorch.performer_pytorch import linear_attention

    return _function(lambda q, k, v: linear_attention(F.elu(q) + 1, F.elu(k) + 1, v), n)


def _performer(n: int) -> Step:
    return _attend(Performer(dim=WIDTH, heads=HEADS, features=FEATURES), n)


def _fast_attention(n: int) -> Step:
    from performer_pytorch import FastAttention

    return _function(FastAttention(dim_heads=WIDTH, nb_features=FEATURES), n)


def _linformer(n: int) -> Step:
    return _attend(Linformer(dim=WIDTH, heads=HEADS, length=n, slots=SLOTS, share="heads"), n)


def _linformer_peer(n: int) -> Step:
    from linformer import LinformerSelfAttention

    peer = LinformerSelfAttention(HEADS * WIDTH, n, k=SLOTS, heads=HEADS)
    for name in ("to_q", "to_k", "to_v", "to_out"):  # the core alone, as on our side
        setattr(peer, name, nn.Identity())
    x = _draw(1, n, HEADS * WIDTH)
    return lambda: _backward(peer(x), x)


KINDS: dict[str, dict[str, Callable[[int], Step]]] = {
    "softmax": {"ours": _softmax, "F.scaled_dot_product_attention": _sdpa},
    "window": {"ours": _window, "local-attention": _local_attention},
    "bigbird": {"ours": _big_bird},
    "linear": {"ours": _linear, "performer-pytorch, elu + 1": _linear_attention},
    "performer": {"ours": _performer, "performer-pytorch": _fast_attention},
    "linformer": {"ours": _linformer, "linformer": _linformer_peer},
}


def _measured(name: str, lengths: list[int], repeats: int) -> dict[str, Any]:
    """Returns the median milliseconds and the peak memory of each side, by length."""
    sides, times, peaks = _present(name), {}, {}
    for n in lengths:
        if name in QUADRATIC and n > LONGEST_QUADRATIC:
            continue
        steps = {side: sides[side](n) for side in sides}
        times[n] = _interleaved(steps, repeats)
        peaks[n] = {side: _in_a_process("--peak", f"{name}:{side}:{n}") for side in sides}
    exponents = {side: _exponent({n: times[n][side] for n in times}) for side in sides}
    return {"ms": times, "peak_mib": peaks, "exponent": exponents}


def _present(name: str) -> dict[str, Callable[[int], Step]]:
    makers = KINDS[name]
    return {
        side: makers[side] for side in build_available({side: partial(makers[side], LENGTHS[0]) for side in makers})
    }


def _interleaved(steps: dict[str, Step], repeats: int) -> dict[str, float]:
    """Returns median milliseconds; the sides take turns, so that other load on the machine affects them alike."""
    times: dict[str, list[float]] = {side: [] for side in steps}
    for step in steps.values():
        step()
    started, turn = time.perf_counter(), 0
    while turn < repeats and (turn < 5 or time.perf_counter() - started < 60):
        # the second one starts with warm caches, so the order alternates too
        for side in sorted(steps, reverse=bool(turn % 2)):
            begun = time.perf_counter()
            steps[side]()
            times[side].append((time.perf_counter() - begun) * 1e3)
        turn += 1
    return {side: round(statistics.median(each), 3) for side, each in times.items()}


def _exponent(milliseconds: dict[int, float]) -> float:
    """Returns the slope of the logarithm of time over the logarithm of length."""
    x = [math.log(n) for n in milliseconds]
    y = [math.log(each) for each in milliseconds.values()]
    return round(statistics.linear_regression(x, y).slope, 3) if len(x) > 1 else math.nan


def _in_a_process(*arguments: str) -> Any:
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _peak(name: str, side: str, n: int) -> str:
    """Returns the MiB that a step adds to the memory of a process that already holds module and inputs."""
    step = KINDS[name][side](n)
    KINDS[name][side](LENGTHS[0])()  # what the first call loads is not the step's
    before = _start_of_peak()
    step()
    return json.dumps(round((_memory("VmHWM") - before) / 1024, 1))


def _map_peak(name: str, n: int) -> str:
    """Returns the MiB and seconds of one view of the map of one head, including the forward pass."""
    attend = Attention(ScaledDot(), Softmax())
    query, key, value = (torch.randn(1, 1, n, WIDTH) for _ in range(3))
    before, started = _start_of_peak(), time.perf_counter()
    with torch.no_grad(), record(attend, view=VIEWS[name]()) as maps:
        attend(query, key, value, DenseSupport())
    assert maps[""].weights.isfinite().all()
    seconds = time.perf_counter() - started
    return json.dumps({"mib": round((_memory("VmHWM") - before) / 1024, 1), "seconds": round(seconds, 2)})


def _start_of_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak (Linux)
    return _memory("VmRSS")


def _memory(what: str) -> int:
    """Returns a memory figure of this process in KiB, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def _show(name: str, found: dict[str, Any]) -> None:
    for side, exponent in found["exponent"].items():
        print(f"{name}, {side}: time grows with length to the power of {exponent:.2f}")
        for n, milliseconds in found["ms"].items():
            ours = milliseconds["ours"]
            against = "" if side == "ours" else f"  x{milliseconds[side] / ours:.2f}"
            print(f"  {n:>7,}  {milliseconds[side]:>10.1f} ms {found['peak_mib'][n][side]:>9.1f} MiB{against}")


if __name__ == "__main__":
    main()
