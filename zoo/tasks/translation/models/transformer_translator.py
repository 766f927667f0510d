"""The Transformer: encoder and decoder without recurrence (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, AttentionFactory, Learned, Position, ScaledDot, Sinusoidal, Softmax
from zoo.attention.dropout import Dropout
from zoo.attention.factories import make_sized
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.nn.seq2seq.transformer import (
    Norm,
    SelfAttend,
    TransformerDecoder,
    TransformerEncoder,
    Written,
    scaled_embeddings,
)
from zoo.tasks.seq2seq.source import Source
from zoo.types import PositiveInt, Probability, validate_ranges

_SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)


@validate_ranges
class TransformerTranslator(Seq2SeqModel):
    """Embeddings times sqrt(d) with positions, an encoder, a decoder that attends to it, and logits (section 3).

    Matrices are drawn uniformly (Glorot & Bengio 2010), embeddings and learned positions with a variance of 1/d.

    Args:
        source_words, target_words: From the data: sizes of the vocabularies.
        attend: `(dim, heads) -> Attention` of the decoder's attention to the source.
        encoder_attend, decoder_attend: The same for the self-attention of both, or a `MixerFactory`.
        dim: Width of an embedding, and of all other rows.
        layers: Blocks of the encoder.
        decoder_layers: Blocks of the decoder. Default: `layers`.
        heads: Heads of each site; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        position: Class or partial of `zoo.attention.positions` that makes what is added to embeddings, or None.
        relative: Class or partial of a `Position` inside self-attention; with a `MixerFactory` it is not used.
        norm: "pre" (Xiong et al. 2020) or "post", as in the paper.
        shared: Which tables are the output layer's matrix (section 3.4): "none", the "target" embeddings, or "all", the
            source embeddings too, which needs one vocabulary for both sides.
        dropout: Dropout of the inputs, of hidden units and of what blocks add; the attention has that of the weights.
        align: Number of the decoder's layer, from 1, whose attention to the source, averaged over heads, is the
            alignment. Default: the last.
    """

    align: str
    head: nn.Linear

    def __init__(
        self,
        *,
        source_words: PositiveInt,
        target_words: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder_attend: SelfAttend = _SOFTMAX,
        decoder_attend: SelfAttend = _SOFTMAX,
        dim: PositiveInt = 256,
        layers: PositiveInt = 3,
        decoder_layers: PositiveInt | None = None,
        heads: PositiveInt = 4,
        hidden: PositiveInt = 1024,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        relative: Callable[..., Position] | None = None,
        norm: Norm = "pre",
        shared: Literal["none", "target", "all"] = "target",
        dropout: Probability = 0.1,
        align: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        if shared not in ("none", "target", "all"):
            raise ValueError(f"shared is 'none', 'target' or 'all', got {shared!r}")
        if shared == "all" and source_words != target_words:
            raise ValueError(
                f"shared='all' needs one vocabulary for both sides, and theirs have {source_words} and {target_words} "
                "tokens: set data.joint=true, or shared='target'"
            )
        self.source_words = None if shared == "all" else nn.Embedding(source_words, dim)
        self.target_words = None if shared != "none" else nn.Embedding(target_words, dim)
        self.position = None if position is None else make_sized(position, {"dim": dim})
        self.dropout = Dropout(dropout)
        self.read = nn.Identity()
        self.encoder = TransformerEncoder(
            dim=dim,
            layers=layers,
            heads=heads,
            hidden=hidden,
            attend=encoder_attend,
            relative=relative,
            norm=norm,
            dropout=dropout,
        )
        self.decoder = TransformerDecoder(
            dim=dim,
            layers=layers if decoder_layers is None else decoder_layers,
            heads=heads,
            hidden=hidden,
            attend=attend,
            self_attend=decoder_attend,
            relative=relative,
            norm=norm,
            dropout=dropout,
            align=align,
        )
        self.head = nn.Linear(dim, target_words, bias=False)
        self.align = f"decoder.{self.decoder.site}"
        tables = [table.weight for table in (self.source_words, self.target_words, self.head) if table is not None]
        for table in tables + ([self.position.vectors] if isinstance(self.position, Learned) else []):
            nn.init.normal_(table, std=dim**-0.5)

    @property
    def inputs(self) -> nn.Module:
        return self.read

    def features(self, source: Source, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        found: Tensor = self.decoder(self._embed(read, self.target_words), self._encode(source), source.support)
        return found

    def vocabularies(self) -> dict[str, dict[str, int]]:
        of_target = {"head.weight": 0} | ({} if self.target_words is None else {"target_words.weight": 0})
        of_source = {} if self.source_words is None else {"source_words.weight": 0}
        return {"source_tokens": of_source, "target_tokens": of_target}

    def start(self, source: Source) -> Written:
        return self.decoder.start(self._encode(source), source.support)

    def step(self, tokens: Int[Tensor, "b w"], state: Written) -> tuple[Float[Tensor, "b w v"], Written]:
        x = self._embed(tokens.flatten().unsqueeze(1), self.target_words, state.position)
        rows, after = self.decoder.step(x.view(*tokens.shape, x.shape[-1]), state)
        return self.head(rows), after

    def coverage(self, state: Written) -> Float[Tensor, "b w k"]:
        """Returns the weight that each place of the source has had in the aligned layer; 1 at padding."""
        return self.decoder.coverage(state)

    def _encode(self, source: Source) -> Float[Tensor, "b k d"]:
        found: Tensor = self.encoder(self.read(self._embed(source.tokens, self.source_words)), source.support)
        return found

    def _embed(self, tokens: Int[Tensor, "b n"], table: nn.Embedding | None, first: int = 0) -> Float[Tensor, "b n d"]:
        """Returns the inputs of blocks, from a table or from the output layer's matrix, with positions from `first`."""
        weight: Tensor = self.head.weight if table is None else table.weight
        return self.dropout(scaled_embeddings(tokens, weight, self.position, first))  # type: ignore[no-any-return]
