"""Answers to questions about pictures, by hierarchical co-attention (Lu et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import AlternatingCoAttention, Attention, CoAttention
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.images.encoder import ImageEncoder
from zoo.nn.rnn.modules import Kind
from zoo.tasks.answering.batch import VQABatch
from zoo.tasks.answering.models.padded_rnn import PaddedRecurrent
from zoo.tasks.seq2seq.source import Source
from zoo.types import PositiveInt, Probability, validate_ranges

Order = Literal["parallel", "alternating"]
Fusion = Literal["sum", "product", "concatenation"]
Level = Literal["word", "phrase", "question"]
LEVELS: tuple[Level, ...] = ("word", "phrase", "question")
_ORDERS: dict[str, type[CoAttention] | type[AlternatingCoAttention]] = {
    "parallel": CoAttention,
    "alternating": AlternatingCoAttention,
}
FUSIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "product": torch.mul,
    "concatenation": lambda picture, question: torch.cat([picture, question], -1),
}
_WINDOWS = (1, 2, 3)
"""Words of a phrase."""


@validate_ranges
class HieCoAtt(nn.Module):
    """Picture and question attend to each other, at each level of the question (Lu et al. 2016, section 3).

    The levels are the words, the phrases around them, and the states of a recurrent network over the phrases. With v'
    and q' of each level, h_w = tanh(W_w (v' + q')), h_p = tanh(W_p [v' + q'; h_w]), h_s = tanh(W_s [v' + q'; h_p]), and
    the logits are W_h h_s (eq. 7).

    Args:
        words, answers: Sizes of the vocabulary and of the set of answers, which the data provides.
        height, width: Size of the pictures, likewise.
        attend: `(dim, heads) -> Attention` for all sites; the paper's is a dot product and softmax.
        encoder: `(height, width) -> ImageEncoder`, such as `PlainCNN`, or a partial of it.
        levels: Those at which they attend, from words on; the paper has all three.
        order: Whether both attend at once, or one after another.
        fusion: What is made of both vectors; the paper adds them.
        dim: Width of words, phrases, states and cells, the paper's d. Must be even.
        cell: "lstm", as in the paper, or "gru".
        context: Width of H, the paper's k.
        fused: Width of h.
        dropout: Of word vectors and of h.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        answers: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder: Callable[..., ImageEncoder],
        levels: Sequence[Level] = LEVELS,
        order: Order = "parallel",
        fusion: Fusion = "sum",
        dim: PositiveInt = 64,
        cell: Kind = "lstm",
        context: PositiveInt = 64,
        fused: PositiveInt = 128,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        for name, given, known in (("order", order, list(_ORDERS)), ("fusion", fusion, list(FUSIONS))):
            if given not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, got {given!r}")
        if not levels or list(levels) != [level for level in LEVELS if level in levels]:
            raise ValueError(
                f"levels are some of {', '.join(LEVELS)}, in this order, got {', '.join(levels) or 'none'}"
            )
        if dim % 2:
            raise ValueError(f"dim must be even, because states have two directions, got {dim}")
        self.levels = tuple(levels)
        self.picture = encoder(height=height, width=width)
        self.of_picture = nn.Linear(self.picture.width, dim)
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.phrases = Phrases(dim=dim) if {"phrase", "question"} & set(levels) else None
        self.question = PaddedRecurrent(dim=dim, hidden=dim // 2, cell=cell) if "question" in levels else None
        self.both = nn.ModuleDict({level: _ORDERS[order](dim=dim, hidden=context, attend=attend) for level in levels})
        self.fusion = FUSIONS[fusion]
        read = dim * (2 if fusion == "concatenation" else 1)
        self.fuse = nn.ModuleDict(
            {level: nn.Linear(read + (fused if number else 0), fused) for number, level in enumerate(levels)}
        )
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(fused, answers)

    def forward(self, batch: VQABatch[Any]) -> Float[Tensor, "b answers"]:
        """Returns the logits of the answers."""
        if not isinstance(batch, VQABatch):
            raise ValueError("these questions are not about pictures")
        cells = self.of_picture(self.picture(batch.picture).states)
        asked, hidden = self.encode_levels(batch.question), None
        for level, both in self.both.items():
            both_read = self.fusion(*both(cells, asked[level], None, batch.question.is_real))
            hidden = torch.tanh(self.fuse[level](both_read if hidden is None else torch.cat([both_read, hidden], -1)))
        return self.head(self.dropout(hidden))  # type: ignore[no-any-return]

    def encode_levels(self, question: Source) -> dict[str, Float[Tensor, "b n d"]]:
        """Returns what stands for each word of the questions, at each level."""
        found = {"word": self.vectors(question.tokens)}
        if self.phrases is not None:
            found["phrase"] = self.phrases(found["word"], question)
        if self.question is not None:
            found["question"] = self.question(found["phrase"], question)
        return found


@validate_ranges
class Phrases(nn.Module):
    """The largest of tanh(W_s [q_t; ...; q_(t+s-1)]) for phrases of s = 1, 2 and 3 words, of each feature (eq. 1-2).

    Zeros stand behind the last word.

    Args:
        dim: Width of a word, and of a phrase.
    """

    def __init__(self, *, dim: PositiveInt) -> None:
        super().__init__()
        self.windows = nn.ModuleList(nn.Conv1d(dim, dim, size) for size in _WINDOWS)

    def forward(self, words: Float[Tensor, "b n d"], question: Source) -> Float[Tensor, "b n d"]:
        real = question.is_real.unsqueeze(-1)
        rows = torch.where(real, words, words.new_zeros(())).mT
        read = [window(F.pad(rows, (0, size - 1))) for size, window in zip(_WINDOWS, self.windows, strict=True)]
        return torch.tanh(torch.stack(read).amax(0)).mT  # tanh of the largest is the largest tanh
