"""The Transformer: steps equal the whole pass, padding and company change nothing, torch's Transformer agrees."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from zoo.attention import (
    ALiBi,
    AttentionFactory,
    Learned,
    Rotary,
    ScaledDot,
    Shaw,
    Sinusoidal,
    Softmax,
    T5Bias,
    TransformerXL,
    record,
)
from zoo.config import plugins
from zoo.decoding import BeamSearch, Ranking, force_decode, greedy
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.text_codec import BEGIN, END
from zoo.tasks.translation import TransformerTranslator

EXACT = {"rtol": 0.0, "atol": 1e-12}
SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
SIZES: dict[str, Any] = {"source_words": 11, "target_words": 13, "dim": 12, "layers": 2, "heads": 2, "hidden": 16}
LENGTHS = [7, 4, 1]
STEPS = 6
FILES = {path.stem: path for path in plugins.find_choices("attention").values()}
PLACES = ("attend", "encoder_attend", "decoder_attend")
ACROSS = (
    "attends from one sequence to another|replaces self-attention|a decoder's attention to its source needs another"
)
REFUSED = {
    "attend": {
        "bigbird": ACROSS,
        "convolution": ACROSS,
        "degree": "Degree works on EdgeSupport only",
        "dilated": ACROSS,
        "fourier": ACROSS,
        "global_window": ACROSS,
        "linear": ACROSS,
        "linformer": ACROSS,
        "none": "nothing but attention to read with",
        "performer": ACROSS,
        "position_aware": ACROSS,
        "recurrent": ACROSS,
        "state_space": ACROSS,
        "window": ACROSS,
    },
    "encoder_attend": {
        "degree": "Degree works on EdgeSupport only",
        "fourier": "would change with its batch",
        "none": "nothing but attention to read with",
    },
    "decoder_attend": {
        "bigbird": "step",
        "degree": "Degree works on EdgeSupport only",
        "fourier": "causal",
        "linformer": "causal",
        "local_p": "causal",
        "none": "nothing but attention to read with",
    },
}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": {"position": None},
    "sinusoidal": {"position": Sinusoidal},
    "learned": {"position": partial(Learned, length=9)},
    "rotary": {"relative": Rotary},
    "alibi": {"relative": ALiBi},
    "t5": {"relative": T5Bias},
    "shaw": {"relative": Shaw},
    "xl": {"relative": TransformerXL},
}
CASES = {f"{place}: {name}": (place, name) for place in PLACES for name in FILES if name not in REFUSED[place]}
OPTIONS: dict[str, dict[str, Any]] = {
    **POSITIONS,
    "post-norm": {"norm": "post"},
    "own tables": {"shared": "none"},
    "one table": {"shared": "all", "target_words": 11},
    "deeper decoder": {"decoder_layers": 3, "align": 2},
    "deeper encoder": {"layers": 3, "decoder_layers": 1},
}


def mechanism(name: str) -> Any:
    return instantiate(OmegaConf.load(FILES[name]), _convert_="all")


def made(**options: Any) -> TransformerTranslator:
    torch.manual_seed(0)
    net = TransformerTranslator(**SIZES | {"attend": SOFTMAX} | options)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4)
    return net.double().eval()


def case(name: str) -> TransformerTranslator:
    if name in OPTIONS:
        return made(**OPTIONS[name])
    place, file = CASES[name]
    return made(layers=1, **{place: mechanism(file)})


every_net = pytest.mark.parametrize("name", [*CASES, *OPTIONS])
every_decoder = pytest.mark.parametrize("name", [*(name for name in CASES if "encoder" not in name), *OPTIONS])


def sources(lengths: list[int] = LENGTHS, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 11, (length,), generator=generator).tolist() for length in lengths]


def read(rows: int, steps: int = STEPS) -> Tensor:
    tokens = torch.randint(4, 11, (rows, steps), generator=torch.Generator().manual_seed(1))
    tokens[:, 0] = BEGIN
    return tokens


@every_decoder
def test_steps_are_the_whole_pass(name: str) -> None:
    net, source, tokens = case(name), Source.pad(sources()), read(3)
    whole = net.whole(source, tokens)
    assert whole.isfinite().all()
    state, rows = net.start(source), []
    for number in range(STEPS):
        row, state = net.step(tokens[:, number : number + 1], state)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)


@every_net
def test_neither_padding_nor_company_changes_a_text(name: str) -> None:
    net, texts, tokens = case(name), sources(), read(3)
    whole = net.whole(Source.pad(texts), tokens)
    for row, text, own in zip(whole, texts, tokens, strict=True):
        torch.testing.assert_close(net.whole(Source.pad([text]), own[None])[0], row, **EXACT)
    torch.testing.assert_close(net.whole(Source.pad(texts), tokens[:, :3]), whole[:, :3], **EXACT)


@every_decoder
def test_hypotheses_go_on_side_by_side(name: str) -> None:
    """Three hypotheses of each sentence, chosen among and left, equal sentences of their own."""
    net, texts, tokens = case(name), sources(), read(9, 4).view(3, 3, 4)
    state = net.start(Source.pad(texts))
    _, state = net.step(tokens[:, :1, 0], state)
    state = net.reorder(state, torch.zeros(3, 3, dtype=torch.long))
    _, state = net.step(tokens[:, :, 1], state)
    beams, left = torch.tensor([[2, 0], [1, 1], [0, 2]]), torch.tensor([2, 0])
    state = net.select(net.reorder(state, beams), left)
    logits, state = net.step(tokens[left, :2, 2], state)
    covered = net.coverage(state)
    for row, sentence in enumerate(left.tolist()):
        for number in range(2):
            origin = int(beams[sentence, number])
            text = torch.cat([tokens[sentence, :1, 0], tokens[sentence, origin, 1:2], tokens[sentence, number, 2:3]])
            alone = Source.pad([texts[sentence]])
            with record(net, layers=[net.align]) as maps:
                whole = net.whole(alone, text[None])
            torch.testing.assert_close(logits[row, number], whole[0, -1], **EXACT)
            total = maps[net.align].dense()[0].mean(0).sum(0)
            torch.testing.assert_close(covered[row, number, : len(total)], total, **EXACT)
            assert (covered[row, number, len(texts[sentence]) :] == 1.0).all()


@pytest.mark.parametrize(
    ("place", "name"), [(place, name) for place in PLACES for name in FILES if name in REFUSED[place]]
)
def test_what_makes_no_sense_is_refused_at_start_up(place: str, name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[place][name]):
        made(**{place: mechanism(name)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared": "all"}, "one vocabulary for both sides, and theirs have 11 and 13"),
        ({"shared": "source"}, "shared is 'none', 'target' or 'all'"),
        ({"norm": "none"}, "norm is 'pre' or 'post'"),
        ({"align": 3}, "one of the decoder's 2 layers"),
        ({"layers": 0}, "layers is to be a whole number of at least 1"),
        ({"heads": 5}, "not divisible by heads=5"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_torchs_transformer_agrees(norm: Any) -> None:
    net = made(norm=norm, shared="none")
    theirs = nn.Transformer(
        12, 2, 2, 2, 16, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    ).eval()
    if norm == "post":  # section 3.1 of the paper has no norms but those of the blocks
        theirs.encoder.norm = theirs.decoder.norm = None
    take_weights(theirs, net)
    source, tokens = Source.pad(sources()), read(3)
    padding = ~source.is_real

    def embedded(numbers: Tensor, table: nn.Embedding) -> Tensor:
        x = table(numbers) * math.sqrt(12)
        angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 10_000 ** (
            torch.arange(0, 12, 2, dtype=x.dtype) / 12
        )
        return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

    assert net.source_words is not None
    assert net.target_words is not None
    found = theirs(
        embedded(source.tokens, net.source_words),
        embedded(tokens, net.target_words),
        tgt_mask=torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    torch.testing.assert_close(net.features(source, tokens), found, rtol=0.0, atol=1e-12)


@torch.no_grad()
def take_weights(theirs: nn.Transformer, net: TransformerTranslator) -> None:
    """Copies our weights into torch's modules."""

    def attention(peer: Any, own: Any) -> None:
        peer.in_proj_weight.copy_(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
        peer.in_proj_bias.copy_(torch.cat([own.query.bias, own.key.bias, own.value.bias]))
        peer.out_proj.load_state_dict(own.out.state_dict())

    for peer, own in zip(theirs.encoder.layers, net.encoder.blocks, strict=True):
        attention(peer.self_attn, own.mixer)
        pairs = [(peer.norm1, own.mixed.norm), (peer.norm2, own.fed.norm)]
        pairs += [(peer.linear1, own.feed_forward.expand), (peer.linear2, own.feed_forward.contract)]
        for one, other in pairs:
            one.load_state_dict(other.state_dict())
    for peer, own in zip(theirs.decoder.layers, net.decoder.blocks, strict=True):
        attention(peer.self_attn, own.mixer)
        attention(peer.multihead_attn, own.cross)
        pairs = [(peer.norm1, own.mixed.norm), (peer.norm2, own.crossed.norm), (peer.norm3, own.fed.norm)]
        pairs += [(peer.linear1, own.feed_forward.expand), (peer.linear2, own.feed_forward.contract)]
        for one, other in pairs:
            one.load_state_dict(other.state_dict())
    if theirs.encoder.norm is not None:
        theirs.encoder.norm.load_state_dict(net.encoder.norm.state_dict())
        theirs.decoder.norm.load_state_dict(net.decoder.norm.state_dict())


@pytest.mark.parametrize(("shared", "tables"), [("none", 3), ("target", 2), ("all", 1)])
def test_a_shared_table_is_one_parameter(shared: Any, tables: int) -> None:
    """There is nothing to tie again: neither a copy nor a checkpoint can part the tables."""
    net = copy.deepcopy(made(shared=shared, target_words=11))
    named = {name for name, parameter in net.named_parameters() if parameter.shape == (11, 12)}
    assert len(named) == tables
    assert set(net.state_dict()) == set(dict(net.named_parameters()))
    vocabularies = net.vocabularies()
    assert {name for each in vocabularies.values() for name in each} == named
    if shared == "all":
        assert vocabularies["source_tokens"] == {}
    elif shared == "target":
        assert list(vocabularies["target_tokens"]) == ["head.weight"]


def test_searches_end_and_agree_with_the_forced_pass() -> None:
    net, texts = made(relative=Rotary), sources()
    begin = torch.full((3,), BEGIN)
    search = BeamSearch(width=4, best=2, ranking=Ranking(coverage=0.2))
    found = search(net, Source.pad(texts), begin, end=END, longest=8)
    for text, best in zip(texts, found, strict=True):
        alone = search(net, Source.pad([text]), begin[:1], end=END, longest=8)[0]
        assert [each.tokens for each in alone] == [each.tokens for each in best]
        for each in best:
            total = force_decode(net, Source.pad([text]), begin[:1], [each.target(END)]).sum().item()
            assert each.log_probability == pytest.approx(total, abs=1e-9)
    assert [each.tokens for each in greedy(net, Source.pad(texts), begin, end=END, longest=8)]


def test_learned_positions_know_their_length() -> None:
    net = made(position=partial(Learned, length=5))
    with pytest.raises(ValueError, match="6 positions, but vectors for 5"):
        net.whole(Source.pad([[4, 5]]), read(1, 6))


def test_t5_has_buckets_for_earlier_positions_alone_in_the_decoder() -> None:
    net = made(relative=T5Bias)
    assert net.decoder.blocks[0].mixer.attend.position.causal  # type: ignore[union-attr,operator]
    assert not net.encoder.blocks[0].mixer.attend.position.causal  # type: ignore[union-attr,operator]
