"""The decoder of Bahdanau et al. 2015: attention asks with the previous state, and its context enters the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, CrossAttention
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.cells import Kind
from zoo.nn.rnn.deferred_matmul import project_query
from zoo.nn.rnn.stack import RNNStack
from zoo.nn.seq2seq.initial_state import InitialState
from zoo.nn.seq2seq.state import Encoded, RecurrentState
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class Bahdanau(nn.Module):
    """c_i = attend(s_{i-1}, h), s_i = f(s_{i-1}, [y_{i-1}; c_i]), t_i = maxout(U s_i + V y_{i-1} + C c_i).

    Bahdanau et al. 2015, section 3.1 and appendix A.2. The output layer reads t_i. The paper's appendix reads s_{i-1}
    there, its eq. 4 s_i, as here; f is PyTorch's GRU, whose reset gate acts after the product with the state. Attention
    asks with the last layer, and the context enters the first.

    Args:
        words: Size of the vocabulary.
        source_dim, summary_dim, key_dim: Widths of the states, the summary and the keys of the source.
        attend: `(dim, heads) -> Attention`.
        dim: Width of a word vector (620 in the paper).
        hidden: Width of the state (1000 in the paper).
        compared: Width in which states and keys are compared; None: as they are, and of one width.
        out: Width of t (500 in the paper). Default: `hidden`.
        cell: "gru" or "lstm".
        layers: Number of layers.
        readout: "maxout" of pairs, as in the paper, or "tanh".
        selector: Whether the context is multiplied by beta_i = sigmoid(w s_{i-1} + b) before it is used (Xu et al.
            2015, section 4.2.1). With it, an LSTM and a "tanh" readout this is their decoder, as their code computes
            eq. 7; there V is the identity.
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
        compared: PositiveInt | None = 512,
        out: PositiveInt | None = None,
        cell: Kind = "gru",
        layers: PositiveInt = 1,
        readout: Literal["maxout", "tanh"] = "maxout",
        selector: bool = False,
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if readout not in ("maxout", "tanh"):
            raise ValueError(f"readout is 'maxout' or 'tanh', got {readout!r}")
        self.width = hidden if out is None else out
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.attention = CrossAttention(
            dim=hidden, source_dim=source_dim, attend=attend, hidden=compared, key_dim=key_dim
        )
        context = self.attention.width
        self.first = InitialState(summary_dim=summary_dim, hidden=hidden, kind=cell, layers=layers)
        self.stack = RNNStack(word_dim=dim, fed_dim=context, hidden=hidden, kind=cell, layers=layers, dropout=dropout)
        self.selector = nn.Linear(hidden, 1) if selector and context else None
        self.is_maxout = readout == "maxout"
        self.readout = nn.Linear(hidden + context + dim, self.width * (2 if self.is_maxout else 1))
        self.dropout = Dropout(out_dropout)

    def start(self, source: Encoded) -> RecurrentState:
        """Returns the state before the first step."""
        memory = self.attention.add_initial_state(self.attention.prepare(source.states, source.support, source.keys))
        return RecurrentState(self.first(source.summary), memory)

    def features(self, source: Encoded, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n {self.width}"]:
        """Returns t of all steps."""
        memory = self.attention.prepare(source.states, source.support, source.keys)
        found, _ = self._advance(read.t(), RecurrentState(self.first(source.summary), memory))
        return found.transpose(0, 1)

    def step(
        self, tokens: Int[Tensor, "b w"], state: RecurrentState
    ) -> tuple[Float[Tensor, "b w {self.width}"], RecurrentState]:
        """Returns t of the next step of each hypothesis."""
        found, state = self._advance(tokens.view(1, -1), state)
        return found.view(*tokens.shape, self.width), state

    def _advance(
        self, read: Int[Tensor, "n r"], state: RecurrentState
    ) -> tuple[Float[Tensor, "n r {self.width}"], RecurrentState]:
        """Computes steps; the hypotheses of all sentences are rows."""
        words, sizes = self.vectors(read), state.top.shape[:2]
        states = tuple(tuple(each.flatten(0, 1) for each in layer) for layer in state.layers)
        steps, rows = read.shape
        loop, asked = self.stack.loop(words), project_query(self.attention, steps, rows)
        memory, position = state.memory, state.position
        tops, contexts = [], []
        for step in range(steps):
            query = asked(step, states[-1][0])
            query = query.view(*sizes, query.shape[-1])
            context, memory = self.attention.attend_projected(query, memory, position + step, parallel_hypotheses=True)
            context = context.flatten(0, 1)
            contexts.append(context if self.selector is None else context * self.selector(states[-1][0]).sigmoid())
            states = loop.step(step, contexts[-1], states)
            tops.append(states[-1][0])
        # t_i, of all steps at once
        found = self.readout(torch.cat([torch.stack(tops), torch.stack(contexts), words], -1))
        found = torch.maximum(*found.unflatten(-1, (-1, 2)).unbind(-1)) if self.is_maxout else found.tanh()
        layers = tuple(tuple(each.view(*sizes, each.shape[-1]) for each in layer) for layer in states)
        after = replace(state, layers=layers, memory=memory, position=position + steps)
        return self.dropout(found), after
