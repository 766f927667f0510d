"""Questions that the tests of question answering share."""

from __future__ import annotations

from functools import partial

import torch

from zoo.attention import AttentionFactory, Dot, Softmax
from zoo.nn.images.plain_cnn import PlainCNN
from zoo.tasks.answering import ESIM, BiDAF, HieCoAtt
from zoo.tasks.answering.batch import (
    ExtractiveQABatch,
    ExtractiveQAExample,
    NLIBatch,
    NLIExample,
    QuestionExample,
    VQABatch,
    VQAExample,
)

WORDS, ANSWERS = 12, 3
DOT = AttentionFactory(score=Dot, normalizer=Softmax)
CNN = partial(PlainCNN, channels=(4,), strides=(4,), dim=8)
NETS = {
    "coattention": lambda **how: HieCoAtt(
        words=WORDS,
        answers=ANSWERS,
        height=12,
        width=16,
        **{"attend": DOT, "encoder": CNN, "dim": 6, "context": 7, "fused": 9} | how,
    ),
    "bidaf": lambda **how: BiDAF(words=WORDS, **{"attend": DOT, "dim": 5, "hidden": 3} | how),
    "esim": lambda **how: ESIM(words=WORDS, answers=ANSWERS, **{"attend": DOT, "dim": 5, "hidden": 3} | how),
}


BATCHES = {"coattention": VQABatch, "bidaf": ExtractiveQABatch, "esim": NLIBatch}


def passages() -> list[ExtractiveQAExample]:
    """Questions about passages, of different lengths."""
    return [
        ExtractiveQAExample([1, 2, 3], "a", passage=[4, 5, 1, 6, 7], span=(3, 4), kind="x", links=[(0, 2)]),
        ExtractiveQAExample([3], "b", passage=[2, 2], span=(0, 0), kind="y", links=[]),
        ExtractiveQAExample([8, 9, 1, 2, 3, 4], "c", passage=[11], span=(0, 0), kind="x", links=[(5, 0), (0, 0)]),
    ]


def premises() -> list[NLIExample]:
    """The same texts as hypotheses and premises."""
    return [
        NLIExample(text.question, text.id, passage=text.passage, answer=answer, kind=text.kind, links=text.links)
        for text, answer in zip(passages(), (0, 2, 1), strict=True)
    ]


def pictures() -> list[VQAExample]:
    """Questions about pictures of 12 x 16 pixels."""
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, 3, 12, 16), generator=random, dtype=torch.uint8)
    return [
        VQAExample([1, 2, 3, 4], "a", pixels=pixels[0], answer=1, kind="colour", regions=[(0.0, 0.0, 0.5, 0.25)]),
        VQAExample([5], "b", pixels=pixels[1], answer=0, kind="count", regions=[]),
    ]


def examples_for(name: str) -> list[QuestionExample]:
    return {"coattention": pictures, "bidaf": passages, "esim": premises}[name]()
