"""Small recurrent translators in float64, one of each decoder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from zoo.attention import Additive, AttentionFactory, Softmax
from zoo.config import plugins
from zoo.nn import Bahdanau, InputFeeding, Luong
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.translation import RecurrentEncoder, RecurrentTranslator

EXACT = {"rtol": 1e-12, "atol": 1e-12}
ADDITIVE = AttentionFactory(score=Additive, normalizer=Softmax)
ATTENTION = list(plugins.find_choices("attention").values())
DECODERS: dict[str, Any] = {"bahdanau": Bahdanau, "luong": Luong, "input_feeding": InputFeeding}
SOURCES = [[5, 6, 7, 8, 9], [4, 5], [9, 8, 7, 6]]
TARGETS = [[4, 5, 6], [7], [8, 9, 4, 5, 6, 7]]
SOURCE, TARGET = Source.pad(SOURCES), Targets.pad(TARGETS)
REFUSED = {
    "bigbird": "BigBird depends on the positions of queries and keys",
    "convolution": "DilatedConvolution replaces self-attention over a whole sequence",
    "degree": "Degree works on EdgeSupport only",
    "dilated": "SlidingWindow depends on the positions of queries and keys",
    "fourier": "FourierMixer replaces self-attention",
    "global_window": "SlidingWindow depends on the positions of queries and keys",
    "linear": "LinearAttention has no weights over a source",
    "linformer": "Linformer has no weights",
    "performer": "Performer has no weights",
    "position_aware": "PositionAware depends on the distance between query and key",
    "recurrent": "GatedRecurrent replaces self-attention",
    "state_space": "replaces self-attention",
    "window": "SlidingWindow depends on the positions of queries and keys",
}
ADMITTED = [path for path in ATTENTION if path.stem not in REFUSED]


def mechanism(path: Path) -> Any:
    """The factory that a file of conf/attention describes."""
    return instantiate(OmegaConf.load(path), _convert_="all")


def translator(
    decoder: str = "bahdanau", attend: Any = ADDITIVE, *, encoder: dict[str, Any] | None = None, **options: Any
) -> RecurrentTranslator:
    """A net whose parameters are all drawn at random."""
    torch.manual_seed(0)
    given = {"dim": 5, "hidden": 8, "compared": 6, "cell": "gru"} | options
    net = RecurrentTranslator(
        source_words=10,
        target_words=11,
        attend=attend,
        encoder=partial(RecurrentEncoder, **({"dim": 6, "hidden": 4} | (encoder or {}))),
        decoder=partial(DECODERS[decoder], **given),
    )
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4)
    return net.double().eval()


def by_steps(net: RecurrentTranslator, source: Source = SOURCE, read: Tensor = TARGET.read) -> Tensor:
    """The logits of all steps, one step after another."""
    state, rows = net.start(source), []
    for number in range(read.shape[1]):
        row, state = net.step(read[:, number : number + 1], state)
        rows.append(row)
    return torch.cat(rows, 1)


def gradients(net: RecurrentTranslator, output: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(output.sin().sum(), list(net.parameters()), allow_unused=True)
    return [
        torch.zeros_like(parameter) if each is None else each
        for each, parameter in zip(found, net.parameters(), strict=True)
    ]
