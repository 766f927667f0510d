"""Times a training step of BiDAF against the same formulas written with a tensor of pairs, interleaved, in one run.

    python benchmarks/answering.py
    python benchmarks/answering.py --threads 1 --clock processor    # on a machine that does other things too
    python benchmarks/answering.py --quick                          # a few turns on a small network: does it run?

A batch has 20 passages of 60 to 250 words with questions of 6 to 20 words; states have 100 units per direction, as in
the paper. The written form has the weights of ours and is refused if its loss or a gradient differ. It makes
[h_t; u_j; h_t * u_j] for each word t of the passage and j of the question, as the paper writes eq. 1, and PyTorch's
LSTMs run on packed sequences, each direction for itself. A step is forward, cross-entropy of both ends of the answer,
backward and PyTorch's fused Adam. The output has medians over turns, the ratio to ours, and the peak memory that
training adds in a separate process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from filing import command, file
from measuring import CLOCKS, interleaved, parsed, peak_of, peak_of_process, ratios, timing_options
from steps import difference, training
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from zoo.attention import AttentionFactory, Dot, Softmax
from zoo.memory import disable_malloc_trim
from zoo.tasks.answering import BiDAF
from zoo.tasks.answering.batch import ExtractiveQABatch, ExtractiveQAExample
from zoo.tasks.seq2seq.source import Source
from zoo.training.environment import find_commit

OURS, PAIRS = "ours", "a tensor of pairs"
LARGEST_DIFFERENCE = 1e-4
"""Of sums of fp32 numbers in another order."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the work; `quick` ones show that everything runs."""

    questions: int = 20
    passage: tuple[int, int] = (60, 250)
    question: tuple[int, int] = (6, 20)
    words: int = 20_000
    dim: int = 100
    hidden: int = 100


def main() -> None:
    options = parsed(timing_options(__doc__, repeats=15, peak=1))
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    sizes = Sizes(4, (5, 9), (3, 4), 50, 8, 8) if options.quick else Sizes()
    batch = _drawn(sizes)
    if options.peak:
        print(peak_of(training(LOSSES[options.peak[0]], _net(sizes), batch)))
        return
    differs = difference(_net(sizes), batch, LOSSES, LARGEST_DIFFERENCE)
    runs = {side: training(loss, _net(sizes), batch) for side, loss in LOSSES.items()}
    milliseconds = interleaved(runs, options.repeats, CLOCKS[options.clock])
    result: dict[str, Any] = {
        "largest_difference": differs,
        "step_ms": milliseconds,
        "ratio": ratios(milliseconds, OURS),
        "peak_mib": {side: peak_of_process(side) for side in LOSSES},
    }
    for side, ms in milliseconds.items():
        print(f"{side:20}{ms:>10.1f} ms{result['ratio'].get(side, 1.0):>8.2f}{result['peak_mib'][side]:>10.1f} MiB")
    result |= {"clock": options.clock, "threads": options.threads, "torch": torch.__version__}
    file(result | {"command": command(), "commit": find_commit()}, options.out)


def _net(sizes: Sizes) -> BiDAF:
    """Makes a network without dropout; the same weights at every call."""
    torch.manual_seed(0)
    attend = AttentionFactory(score=Dot, normalizer=Softmax)
    return BiDAF(words=sizes.words, attend=attend, dim=sizes.dim, hidden=sizes.hidden)


def _drawn(sizes: Sizes) -> ExtractiveQABatch[None]:
    random = torch.Generator().manual_seed(0)

    def text(shortest: int, longest: int) -> list[int]:
        length = int(torch.randint(shortest, longest + 1, (), generator=random))
        return torch.randint(4, sizes.words, (length,), generator=random).tolist()

    asked = []
    for number in range(sizes.questions):
        passage = text(*sizes.passage)
        first, last = sorted(torch.randint(len(passage), (2,), generator=random).tolist())
        asked.append(ExtractiveQAExample(text(*sizes.question), str(number), passage=passage, span=(first, last)))
    return ExtractiveQABatch.collate(asked)


def _loss(ends: tuple[Tensor, Tensor], batch: ExtractiveQABatch[None]) -> Tensor:
    return sum(F.cross_entropy(logits, end) for logits, end in zip(ends, batch.spans.T, strict=True))  # type: ignore[return-value]


def _by_pairs(net: BiDAF, batch: ExtractiveQABatch[None]) -> tuple[Tensor, Tensor]:
    """Computes what BiDAF does, with its weights, as the paper writes it."""
    texts = batch.passage, batch.question
    h, u = (_encoded(net.encoder.recurrent, net.vectors.table(text.tokens), text) for text in texts)
    n, m, weights = h.shape[1], u.shape[1], net.flow.of_pair
    assert weights is not None
    above, beside = h.unsqueeze(2).expand(-1, -1, m, -1), u.unsqueeze(1).expand(-1, n, -1, -1)
    scores = torch.cat([above, beside, above * beside], -1) @ weights.flatten()  # w is [w_h; w_u; w_m]
    scores = scores.masked_fill(~batch.question.is_real.unsqueeze(1), -torch.inf)
    to_question = scores.softmax(-1) @ u
    most = scores.amax(-1).masked_fill(~batch.passage.is_real, -torch.inf)
    to_passage = (most.softmax(-1).unsqueeze(1) @ h).expand(-1, n, -1)
    flow = torch.cat([h, to_question, h * to_question, h * to_passage], -1)
    model = _encoded(net.model.recurrent, flow, batch.passage)
    model_end = _encoded(net.model_end.recurrent, model, batch.passage)
    padding = ~batch.passage.is_real
    start = net.start(torch.cat([flow, model], -1)).squeeze(-1)
    end = net.end(torch.cat([flow, model_end], -1)).squeeze(-1)
    return start.masked_fill(padding, -torch.inf), end.masked_fill(padding, -torch.inf)


def _encoded(recurrent: Any, x: Tensor, text: Source) -> Tensor:
    for layer in recurrent.layers:
        rows = pack_padded_sequence(x, text.lengths, batch_first=True, enforce_sorted=False)
        x = pad_packed_sequence(layer(rows)[0], batch_first=True)[0]
    return x


LOSSES: dict[str, Callable[[Any, Any], Tensor]] = {
    OURS: lambda net, batch: _loss(net(batch), batch),
    PAIRS: lambda net, batch: _loss(_by_pairs(net, batch), batch),
}


if __name__ == "__main__":
    main()
