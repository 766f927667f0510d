"""The decoders of Luong et al. 2015: attention asks with the current state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Attention, CrossAttention, KVCache
from zoo.attention.cpu import is_enabled
from zoo.attention.dropout import Dropout
from zoo.attention.functional import tanh
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.cells import Kind, rnn_step
from zoo.nn.rnn.deferred_matmul import project_query, repeat_linear
from zoo.nn.rnn.stack import RNNStack
from zoo.nn.seq2seq.initial_state import InitialState
from zoo.nn.seq2seq.state import Encoded, RecurrentState
from zoo.types import PositiveInt, Probability, validate_ranges

_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@validate_ranges
class Luong(nn.Module):
    """h_t = f(h_{t-1}, y_{t-1}), c_t = attend(h_t, h), t = tanh(W [c_t; h_t]) (Luong et al. 2015, section 3, eq. 5).

    No step depends on a context, so training computes all states in one call, and all contexts in another. The first
    state is `InitialState`; the paper's is the last state of the encoder.

    Args:
        words: Size of the vocabulary.
        source_dim, summary_dim, key_dim: Widths of the states, the summary and the keys of the source.
        attend: `(dim, heads) -> Attention`; the paper's are `dot`, `general`, `concat`, `local_m` and `local_p`.
        dim: Width of a word vector.
        hidden: Width of the state, and of t (1000 in the paper).
        compared: Width to which states and keys are projected before they are compared; None, as in the paper: they
            are compared as they are, and of one width.
        cell: "lstm", as in the paper, or "gru".
        layers: Number of layers (4 in the paper).
        dropout: Of word vectors and of what one layer gives to the next.
        out_dropout: Of t.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        source_dim: PositiveInt,
        summary_dim: PositiveInt,
        key_dim: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 256,
        hidden: PositiveInt = 512,
        compared: PositiveInt | None = None,
        cell: Kind = "lstm",
        layers: PositiveInt = 1,
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if cell not in ("gru", "lstm"):
            raise ValueError(f"cell is 'gru' or 'lstm', got {cell!r}")
        self.width = hidden
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.attention = CrossAttention(
            dim=hidden, source_dim=source_dim, attend=attend, hidden=compared, key_dim=key_dim
        )
        self.first = InitialState(summary_dim=summary_dim, hidden=hidden, kind=cell, layers=layers)
        made = nn.GRU if cell == "gru" else nn.LSTM
        self.layers = made(dim, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.kind, self.between = cell, Dropout(dropout)
        self.readout = nn.Linear(self.attention.width + hidden, hidden)
        self.dropout = Dropout(out_dropout)

    def start(self, source: Encoded) -> RecurrentState:
        """Returns the state before the first step."""
        memory = self.attention.add_initial_state(self.attention.prepare(source.states, source.support, source.keys))
        return RecurrentState(self.first(source.summary), memory)

    def features(self, source: Encoded, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n {self.width}"]:
        """Returns t of all steps."""
        hidden, _ = self._run_layers(read, self.first(source.summary))
        memory = self.attention.prepare(source.states, source.support, source.keys)
        context, _ = self.attention.attend_step(hidden, memory)
        return self._read_out(context, hidden)

    def step(
        self, tokens: Int[Tensor, "b w"], state: RecurrentState
    ) -> tuple[Float[Tensor, "b w {self.width}"], RecurrentState]:
        """Returns t of the next step of each hypothesis."""
        rows = tuple(tuple(each.flatten(0, 1).unsqueeze(1) for each in layer) for layer in state.layers)
        hidden, layers = self._run_layers(tokens.view(-1, 1), rows)
        hidden = hidden.view(*tokens.shape, self.width)
        context, memory = self.attention.attend_step(hidden, state.memory, state.position, parallel_hypotheses=True)
        after = tuple(tuple(each.view(hidden.shape) for each in layer) for layer in layers)
        return self._read_out(context, hidden), replace(state, layers=after, memory=memory, position=state.position + 1)

    def _run_layers(
        self, read: Int[Tensor, "r n"], states: tuple[tuple[Float[Tensor, "r 1 d"], ...], ...]
    ) -> tuple[Float[Tensor, "r n d"], tuple[tuple[Float[Tensor, "r d"], ...], ...]]:
        """Returns the states of the last layer at all steps, and those of all layers after the last step."""
        words = self.vectors(read)
        if words.device.type == "cpu" and not torch.compiler.is_compiling() and is_enabled("recurrence"):
            return self._run_steps(words, states)
        first = [torch.cat(part, 1).transpose(0, 1).contiguous() for part in zip(*states, strict=True)]
        hidden, last = self.layers(words, first[0] if len(first) == 1 else tuple(first))
        parts = (last,) if len(first) == 1 else last
        return hidden, tuple(zip(*parts, strict=True))

    def _run_steps(
        self, x: Float[Tensor, "r n e"], states: tuple[tuple[Float[Tensor, "r 1 d"], ...], ...]
    ) -> tuple[Float[Tensor, "r n d"], tuple[tuple[Float[Tensor, "r d"], ...], ...]]:
        """Computes what PyTorch's module computes, which has no kernel for all steps on CPUs."""
        x, after = x.transpose(0, 1), []
        for number, state in enumerate(states):
            to_input, to_state, bias, of_bias = (getattr(self.layers, f"{part}_l{number}") for part in _PARTS)
            x = self.between(x) if number else x
            now = tuple(each.squeeze(1) for each in state)
            of_state = repeat_linear(of_bias, to_state, *x.shape[:2])
            found = []
            for step, of_input in enumerate(F.linear(x, to_input, bias).unbind(0)):
                now = rnn_step(self.kind, of_input, of_state(step, now[0]), now)
                found.append(now[0])
            x = torch.stack(found)
            after.append(now)
        return x.transpose(0, 1), tuple(after)

    def _read_out(self, context: Float[Tensor, "b n s"], hidden: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.dropout(tanh(self.readout(torch.cat([context, hidden], -1))))  # type: ignore[no-any-return]


@validate_ranges
class InputFeeding(nn.Module):
    """`Luong`, with t of the step before as a second input of f (Luong et al. 2015, section 3.3).

    Args:
        words, source_dim, summary_dim, key_dim, attend, dim, hidden, compared, cell, layers, dropout: See `Luong`.
        out_dropout: Of t, as the output layer reads it; the next step reads all of it.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        source_dim: PositiveInt,
        summary_dim: PositiveInt,
        key_dim: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 256,
        hidden: PositiveInt = 512,
        compared: PositiveInt | None = None,
        cell: Kind = "lstm",
        layers: PositiveInt = 1,
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.width = hidden
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.attention = CrossAttention(
            dim=hidden, source_dim=source_dim, attend=attend, hidden=compared, key_dim=key_dim
        )
        self.first = InitialState(summary_dim=summary_dim, hidden=hidden, kind=cell, layers=layers)
        self.stack = RNNStack(word_dim=dim, fed_dim=hidden, hidden=hidden, kind=cell, layers=layers, dropout=dropout)
        self.readout = nn.Linear(self.attention.width + hidden, hidden)
        self.dropout = Dropout(out_dropout)

    def start(self, source: Encoded) -> RecurrentState:
        """Returns the state before the first step."""
        memory = self.attention.add_initial_state(self.attention.prepare(source.states, source.support, source.keys))
        return self._begin(source, memory)

    def features(self, source: Encoded, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n {self.width}"]:
        """Returns t of all steps."""
        memory = self.attention.prepare(source.states, source.support, source.keys)
        found, _ = self._advance(read.t(), self._begin(source, memory))
        return found.transpose(0, 1)

    def step(
        self, tokens: Int[Tensor, "b w"], state: RecurrentState
    ) -> tuple[Float[Tensor, "b w {self.width}"], RecurrentState]:
        """Returns t of the next step of each hypothesis."""
        found, state = self._advance(tokens.view(1, -1), state)
        return found.view(*tokens.shape, self.width), state

    def _begin(self, source: Encoded, memory: KVCache) -> RecurrentState:
        layers = self.first(source.summary)
        return RecurrentState(layers, memory, torch.zeros_like(layers[0][0]))

    def _advance(
        self, read: Int[Tensor, "n r"], state: RecurrentState
    ) -> tuple[Float[Tensor, "n r {self.width}"], RecurrentState]:
        """Computes steps; the hypotheses of all sentences are rows."""
        sizes, (steps, rows) = state.top.shape[:2], read.shape
        states = tuple(tuple(each.flatten(0, 1) for each in layer) for layer in state.layers)
        loop = self.stack.loop(self.vectors(read))
        asked = project_query(self.attention, steps, rows)
        readout = repeat_linear(self.readout.bias, self.readout.weight, steps, rows)
        assert state.fed is not None
        memory, position, fed = state.memory, state.position, state.fed.flatten(0, 1)
        found = []
        for step in range(steps):
            states = loop.step(step, fed, states)
            top = states[-1][0]
            query = asked(step, top)
            query = query.view(*sizes, query.shape[-1])
            context, memory = self.attention.attend_projected(query, memory, position + step, parallel_hypotheses=True)
            fed = readout(step, torch.cat([context.flatten(0, 1), top], -1)).tanh()
            found.append(fed)
        layers = tuple(tuple(each.view(*sizes, each.shape[-1]) for each in layer) for layer in states)
        after = replace(
            state, layers=layers, memory=memory, fed=fed.view(*sizes, self.width), position=position + steps
        )
        return self.dropout(torch.stack(found)), after
