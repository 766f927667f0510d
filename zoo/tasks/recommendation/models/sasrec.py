"""SASRec: predicts a user's next item by causal self-attention over the history (Kang & McAuley 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Attention, FeedForward, Learned, MixerFactory, MultiheadAttention, Position, self_attention
from zoo.attention.dropout import Dropout
from zoo.attention.factories import make_sized
from zoo.nn.packing import Packing, mix_sequences
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.models.packing import mix_last
from zoo.types import NonNegativeInt, PositiveInt, Probability, validate_ranges


@validate_ranges
class SASRec(nn.Module):
    """Embeddings of items and positions, blocks, and a norm (section III).

    The score of an item is the dot product with its embedding. Parameters are initialised as in the authors' code:
    matrices and embeddings uniformly (Glorot & Bengio 2010), biases with zero. The port SASRec.pytorch differs: its
    attention has an output projection, and attends to the padding at the start.

    Args:
        items, length: Number of items and length of a window, from the data.
        attend: `(dim, heads) -> Attention`, or a `MixerFactory`.
        dim: Width of the embedding of an item.
        layers: Number of blocks.
        heads: Number of heads, which must divide `dim`.
        hidden: Number of hidden units of the feed-forward networks. Default: `dim`, as in the paper.
        position: Class or partial of `zoo.attention.positions` that makes the encoding added to items, or None. The
            last item always has the last position.
        relative: Class or partial of a `Position` inside the attention. It is not used with a `MixerFactory`, whose
            mixers read the items in order.
        norm: "paper": see `Block`; "pre": a pre-norm block.
        dropout: Dropout of the inputs, of hidden units and of the outputs of blocks; `attend` has that of the weights.
        time_buckets: Number of buckets of the time since the item before, one for each doubling of seconds. Each has a
            learned vector that is added to the item. 0: times are not used.
    """

    def __init__(
        self,
        *,
        items: PositiveInt,
        length: PositiveInt,
        attend: Callable[[int, int], Attention] | MixerFactory,
        dim: PositiveInt = 50,
        layers: PositiveInt = 2,
        heads: PositiveInt = 1,
        hidden: PositiveInt | None = None,
        position: Callable[..., nn.Module] | None = Learned,
        relative: Callable[..., Position] | None = None,
        norm: Literal["paper", "pre"] = "paper",
        dropout: Probability = 0.2,
        time_buckets: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        if norm not in ("paper", "pre"):
            raise ValueError(f"norm is 'paper' or 'pre', got {norm!r}")
        if time_buckets == 1:
            raise ValueError(
                f"time_buckets must be 0 or at least 2, as the first item has a bucket of its own, got {time_buckets}"
            )
        self.length = length
        self.items = nn.Embedding(items, dim)
        self.position = None if position is None else make_sized(position, {"dim": dim, "length": length})
        self.gaps = nn.Embedding(time_buckets, dim) if time_buckets else None
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            Block(
                dim=dim,
                mixer=self_attention(
                    dim=dim,
                    heads=heads,
                    attend=attend,
                    position=None if isinstance(attend, MixerFactory) else relative,
                    length=length,
                    causal=True,
                    project=norm == "pre",
                ),
                feed_forward=FeedForward(dim=dim, width=dim if hidden is None else hidden, dropout=dropout),
                norm=norm,
                dropout=dropout,
            )
            for _ in range(layers)
        )
        self.norm = _norm(dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises all parameters but those that belong to a mechanism or another mixer."""
        tables = [table.weight for table in (self.items, self.gaps) if table is not None]
        tables += [self.position.vectors] if isinstance(self.position, Learned) else []
        for table in tables:
            nn.init.xavier_uniform_(table)
        parts = [part for layer in self.layers for part in layer.children()]
        for linear in (
            each for part in parts if isinstance(part, MultiheadAttention | FeedForward) for each in part.children()
        ):
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, batch: SequenceBatch) -> Float[Tensor, "n d"]:
        """Computes the hidden state of each position, which predicts the item that follows."""
        return self._encode(batch, last=False)

    def last(self, batch: SequenceBatch) -> Float[Tensor, "b d"]:
        """Computes the hidden state of each user's last position; the last block computes no other."""
        return self._encode(batch, last=True)

    def scores(self, vectors: Float[Tensor, "b d"], items: Int[Tensor, " i"] | None = None) -> Float[Tensor, "b i"]:
        """Computes the scores of some items, or of all."""
        return F.linear(vectors, self.items.weight if items is None else self.items(items))

    def resize_parameter(self, name: str, old: Float[Tensor, "..."]) -> Float[Tensor, "..."] | None:
        """Fits learned positions to this window: they are aligned at the last one, and earlier ones may be new."""
        if name != "position.vectors" or not isinstance(self.position, Learned):
            return None
        vectors = self.position.vectors.detach().clone()
        shared = min(len(old), len(vectors))
        vectors[len(vectors) - shared :] = old[len(old) - shared :]
        return vectors

    def _encode(self, batch: SequenceBatch, *, last: bool) -> Float[Tensor, "m d"]:
        packing = Packing(batch.lengths, causal=True)
        x = self._inputs(batch, packing)
        for layer in self.layers:
            x = layer(x, packing, last=last and layer is self.layers[-1])
        return self.norm(x)  # type: ignore[no-any-return]

    def _inputs(self, batch: SequenceBatch, packing: Packing) -> Float[Tensor, "n d"]:
        if packing.longest > self.length:
            raise ValueError(f"a history of {packing.longest} items, and the model sees {self.length} at most")
        x = self.items(batch.items) * math.sqrt(self.items.embedding_dim)
        if self.position is not None:
            # Positions are those of a window that is padded at the start.
            table = self.position(x.new_zeros(1, self.length, x.shape[1]))[0]
            x = x + F.embedding(self.length - batch.lengths[batch.users] + batch.positions, table)
        if self.gaps is not None:
            x = x + self.gaps(_buckets(batch, self.gaps.num_embeddings))
        return self.dropout(x)  # type: ignore[no-any-return]


@validate_ranges
class Block(nn.Module):
    """q = norm(x), y = q + attention(q, x, x), f = norm(y), f + dropout(W_2 dropout(relu(W_1 f + b_1)) + b_2).

    As in the authors' code, keys and values are not normalised, the residual connections add the normalised rows, and
    attention has no output projection; its only dropout is that of the weights. A mixer other than attention takes q.
    With `norm="pre"`, y = x + dropout(attention(norm(x))) and the output is y + dropout(feed_forward(norm(y))).

    Args:
        dim: Width of a row.
        mixer: `MultiheadAttention`, or another `Mixer`.
        feed_forward: Module applied to each row on its own.
        norm: "paper" or "pre".
        dropout: Dropout of the branch that a residual connection adds.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        mixer: nn.Module,
        feed_forward: nn.Module,
        norm: Literal["paper", "pre"],
        dropout: Probability,
    ) -> None:
        super().__init__()
        self.is_paper = norm == "paper"
        self.mixed = _norm(dim)
        self.mixer = mixer
        self.fed = _norm(dim)
        self.feed_forward = feed_forward
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "n d"], packing: Packing, last: bool = False) -> Float[Tensor, "m d"]:
        """Computes all rows, or only the last row of each user."""
        query = self.mixed(x)
        y = (mix_last if last else mix_sequences)(self.mixer, query, x if self.is_paper else query, packing)
        before = query if self.is_paper else x
        before = before[packing.last] if last else before
        y = before + (y if self.is_paper else self.dropout(y))
        normed = self.fed(y)
        return (normed if self.is_paper else y) + self.dropout(self.feed_forward(normed))  # type: ignore[no-any-return]


def _norm(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, eps=1e-8)


def _buckets(batch: SequenceBatch, buckets: int) -> Int[Tensor, " n"]:
    """Computes 1 + floor(log2(1 + seconds since the item before)), at most `buckets` - 1; 0 for a user's first item."""
    if batch.times is None:
        raise ValueError("time_buckets needs the times of items, and there are none: leave it at 0")
    gaps = batch.times.diff(prepend=batch.times[:1]).clamp(min=0)
    found = (1 + (gaps.double() + 1).log2().floor().long()).clamp(max=buckets - 1)
    return found.index_fill(0, batch.starts, 0)
