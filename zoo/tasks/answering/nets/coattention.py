"""Answers to questions about pictures, by co-attention (Lu et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import AlternatingCoAttention, Attend, CoAttention
from zoo.attention.dropout import Dropout
from zoo.attention.ranges import Count, Rate
from zoo.tasks.answering.batch import Questions
from zoo.tasks.captioning.nets.picture_encoder import PictureEncoder
from zoo.tasks.recurrent import Kind
from zoo.tasks.translation.nets.recurrent_encoder import RecurrentEncoder

Order = Literal["parallel", "alternating"]
Fusion = Literal["sum", "product", "concatenation"]
_ORDERS: dict[str, type[CoAttention] | type[AlternatingCoAttention]] = {
    "parallel": CoAttention,
    "alternating": AlternatingCoAttention,
}
FUSIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "product": torch.mul,
    "concatenation": lambda picture, question: torch.cat([picture, question], -1),
}


class CoAttentionAnswerer(nn.Module):
    """Picture and question attend to each other; a layer reads both vectors together (Lu et al. 2016, section 3).

    h = tanh(W (v' + q')), and the logits are W_h h (eq. 7, of the question level alone: there are no levels of words
    and of phrases).

    Args:
        words, answers: Sizes of the vocabulary and of the set of answers, which the data provides.
        height, width: Size of the pictures, likewise.
        attend: `(dim, heads) -> Attend` for all sites; the paper's is a dot product and softmax.
        encoder: `(height, width) -> PictureEncoder`, such as `PlainCNN`, or a partial of it.
        order: Whether both attend at once, or one after another.
        fusion: What is made of both vectors; the paper adds them.
        dim: Width of a word vector.
        hidden: Width of the state of one direction of the question's encoder.
        cell: "lstm", as in the paper, or "gru".
        width_of_both: Width to which cells and words are projected, where they attend.
        context: Width of H, the paper's k.
        fused: Width of h.
        dropout: Of word vectors and of h.
    """

    def __init__(
        self,
        *,
        words: Count,
        answers: Count,
        height: Count,
        width: Count,
        attend: Callable[[int, int], Attend],
        encoder: Callable[..., PictureEncoder],
        order: Order = "parallel",
        fusion: Fusion = "sum",
        dim: Count = 64,
        hidden: Count = 64,
        cell: Kind = "lstm",
        width_of_both: Count = 128,
        context: Count = 128,
        fused: Count = 128,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        for name, given, known in (("order", order, list(_ORDERS)), ("fusion", fusion, list(FUSIONS))):
            if given not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, got {given!r}")
        self.picture = encoder(height=height, width=width)
        self.question = RecurrentEncoder(words=words, dim=dim, hidden=hidden, cell=cell, dropout=dropout)
        self.of_picture = nn.Linear(self.picture.width, width_of_both)
        self.of_question = nn.Linear(self.question.width, width_of_both)
        self.both = _ORDERS[order](dim=width_of_both, hidden=context, attend=attend)
        self.fusion = FUSIONS[fusion]
        self.fuse = nn.Linear(width_of_both * (2 if fusion == "concatenation" else 1), fused)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(fused, answers)

    def forward(self, batch: Questions) -> Float[Tensor, "b answers"]:
        """Returns the logits of the answers."""
        if batch.picture is None:
            raise ValueError("these questions are not about pictures")
        cells = self.of_picture(self.picture(batch.picture).states)
        asked = self.of_question(self.question(batch.question).states)
        seen, said = self.both(cells, asked, None, batch.question.is_real)
        return self.head(self.dropout(torch.tanh(self.fuse(self.fusion(seen, said)))))  # type: ignore[no-any-return]
