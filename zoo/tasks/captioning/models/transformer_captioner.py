"""Captions by a Transformer decoder that attends to the cells of a picture (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, AttentionFactory, DenseSupport, ScaledDot, Sinusoidal, Softmax
from zoo.attention.dropout import Dropout
from zoo.attention.factories import make_sized
from zoo.nn.images.image_input import ImageInput
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.nn.seq2seq.transformer import SelfAttend, TransformerDecoder, Written, scaled_embeddings
from zoo.types import PositiveInt, Probability, validate_ranges

_SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)


@validate_ranges
class TransformerCaptioner(Seq2SeqModel):
    """The decoder of a Transformer, whose source is the annotations of a picture, projected to its width.

    The output layer is the matrix of embeddings (section 3.4).

    Args:
        tokens: From the data: size of the vocabulary.
        height, width: From the data: size of the pictures.
        attend: `(dim, heads) -> Attention` of the attention to the picture.
        encoder: `PlainCNN` or another `ImageEncoder`, or a partial of it.
        decoder_attend: `(dim, heads) -> Attention` of the self-attention, or a `MixerFactory`.
        dim: Width of an embedding, and of all other rows.
        layers: Number of blocks.
        heads: Heads of each site; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        position: Class or partial of `zoo.attention.positions` that makes what is added to embeddings, or None.
        dropout: Dropout of the inputs, of hidden units and of what blocks add; the attention has that of the weights.
        align: Number of the layer, from 1, whose attention to the picture, averaged over heads, says where each word
            looks. Default: the last.
    """

    align: str
    head: nn.Linear

    def __init__(
        self,
        *,
        tokens: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder: Callable[..., Any],
        decoder_attend: SelfAttend = _SOFTMAX,
        dim: PositiveInt = 128,
        layers: PositiveInt = 2,
        heads: PositiveInt = 4,
        hidden: PositiveInt = 256,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        dropout: Probability = 0.1,
        align: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.encoder: Any = encoder(height=height, width=width)
        self.project = nn.Linear(self.encoder.width, dim)
        self.position = None if position is None else make_sized(position, {"dim": dim})
        self.dropout = Dropout(dropout)
        self.decoder = TransformerDecoder(
            dim=dim,
            layers=layers,
            heads=heads,
            hidden=hidden,
            attend=attend,
            self_attend=decoder_attend,
            dropout=dropout,
            align=align,
        )
        self.head = nn.Linear(dim, tokens, bias=False)
        nn.init.normal_(self.head.weight, std=dim**-0.5)
        self.align = f"decoder.{self.decoder.site}"

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.read)

    def features(self, source: ImageInput, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        found: Tensor = self.decoder(self._embed(read), self._encode(source), DenseSupport())
        return found

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {"target_tokens": {"head.weight": 0}}

    def start(self, source: ImageInput) -> Written:
        return self.decoder.start(self._encode(source), DenseSupport())

    def step(self, tokens: Int[Tensor, "b w"], state: Written) -> tuple[Float[Tensor, "b w v"], Written]:
        x = self._embed(tokens.flatten().unsqueeze(1), state.position)
        rows, after = self.decoder.step(x.view(*tokens.shape, x.shape[-1]), state)
        return self.head(rows), after

    def coverage(self, state: Written) -> Float[Tensor, "b w k"]:
        """Returns the weight that each cell has had in the aligned layer."""
        return self.decoder.coverage(state)

    def _encode(self, source: ImageInput) -> Float[Tensor, "b k d"]:
        found: Tensor = self.project(self.encoder(source).states)
        return self.dropout(found)  # type: ignore[no-any-return]

    def _embed(self, tokens: Int[Tensor, "b n"], first: int = 0) -> Float[Tensor, "b n d"]:
        """Returns the inputs of blocks, with positions from `first`."""
        return self.dropout(scaled_embeddings(tokens, self.head.weight, self.position, first))  # type: ignore[no-any-return]
