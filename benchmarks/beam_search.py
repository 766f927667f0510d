"""Measures searches in CPU time of one thread: against a loop over sentences, with copied keys, and by length.

    python benchmarks/beam_search.py

The decoders are those of the tests: recurrent ones with additive and dot attention, and a Transformer of three layers,
over sources of various lengths with padding. No text ends before its largest length, so that every side makes as many
tokens. `loop` searches one sentence after another. `copied` keeps a copy of the source's keys for every hypothesis; its
texts are the same.

`alone` is one step of the attention site: with shared keys, with keys that are copied at every step, and with keys that
were repeated once, as if no hypothesis ever changed places. The last figures are the time per token of texts of growing
length: it stays the same for recurrent decoders, and a Transformer reads all positions so far. The sides alternate; the
output has medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "decoding"))

from decoder_cases import END, Recurrent, Source, Transformer, begins  # noqa: E402
from filing import command, file  # noqa: E402

from zoo.attention import Additive, AttentionFactory, DenseSupport, Dot, MultiheadAttention, Softmax  # noqa: E402
from zoo.attention.attention_state import flatten_beams  # noqa: E402
from zoo.decoding import BeamSearch, Constraints  # noqa: E402
from zoo.memory import disable_malloc_trim  # noqa: E402
from zoo.training.environment import find_commit  # noqa: E402


class Copied:
    """The same decoder with every hypothesis as a sentence of its own: `reorder` copies the keys of its source."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    def start(self, source: Source) -> tuple[Any, int]:
        return self.decoder.start(source), 1

    def step(self, tokens: Tensor, state: tuple[Any, int]) -> tuple[Tensor, tuple[Any, int]]:
        logits, after = self.decoder.step(tokens.flatten().unsqueeze(1), state[0])
        return logits.view(*tokens.shape, -1), (after, state[1])

    def reorder(self, state: tuple[Any, int], beams: Tensor) -> tuple[Any, int]:
        return self.decoder.select(state[0], flatten_beams(beams, state[1])), beams.shape[1]

    def select(self, state: tuple[Any, int], sentences: Tensor) -> tuple[Any, int]:
        rows = sentences.unsqueeze(1) * state[1] + torch.arange(state[1])
        return self.decoder.select(state[0], rows.flatten()), state[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--keys", type=int, default=40, help="length of the longest source")
    parser.add_argument("--longest", type=int, default=20, help="number of tokens of every text")
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--width", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    disable_malloc_trim()  # as `zoo train` does, for all sides
    lengths = torch.randint(options.keys // 4, options.keys + 1, (options.sentences,))
    real = torch.arange(options.keys) < lengths.unsqueeze(1)
    source = Source(torch.randn(options.sentences, options.keys, options.dim), real)
    decoders: dict[str, Any] = {
        "additive": Recurrent(Additive, options.dim, options.words, tracks=False),
        "dot": Recurrent(Dot, options.dim, options.words, tracks=False),
        "transformer": Transformer(None, options.dim, options.words, layers=3),
    }
    result: dict[str, Any] = {"alone": {}, "ms_per_token": {}, "by_length": {}}
    for score in (Additive, Dot):
        ms = result["alone"][score.__name__] = alone(score, source, options)
        print(f"{score.__name__} alone: " + ", ".join(f"{side} {each:.3f} ms" for side, each in ms.items()))
    for name, decoder in decoders.items():
        decoder.eval()
        ms = result["ms_per_token"][name] = measured(decoder, source, options)
        print(f"{name}: " + ", ".join(f"{side} {each:.3f} ms per token" for side, each in ms.items()))
        print(f"  x{ms['loop'] / ms['search']:.2f} of a loop, x{ms['copied'] / ms['search']:.2f} of copied keys")
        by = result["by_length"][name] = by_length(decoder, source, options)
        print("  by length: " + ", ".join(f"{length} {each:.3f}" for length, each in by.items()) + " ms per token")
    result |= {"threads": 1, "torch": torch.__version__, "command": command(), "commit": find_commit()}
    file(result, options.out)


def measured(decoder: Any, source: Source, options: argparse.Namespace) -> dict[str, float]:
    """Returns the CPU time per token of each side, in milliseconds."""

    def loop() -> list[Any]:
        alone = (source[[number]] for number in range(options.sentences))
        return [found for each in alone for found in texts(decoder, each, options.width, options.longest)]

    sides = {
        "search": lambda: texts(decoder, source, options.width, options.longest),
        "copied": lambda: texts(Copied(decoder), source, options.width, options.longest),
        "loop": loop,
    }
    found = [side() for side in sides.values()]
    assert found[0] == found[1] == found[2], "the sides have made different texts"
    ms = interleaved(sides, options.repeats)
    return {side: each / options.sentences / options.longest for side, each in ms.items()}


@torch.no_grad()
def alone(score: Any, source: Source, options: argparse.Namespace) -> dict[str, float]:
    """Returns the CPU time of one step of a site, for the hypotheses of all sentences, in milliseconds."""
    layer = MultiheadAttention(
        dim=options.dim, heads=1, attend=AttentionFactory(score=score, normalizer=Softmax)
    ).eval()
    memory = layer.prepare(source.x, DenseSupport.from_key_mask(source.real))
    query = torch.randn(options.sentences, options.width, options.dim)
    rows, beams = query.view(-1, 1, options.dim), torch.randint(options.width, query.shape[:2])
    repeated = memory.reorder(torch.arange(options.sentences).repeat_interleave(options.width))
    flat = flatten_beams(beams, options.width)
    sides = {
        "shared": lambda: layer.attend_step(query, memory.select_rows(beams), parallel_hypotheses=True)[0],
        "copied": lambda: layer.attend_step(rows, repeated.reorder(flat))[0],
        "repeated": lambda: layer.attend_step(rows, repeated)[0],
    }
    torch.testing.assert_close(sides["shared"](), sides["repeated"]().view(query.shape))
    return interleaved(sides, 5 * options.repeats)


def by_length(decoder: Any, source: Source, options: argparse.Namespace) -> dict[int, float]:
    """Returns the CPU time per token of texts of each length, in milliseconds."""
    few = source[[0, 1, 2, 3]]
    lengths = [options.longest * times for times in (1, 4, 16)]
    sides: dict[int, Callable[[], Any]] = {
        length: lambda length=length: texts(decoder, few, options.width, length)  # type: ignore[misc]
        for length in lengths
    }
    ms = interleaved(sides, max(1, options.repeats // 2))
    return {length: each / 4 / length for length, each in ms.items()}


def texts(decoder: Any, source: Source, width: int, longest: int) -> list[tuple[int, ...]]:
    search = BeamSearch(width=width, constraints=Constraints(never=(END,)))
    return [found.tokens for [found] in search(decoder, source, begins(len(source.x)), end=END, longest=longest)]


def interleaved(sides: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """Returns the median CPU time of each side in milliseconds."""
    times: dict[Any, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, run in sides.items():
            started = time.process_time_ns()
            run()
            times[side].append((time.process_time_ns() - started) / 1e6)
    return {side: statistics.median(each) for side, each in times.items()}


if __name__ == "__main__":
    main()
