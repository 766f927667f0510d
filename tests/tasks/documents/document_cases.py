"""Texts that the tests of documents share."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from zoo.attention import AttentionFactory, Dot, ScaledDot, SlidingWindow, Softmax
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.models.han import HAN, HANTransformer
from zoo.tasks.documents.models.long_document import LongDocument
from zoo.tasks.documents.models.pooled_classifier import FlatAttention

WORDS, CLASSES = 30, 3
DOT = AttentionFactory(score=Dot, normalizer=Softmax)
SCALED = AttentionFactory(score=ScaledDot, normalizer=Softmax)
WINDOW = AttentionFactory(
    score=ScaledDot, normalizer=Softmax, restrict=partial(SlidingWindow, radius=2, global_tokens=1)
)
SMALL = {"words": WORDS, "classes": CLASSES}
HIERARCHIES = {
    "HAN": lambda **options: HAN(**SMALL, **{"attend": DOT, "dim": 6, "hidden": 4, "context": 5} | options),
    "HAN with pairs": lambda **options: HIERARCHIES["HAN"](**{"pairs": 3} | options),
    "HAN with word vectors": lambda **options: HIERARCHIES["HAN"](**{"skip": True} | options),
    "HAN with both": lambda **options: HIERARCHIES["HAN"](**{"pairs": 3, "skip": True} | options),
    "HANTransformer": lambda **options: HANTransformer(
        **SMALL, **{"attend": DOT, "dim": 8, "layers": 2, "heads": 2, "hidden": 12, "context": 5} | options
    ),
}
NETS = {
    **HIERARCHIES,
    "HAN of two layers": lambda: HIERARCHIES["HAN"](layers=2),
    "HAN of LSTMs": lambda: HIERARCHIES["HAN"](cell="lstm"),
    "FlatAttention": lambda: FlatAttention(**SMALL, attend=DOT, dim=6, hidden=4, context=5),
    "FlatAttention, average": lambda: FlatAttention(**SMALL, attend=DOT, dim=6, hidden=4, context=5, encoder="average"),
    "LongDocument": lambda: LongDocument(**SMALL, attend=WINDOW, dim=8, layers=2, heads=2, hidden=12),
}


def made(name: str) -> nn.Module:
    """A net of random weights, in float64."""
    torch.default_generator.manual_seed(0)
    net = NETS[name]().double()
    if getattr(net, "pairs", None) is not None:
        nn.init.normal_(net.pairs.table.weight)  # they start at zero
    return net


def texts(count: int = 6, seed: int = 0) -> list[Document]:
    """Of 1 to 5 sentences of 1 to 9 words, with gold."""
    random = torch.Generator().manual_seed(seed)

    def drawn(low: int, high: int, size: int = 1) -> list[int]:
        return torch.randint(low, high, (size,), generator=random).tolist()

    found = []
    for number in range(count):
        sentences = [drawn(0, WORDS, length) for length in drawn(1, 10, drawn(1, 6)[0])]
        total = sum(map(len, sentences))
        found.append(
            Document(
                sentences,
                label=number % CLASSES,
                id=f"text {number}",
                gold_words=[place == 0 for place in range(total)],
                gold_sentences=[place == 0 for place in range(len(sentences))],
            )
        )
    return found


def batch(count: int = 6, seed: int = 0) -> DocumentBatch:
    return DocumentBatch.collate(texts(count, seed))
