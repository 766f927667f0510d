"""Times a training step of HAN on ragged documents against two common implementations, interleaved.

    python benchmarks/documents.py
    python benchmarks/documents.py --threads 1 --clock processor    # on a machine that does other things too
    python benchmarks/documents.py --quick                          # a few turns on few documents: does it run?

Documents have 20 sentences and sentences 25 words on average, with long tails (log-normal). Sizes are the paper's: word
vectors of 200, 50 units per direction, contexts of 100, batches of 64 (Yang et al. 2016, section 3.3).

The peers (padded_han.py) get our weights and are refused if their logits differ. One loops over sentences, the other
packs all sentences of the batch; each is also measured without `pad_packed_sequence`, whose backward pass takes most of
the time if there is a long sentence. All take the same batches, which are padded for the peers beforehand. A step is
forward, cross-entropy, backward and Adam. The output has medians over turns, ratios to ours, and the peak memory that
training adds in a separate process.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from filing import command, file
from measuring import CLOCKS, peak_of_process
from padded_han import Form, PaddedHAN, take_weights
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import AttentionFactory, Dot, Softmax
from zoo.memory import disable_malloc_trim
from zoo.tasks.documents import HAN
from zoo.tasks.documents.batch import DocumentBatch
from zoo.training.environment import find_commit

Name = TypeVar("Name")

OURS = "ours"
PEERS: dict[str, tuple[Form, bool]] = {
    "loop over sentences": ("loop", False),
    "loop, padded by index": ("loop", True),
    "flattened and packed": ("flattened", False),
    "flattened, padded by index": ("flattened", True),
}
WORDS, CLASSES = 20_000, 5
SIZES = {"dim": 200, "hidden": 50, "context": 100}
SENTENCES, SPREAD, MOST_SENTENCES = 20, 0.8, 300
LENGTH, LENGTH_SPREAD, MOST_WORDS = 25, 0.7, 250
LARGEST_DIFFERENCE = 1e-4


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    batches = [_drawn(options.documents, seed) for seed in range(options.batches)]
    if options.peak:
        print(peak_memory(_training(_made(options.peak), batches)))
        return
    ours = _made(OURS)
    nets = {OURS: ours, **{name: _made(name) for name in PEERS}}
    difference = {name: _difference(ours, nets[name], batches[0]) for name in PEERS}
    clock = CLOCKS[options.clock]
    milliseconds = interleaved({name: _training(net, batches) for name, net in nets.items()}, options.repeats, clock)
    result = {
        "documents": options.documents,
        "sentences": round(statistics.mean(len(batch.documents) for batch in batches)),
        "words": round(statistics.mean(len(batch.words) for batch in batches)),
        "step_ms": milliseconds,
        "ratio": {name: round(milliseconds[name] / milliseconds[OURS], 2) for name in PEERS},
        "peak_mib": {name: peak_of_process(name) for name in nets},
        "largest_difference": difference,
        "clock": options.clock,
        "threads": options.threads,
        "torch": torch.__version__,
        "command": command(),
        "commit": find_commit(),
    }
    _show(result)
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=64, help="in a batch")
    parser.add_argument("--batches", type=int, default=4, help="different ones, taken in turn")
    parser.add_argument("--repeats", type=int, default=20, help="turns of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="what is measured")
    parser.add_argument("--quick", action="store_true", help="three turns on small batches")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.documents, options.repeats = 8, 3
    return options


def _drawn(documents: int, seed: int) -> DocumentBatch[None]:
    random = torch.Generator().manual_seed(seed)

    def lengths(count: int, mean: int, spread: float, most: int) -> Tensor:
        """Draws log-normal lengths with this mean, between 1 and `most`."""
        middle = torch.tensor(float(mean)).log() - spread**2 / 2
        return torch.empty(count).log_normal_(middle.item(), spread, generator=random).round().long().clamp(1, most)

    counts = lengths(documents, SENTENCES, SPREAD, MOST_SENTENCES)
    sizes = lengths(int(counts.sum()), LENGTH, LENGTH_SPREAD, MOST_WORDS)
    total = int(sizes.sum())
    # Zipf's law, as in natural language: word r is about 1 / r as frequent as the first
    words = (torch.rand(total, generator=random) * torch.tensor(float(WORDS)).log()).exp().long().clamp(max=WORDS - 1)
    return DocumentBatch(
        words=words,
        sentences=torch.arange(len(sizes)).repeat_interleave(sizes),
        documents=torch.arange(documents).repeat_interleave(counts),
        labels=torch.randint(CLASSES, (documents,), generator=random),
        ids=tuple(map(str, range(documents))),
        spelled=None,
    )


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    ours = HAN(words=WORDS, classes=CLASSES, attend=AttentionFactory(score=Dot, normalizer=Softmax), **SIZES)
    if name == OURS:
        return ours
    form, by_index = PEERS[name]
    peer = PaddedHAN(words=WORDS, classes=CLASSES, form=form, by_index=by_index, **SIZES)
    take_weights(peer, ours.state_dict())
    return peer


def _padded(batch: DocumentBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Words from 1, 0 being padding; sentences of each document; words of each sentence."""
    counts, sizes = batch.document_lengths, batch.sentence_lengths
    place = torch.arange(len(sizes)) - (counts.cumsum(0) - counts)[batch.documents]
    at = torch.arange(len(batch.words)) - (sizes.cumsum(0) - sizes)[batch.sentences]
    words = torch.zeros(len(batch), int(counts.max()), int(sizes.max()), dtype=torch.int64)
    words[batch.word_documents, place[batch.sentences], at] = batch.words + 1
    of_sentences = torch.ones(words.shape[:2], dtype=torch.int64)
    of_sentences[batch.documents, place] = sizes
    return words, counts, of_sentences


def _inputs(net: nn.Module, batch: DocumentBatch) -> tuple[Any, ...]:
    return (batch,) if isinstance(net, HAN) else _padded(batch)


@torch.no_grad()
def _difference(ours: nn.Module, peer: nn.Module, batch: DocumentBatch) -> float:
    found = (peer(*_inputs(peer, batch)) - ours(batch)).abs().max().item()
    if not found <= LARGEST_DIFFERENCE:
        raise SystemExit(f"a peer does not compute what ours computes: logits differ by {found:.1e}")
    return found


def _training(net: nn.Module, batches: list[DocumentBatch]) -> Callable[[int], None]:
    optimizer = torch.optim.Adam(net.parameters())
    inputs = [(_inputs(net, batch), batch.labels) for batch in batches]

    def run(turn: int) -> None:
        given, labels = inputs[turn % len(inputs)]
        optimizer.zero_grad()
        F.cross_entropy(net(*given), labels).backward()
        optimizer.step()

    return run


def interleaved(runs: dict[Name, Callable[[int], None]], repeats: int, clock: Callable[[], float]) -> dict[Name, float]:
    """Returns median milliseconds; the networks take turns, so that other load on the machine affects them alike."""
    times: dict[Name, list[float]] = {name: [] for name in runs}
    for turn in range(-2, repeats):
        for name, run in runs.items():
            started = clock()
            run(turn)
            if turn >= 0:
                times[name].append((clock() - started) * 1e3)
    return {name: round(statistics.median(each), 1) for name, each in times.items()}


def peak_memory(run: Callable[[int], None]) -> float:
    """Returns the MiB that five turns add to the memory of this process."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak (Linux)
    before = status("VmRSS")
    for turn in range(5):
        run(turn)
    return round((status("VmHWM") - before) / 1024, 1)


def status(what: str, pid: int | str = "self", of: str = "status") -> int:
    """Returns a memory figure of a process in KiB, as reported by the kernel."""
    lines = Path(f"/proc/{pid}/{of}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def _show(result: dict[str, Any]) -> None:
    print("{documents} documents, {sentences:,} sentences, {words:,} words in a batch".format(**result))
    print(f"{'':28}{'step ms':>10}{'peak MiB':>10}{'x ours':>8}")
    for name, taken in result["step_ms"].items():
        print(f"{name:28}{taken:>10.1f}{result['peak_mib'][name]:>10.1f}{result['ratio'].get(name, 1.0):>8.2f}")


if __name__ == "__main__":
    main()
