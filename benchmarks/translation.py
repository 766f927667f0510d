"""Times training and decoding of translation against JoeyNMT, OpenNMT-py and PyTorch, interleaved, in one run.

    python benchmarks/translation.py
    python benchmarks/translation.py --threads 1 --clock processor    # on a machine that does other things too
    python benchmarks/translation.py --quick                          # a few turns on small networks: does it run?

Batches have 64 pairs of 20 tokens, vocabularies 8,000 words; embeddings have a width of 256 and recurrent states of
512, Transformers 3 layers a side, a width of 256, 4 heads and 1,024 hidden units. The peers (nmt_peers.py) get our
weights and are refused if their logits or more than a tenth of their texts differ; missing ones are reported:

    bahdanau       our decoder of Bahdanau et al., and that of JoeyNMT: additive attention with input feeding, which is
                   measured in our form too
    luong general, luong mlp    without input feeding, against OpenNMT-py
    transformer    pre-norm, against JoeyNMT and torch.nn.Transformer

A step is forward, cross-entropy, backward and PyTorch's fused Adam. Searches write texts of the full length; no text
ends before. The output has medians over turns, ratios to ours, the peak memory that training adds in a separate
process, and, for our networks, time and memory by the length of the targets with fitted exponents: 1 is linear.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from filing import command, file
from measuring import (
    CLOCKS,
    build_available,
    exponent,
    interleaved,
    parsed,
    peak_of,
    peak_of_process,
    ratios,
    timing_options,
)
from nmt_peers import EPSILON, Joey, OpenNMT, Torch, comparable
from steps import training
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Additive, AttentionFactory, General, ScaledDot, Softmax
from zoo.decoding import BeamSearch, Constraints
from zoo.memory import disable_malloc_trim
from zoo.nn import Bahdanau, InputFeeding, Luong
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.tasks.translation import (
    RecurrentEncoder,
    RecurrentTranslator,
    TransformerTranslator,
)
from zoo.training.environment import find_commit

OURS = "ours"
LENGTHS = (20, 40, 80, 160)
WIDTH = 5
LARGEST_DIFFERENCE = 1e-4
LEAST_SAME = 0.9
"""Share of texts that must be the same; in networks without training the last bit decides between some hypotheses."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the work; `quick` ones show that everything runs."""

    pairs: int = 64
    length: int = 20
    words: int = 8_000
    dim: int = 256
    hidden: int = 512
    layers: int = 3


@dataclass(frozen=True)
class Group:
    """Networks that are compared: makers by name, ours first."""

    makers: dict[str, Callable[[], nn.Module]]
    searches: tuple[str, ...] = ()
    """The sides that write texts too."""
    same: tuple[str, ...] = ()
    """The sides that must compute the same as the first of them."""


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    sizes = Sizes(pairs=8, words=200, dim=16, hidden=32, layers=1) if options.quick else Sizes()
    groups = _groups(sizes)
    if options.peak:
        group, side, length = options.peak
        print(peak_of(training(_loss, groups[group].makers[side](), _drawn(sizes, int(length)))))
        return
    clock = CLOCKS[options.clock]
    result: dict[str, Any] = {"groups": {}, "by_length": {}}
    for name in options.groups:
        result["groups"][name] = _compared(name, groups[name], sizes, options.repeats, clock)
        _show(name, result["groups"][name])
    for name in options.groups:
        result["by_length"][name] = by = _by_length(name, groups[name], sizes, options.repeats, clock)
        print(f"{name}, {OURS}, by target length: {by}")
    result |= {"clock": options.clock, "threads": options.threads, "torch": torch.__version__}
    file(result | {"command": command(), "commit": find_commit()}, options.out)


def _options() -> argparse.Namespace:
    parser = timing_options(__doc__, repeats=15, peak=3)
    names = list(_groups(Sizes()))
    parser.add_argument("--groups", nargs="+", choices=names, default=names)
    return parsed(parser)


def _groups(sizes: Sizes) -> dict[str, Group]:
    def recurrent(score: Any, decoder: Any, compared: int | None) -> RecurrentTranslator:
        torch.manual_seed(0)
        made = RecurrentTranslator(
            source_words=sizes.words,
            target_words=sizes.words,
            attend=AttentionFactory(score=score, normalizer=Softmax),
            encoder=partial(RecurrentEncoder, dim=sizes.dim, hidden=sizes.hidden // 2),
            decoder=partial(decoder, dim=sizes.dim, hidden=sizes.hidden, compared=compared, cell="gru"),
        )
        return comparable(made)

    def transformer() -> TransformerTranslator:
        torch.manual_seed(0)
        made = TransformerTranslator(
            source_words=sizes.words,
            target_words=sizes.words,
            attend=AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=0.1),
            encoder_attend=AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=0.1),
            decoder_attend=AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=0.1),
            dim=sizes.dim,
            heads=4,
            hidden=4 * sizes.dim,
            layers=sizes.layers,
            shared="none",
        )
        for norm in (part for part in made.modules() if isinstance(part, nn.LayerNorm)):
            norm.eps = EPSILON
        return comparable(made)

    bahdanau = partial(recurrent, Additive, Bahdanau, sizes.hidden)
    feeding = partial(recurrent, Additive, InputFeeding, sizes.hidden)
    general, mlp = partial(recurrent, General, Luong, None), partial(recurrent, Additive, Luong, sizes.hidden)
    fed, peer = "ours, input feeding", "JoeyNMT"
    return {
        "bahdanau": Group(
            {OURS: bahdanau, fed: feeding, peer: lambda: Joey(feeding())}, (OURS, fed, peer), (fed, peer)
        ),
        "luong general": Group(
            {OURS: general, "OpenNMT-py": lambda: OpenNMT(general(), "general")}, (), (OURS, "OpenNMT-py")
        ),
        "luong mlp": Group({OURS: mlp, "OpenNMT-py": lambda: OpenNMT(mlp(), "mlp")}, (), (OURS, "OpenNMT-py")),
        "transformer": Group(
            {OURS: transformer, peer: lambda: Joey(transformer()), "torch": lambda: Torch(transformer())},
            (OURS, peer),
            (OURS, peer, "torch"),
        ),
    }


def _drawn(sizes: Sizes, longest: int | None = None) -> tuple[Source, Targets]:
    """Draws a batch; targets are as long as sources unless another length is given."""
    random = torch.Generator().manual_seed(0)
    longest = sizes.length if longest is None else longest

    def tokens(length: int) -> list[list[int]]:
        return torch.randint(END + 1, sizes.words, (sizes.pairs, length), generator=random).tolist()  # type: ignore[no-any-return]

    return Source.pad(tokens(sizes.length)), Targets.pad(tokens(longest - 1))


def _compared(name: str, group: Group, sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    nets = build_available(group.makers)
    batch = _drawn(sizes)
    difference = _difference({side: nets[side] for side in group.same if side in nets}, batch)
    found: dict[str, Any] = {"largest_difference": difference}
    searches = [side for side in group.searches if side in nets]
    same = [side for side in searches if side in group.same]
    for search, width in (("greedy", 1), ("beam", WIDTH)) if searches else ():
        runs = {side: partial(_texts, nets[side].eval(), batch[0], sizes.length, width) for side in searches}
        found[f"{search}_same"] = shares = _same_texts({side: runs[side]() for side in same})
        if min(shares.values(), default=1.0) < LEAST_SAME:
            raise SystemExit(f"{name}: the sides do not write the same by {search} search: {shares}")
        milliseconds = interleaved(runs, max(3, repeats // 3), clock)
        found[f"{search}_per_second"] = {side: round(sizes.pairs * 1e3 / ms, 1) for side, ms in milliseconds.items()}
        found[f"{search}_ratio"] = ratios(milliseconds, OURS)
    runs = {side: training(_loss, net, batch) for side, net in nets.items()}
    found["step_ms"] = interleaved(runs, repeats, clock)
    found["ratio"] = ratios(found["step_ms"], OURS)
    found["peak_mib"] = {side: peak_of_process(name, side, sizes.length) for side in nets}
    return found


def _by_length(name: str, group: Group, sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Measures our training steps and greedy search by the length of the targets; sources stay as they are."""
    net = group.makers[OURS]()
    batches = {length: _drawn(sizes, length) for length in LENGTHS}
    steps = interleaved(
        {length: training(_loss, net, batch) for length, batch in batches.items()}, max(3, repeats // 5), clock
    )
    found = {
        "step_ms": steps,
        "greedy_ms": interleaved(
            {length: partial(_texts, net.eval(), batch[0], length, 1) for length, batch in batches.items()}, 3, clock
        ),
        "peak_mib": {length: peak_of_process(name, OURS, length) for length in LENGTHS},
    }
    return found | {"exponents": {what: exponent(by) for what, by in found.items()}}


def _same_texts(texts: dict[str, list[list[int]]]) -> dict[str, float]:
    """Returns the share of texts that are those of the first side."""
    first, *others = texts
    pairs = {side: list(zip(texts[first], texts[side], strict=True)) for side in others}
    return {side: sum(one == other for one, other in each) / len(each) for side, each in pairs.items()}


@torch.no_grad()
def _difference(nets: dict[str, nn.Module], batch: tuple[Source, Targets]) -> float:
    logits = [_logits(net.eval(), batch) for net in nets.values()]
    found = max((each - logits[0]).abs().max().item() for each in logits)
    if not found <= LARGEST_DIFFERENCE:
        raise SystemExit(f"{', '.join(nets)} do not compute the same: logits differ by {found:.1e}")
    return found


def _logits(net: Any, batch: tuple[Source, Targets]) -> Tensor:
    source, targets = batch
    found: Tensor = net.whole(source, targets.read) if hasattr(net, "whole") else net(source, targets)
    return found


def _loss(net: Any, batch: tuple[Source, Targets]) -> Tensor:
    source, targets = batch
    if hasattr(net, "loss"):
        found: Tensor = net.loss(source, targets)
        return found
    logits = net.head(net.features(source, targets.read)[targets.is_real])  # as `Translator` does
    return F.cross_entropy(logits, targets.tokens[targets.is_real])


def _texts(net: Any, source: Source, longest: int, width: int) -> list[list[int]]:
    if hasattr(net, "texts"):
        found: list[list[int]] = net.texts(source, longest, width)
        return found
    search = BeamSearch(width=width, constraints=Constraints(never=(PAD, BEGIN, END)))
    begin = torch.full((len(source),), BEGIN)
    return [list(best.tokens) for [best] in search(net, source, begin, end=END, longest=longest)]


def _show(name: str, found: dict[str, Any]) -> None:
    print(f"{name}: logits differ by {found['largest_difference']:.1e} at most")
    print(f"{'':24}{'step ms':>10}{'x ours':>8}{'peak MiB':>10}{'greedy/s':>10}{'x':>6}{'beam/s':>9}{'x':>6}")
    for side, ms in found["step_ms"].items():
        line = f"{side:24}{ms:>10.1f}{found['ratio'].get(side, 1.0):>8.2f}{found['peak_mib'][side]:>10.1f}"
        for search in ("greedy", "beam"):
            if side in found.get(f"{search}_per_second", {}):
                rate, ratio = found[f"{search}_per_second"][side], found[f"{search}_ratio"].get(side, 1.0)
                line += f"{rate:>10.1f}{ratio:>6.2f}"
        print(line)


if __name__ == "__main__":
    main()
