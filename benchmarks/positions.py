"""Compares how positions extrapolate beyond the training length: bits per character of a small causal model.

    python benchmarks/positions.py                           # every kind, one seed
    python benchmarks/positions.py --seeds 2 --out=results/attention-positions
    python benchmarks/positions.py --kinds alibi rotary --steps 300
    python benchmarks/positions.py --data $ZOO_DATA          # Multi30k's English sentences instead

The text is Python's language reference (`pydoc_data.topics`, PSF licence), with topics in alphabetical order and
repeated paragraphs removed; its last tenth is the test text. Two pre-norm blocks with 4 heads x 16 are trained on
pieces of 64 characters, which are the same for every kind of position.

At length n, the model predicts the last 64 of n characters, for every 64 characters of the test text after the first
512. Every column is therefore about the same characters, with more and more context. A loss from one column to the next
is the cost of a length that was not seen in training. Rotary scalings and the interpolation of learned vectors are
applied in evaluation only.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import math
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filing import command, file
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    ALiBi,
    AttentionFactory,
    DenseSupport,
    EncoderBlock,
    FeedForward,
    Interpolated,
    Learned,
    MultiheadAttention,
    NTKAware,
    Position,
    Rotary,
    ScaledDot,
    Shaw,
    Sinusoidal,
    Softmax,
    T5Bias,
    TransformerXL,
    YaRN,
)
from zoo.training.environment import find_commit

TRAINED = 64
LENGTHS = (64, 128, 256, 512)
DIM, HEADS, LAYERS, BATCH = 64, 4, 2, 32


class Kind(NamedTuple):
    """A kind of position: an embedding that is added to the inputs, or a position of the attention sites."""

    inputs: Callable[[], nn.Module] | None = None
    position: Callable[..., Position] | None = None


# as in T5, the last bucket begins at a quarter of the training length, so that every bucket is trained
KINDS: dict[str, Kind] = {
    "none": Kind(),
    "sinusoidal": Kind(inputs=partial(Sinusoidal, dim=DIM)),
    "learned": Kind(inputs=partial(Learned, dim=DIM, length=TRAINED, interpolate=True)),
    "rotary": Kind(position=Rotary),
    "alibi": Kind(position=ALiBi),
    "t5": Kind(position=partial(T5Bias, buckets=16, distance=TRAINED // 4, causal=True)),
    "shaw": Kind(position=partial(Shaw, distance=16)),
    "transformer-xl": Kind(position=TransformerXL),
}
NAMES = {
    "none": "none",
    "sinusoidal": "sinusoidal",
    "learned": "learned, stretched",
    "rotary": "rotary",
    "rotary+interpolated": "rotary, interpolated",
    "rotary+ntk": "rotary, NTK-aware",
    "rotary+yarn": "rotary, YaRN",
    "alibi": "ALiBi",
    "t5": "T5's buckets",
    "shaw": "Shaw",
    "transformer-xl": "Transformer-XL",
}
SCALINGS: dict[str, Callable[[float], Any]] = {
    "interpolated": Interpolated,
    "ntk": NTKAware,
    "yarn": partial(YaRN, trained=TRAINED, fast=8.0),  # the fastest pair turns 10 times in 64 characters, not 32
}


class Text(NamedTuple):
    source: str
    sha256: str
    train: Tensor
    test: Tensor
    alphabet: int


class CharacterModel(nn.Module):
    """A causal model of the next character."""

    def __init__(self, *, alphabet: int, kind: Kind) -> None:
        super().__init__()
        attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
        self.embed = nn.Embedding(alphabet, DIM)
        self.inputs = None if kind.inputs is None else kind.inputs()
        self.blocks = nn.ModuleList(
            EncoderBlock(
                dim=DIM,
                mixer=MultiheadAttention(dim=DIM, heads=HEADS, attend=attend, position=kind.position),
                feed_forward=FeedForward(dim=DIM, width=4 * DIM, activation=nn.GELU),
            )
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(DIM)
        self.out = nn.Linear(DIM, alphabet)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.embed(characters)
        x = x if self.inputs is None else self.inputs(x)
        support = DenseSupport(causal=True)
        for block in self.blocks:
            x = block(x, support)
        return self.out(self.norm(x))


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    text = _topics() if options.data is None else _multi30k(options.data)
    for seed in range(options.first, options.first + options.seeds):
        bits: dict[str, dict[str, float]] = {}
        about: dict[str, dict[str, float]] = {}
        for name in options.kinds:
            started = time.perf_counter()
            model, loss = _trained(KINDS[name], text, options.steps, seed)
            about[NAMES[name]] = {
                "train_bits": round(loss, 4),
                "parameters": sum(p.numel() for p in model.parameters()),
                "seconds": round(time.perf_counter() - started, 1),
            }
            readings = [None, *SCALINGS] if name == "rotary" else [None]
            for scaling in readings:
                shown = NAMES[name if scaling is None else f"{name}+{scaling}"]
                bits[shown] = {str(n): round(_read(model, text.test, n, scaling), 4) for n in LENGTHS}
                print(f"seed {seed}, {shown}: {bits[shown]}, {about[NAMES[name]]}", flush=True)
        result = {
            "seed": seed,
            "bits_per_character": bits,
            "training": about,
            "trained_length": TRAINED,
            "steps": options.steps,
            "text": {
                "source": text.source,
                "sha256": text.sha256,
                "train": len(text.train),
                "test": len(text.test),
                "alphabet": text.alphabet,
            },
            "threads": options.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "command": command(),
            "commit": find_commit(),
        }
        file(result, options.out / f"{seed}.json" if options.out else None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="this many seeds")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder with multi30k/; Python's reference if not given")
    parser.add_argument("--out", type=Path, help="write <seed>.json to this folder: --out=FOLDER")
    return parser.parse_args()


def _topics() -> Text:
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    seen, kept = set(), []
    for name in sorted(topics):
        for paragraph in topics[name].strip().split("\n\n"):
            words = " ".join(paragraph.split())
            if words not in seen:
                seen.add(words)
                kept.append(paragraph)
    return _text(f"pydoc_data.topics of Python {platform.python_version()}", "\n\n".join(kept))


def _multi30k(root: Path) -> Text:
    sentences = gzip.decompress((root / "multi30k" / "train.en.gz").read_bytes()).decode()
    return _text("multi30k/train.en.gz, the first 500,000 characters", sentences[:500_000])


def _text(source: str, text: str) -> Text:
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    codes = torch.tensor([alphabet[character] for character in text])
    split = len(codes) * 9 // 10
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Text(source, digest, codes[:split], codes[split:], len(alphabet))


def _trained(kind: Kind, text: Text, steps: int, seed: int) -> tuple[CharacterModel, float]:
    """Trains a model; returns it and its bits per character in training, the mean of the last hundred steps."""
    torch.manual_seed(seed)
    model = CharacterModel(alphabet=text.alphabet, kind=kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps, pct_start=0.1)
    draw = torch.Generator().manual_seed(seed)
    pieces = text.train.unfold(0, TRAINED + 1, 1)
    losses = []
    for _ in range(steps):
        piece = pieces[torch.randint(len(pieces), (BATCH,), generator=draw)]
        loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item() / math.log(2))
    return model.eval(), statistics.mean(losses[-100:])


@torch.inference_mode()
def _read(model: CharacterModel, test: Tensor, length: int, scaling: str | None) -> float:
    """Returns bits per character of the last characters of inputs of a length, which are the same for every length."""
    factor = length / TRAINED
    for block in model.blocks:
        position = block.mixer.attend.position
        if isinstance(position, Rotary):
            position.scaling = None if scaling is None or factor == 1.0 else SCALINGS[scaling](factor)
    ends = torch.arange(max(LENGTHS) + 1, len(test) + 1, TRAINED)
    inputs = test.unfold(0, length + 1, 1)[ends - length - 1]
    bits = []
    for piece in inputs.split(32):
        logits = model(piece[:, :-1])[:, -TRAINED:]
        targets = piece[:, -TRAINED:]
        bits.append(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none") / math.log(2))
    return torch.cat(bits).mean().item()


if __name__ == "__main__":
    main()
