"""Times training and decoding of captioning against the form of tutorials, interleaved, in one run.

    python benchmarks/captioning.py
    python benchmarks/captioning.py --threads 1 --clock processor    # on a machine that does other things too
    python benchmarks/captioning.py --quick                          # a few turns on small networks: does it run?

A batch has 64 pictures of 49 cells of width 512, a vocabulary of 1,600 words, word vectors of width 256, an LSTM of 512
units, and attention that compares in a width of 256. The tutorial's form has the weights of ours and is refused if its
loss, a gradient or more than a tenth of its captions differ. It is a loop over time that projects keys and looks words
up at every step; its training sorts captions by length, and the batch shrinks as they end; its search is a loop over
pictures. Training is measured with captions of 8 to 20 tokens, and with captions of one length, as batches of similar
length have them. A step is forward, cross-entropy, backward and PyTorch's fused Adam. Searches write 20 tokens; no
caption ends before.

Epochs read 64 pictures of 224 x 224 pixels with five captions each by a frozen EfficientNet-Lite0, whose features are
kept, or are computed in every step, for decoders of two sizes. Hard attention and soft attention are measured by greedy
and by beam search. The output has medians over turns, ratios to ours, and the peak memory that training adds in a
separate process.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from filing import command, file
from measuring import CLOCKS, interleaved, parsed, peak_of, peak_of_process, ratios, timing_options
from steps import difference, training
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import Additive, AttentionFactory, HardReinforce, Softmax
from zoo.data.splits import TRAIN
from zoo.decoding import BeamSearch, Constraints
from zoo.memory import disable_malloc_trim
from zoo.nn import BackboneEncoder, Bahdanau
from zoo.nn.images.encoder import ImageEncoder
from zoo.nn.images.image_input import ImageInput
from zoo.tasks.batching import BatchOptions
from zoo.tasks.captioning import CaptionData, ShowAttendTell
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.datamodule import CaptionSource
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.tasks.vision import EfficientNetLite
from zoo.training.environment import find_commit

OURS, TUTORIAL, ALONE = "ours", "tutorial", "ours, a picture at a time"
KEPT, AGAIN = "features kept", "features computed again"
EPOCHS: dict[str, dict[str, int]] = {
    "experiment=captioner_flickr8k": {"features": 256},
    "model=captioner_backbone": {"features": 1280, "dim": 64, "hidden": 128, "compared": 64},
}
"""The sizes of nets whose epochs are measured."""
SHORTEST, LONGEST = 8, 20
WIDTH = 3
LARGEST_DIFFERENCE = 1e-5
LEAST_SAME = 0.9
"""Share of captions that must be the same; in networks without training the last bit decides between some of them."""
Batch = tuple[ImageInput, Targets]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the work; `quick` ones show that everything runs."""

    pictures: int = 64
    cells: int = 49
    features: int = 512
    words: int = 1_600
    dim: int = 256
    hidden: int = 512
    compared: int = 256
    side: int = 224
    """Of the pictures of epochs, in pixels."""


class Given(ImageEncoder):
    """Pictures whose features are their annotations."""

    def annotations(self, source: ImageInput) -> Tensor:
        assert source.features is not None
        return source.features


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    sizes = Sizes(8, 9, 16, 50, 8, 16, 8, 64) if options.quick else Sizes()
    if options.peak:
        side, lengths = options.peak
        print(peak_of(training(_losses(sizes)[side], _net(sizes), _drawn(sizes)[lengths])))
        return
    nets = {"quick": sizes} if options.quick else {name: replace(sizes, **each) for name, each in EPOCHS.items()}
    clock = CLOCKS[options.clock]
    fewer = max(3, options.repeats // 3)
    groups: dict[str, Callable[[], dict[str, Any]]] = {
        "training": lambda: {name: _trained(name, sizes, options.repeats, clock) for name in _drawn(sizes)},
        "search": lambda: _searched(sizes, fewer, clock),
        "epoch": lambda: {name: _epochs(each, 1 if options.quick else 3, clock) for name, each in nets.items()},
        "hard": lambda: _hard(sizes, fewer, clock),
    }
    result: dict[str, Any] = {}
    for name in options.groups:
        result[name] = groups[name]()
        print(f"{name}: {result[name]}", flush=True)
    result |= {"clock": options.clock, "threads": options.threads, "torch": torch.__version__}
    file(result | {"command": command(), "commit": find_commit()}, options.out)


def _options() -> argparse.Namespace:
    parser = timing_options(__doc__, repeats=15, peak=2)
    names = ("training", "search", "epoch", "hard")
    parser.add_argument("--groups", nargs="+", choices=names, default=names)
    return parsed(parser)


def _net(sizes: Sizes, normalizer: Any = Softmax, encoder: Any = None) -> Any:
    """Makes a network without dropout; the same weights at every call."""
    torch.manual_seed(0)
    return ShowAttendTell(
        tokens=sizes.words,
        height=sizes.side,
        width=sizes.side,
        attend=AttentionFactory(score=Additive, normalizer=normalizer),
        encoder=encoder or (lambda height, width: Given(width=sizes.features, grid=(1, sizes.cells))),
        decoder=partial(
            Bahdanau,
            dim=sizes.dim,
            hidden=sizes.hidden,
            compared=sizes.compared,
            cell="lstm",
            readout="tanh",
            selector=True,
        ),
    )


def _drawn(sizes: Sizes) -> dict[str, Batch]:
    """Draws a batch with captions of several lengths, and one with captions of one length."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(sizes.pictures, sizes.cells, sizes.features, generator=random)
    several = torch.randint(SHORTEST, LONGEST + 1, (sizes.pictures,), generator=random).tolist()
    one = [round(sum(several) / len(several))] * sizes.pictures

    def texts(lengths: list[int]) -> Targets:
        drawn = [torch.randint(END + 1, sizes.words, (length - 1,), generator=random).tolist() for length in lengths]
        return Targets.pad(drawn)

    return {
        name: (ImageInput(None, features), texts(each)) for name, each in (("several lengths", several), ("one", one))
    }


def _losses(sizes: Sizes) -> dict[str, Callable[[Any, Batch], Tensor]]:
    return {OURS: _loss, TUTORIAL: lambda net, batch: Tutorial(net).loss(*batch)}


def _loss(net: Any, batch: Batch) -> Tensor:
    source, targets = batch
    logits = net.head(net.features(source, targets.read)[targets.is_real])  # as `Captioner` does
    return F.cross_entropy(logits, targets.tokens[targets.is_real])


class Tutorial:
    """The formulas of `Bahdanau` with an LSTM, a selector and a tanh readout, step by step, with the weights of a net.

    Args:
        net: The net whose weights it computes with.
    """

    def __init__(self, net: Any) -> None:
        self.net, self.decoder = net, net.decoder
        self.layer = net.decoder.stack.layers[0]

    def start(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        hidden, memory = self.decoder.first.project(cells.mean(1)).chunk(2, -1)
        return hidden.tanh(), memory

    def step(self, cells: Tensor, words: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the logits and the next state of some rows."""
        attention, layer = self.decoder.attention, self.layer
        word = self.decoder.vectors.table(words)
        keys, query = F.linear(cells, attention.key.weight), F.linear(hidden, attention.query.weight)
        scores = torch.tanh(query.unsqueeze(1) + keys) @ attention.attend.score.vector[0]
        context = (scores.softmax(1).unsqueeze(-1) * cells).sum(1)
        context = context * torch.sigmoid(self.decoder.selector(hidden))
        hidden, memory = torch.lstm_cell(
            torch.cat([word, context], -1),
            (hidden, memory),
            layer.weight_ih,
            layer.weight_hh,
            layer.bias_ih,
            layer.bias_hh,
        )
        out = torch.tanh(self.decoder.readout(torch.cat([hidden, context, word], -1)))
        return self.net.head(out), hidden, memory

    def loss(self, source: ImageInput, targets: Targets) -> Tensor:
        """The batch is sorted by length and shrinks as captions end."""
        assert source.features is not None
        lengths, order = targets.lengths.sort(descending=True)
        cells, read, tokens = source.features[order], targets.read[order], targets.tokens[order]
        hidden, memory = self.start(cells)
        predicted = cells.new_zeros(*tokens.shape, self.net.head.weight.shape[0])
        for step in range(int(lengths[0])):
            left = int((lengths > step).sum())
            logits, hidden, memory = self.step(cells[:left], read[:left, step], hidden[:left], memory[:left])
            predicted[:left, step] = logits
        is_real = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
        return F.cross_entropy(predicted[is_real], tokens[is_real])

    @torch.no_grad()
    def texts(self, source: ImageInput, width: int) -> list[list[int]]:
        """Beam search, one picture after the other."""
        assert source.features is not None
        return [self._text(cells, width) for cells in source.features]

    def _text(self, cells: Tensor, width: int) -> list[int]:
        cells = cells.unsqueeze(0)
        hidden, memory = self.start(cells)
        words, total, texts = torch.tensor([BEGIN]), torch.zeros(1, 1), torch.zeros(1, 0, dtype=torch.long)
        for _ in range(LONGEST):
            rows = cells.expand(len(words), -1, -1)
            logits, hidden, memory = self.step(rows, words, hidden, memory)
            following = logits.log_softmax(-1)
            following[:, [PAD, BEGIN, END]] = -torch.inf
            best, chosen = (total + following).flatten().topk(width)
            origin, words = chosen // logits.shape[1], chosen % logits.shape[1]
            hidden, memory, total = hidden[origin], memory[origin], best.unsqueeze(1)
            texts = torch.cat([texts[origin], words.unsqueeze(1)], 1)
        return texts[0].tolist()  # type: ignore[no-any-return]


def _trained(lengths: str, sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    batch, losses = _drawn(sizes)[lengths], _losses(sizes)
    found = difference(_net(sizes), batch, losses, LARGEST_DIFFERENCE)
    runs = {side: training(loss, _net(sizes), batch) for side, loss in losses.items()}
    milliseconds = interleaved(runs, repeats, clock)
    return {
        "largest_difference": found,
        "step_ms": milliseconds,
        "ratio": ratios(milliseconds, OURS),
        "peak_mib": {side: peak_of_process(side, lengths) for side in runs},
    }


def _texts(net: Any, source: ImageInput, width: int) -> list[list[int]]:
    search = BeamSearch(width=width, constraints=Constraints(never=(PAD, BEGIN, END)))
    begin = torch.full((len(source),), BEGIN)
    return [list(best.tokens) for [best] in search(net, source, begin, end=END, longest=LONGEST)]


def _searched(sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    net, (source, _) = _net(sizes).eval(), next(iter(_drawn(sizes).values()))
    pictures = [source.select(torch.tensor([number])) for number in range(len(source))]
    runs = {
        OURS: lambda: _texts(net, source, WIDTH),
        ALONE: lambda: [text for each in pictures for text in _texts(net, each, WIDTH)],
        TUTORIAL: lambda: Tutorial(net).texts(source, WIDTH),
    }
    texts = {side: run() for side, run in runs.items()}
    same = {
        side: sum(one == other for one, other in zip(texts[OURS], texts[side], strict=True)) / len(source)
        for side in (ALONE, TUTORIAL)
    }
    if min(same.values()) < LEAST_SAME:
        raise SystemExit(f"the sides do not write the same by beam search: {same}")
    milliseconds = interleaved(runs, repeats, clock)
    return {"same": same, "width": WIDTH, "ms": milliseconds, "ratio": ratios(milliseconds, OURS)}


def _hard(sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Measures searches of our network with hard attention and with soft attention."""
    source, _ = next(iter(_drawn(sizes).values()))
    nets = {"soft": _net(sizes).eval(), "hard": _net(sizes, HardReinforce).eval()}
    found: dict[str, Any] = {}
    for search, width in (("greedy", 1), ("beam", WIDTH)):
        runs = {side: partial(_texts, net, source, width) for side, net in nets.items()}
        found[f"{search}_ms"] = interleaved(runs, repeats, clock)
        found[f"{search}_ratio"] = ratios(found[f"{search}_ms"], "soft")
    return found


def _epochs(sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Measures epochs whose features are kept on the disk, and epochs that compute them."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {KEPT: _epoch(sizes, folder), AGAIN: _epoch(sizes, None)}
        milliseconds = interleaved(runs, repeats, clock)
    return {"ms": milliseconds, "ratio": ratios(milliseconds, KEPT)}


def _epoch(sizes: Sizes, cache: str | None) -> Callable[[], None]:
    """Returns an epoch of training; a folder to keep features in, or None: they are computed in every step."""
    random = np.random.default_rng(0)
    shape = (sizes.pictures, 3, sizes.side, sizes.side)
    names = [f"w{number}" for number in range(sizes.words)]
    pictures = CaptionSet(
        pixels=random.integers(0, 256, shape, dtype=np.uint8),
        captions=[[" ".join(random.choice(names, 12)) for _ in range(5)] for _ in range(sizes.pictures)],
        ids=[str(number) for number in range(sizes.pictures)],
        splits=np.full(sizes.pictures, TRAIN),
        size=(sizes.side, sizes.side),
    )
    batching = BatchOptions(max_epochs=1, batch_size=sizes.pictures)
    data = CaptionData(CaptionSource(lambda: pictures), batching, keep_features=cache is not None, cache=cache)
    net = _net(
        replace(sizes, words=data.sizes()["tokens"]),
        encoder=partial(
            BackboneEncoder, backbone=EfficientNetLite, dim=None if sizes.features == 1280 else sizes.features
        ),
    )
    data.see_through(net.encoder.backbone)
    parameters = [each for each in net.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(parameters, fused=True)

    def run() -> None:
        net.train()
        for batch in data.train_dataloader():
            optimizer.zero_grad()
            _loss(net, (batch.source, batch.targets)).backward()
            optimizer.step()

    return run


if __name__ == "__main__":
    main()
