"""Small decoders: a table, a recurrent one with attention, and a Transformer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    AttentionFactory,
    DecoderBlock,
    DecoderState,
    DenseSupport,
    FeedForward,
    KVCache,
    LocalM,
    LocationAware,
    MultiheadAttention,
    ScaledDot,
    Softmax,
)
from zoo.attention.attention_state import select_beams

END, BEGIN, WORDS = 0, 1, 12
KINDS = ("recurrent", "location", "transformer", "local")


class Table:
    """Logits by sentence, step and last token; the probability of a text needs no network."""

    def __init__(self, logits: Tensor, weights: Tensor | None = None) -> None:
        self.logits, self.weights = logits, weights
        self.rows: list[tuple[int, int]] = []

    def start(self, source: Tensor) -> tuple[Tensor, int, Tensor]:
        places = 1 if self.weights is None else self.weights.shape[-1]
        return source, 0, self.logits.new_zeros(len(source), 1, places)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        sentences, number, total = state
        self.rows.append(tuple(tokens.shape))
        if self.weights is not None:
            total = total + self.weights[sentences.unsqueeze(1), number, tokens]
        return self.logits[sentences.unsqueeze(1), number, tokens], (sentences, number + 1, total)

    def reorder(self, state: Any, beams: Tensor) -> Any:
        return state[0], state[1], select_beams(state[2], beams)

    def select(self, state: Any, sentences: Tensor) -> Any:
        return state[0][sentences], state[1], state[2][sentences]

    def coverage(self, state: Any) -> Tensor:
        return state[2]


@dataclass(frozen=True)
class Source:
    x: Tensor
    real: Tensor

    def __getitem__(self, index: Any) -> Source:
        """Some of the sentences, without the padding that none of them needs."""
        longest = int(self.real[index].sum(1).max())
        return Source(self.x[index, :longest], self.real[index, :longest])


class RecurrentState(NamedTuple):
    hidden: Tensor
    context: Tensor
    memory: KVCache


class Recurrent(nn.Module):
    """Bahdanau et al. 2015: a GRU whose last state attends; the context goes into the cell and the output."""

    def __init__(self, score: Any = Additive, dim: int = 8, words: int = WORDS, tracks: bool = True) -> None:
        super().__init__()
        self.tracks = tracks
        self.words = nn.Embedding(words, dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.attention = MultiheadAttention(dim=dim, heads=1, attend=AttentionFactory(score=score, normalizer=Softmax))
        self.out = nn.Linear(2 * dim, words)

    def start(self, source: Source) -> RecurrentState:
        memory = self.attention.prepare(source.x, DenseSupport.from_key_mask(source.real))
        nothing = source.x.new_zeros(len(source.x), 1, source.x.shape[2])
        if self.tracks:  # with a state to begin with, the total weight of each key is tracked with every score
            state = self.attention.attend.start(nothing.unsqueeze(1), memory.key, memory.support)
            memory = replace(memory, attention=state)
        return RecurrentState(nothing, nothing, memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        read = torch.cat([self.words(tokens), state.context], -1)
        hidden = self.cell(read.flatten(0, 1), state.hidden.flatten(0, 1)).view(state.hidden.shape)
        context, memory = self.attention.attend_step(hidden, state.memory, parallel_hypotheses=True)
        return self.out(torch.cat([hidden, context], -1)), RecurrentState(hidden, context, memory)

    def reorder(self, state: RecurrentState, beams: Tensor) -> RecurrentState:
        return RecurrentState(
            select_beams(state.hidden, beams), select_beams(state.context, beams), state.memory.select_rows(beams)
        )

    def select(self, state: RecurrentState, sentences: Tensor) -> RecurrentState:
        return RecurrentState(state.hidden[sentences], state.context[sentences], state.memory.reorder(sentences))

    def coverage(self, state: RecurrentState) -> Tensor:
        assert state.memory.attention is not None
        real = state.memory.support.permitted[:, 0]
        return state.memory.attention.total[:, 0].masked_fill(~real, 1.0)


class Transformer(nn.Module):
    """Two blocks of the core between an embedding and an output layer."""

    def __init__(self, restrict: Any = None, dim: int = 8, words: int = WORDS, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, dim)
        attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
        self.blocks = nn.ModuleList(
            DecoderBlock(
                dim=dim,
                mixer=MultiheadAttention(dim=dim, heads=2, attend=attend),
                cross=MultiheadAttention(dim=dim, heads=2, attend=replace(attend, restrict=restrict)),
                feed_forward=FeedForward(dim=dim, width=2 * dim),
            )
            for _ in range(layers)
        )
        self.out = nn.Linear(dim, words)

    def start(self, source: Source) -> list[DecoderState]:
        support = DenseSupport.from_key_mask(source.real)
        return [block.start(source.x, support) for block in self.blocks]

    def step(self, tokens: Tensor, state: list[DecoderState]) -> tuple[Tensor, list[DecoderState]]:
        x = self.words(tokens.flatten()).unsqueeze(1) + self._positions(state[0].position, 1)
        after = []
        for block, own in zip(self.blocks, state, strict=True):
            x, own = block.step(x, own)
            after.append(own)
        return self.out(x).view(*tokens.shape, -1), after

    def whole(self, source: Source, tokens: Tensor) -> Tensor:
        support = DenseSupport.from_key_mask(source.real)
        x = self.words(tokens) + self._positions(0, tokens.shape[1])
        for block in self.blocks:
            x = block(x, source.x, source_support=support)
        return self.out(x)

    def reorder(self, state: list[DecoderState], beams: Tensor) -> list[DecoderState]:
        return [own.reorder(beams) for own in state]

    def select(self, state: list[DecoderState], sentences: Tensor) -> list[DecoderState]:
        return [own.select(sentences) for own in state]

    def _positions(self, first: int, count: int) -> Tensor:
        dim = self.words.embedding_dim
        at = torch.arange(first, first + count, dtype=self.words.weight.dtype).unsqueeze(1)
        angle = at / 100.0 ** (torch.arange(0, dim, 2) / dim)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


def made(kind: str, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    location = partial(LocationAware, filters=2, kernel_size=3)
    decoder = {
        "recurrent": Recurrent,
        "location": partial(Recurrent, location),
        "transformer": Transformer,
        "local": partial(Transformer, partial(LocalM, radius=1)),
    }[kind](**options)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.7)
    return decoder.double().eval()


def sources(lengths: list[int], dim: int = 8, seed: int = 0) -> Source:
    x = torch.randn(len(lengths), max(lengths), dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Source(x, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1))


def begins(count: int) -> Tensor:
    return torch.full((count,), BEGIN)


def table(sentences: int, steps: int, words: int, seed: int, places: int = 0) -> Table:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(sentences, steps, words, words, generator=generator, dtype=torch.float64) * 2.0
    weights = torch.rand(sentences, steps, words, max(places, 1), generator=generator, dtype=torch.float64)
    return Table(logits, weights / weights.sum(-1, keepdim=True) if places else None)
