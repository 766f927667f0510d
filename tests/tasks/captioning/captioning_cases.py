"""Small captioners and small pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.attention import Additive, AttentionFactory, Softmax
from zoo.nn import Bahdanau, PlainCNN
from zoo.nn.images.image_input import OriginalImage
from zoo.optim import OptimizerConfig
from zoo.tasks.captioning import Captioner, ShowAttendTell, TransformerCaptioner
from zoo.tasks.captioning.batch import CaptionBatch, CaptionExample, WrittenPicture
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.text import Frequencies, Words

CAPTIONS = [
    ["a red ring", "one ring in red"],
    ["a blue cross above a red ring"],
    ["a cross"],
    ["a red cross left of a ring"],
]
SIDE = 12
ADDITIVE = AttentionFactory(score=Additive, normalizer=Softmax)
ENCODER = partial(PlainCNN, channels=[6], strides=[3], dim=8)
DECODER = partial(Bahdanau, dim=6, hidden=8, compared=5, cell="lstm", readout="tanh", selector=True)


def language() -> TextCodec:
    return TextCodec.from_counts(
        Words(lower=True), Counter(" ".join(text for each in CAPTIONS for text in each).split())
    )


def captioned(number: int) -> CaptionExample:
    text, boxes = CAPTIONS[number][0], torch.zeros(len(CAPTIONS[number][0].split()), 4)
    boxes[1:3] = torch.tensor([0.0, 0.0, 0.5, 0.25])
    pixels = torch.randint(256, (3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
    original = OriginalImage([torch.zeros(3, 20, 30, dtype=torch.uint8)], 0, (0.0, 0.0, 20.0, 30.0))
    target, written = language().encode(text)[1], WrittenPicture(CAPTIONS[number], (20, 30), original)
    return CaptionExample(pixels, None, target, f"picture {number}", "test", boxes, written)


def pictures(which: Sequence[int] = range(4), **options: Any) -> CaptionBatch[Any]:
    options = {"frequencies": Frequencies.from_corpus(CAPTIONS), "mean": [0.5] * 3, "std": [0.3] * 3} | options
    return CaptionBatch.collate([captioned(number) for number in which], language(), **options)


def doubled(batch: CaptionBatch[Any]) -> CaptionBatch[Any]:
    """The batch with pixels in double precision."""
    from dataclasses import replace

    assert batch.source.pixels is not None
    return replace(batch, source=replace(batch.source, pixels=batch.source.pixels.double()))


def recurrent(attend: Any = ADDITIVE, **options: Any) -> ShowAttendTell:
    parts: dict[str, Any] = {"encoder": ENCODER, "decoder": DECODER} | options
    torch.default_generator.manual_seed(0)
    return ShowAttendTell(tokens=len(language()), height=SIDE, width=SIDE, attend=attend, **parts).double()


def transformer(**options: Any) -> TransformerCaptioner:
    torch.default_generator.manual_seed(0)
    sizes = {"dim": 8, "layers": 2, "heads": 2, "hidden": 12} | options
    parts: dict[str, Any] = {"attend": ADDITIVE, "encoder": ENCODER, "dropout": 0.0} | sizes
    return TransformerCaptioner(tokens=len(language()), height=SIDE, width=SIDE, **parts).double()


def captioner(net: Any = recurrent, **options: Any) -> Captioner:
    sizes = {"tokens": len(language()), "height": SIDE, "width": SIDE}
    optimization = OptimizerConfig(optimizer=torch.optim.Adam)
    return Captioner(net=lambda **_: net(), optimization=optimization, **sizes, **options).double()


def gradients(net: torch.nn.Module, value: Tensor) -> dict[str, Tensor]:
    """The gradient of every parameter."""
    names, parameters = zip(*net.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(value, parameters), strict=True))
