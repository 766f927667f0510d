"""A small translator and small pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.attention import Additive, AttentionFactory, KVCache, MultiheadAttention, Softmax
from zoo.attention.attention_state import select_beams
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.optim import OptimizerConfig
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.text_codec import END, TextCodec
from zoo.tasks.translation import Translator
from zoo.tasks.translation.batch import Languages, Pair, TranslationBatch, WrittenPair
from zoo.text import Words

SOURCES = ["ein hund läuft .", "zwei kleine hunde laufen dort", "hund", "ein mann und ein hund"]
TARGETS = ["a dog runs .", "two small dogs run there", "dog", "a man and a dog"]


def languages() -> Languages:
    counts = [Counter(" ".join(texts).split()) for texts in (SOURCES, TARGETS)]
    return Languages(*(TextCodec.from_counts(Words(), count) for count in counts))


def pair(number: int, of: Languages, *, links: Any = "diagonal") -> Pair:
    source, target = SOURCES[number], TARGETS[number]
    tokens, numbers = of.source.encode(source)
    if links == "diagonal":
        links = [(place, place) for place in range(len(target.split()))]
    written = WrittenPair(source, [target], [source[a:b] for a, b in tokens.spans], tokens.words)
    return Pair(numbers, of.target.encode(target)[1], f"pair {number}", "test", links, written)


def pairs(which: Sequence[int] = range(4), **options: Any) -> TranslationBatch:
    of = languages()
    return TranslationBatch.collate([pair(number, of, **options) for number in which], of.target)


class State(NamedTuple):
    hidden: Tensor
    memory: KVCache


class Small(Seq2SeqModel):
    """A GRU that attends to embedded words."""

    align = "attend.attend"

    def __init__(self, *, source_words: int, target_words: int, dim: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Embedding(source_words, dim)
        self.embed = nn.Embedding(target_words, dim)
        self.attend = MultiheadAttention(dim=dim, heads=1, attend=AttentionFactory(score=Additive, normalizer=Softmax))
        self.cell = nn.GRUCell(2 * dim, dim)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(2 * dim, target_words)

    def features(self, source: Source, read: Tensor) -> Tensor:
        state, steps = self.start(source), []
        for number in range(read.shape[1]):
            features, state = self._step(read[:, number : number + 1], state)
            steps.append(features)
        return torch.cat(steps, 1)

    @property
    def inputs(self) -> nn.Module:
        return self.encoder

    def vocabularies(self) -> Mapping[str, Mapping[str, int]]:
        target = {"embed.weight": 0, "head.weight": 0, "head.bias": 0}
        return {"source_tokens": {"encoder.weight": 0}, "target_tokens": target}

    def start(self, source: Source) -> State:
        x = self.encoder(source.tokens)
        memory = self.attend.prepare(x, source.support)
        hidden = (x * source.is_real.unsqueeze(-1)).sum(1, keepdim=True) / source.lengths.view(-1, 1, 1)
        tracked = self.attend.attend.start(hidden.unsqueeze(1), memory.key, memory.support)
        return State(hidden, replace(memory, attention=tracked))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        features, state = self._step(tokens, state)
        return self.head(self.dropout(features)), state

    def reorder(self, state: State, beams: Tensor) -> State:
        return State(select_beams(state.hidden, beams), state.memory.select_rows(beams))

    def select(self, state: State, sentences: Tensor) -> State:
        return State(state.hidden[sentences], state.memory.reorder(sentences))

    def coverage(self, state: State) -> Tensor:
        assert state.memory.attention is not None
        return state.memory.attention.total[:, 0].masked_fill(~state.memory.support.permitted[:, 0], 1.0)

    def _step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        context, memory = self.attend.attend_step(state.hidden, state.memory, parallel_hypotheses=True)
        x = torch.cat([self.embed(tokens), context], -1)
        hidden = self.cell(x.flatten(0, 1), state.hidden.flatten(0, 1)).view_as(state.hidden)
        return torch.cat([hidden, context], -1), State(hidden, memory)


class Knowing(Small):
    """Writes what it is told."""

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


def translator(net: Any = Small, **options: Any) -> Translator:
    torch.default_generator.manual_seed(0)
    of = languages()
    optimization = OptimizerConfig(optimizer=torch.optim.Adam)
    sizes = {"source_words": len(of.source), "target_words": len(of.target)}
    return Translator(net=net, optimization=optimization, **sizes, **options).double()
