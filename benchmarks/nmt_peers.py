"""The networks of JoeyNMT, OpenNMT-py and PyTorch that `translation.py` measures, with our weights.

Where a peer computes something else than ours, a few lines here make it compute the same: the first state of
OpenNMT-py's decoder, and the tanh that it leaves out with `mlp`. What that costs is the same on both sides.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD, UNKNOWN
from zoo.tasks.translation import RecurrentTranslator, TransformerTranslator

EPSILON = 1e-6
"""Of JoeyNMT's norms."""


class Joey(nn.Module):
    """A model of JoeyNMT, trained by its own loss and decoded by its own searches.

    Args:
        ours: The network whose sizes and weights it takes: `RecurrentTranslator` with input feeding and additive
            attention, or a `TransformerTranslator` without shared tables.
    """

    def __init__(self, ours: RecurrentTranslator | TransformerTranslator) -> None:
        super().__init__()
        model = importlib.import_module("joeynmt.model")
        decoders, encoders = (importlib.import_module(f"joeynmt.{name}") for name in ("decoders", "encoders"))
        embeddings = importlib.import_module("joeynmt.embeddings").Embeddings
        is_recurrent = isinstance(ours, RecurrentTranslator)
        made = (
            _joey_recurrent(ours, decoders, encoders) if is_recurrent else _joey_transformer(ours, decoders, encoders)
        )
        tables = _tables(ours)
        source, target = (
            embeddings(embedding_dim=len(table[0]), vocab_size=len(table), padding_idx=PAD, scale=not is_recurrent)
            for table in tables
        )
        for one, table in zip((source, target), tables, strict=True):
            one.lut.weight.data.copy_(table)
        made[1].output_layer.weight.data.copy_(ours.head.weight)
        words = SimpleNamespace(
            pad_index=PAD,
            unk_index=UNKNOWN,
            bos_index=BEGIN,
            eos_index=END,
            sep_index=None,
            specials=[],
            lang_tags=[],
            lookup=None,
        )
        self.model = model.Model(made[0], made[1], source, target, words, words)
        self.model.loss_function = ("crossentropy", 0.0)
        self.search = importlib.import_module("joeynmt.search")

    def forward(self, source: Source, targets: Targets) -> Tensor:
        """Returns the logits of all steps."""
        logits: Tensor = self.model._encode_decode(**_joey_batch(source, targets))[0]
        return logits

    def loss(self, source: Source, targets: Targets) -> Tensor:
        found: Tensor = self.model(return_type="loss", **_joey_batch(source, targets))[0]
        return found / targets.lengths.sum()

    @torch.no_grad()
    def texts(self, source: Source, longest: int, width: int) -> list[list[int]]:
        """Returns texts of the largest length: by greedy search if `width` is 1, by beam search otherwise."""
        mask = source.is_real.unsqueeze(1)
        encoded, hidden, _, _ = self.model(
            return_type="encode", src=source.tokens, src_length=source.lengths, src_mask=mask
        )
        given = {"model": self.model, "encoder_output": encoded, "encoder_hidden": hidden, "src_mask": mask}
        given |= {"max_output_length": longest, "min_output_length": longest}
        if width == 1:
            found = self.search.greedy(**given)[0]
        else:
            found = self.search.beam_search(**given, beam_size=width, alpha=-1.0)[0]
        return found.long().tolist()  # type: ignore[no-any-return]


class OpenNMT(nn.Module):
    """OpenNMT-py's recurrent encoder and its decoder without input feeding.

    Args:
        ours: A `RecurrentTranslator` with a `Luong` decoder of a GRU, whose sizes and weights it takes.
        attention: "general" or "mlp".
    """

    def __init__(self, ours: RecurrentTranslator, attention: str) -> None:
        super().__init__()
        rnn_encoder, decoder = _onmt("onmt.encoders.rnn_encoder"), _onmt("onmt.decoders.decoder")
        made = _onmt("onmt.modules").Embeddings
        tables = _tables(ours)
        source, target = (made(len(table[0]), len(table), PAD) for table in tables)
        for one, table in zip((source, target), tables, strict=True):
            one.word_lut.weight.data.copy_(table)
        hidden = ours.decoder.width
        self.encoder = rnn_encoder.RNNEncoder("GRU", True, 1, hidden, embeddings=source)
        self.decoder = decoder.StdRNNDecoder("GRU", True, 1, hidden, attn_type=attention, embeddings=target)
        self.first = nn.Linear(hidden, hidden)
        self.generator = nn.Linear(hidden, len(tables[1]))
        self.is_mlp = attention == "mlp"
        self.encoder.rnn.load_state_dict(ours.encoder.recurrent.layers[0].state_dict())
        self.decoder.rnn.load_state_dict(ours.decoder.layers.state_dict())
        self.first.load_state_dict(ours.decoder.first.project.state_dict())
        self.generator.load_state_dict(ours.head.state_dict())
        self._take_attention(self.decoder.attn, ours.decoder)

    @torch.no_grad()
    def _take_attention(self, attention: Any, ours: Any) -> None:
        width, score = ours.width, ours.attention.attend.score
        attention.linear_out.weight.copy_(ours.readout.weight)
        if self.is_mlp:
            attention.linear_out.bias.copy_(ours.readout.bias)
            attention.linear_query.weight.copy_(ours.attention.query.weight)
            attention.linear_query.bias.zero_()
            attention.linear_context.weight.copy_(ours.attention.key.weight)
            attention.v.weight.copy_(score.vector.view(1, width))
        else:
            attention.linear_in.weight.copy_(score.weight.view(width, width).T)

    def forward(self, source: Source, targets: Targets) -> Tensor:
        """Returns the logits of all steps."""
        states, final, _ = self.encoder(source.tokens.unsqueeze(2), source.lengths)
        self.decoder.init_state(None, None, final)
        self.decoder.state["hidden"] = (self.first(self.decoder.state["hidden"][0]).tanh(),)
        found, _ = self.decoder(targets.read.unsqueeze(2), states, src_len=source.lengths)
        logits: Tensor = self.generator(found.tanh() if self.is_mlp else found)
        return logits

    def loss(self, source: Source, targets: Targets) -> Tensor:
        tokens = targets.tokens.masked_fill(~targets.is_real, -100)
        return F.cross_entropy(self(source, targets).flatten(0, 1), tokens.flatten())


class Torch(nn.Module):
    """`torch.nn.Transformer` between embeddings and an output layer.

    Args:
        ours: A pre-norm `TransformerTranslator` without shared tables, whose sizes and weights it takes.
    """

    def __init__(self, ours: TransformerTranslator) -> None:
        super().__init__()
        block = ours.encoder.blocks[0]
        tables = _tables(ours)
        self.source, self.target = (nn.Embedding.from_pretrained(table.clone(), freeze=False) for table in tables)
        self.head = nn.Linear(ours.head.in_features, ours.head.out_features, bias=False)
        self.head.load_state_dict(ours.head.state_dict())
        self.position, self.dropout = ours.position, nn.Dropout(ours.dropout.p)
        self.transformer = nn.Transformer(
            ours.head.in_features,
            block.mixer.heads,
            len(ours.encoder.blocks),
            len(ours.decoder.blocks),
            block.feed_forward.expand.out_features,
            ours.dropout.p,
            layer_norm_eps=EPSILON,
            batch_first=True,
            norm_first=True,
        )
        for theirs, own, pairs in (
            (self.transformer.encoder, ours.encoder, (("self_attn", "mixer", "norm1", "mixed"),)),
            (
                self.transformer.decoder,
                ours.decoder,
                (("self_attn", "mixer", "norm1", "mixed"), ("multihead_attn", "cross", "norm2", "crossed")),
            ),
        ):
            theirs.norm.load_state_dict(own.norm.state_dict())
            for to, of in zip(theirs.layers, own.blocks, strict=True):
                for attention, mixer, norm, residual in pairs:
                    _take_multi_head(getattr(to, attention), getattr(of, mixer))
                    getattr(to, norm).load_state_dict(getattr(of, residual).norm.state_dict())
                getattr(to, f"norm{len(pairs) + 1}").load_state_dict(of.fed.norm.state_dict())
                to.linear1.load_state_dict(of.feed_forward.expand.state_dict())
                to.linear2.load_state_dict(of.feed_forward.contract.state_dict())

    def forward(self, source: Source, targets: Targets) -> Tensor:
        """Returns the logits of all steps."""
        padding = ~source.is_real
        steps = targets.read.shape[1]
        found = self.transformer(
            self._embedded(self.source, source.tokens),
            self._embedded(self.target, targets.read),
            tgt_mask=torch.ones(steps, steps, dtype=torch.bool).triu(1),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits: Tensor = self.head(found)
        return logits

    def loss(self, source: Source, targets: Targets) -> Tensor:
        tokens = targets.tokens.masked_fill(~targets.is_real, -100)
        return F.cross_entropy(self(source, targets).flatten(0, 1), tokens.flatten())

    def _embedded(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.position(table(tokens) * table.embedding_dim**0.5))
        return x


def _joey_batch(source: Source, targets: Targets) -> dict[str, Any]:
    return {
        "src": source.tokens,
        "src_length": source.lengths,
        "src_mask": source.is_real.unsqueeze(1),
        "trg_input": targets.read,
        "trg": targets.tokens,
        "trg_mask": targets.is_real.unsqueeze(1),
    }


def _joey_recurrent(ours: Any, decoders: ModuleType, encoders: ModuleType) -> tuple[nn.Module, nn.Module]:
    dim, width = ours.encoder.vectors.table.embedding_dim, ours.decoder.width
    encoder = encoders.RecurrentEncoder(hidden_size=width // 2, emb_size=dim)
    encoder.rnn.load_state_dict(ours.encoder.recurrent.layers[0].state_dict())
    decoder = decoders.RecurrentDecoder(
        emb_size=dim, hidden_size=width, encoder=encoder, vocab_size=ours.head.out_features
    )
    with torch.no_grad():
        for name, parameter in ours.decoder.stack.layers[0].named_parameters():
            getattr(decoder.rnn, f"{name}_l0").copy_(parameter)
        context, state = ours.decoder.readout.weight.chunk(2, 1)
        decoder.att_vector_layer.weight.copy_(torch.cat([state, context], 1))
        decoder.att_vector_layer.bias.copy_(ours.decoder.readout.bias)
        decoder.attention.key_layer.weight.copy_(ours.decoder.attention.key.weight)
        decoder.attention.query_layer.weight.copy_(ours.decoder.attention.query.weight)
        decoder.attention.energy_layer.weight.copy_(ours.decoder.attention.attend.score.vector.view(1, width))
        decoder.bridge_layer.load_state_dict(ours.decoder.first.project.state_dict())
    return encoder, decoder


def _joey_transformer(
    ours: TransformerTranslator, decoders: ModuleType, encoders: ModuleType
) -> tuple[nn.Module, nn.Module]:
    block = ours.encoder.blocks[0]
    sizes = {
        "hidden_size": ours.head.in_features,
        "ff_size": block.feed_forward.expand.out_features,
        "num_heads": block.mixer.heads,
        "dropout": ours.dropout.p,
        "emb_dropout": ours.dropout.p,
        "layer_norm": "pre",
    }
    encoder = encoders.TransformerEncoder(num_layers=len(ours.encoder.blocks), **sizes)
    decoder = decoders.TransformerDecoder(
        num_layers=len(ours.decoder.blocks), vocab_size=ours.head.out_features, **sizes
    )
    encoder.layer_norm.load_state_dict(ours.encoder.norm.state_dict())
    decoder.layer_norm.load_state_dict(ours.decoder.norm.state_dict())
    for theirs, own in zip(encoder.layers, ours.encoder.blocks, strict=True):
        _take_joey_multi_head(theirs.src_src_att, own.mixer)
        theirs.layer_norm.load_state_dict(own.mixed.norm.state_dict())
        _take_joey_feed_forward(theirs.feed_forward, own)
    for theirs, own in zip(decoder.layers, ours.decoder.blocks, strict=True):
        _take_joey_multi_head(theirs.trg_trg_att, own.mixer)
        _take_joey_multi_head(theirs.src_trg_att, own.cross)
        theirs.x_layer_norm.load_state_dict(own.mixed.norm.state_dict())
        theirs.dec_layer_norm.load_state_dict(own.crossed.norm.state_dict())
        _take_joey_feed_forward(theirs.feed_forward, own)
    return encoder, decoder


def _take_joey_multi_head(theirs: Any, own: Any) -> None:
    names = {"q_layer": "query", "k_layer": "key", "v_layer": "value", "output_layer": "out"}
    for name, of in names.items():
        getattr(theirs, name).load_state_dict(getattr(own, of).state_dict())


def _take_joey_feed_forward(theirs: Any, own: Any) -> None:
    theirs.layer_norm.load_state_dict(own.fed.norm.state_dict())
    theirs.pwff_layer[0].load_state_dict(own.feed_forward.expand.state_dict())
    theirs.pwff_layer[3].load_state_dict(own.feed_forward.contract.state_dict())


@torch.no_grad()
def _take_multi_head(theirs: Any, own: Any) -> None:
    theirs.in_proj_weight.copy_(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([own.query.bias, own.key.bias, own.value.bias]))
    theirs.out_proj.load_state_dict(own.out.state_dict())


@torch.no_grad()
def comparable(ours: Any) -> Any:
    """Sets to zero what some peer does not have: the vectors of padding, and two biases."""
    for table in _tables(ours):
        table[PAD] = 0.0
    if isinstance(ours, RecurrentTranslator):
        ours.head.bias.zero_()
        ours.decoder.readout.bias.zero_()
    return ours


def _tables(ours: Any) -> tuple[Tensor, Tensor]:
    if isinstance(ours, RecurrentTranslator):
        return ours.encoder.vectors.table.weight.detach(), ours.decoder.vectors.table.weight.detach()
    return ours.source_words.weight.detach(), ours.target_words.weight.detach()


def _onmt(name: str) -> ModuleType:
    """Imports a module of OpenNMT-py, whose package imports libraries that its networks do not use."""
    for library in ("ahocorasick", "fasttext", "spacy"):
        sys.modules.setdefault(library, ModuleType(library))
    return importlib.import_module(name)
