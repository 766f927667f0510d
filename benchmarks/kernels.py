"""Times every kernel that is chosen by processor against its alternative, by size.

    python benchmarks/kernels.py                  # float32 and bfloat16, two threads
    python benchmarks/kernels.py --threads 1 --repeats 15

The figures are medians of CPU time for forward and backward, with the two kernels in turns. A ratio above 1 means that
the alternative in `zoo/attention` is that many times as fast as PyTorch's usual kernel; `*` marks the sizes for which
it is chosen on this processor. If a mark and a ratio clearly disagree, the choice is wrong for this processor.
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

from zoo.attention.cpu import PROCESSOR
from zoo.attention.kernels.cpu.causal import causal_attention, use_causal_blocks
from zoo.attention.kernels.cpu.softmax import explicit_softmax, use_explicit_softmax
from zoo.memory import disable_malloc_trim
from zoo.training.environment import find_commit

ROWS = [(8, 16), (17, 16), (36, 16), (65, 16), (97, 16), (17, 64), (65, 64), (197, 64), (256, 16), (384, 64)]
"""Numbers of keys in a row, and widths of a head."""
HEADS = 64
"""Number of heads of all examples together, for the longest rows; shorter rows have more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9, help="turns of each kernel")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    found = _attention(options.repeats)
    result = {
        "choices": found,
        "threads": options.threads,
        "torch": torch.__version__,
        "command": command(),
        "commit": find_commit(),
    }
    file(result, options.out)


def _attention(repeats: int) -> list[dict[str, Any]]:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for keys, width in ROWS:
            heads = min(512, HEADS * 384 // keys)
            query, key, value = _drawn(heads // 4, keys, 3, 4, width, dtype=dtype).permute(2, 0, 3, 1, 4)
            leaves, scale = (query, key, value), width**-0.5
            usual = partial(F.scaled_dot_product_attention, *leaves, scale=scale)
            own = partial(explicit_softmax, *leaves, scale=scale, dropout_p=0.0, enable_gqa=False)
            chosen = use_explicit_softmax(*leaves, False, PROCESSOR)
            name, said = f"{keys} keys of width {width}", str(dtype).removeprefix("torch.")
            found.append(_shown(f"written out, {name}", said, _interleaved(usual, own, leaves, repeats), chosen))
            for p in (0.0, 0.2):
                usual = partial(F.scaled_dot_product_attention, *leaves, is_causal=True, dropout_p=p, scale=scale)
                own = partial(causal_attention, *leaves, scale, p)
                chosen, times = use_causal_blocks(*leaves, p, PROCESSOR), _interleaved(usual, own, leaves, repeats)
                found.append(_shown(f"causal in blocks, {name}, dropout {p}", said, times, chosen))
    return found


def _drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def _interleaved(
    usual: Callable[[], Tensor], own: Callable[[], Tensor], leaves: tuple[Tensor, ...], repeats: int
) -> dict[str, float]:
    """Returns median milliseconds of CPU time over all threads, forward and backward."""
    times: dict[str, list[float]] = {"usual": [], "own": []}
    gradient = torch.ones_like(usual().detach())
    for turn in range(repeats + 2):
        for name, run in ((("usual", usual), ("own", own)), (("own", own), ("usual", usual)))[turn % 2]:
            started = time.process_time()
            torch.autograd.grad(run(), leaves, gradient)
            if turn >= 2:
                times[name].append((time.process_time() - started) * 1e3)
    return {name: round(statistics.median(each), 3) for name, each in times.items()}


def _shown(name: str, dtype: str, times: dict[str, float], is_chosen: bool) -> dict[str, Any]:
    ratio = times["usual"] / times["own"]
    print(f"{'*' if is_chosen else ' '} {ratio:5.2f}  {dtype:8}  {name}", flush=True)
    return {"choice": name, "dtype": dtype, "ms": times, "ratio": round(ratio, 3), "chosen": is_chosen}


if __name__ == "__main__":
    main()
