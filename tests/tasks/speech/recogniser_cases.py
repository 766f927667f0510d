"""Made-up recordings of letters, small recognisers, and a recogniser that writes what it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.attention import AttentionFactory, LocationAware, Softmax
from zoo.nn import Bahdanau
from zoo.optim import OptimizerConfig
from zoo.tasks.seq2seq.text_codec import END, TextCodec
from zoo.tasks.speech import ListenAttendSpell, PyramidalRNNEncoder, Recogniser
from zoo.tasks.speech.batch import SpeechBatch, Utterance, WrittenUtterance
from zoo.text import Characters

TEXTS = ["ab ba", "b", "aab", "b a b a"]
SPEAKERS = ["jo", "kim", "jo", ""]
FEATURES, STRIDE = 3, 2


def language() -> TextCodec:
    return TextCodec.from_counts(Characters(), Counter("".join(TEXTS)))


def utterance(number: int, of: TextCodec, *, gold: bool = True, text: str | None = None) -> Utterance:
    """A letter is three frames, a space none; two frames of silence come first, and one last."""
    text = TEXTS[number] if text is None else text
    draw = np.random.default_rng(number)
    spans, at = [], 2
    for letter in text:
        length = 0 if letter == " " else 3
        spans.append((at, at + length))
        at += length
    features = draw.normal(size=(at + 1, FEATURES)).astype(np.float32)
    written = WrittenUtterance([text], SPEAKERS[number], snr=[None, 3.0, 12.0, 50.0][number])
    numbers = of.encode(text)[1]
    return Utterance(features, numbers, f"recording {number}", "test", np.array(spans) if gold else None, written)


def batch(which: Sequence[int] = range(4), **options: Any) -> SpeechBatch:
    of = language()
    made = SpeechBatch.collate([utterance(number, of, **options) for number in which], of)
    object.__setattr__(made.source, "rows", made.source.rows.double())
    return made


class Knowing(ListenAttendSpell):
    """Writes what it is told, in the order of the recordings."""

    texts: tuple[list[int], ...] = ()

    def start(self, source: Any) -> Any:
        self.at, self.rows = 0, torch.arange(len(source))
        return super().start(source)

    def select(self, state: Any, sentences: Tensor) -> Any:
        self.rows = self.rows[sentences]
        return super().select(state, sentences)

    def step(self, tokens: Tensor, state: Any) -> Any:
        logits, state = super().step(tokens, state)
        sure = torch.full_like(logits, -20.0)
        for row, text in enumerate(self.rows.tolist()):
            sure[row, :, [*self.texts[text], END][min(self.at, len(self.texts[text]))]] = 20.0
        self.at += 1
        return sure, state


def recogniser(net: Any = ListenAttendSpell, *, attend: Any = None, **options: Any) -> Recogniser:
    torch.default_generator.manual_seed(0)
    attend = attend or AttentionFactory(score=partial(LocationAware, filters=2, kernel_size=3), normalizer=Softmax)
    listener = partial(PyramidalRNNEncoder, hidden=4, joined=(1, STRIDE))
    decoder = partial(Bahdanau, dim=4, hidden=6, compared=5)
    made = partial(net, attend=attend, listener=listener, decoder=decoder)
    optimization = OptimizerConfig(optimizer=torch.optim.Adam)
    module = Recogniser(net=made, optimization=optimization, features=FEATURES, tokens=len(language()), **options)
    return module.double()


def telling(*said: str, **options: Any) -> Recogniser:
    """A recogniser that writes these texts, of recordings in this order."""
    module = recogniser(Knowing, **options)
    module.net.texts = tuple(language().encode(text)[1] for text in said)  # type: ignore[assignment]
    return module.eval()


def figures(module: Recogniser, *batches: SpeechBatch) -> dict[str, float]:
    """The figures of a test."""
    found: dict[str, Any] = {}
    module.log = lambda name, value, **_: found.update({name: value})  # type: ignore[method-assign, assignment]
    module.log_dict = lambda metrics, **_: found.update(metrics)  # type: ignore[method-assign, assignment]
    module.eval()
    module.on_test_epoch_start()
    for number, each in enumerate(batches):
        module.test_step(each, number)
    module.on_test_epoch_end()
    return {name: float(metric.compute()) for name, metric in found.items()}
