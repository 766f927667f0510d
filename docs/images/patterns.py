"""Draws what each pattern of the core does, from the core itself: `python docs/images/patterns.py`.

Uniform weights show who may attend to whom; where weights are the pattern, random scores of one seed show them.
Rows are queries, columns keys; white is no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from zoo.attention import (
    ALiBi,
    Attention,
    AttentionState,
    BigBird,
    Constant,
    DenseSupport,
    Dot,
    EdgeSupport,
    Entmax15,
    Gaussian,
    HardStraightThrough,
    LocalM,
    LocalP,
    Monotonic,
    MonotonicChunkwise,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    Sparsemax,
    T5Bias,
    Uniform,
    record,
)

FOLDER = Path(__file__).resolve().parent / "patterns"
LENGTH, GRID = 48, 8


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PATTERNS.items():
        torch.manual_seed(0)
        _draw(name, draw())


def uniform(support: DenseSupport | None = None, **options: Any) -> Tensor:
    """Every permitted key weighs the same."""
    return weights(Attention(Constant(), Uniform(), **options), LENGTH, support)


def weights(
    attend: Attention,
    length: int,
    support: DenseSupport | None = None,
    queries: int | None = None,
    sharpness: float = 1.5,
) -> Tensor:
    """What a recorder sees of one head; queries and keys at random, neighbours alike."""
    key = _smooth(torch.randn(1, 1, length, 8))
    query = sharpness * (key if queries is None else _smooth(torch.randn(1, 1, queries, 8)))
    support = support or DenseSupport()
    state = attend.start(query, key, support) if hasattr(attend.normalizer, "start") else None
    with torch.no_grad(), record(attend) as maps:
        attend(query, key, key, support, state)
    found = maps[""]
    return found.support.to_dense(found.weights, query.shape[2], length)[0, 0]


def _smooth(x: Tensor) -> Tensor:
    kernel = torch.tensor([0.5, 0.8, 1.0, 0.8, 0.5]) / 1.8
    return nn.functional.conv1d(x[0, 0].T.unsqueeze(1), kernel[None, None], padding=2).squeeze(1).T[None, None]


def padding() -> Tensor:
    return uniform(DenseSupport.from_key_mask(torch.arange(LENGTH)[None] < 34))


def edges() -> Tensor:
    pairs = torch.randint(0, LENGTH, (2, 3 * LENGTH))
    support = EdgeSupport.from_edges(pairs, LENGTH, self_loops=True)
    found = Attention(Constant(), Uniform()).weights(*torch.zeros(2, LENGTH, 1, 1), support)
    return support.to_dense(found, LENGTH, LENGTH)[0, 0]


def windows_of_images() -> Tensor:
    attend = Attention(Constant(), Uniform(), restrict=ShiftedWindows(window=4, shift=2, height=GRID, width=GRID))
    return weights(attend, GRID * GRID)


def monotonic(normalizer: type[nn.Module], **options: Any) -> Tensor:
    """Aligned by energies that rise along a diagonal."""
    steps, at = torch.arange(24.0).unsqueeze(1) * 2, torch.arange(float(LENGTH))
    energies = 3 - (steps - at).abs() / 1.5
    made = normalizer(heads=1, noise=0.0, offset=0.0, **options)
    if normalizer is MonotonicChunkwise:
        energies = torch.stack([energies, torch.randn_like(energies)])[:, None, None]
    else:
        energies = energies[None, None]
    nothing = torch.zeros(1, 1, 1, LENGTH)
    state = AttentionState(weights=made.start(nothing), total=nothing)
    with torch.no_grad():
        found = made(energies, DenseSupport(), state)
    return getattr(found, "weights", found)[0, 0]


def biased(position: nn.Module, **support: bool) -> Tensor:
    attend = Attention(Constant(), Softmax())
    attend.set_position(position)
    return weights(attend, LENGTH, DenseSupport(**support))


def buckets() -> Tensor:
    position = T5Bias(heads=1)
    nn.init.normal_(next(position.parameters()), std=0.5)
    return biased(position)


PATTERNS: dict[str, Callable[[], Tensor]] = {
    "padding": padding,
    "causal": lambda: uniform(DenseSupport(causal=True)),
    "window": lambda: uniform(restrict=SlidingWindow(radius=4)),
    "window-causal": lambda: uniform(DenseSupport(causal=True), restrict=SlidingWindow(radius=8)),
    "dilated": lambda: uniform(restrict=SlidingWindow(radius=3, dilation=3)),
    "global": lambda: uniform(restrict=SlidingWindow(radius=3, global_tokens=2)),
    "bigbird": lambda: uniform(restrict=BigBird(block=4, global_blocks=1, window_blocks=3, random_blocks=2)),
    "shifted-windows": windows_of_images,
    "local-m": lambda: weights(Attention(Dot(), Softmax(), restrict=LocalM(radius=5)), LENGTH),
    "local-p": lambda: weights(Attention(Dot(), Gaussian(), restrict=LocalP(dim=8, heads=1, radius=6)), LENGTH),
    "edges": edges,
    "softmax": lambda: weights(Attention(Dot(), Softmax()), LENGTH),
    "entmax": lambda: weights(Attention(Dot(), Entmax15()), LENGTH),
    "sparsemax": lambda: weights(Attention(Dot(), Sparsemax()), LENGTH),
    "hard": lambda: weights(Attention(Dot(), HardStraightThrough()).eval(), LENGTH),
    "monotonic": lambda: monotonic(Monotonic),
    "mocha": lambda: monotonic(MonotonicChunkwise, chunk=5),
    "alibi": lambda: biased(ALiBi(heads=4), causal=True),
    "t5": buckets,
}


def _draw(name: str, found: Tensor) -> None:
    """Each row by its own highest weight, so that a row with many keys is as visible as one with few."""
    shown = found / found.amax(-1, keepdim=True).clamp(min=1e-9)
    figure, axes = plt.subplots(figsize=(1.8, 1.8 * max(0.5, shown.shape[0] / shown.shape[1])), dpi=100)
    axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])
    figure.savefig(FOLDER / f"{name}.png", bbox_inches="tight", pad_inches=0.03, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
