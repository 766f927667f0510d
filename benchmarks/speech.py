"""Times training and decoding of speech recognition against SpeechBrain, interleaved, in one run.

    python benchmarks/speech.py
    python benchmarks/speech.py --threads 1 --clock processor    # on a machine that does other things too
    python benchmarks/speech.py --quick                          # a few turns on small networks: does it run?

A batch has 8 recordings of 400 x 80 features and texts of 60 tokens. The listener is a pyramid of three bidirectional
LSTM layers of 256 units, the second and third of which join two rows; the speller an LSTM of 512 units with
location-aware attention (10 filters of 201 places, compared in a width of 512).

SpeechBrain's listener gets the weights of ours, and its attention those of ours without their biases; both are refused
if states or the weights of a step differ. Its speller, `AttentionalRNNDecoder`, has the same sizes but is another
network: it feeds the projected context to the next step, where ours (`InputFeeding`) feeds what the output layer reads,
and stops gradients at the previous weights, where ours lets them pass.

A step is forward, cross-entropy, backward and PyTorch's fused Adam. Searches write 60 tokens; no text ends before. The
output has medians over turns, ratios to ours, the peak memory that training adds in a separate process, and, for both,
time and memory by the number of frames with fitted exponents: 1 is linear.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
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
from steps import training
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import AttentionFactory, LocationAware, Softmax
from zoo.decoding import BeamSearch, Constraints
from zoo.memory import disable_malloc_trim
from zoo.nn import InputFeeding
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.tasks.speech import ListenAttendSpell, PyramidalRNNEncoder
from zoo.tasks.speech.batch import Frames
from zoo.training.environment import find_commit

OURS, PEER = "ours", "SpeechBrain"
FRAMES = (200, 400, 800, 1600)
WIDTH = 5
LARGEST_DIFFERENCE = 1e-4
Batch = tuple[Frames, Targets]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the work; `quick` ones show that everything runs."""

    recordings: int = 8
    frames: int = 400
    features: int = 80
    length: int = 60
    tokens: int = 32
    dim: int = 128
    listener: int = 256
    hidden: int = 512
    filters: int = 10
    kernel: int = 201


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    sizes = Sizes(2, 40, 8, 6, 12, 8, 8, 16, 2, 5) if options.quick else Sizes()
    makers: dict[str, Callable[[], Any]] = {OURS: partial(_ours, sizes), PEER: lambda: Peer(_ours(sizes), sizes)}
    if options.peak:
        side, frames = options.peak
        print(peak_of(training(_loss, makers[side](), _drawn(sizes, int(frames)))))
        return
    clock = CLOCKS[options.clock]
    nets = build_available(makers)
    result = _compared(nets, sizes, options.repeats, clock)
    if options.frames:
        of_side = partial(_by_frames, frames=options.frames, sizes=sizes, repeats=options.repeats, clock=clock)
        result["by_frames"] = {side: of_side(side, makers[side]) for side in nets}
    _show(result)
    result |= {"clock": options.clock, "threads": options.threads, "torch": torch.__version__}
    file(result | {"command": command(), "commit": find_commit()}, options.out)


def _options() -> argparse.Namespace:
    parser = timing_options(__doc__, repeats=9, peak=2)
    parser.add_argument("--frames", type=int, nargs="*", default=FRAMES, metavar="N", help="lengths; none: one alone")
    return parsed(parser)


def _ours(sizes: Sizes) -> ListenAttendSpell:
    torch.manual_seed(0)
    score = partial(LocationAware, filters=sizes.filters, kernel_size=sizes.kernel)
    made = ListenAttendSpell(
        features=sizes.features,
        tokens=sizes.tokens,
        attend=AttentionFactory(score=score, normalizer=Softmax),
        listener=partial(PyramidalRNNEncoder, hidden=sizes.listener, joined=(1, 2, 2)),
        decoder=partial(InputFeeding, dim=sizes.dim, hidden=sizes.hidden, compared=sizes.hidden, cell="lstm"),
    )
    return made


class Peer(nn.Module):
    """SpeechBrain's recurrent modules and searches, with our weights where it has the same layers.

    Args:
        ours: The network whose weights are taken over.
        sizes: Sizes.
    """

    def __init__(self, ours: Any, sizes: Sizes) -> None:
        super().__init__()
        from speechbrain.nnet.linear import Linear
        from speechbrain.nnet.RNN import LSTM, AttentionalRNNDecoder

        recurrent = [stage.recurrent.layers[0] for stage in ours.encoder.stages if hasattr(stage, "recurrent")]
        self.listener = nn.ModuleList()
        for each in recurrent:
            layer = LSTM(sizes.listener, input_size=each.input_size, bidirectional=True, re_init=False)
            layer.rnn.load_state_dict(each.state_dict())
            self.listener.append(layer)
        self.embedding = nn.Embedding(sizes.tokens, sizes.dim)
        self.decoder = AttentionalRNNDecoder(
            rnn_type="lstm",
            attn_type="location",
            hidden_size=sizes.hidden,
            attn_dim=sizes.hidden,
            num_layers=1,
            enc_dim=2 * sizes.listener,
            input_size=sizes.dim,
            channels=sizes.filters,
            kernel_size=sizes.kernel // 2,
        )
        self.head = Linear(sizes.tokens, input_size=sizes.hidden)
        self._take_attention(ours.decoder.attention)

    @torch.no_grad()
    def _take_attention(self, ours: Any) -> None:
        theirs, score = self.decoder.attn, ours.attend.score
        theirs.mlp_enc.weight.copy_(ours.key.weight)
        theirs.mlp_dec.weight.copy_(ours.query.weight)
        theirs.conv_loc.weight.copy_(score.filters[0].unsqueeze(1))
        theirs.mlp_loc.weight.copy_(score.from_filters[0].T)
        theirs.mlp_attn.weight.copy_(score.vector)
        for each in (theirs.mlp_enc, theirs.mlp_dec, theirs.mlp_loc):
            each.bias.zero_()

    def encode(self, source: Frames) -> Tensor:
        x = source.features
        for number, layer in enumerate(self.listener):
            x = x.reshape(len(x), x.shape[1] // 2, -1) if number else x
            x, _ = layer(x)
        return x

    def loss(self, source: Frames, targets: Targets) -> Tensor:
        found, _ = self.decoder(self.embedding(targets.read), self.encode(source), torch.ones(len(source)))
        return F.cross_entropy(self.head(found).flatten(0, 1), targets.tokens.flatten())

    def texts(self, source: Frames, longest: int, width: int) -> list[list[int]]:
        from speechbrain.decoders.seq2seq import S2SRNNBeamSearcher, S2SRNNGreedySearcher

        states = self.encode(source)
        share = (longest + 0.5) / states.shape[1]
        modules = {"embedding": self.embedding, "decoder": self.decoder, "linear": self.head}
        limits: dict[str, Any] = {"bos_index": BEGIN, "eos_index": END, "min_decode_ratio": 0.0}
        searcher: Any
        if width == 1:
            searcher = S2SRNNGreedySearcher(**modules, **limits, max_decode_ratio=share)
        else:
            searcher = S2SRNNBeamSearcher(
                **modules, **limits, max_decode_ratio=share, beam_size=width, using_eos_threshold=False
            )
        found: list[list[int]] = searcher(states, torch.ones(len(source)))[0]
        return found


def _drawn(sizes: Sizes, frames: int | None = None) -> Batch:
    """Draws a batch of recordings of one length, so that none has padding."""
    random = torch.Generator().manual_seed(0)
    frames = sizes.frames if frames is None else frames
    features = torch.randn(sizes.recordings, frames, sizes.features, generator=random)
    texts = torch.randint(END + 1, sizes.tokens, (sizes.recordings, sizes.length - 1), generator=random)
    return Frames(features, torch.full((sizes.recordings,), frames)), Targets.pad(texts.tolist())


def _compared(nets: dict[str, Any], sizes: Sizes, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    batch = _drawn(sizes)
    found: dict[str, Any] = {}
    if PEER in nets:
        found["largest_difference"] = _difference(nets[OURS].eval(), nets[PEER].eval(), batch[0])
    for net in nets.values():
        with torch.no_grad():  # no text ends, or has a token that is none
            getattr(net.head, "w", net.head).bias[[PAD, BEGIN, END]] = -1e4
    for search, width in (("greedy", 1), ("beam", WIDTH)):
        runs = {side: partial(_texts, net.eval(), batch[0], sizes.length, width) for side, net in nets.items()}
        for side, run in runs.items():
            lengths = {len(text) for text in run()}
            if not lengths <= {sizes.length, sizes.length - 1}:  # SpeechBrain's last token may be the end
                raise SystemExit(f"{side} writes texts of {sorted(lengths)} tokens by {search} search")
        milliseconds = interleaved(runs, max(3, repeats // 3), clock)
        found[f"{search}_per_second"] = {
            side: round(sizes.recordings * 1e3 / ms, 2) for side, ms in milliseconds.items()
        }
        found[f"{search}_ratio"] = ratios(milliseconds, OURS)
    runs = {side: training(_loss, net, batch) for side, net in nets.items()}
    found["step_ms"] = interleaved(runs, repeats, clock)
    found["ratio"] = ratios(found["step_ms"], OURS)
    found["peak_mib"] = {side: peak_of_process(side, sizes.frames) for side in nets}
    return found


@torch.no_grad()
def _difference(ours: Any, peer: Peer, source: Frames) -> dict[str, float]:
    """Returns the largest difference of the listeners' states, and of the attention weights of a step."""
    encoded, theirs = ours.encode(source), peer.encode(source)
    attention, query = ours.decoder.attention, torch.randn(len(source), ours.decoder.width)
    peer.decoder.attn.reset()
    count = torch.full((len(source),), theirs.shape[1])
    _, weights = peer.decoder.attn(theirs, count, query)
    memory = attention.add_initial_state(attention.prepare(encoded.states, encoded.support))
    even = torch.full_like(memory.attention.weights, 1 / theirs.shape[1])  # SpeechBrain begins with equal weights
    state = type(memory.attention)(even, memory.attention.total)
    _, after = attention.attend.read(attention.query(query)[:, None, None], memory, None, state)
    found = {
        "states": (encoded.states - theirs).abs().max().item(),
        "weights": (after.weights[:, 0, 0] - weights).abs().max().item(),
    }
    if not max(found.values()) <= LARGEST_DIFFERENCE:
        raise SystemExit(f"{OURS} and {PEER} do not compute the same: {found}")
    return found


def _by_frames(
    side: str,
    make: Callable[[], Any],
    *,
    frames: Sequence[int],
    sizes: Sizes,
    repeats: int,
    clock: Callable[[], float],
) -> dict[str, Any]:
    """Measures training steps by the number of frames; texts stay as long as they are."""
    net = make()
    shares = {each: max(8, sizes.frames * each // 400) for each in frames}
    runs = {each: training(_loss, net, _drawn(sizes, count)) for each, count in shares.items()}
    found: dict[str, Any] = {
        "step_ms": interleaved(runs, max(3, repeats // 3), clock),
        "peak_mib": {each: peak_of_process(side, count) for each, count in shares.items()},
    }
    return found | {"exponents": {what: exponent(by) for what, by in found.items()}}


def _loss(net: Any, batch: Batch) -> Tensor:
    source, targets = batch
    if isinstance(net, Peer):
        return net.loss(source, targets)
    logits = net.head(net.features(source, targets.read)[targets.is_real])  # as `Recogniser` does
    return F.cross_entropy(logits, targets.tokens[targets.is_real])


@torch.no_grad()
def _texts(net: Any, source: Frames, longest: int, width: int) -> list[list[int]]:
    if isinstance(net, Peer):
        return net.texts(source, longest, width)
    search = BeamSearch(width=width, constraints=Constraints(never=(PAD, BEGIN)))
    begin = torch.full((len(source),), BEGIN)
    return [list(best.tokens) for [best] in search(net, source, begin, end=END, longest=longest)]


def _show(found: dict[str, Any]) -> None:
    print(f"differences: {found.get('largest_difference', 'not measured')}")
    print(f"{'':14}{'step ms':>10}{'x ours':>8}{'peak MiB':>10}{'greedy/s':>10}{'x':>6}{'beam/s':>9}{'x':>6}")
    for side, ms in found["step_ms"].items():
        line = f"{side:14}{ms:>10.1f}{found['ratio'].get(side, 1.0):>8.2f}{found['peak_mib'][side]:>10.1f}"
        for search in ("greedy", "beam"):
            rate, ratio = found[f"{search}_per_second"][side], found[f"{search}_ratio"].get(side, 1.0)
            line += f"{rate:>10.2f}{ratio:>6.2f}"
        print(line)
    for side, by in found.get("by_frames", {}).items():
        print(f"{side} by frames: {by}")


if __name__ == "__main__":
    main()
