"""The networks of documents: their papers' formulas in loops, texts apart, memory, options."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from document_cases import CLASSES, DOT, HIERARCHIES, NETS, SCALED, SMALL, WINDOW, WORDS, batch, made, texts
from largest import Largest
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    AttentionFactory,
    Constant,
    DilatedConvolution,
    GatedRecurrent,
    LinearAttention,
    MechanismFactory,
    MixerFactory,
    Rotary,
    Uniform,
    record,
)
from zoo.nn.rnn.modules import Recurrent
from zoo.tasks.documents import HAN, FlatAttention, HANTransformer, LongDocument
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.models.attention_pooling import AttentionPooledLevel
from zoo.tasks.documents.models.bigrams import WordPairs
from zoo.tasks.documents.word_importance import effective_weights, forward_with_weights, weights_of


def annotated(x: Tensor, layer: nn.GRU) -> Tensor:
    """Yang et al. 2016, eq. 1-4 in both directions: their update gate is 1 - PyTorch's, and c_n is none of theirs."""

    def states(x: Tensor, end: str) -> list[Tensor]:
        w, u, b, c = (getattr(layer, f"{part}_l0{end}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        (w_r, w_z, w_h), (u_r, u_z, u_h), (b_r, b_z, b_h), (c_r, c_z, _) = (part.chunk(3) for part in (w, u, b, c))
        h, found = x.new_zeros(u.shape[1]), []
        for each in x:
            z = torch.sigmoid(-w_z @ each - u_z @ h - b_z - c_z)  # eq. 2
            r = torch.sigmoid(w_r @ each + u_r @ h + b_r + c_r)  # eq. 4
            new = torch.tanh(w_h @ each + r * (u_h @ h) + b_h)  # eq. 3
            h = (1 - z) * h + z * new  # eq. 1
            found.append(h)
        return found

    both = zip(states(x, ""), states(x.flip(0), "_reverse")[::-1], strict=True)
    return torch.stack([torch.cat(pair) for pair in both])


def attended(rows: Tensor, level: AttentionPooledLevel) -> tuple[Tensor, Tensor]:
    """Eq. 5-7, and 8-10: the vector and the weights."""
    project, context = level.pool.project, level.pool.query[0]
    u = [torch.tanh(project.weight @ row + project.bias) for row in rows]
    numerators = [(each @ context).exp() for each in u]
    weights = torch.stack([each / sum(numerators) for each in numerators])
    return sum(weight * row for weight, row in zip(weights, rows, strict=True)), weights


def encoded(x: Tensor, level: AttentionPooledLevel) -> Tensor:
    return annotated(x, level.encoder.layers[0])


def transformed(x: Tensor, level: AttentionPooledLevel) -> Tensor:
    return by_pytorch(x, level.encoder, None)


def by_pytorch(x: Tensor, encoder: nn.Module, seen: Tensor | None) -> Tensor:
    """PyTorch's pre-norm layers with these weights, after the sinusoids of Vaswani et al. 2017, section 3.5."""
    length, dim = x.shape
    angles = torch.arange(length).double().unsqueeze(1) / 10_000 ** (torch.arange(0, dim, 2) / dim).double()
    x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    for block in encoder.layers:
        hidden = block.feed_forward.expand.out_features
        layer = nn.TransformerEncoderLayer(
            dim, block.mixer.heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True
        ).double()
        attention, ours = layer.self_attn, block.mixer
        places = {
            layer.norm1: block.mixed.norm,
            layer.norm2: block.fed.norm,
            layer.linear1: block.feed_forward.expand,
            layer.linear2: block.feed_forward.contract,
            attention.out_proj: ours.out,
        }
        parts = (ours.query, ours.key, ours.value)
        given = {
            attention: {
                "in_proj_weight": torch.cat([part.weight for part in parts]),
                "in_proj_bias": torch.cat([part.bias for part in parts]),
            }
        } | {own: dict(other.named_parameters()) for own, other in places.items()}
        names = {module: name for name, module in layer.named_modules()}
        weights = {f"{names[own]}.{name}": each for own, some in given.items() for name, each in some.items()}
        mask = None if seen is None else ~seen
        x = torch.func.functional_call(layer, weights, (x.unsqueeze(0),), {"src_mask": mask}).squeeze(0)
    return encoder.norm(x)


def beside(rows: Tensor, net: nn.Module, sentence: Sequence[int]) -> Tensor:
    """[h_t; the vector of words t - 1 and t; the vector of word t], where attention reads them."""
    if getattr(net, "pairs", None) is not None:
        found = [net.pairs.table.weight[pair_row(net.pairs, *pair)] for pair in zip([None, *sentence], sentence)]  # noqa: B905
        rows = torch.cat([rows, torch.stack(found)], 1)
    return torch.cat([rows, net.vectors.table.weight[list(sentence)]], 1) if getattr(net, "skip", False) else rows


def pair_row(pairs: WordPairs, before: int | None, word: int) -> int:
    codes = pairs.codes.tolist()
    return ((0 if before is None else codes[before]) * 0x2545F491 + codes[word] >> 8) % pairs.table.num_embeddings


def by_loops(net: nn.Module, documents: list[Document]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """A document, a sentence, a word at a time: logits, weights of words, weights of sentences."""
    encode = encoded if isinstance(net, HAN) else transformed
    logits, of_words, of_sentences = [], [], []
    for document in documents:
        vectors = []
        for sentence in document.sentences:
            rows = encode(net.vectors.table.weight[list(sentence)], net.words)
            vector, weights = attended(beside(rows, net, sentence), net.words)
            vectors.append(vector)
            of_words.append(weights)
        states, others = torch.stack(vectors).tensor_split([net.words.encoder.width], 1)
        vector, weights = attended(torch.cat([encode(states, net.sentences), others], 1), net.sentences)
        of_sentences.append(weights)
        logits.append(net.head.weight @ vector + net.head.bias)  # eq. 11
    return torch.stack(logits), of_words, of_sentences


@pytest.mark.parametrize("name", HIERARCHIES)
def test_hierarchies_are_their_formulas(name: str) -> None:
    net, documents = made(name), texts()
    if isinstance(net, HAN):
        for level in (net.words, net.sentences):
            for end in ("", "_reverse"):
                getattr(level.encoder.layers[0], f"bias_hh_l0{end}").data[-4:] = 0.0
    expected, of_words, of_sentences = by_loops(net, documents)
    with record(net) as maps:
        found = net(DocumentBatch.collate(documents))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    words, sentences = maps[net.SITES["words"]], maps[net.SITES["sentences"]]
    torch.testing.assert_close(weights_of(words), torch.cat(of_words), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(weights_of(sentences), torch.cat(of_sentences), rtol=0.0, atol=1e-12)
    product = [w * s for w, s in zip(of_words, torch.cat(of_sentences), strict=True)]
    torch.testing.assert_close(effective_weights(words, sentences), torch.cat(product), rtol=0.0, atol=1e-12)

    named = {n: each for n, each in net.named_parameters() if not n.endswith(("bias_hh_l0", "bias_hh_l0_reverse"))}
    gradients = torch.autograd.grad(expected.sin().sum(), list(named.values()))
    after = torch.autograd.grad(found.sin().sum(), list(named.values()))
    for one, other, where in zip(after, gradients, named, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12, msg=where)


@pytest.mark.parametrize("name", ["FlatAttention", "FlatAttention, average"])
def test_flat_attention_is_its_formula(name: str) -> None:
    """Jain & Wallace 2019, section 2."""
    net, documents, rows = made(name), texts(), []
    for document in documents:
        x = net.vectors.table.weight[[word for sentence in document.sentences for word in sentence]]
        encoder = net.words.encoder
        if isinstance(encoder, Recurrent):
            h = encoder(x, torch.zeros(len(x), dtype=torch.int64), torch.tensor([len(x)]))
        else:
            h = torch.stack([(encoder.project.weight @ each + encoder.project.bias).clamp(min=0.0) for each in x])
        rows.append(net.head.weight @ attended(h, net.words)[0] + net.head.bias)
    named = list(net.parameters())
    expected, found = torch.stack(rows), net(DocumentBatch.collate(documents))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    gradients = torch.autograd.grad(expected.sin().sum(), named)
    for one, other in zip(torch.autograd.grad(found.sin().sum(), named), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_long_documents_are_their_formula() -> None:
    """Beltagy et al. 2020, section 3.1: i and j see each other if they are at most r apart, or one is global."""
    net, documents, rows = made("LongDocument"), texts(), []
    for document in documents:
        words = [word for sentence in document.sentences for word in sentence]
        x = torch.cat([net.class_token.unsqueeze(0), net.vectors.table.weight[words]])
        at = torch.arange(len(x))
        is_global = at == 0
        near = (at - at.unsqueeze(1)).abs() <= 2
        rows.append(by_pytorch(x, net.encoder, near | is_global | is_global.unsqueeze(1))[0])
    expected = net.head(torch.stack(rows))
    with record(net) as maps:
        found = net(DocumentBatch.collate(documents))
    assert list(maps)[-1] == net.class_site
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    named = list(net.parameters())
    gradients = torch.autograd.grad(expected.sin().sum(), named)
    for one, other in zip(torch.autograd.grad(found.sin().sum(), named), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_company_and_order_change_nothing(name: str) -> None:
    net, documents = made(name), texts(7)
    together = net(DocumentBatch.collate(documents))
    for document, expected in zip(documents, together, strict=True):
        torch.testing.assert_close(net(DocumentBatch.collate([document]))[0], expected, rtol=0.0, atol=1e-12)
    order = [3, 6, 0, 5, 1, 4, 2]
    moved = net(DocumentBatch.collate([documents[place] for place in order]))
    torch.testing.assert_close(moved, together[order], rtol=0.0, atol=1e-12)
    beside = DocumentBatch.collate([*documents, Document([[1] * 60, *[[2, 3]] * 40], 0, "long")])
    torch.testing.assert_close(net(beside)[:-1], together, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_every_parameter_learns_and_other_words_do_not(name: str) -> None:
    net, one = made(name), batch()
    net(one).square().sum().backward()
    for where, parameter in net.named_parameters():
        assert parameter.grad is not None, where
        assert parameter.grad.isfinite().all(), where
    unseen = torch.ones(WORDS, dtype=torch.bool)
    unseen[one.words] = False
    assert unseen.any()
    assert not net.vectors.table.weight.grad[unseen].any()


@pytest.mark.parametrize("name", ["HAN", "HAN of LSTMs", "FlatAttention"])
def test_a_long_document_wastes_nothing(name: str) -> None:
    """2,000 sentences beside short texts: no tensor is larger than what all words together need."""
    net, random = made(name), torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 6, (2000,), generator=random).tolist()
    long = Document([[1] * length for length in lengths], 0, "long")
    one = DocumentBatch.collate([*texts(5), long, *texts(5, seed=1)])
    with Largest() as largest:
        net(one).sum().backward()
    gates = {"HAN": 3, "HAN of LSTMs": 4, "FlatAttention": 4}[name] * 4 * 2
    assert largest.elements <= gates * len(one.words)


@pytest.mark.parametrize("attend", [WINDOW, SCALED])
def test_where_a_long_document_looks_is_found_without_a_matrix(attend: AttentionFactory) -> None:
    net = LongDocument(**SMALL, attend=attend, dim=8, layers=2, heads=2, hidden=12).eval()
    one = DocumentBatch.collate([Document([[1] * 20] * 25, 0, "long")])
    with Largest() as largest:
        weights = forward_with_weights(net, one)[1]
    assert largest.elements < 500 * 500 // 4
    with record(net) as maps, torch.no_grad():
        net(one)
    torch.testing.assert_close(weights, maps[net.class_site].dense()[0, :, 0, 1:].mean(0))


@pytest.mark.parametrize("name", HIERARCHIES)
def test_control_without_attention(name: str) -> None:
    """Uniform weights: means of means, and nothing that no one reads."""
    net = HIERARCHIES[name](attend=AttentionFactory(score=Constant, normalizer=Uniform))
    assert not [each for each, _ in net.named_parameters() if "pool" in each]
    one = batch()
    with record(net) as maps:
        net(one)
    expected = 1.0 / (one.sentence_lengths * one.document_lengths[one.documents])[one.sentences]
    found = effective_weights(maps[net.SITES["words"]], maps[net.SITES["sentences"]])
    torch.testing.assert_close(found, expected)


def test_weights_of_words_and_sentences_are_asked_for() -> None:
    net = made("HANTransformer")
    with record(net) as maps:
        net(batch())
    with pytest.raises(ValueError, match="is not a map of words to sentences"):
        weights_of(maps["sentences.encoder.layers.1.mixer.attend"])


@pytest.mark.parametrize("make", [HAN, HANTransformer, FlatAttention])
def test_what_has_no_weights_is_refused(make: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="LinearAttention works on DenseSupport only; Pooling attends over EdgeSup"):
        make(**SMALL, attend=MechanismFactory(site=LinearAttention))


@pytest.mark.parametrize(
    "mixer",
    [
        SCALED,
        WINDOW,
        MechanismFactory(site=LinearAttention),
        MixerFactory(mixer=GatedRecurrent),
        MixerFactory(mixer=partial(DilatedConvolution, layers=2)),
    ],
)
def test_self_attention_of_any_kind(mixer: AttentionFactory | MechanismFactory | MixerFactory) -> None:
    hierarchy = HANTransformer(**SMALL, attend=DOT, self_attend=mixer, dim=8, heads=2, hidden=12).double()
    long = LongDocument(**SMALL, attend=mixer, dim=8, heads=2, hidden=12).double()
    one, alone = batch(), texts()[2]
    for net in (hierarchy, long):
        found = net(one)
        assert found.shape == (6, CLASSES)
        torch.testing.assert_close(net(DocumentBatch.collate([alone]))[0], found[2], rtol=0.0, atol=1e-12)


def test_order_of_words_matters_by_positions_alone() -> None:
    """Without any a Transformer does not know it; with rotary ones it does."""
    turned = [Document([sentence[::-1] for sentence in each.sentences][::-1], each.label, each.id) for each in texts()]
    for relative, same in ((None, True), (Rotary, False)):
        torch.manual_seed(0)
        net = HIERARCHIES["HANTransformer"](position=None, relative=relative).double()
        assert torch.allclose(net(batch()), net(DocumentBatch.collate(turned)), rtol=0.0, atol=1e-12) == same


def test_dropout_and_inference() -> None:
    for make in (HAN, HANTransformer, FlatAttention):
        net, one = make(**SMALL, attend=DOT, dim=8, dropout=0.5), batch()
        assert not torch.equal(net(one), net(one))
        assert torch.equal(net.eval()(one), net(one))


def test_vectors_that_were_trained_before() -> None:
    net, vectors = made("HAN"), torch.randn(WORDS, 6, dtype=torch.float64)
    before, known = net.vectors.table.weight.detach().clone(), torch.arange(WORDS) % 3 == 0
    net.vectors.start_from(vectors, known)
    assert torch.equal(net.vectors.table.weight[known], vectors[known])
    assert torch.equal(net.vectors.table.weight[~known], before[~known])
    assert net.vectors.table.weight.requires_grad
    with pytest.raises(ValueError, match="30 word vectors of width 7 for 30 words of width 6"):
        net.vectors.start_from(torch.zeros(WORDS, 7), known)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (HAN, {"dim": 0}, "dim is to be a whole number of at least 1"),
        (HAN, {"hidden": 0}, "hidden is to be a whole number of at least 1"),
        (HANTransformer, {"layers": 0}, "layers is to be a whole number of at least 1"),
        (HANTransformer, {"heads": 3}, "dim=128 is not divisible by heads=3"),
        (FlatAttention, {"encoder": "average", "layers": 2}, "encoder='average' has one layer"),
        (LongDocument, {"hidden": 0}, "hidden is to be a whole number of at least 1"),
    ],
)
def test_bad_options(make: type[nn.Module], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**SMALL, attend=SCALED, **options)


def test_factories_make_a_site_of_its_own_each() -> None:
    made_for: list[tuple[int, int]] = []

    def attend(dim: int, heads: int) -> Attention:
        made_for.append((dim, heads))
        return SCALED(dim, heads)

    HAN(**SMALL, attend=attend, context=7)
    assert made_for == [(7, 1), (7, 1)]
