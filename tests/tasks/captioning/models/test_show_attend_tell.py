"""Show, Attend and Tell against the equations of Xu et al. 2015, a picture, a step and a number at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captioning_cases import ADDITIVE, DECODER, doubled, gradients, pictures, recurrent
from torch import Tensor

from zoo.attention import AttentionFactory, Constant, MechanismFactory, NoAttention, Uniform, record
from zoo.decoding.teacher_forcing import force_decode
from zoo.nn import PlainCNN
from zoo.tasks.seq2seq.text_codec import BEGIN, END


def by_equations(net: Any, annotations: Tensor, read: list[int]) -> Tensor:
    """The logits of each step of one picture (section 3.1.2, eq. 1-7 and 13; "tanh" as in the authors' code)."""
    a, decoder = list(annotations), net.decoder
    site, layer = decoder.attention, decoder.stack.layers[0]
    mean = sum(a) / len(a)
    h, c = (decoder.first.project.weight @ mean + decoder.first.project.bias).chunk(2)
    h = torch.tanh(h)
    logits = []
    for token in read:
        e = torch.stack(
            [site.attend.score.vector[0] @ torch.tanh(site.query.weight @ h + site.key.weight @ each) for each in a]
        )
        weights = torch.exp(e) / torch.exp(e).sum()
        z = sum(weight * each for weight, each in zip(weights, a, strict=True))
        z = z / (1 + torch.exp(-(decoder.selector.weight[0] @ h + decoder.selector.bias[0])))
        y = decoder.vectors.table.weight[token]
        gates = layer.weight_ih @ torch.cat([y, z]) + layer.bias_ih + layer.weight_hh @ h + layer.bias_hh
        i, f, g, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        deep = torch.tanh(decoder.readout.weight @ torch.cat([h, z, y]) + decoder.readout.bias)
        logits.append(net.head.weight @ deep + net.head.bias)
    return torch.stack(logits)


def test_equations_and_gradients() -> None:
    net, batch = recurrent(), doubled(pictures())
    assert batch.targets is not None
    read = batch.targets.read
    annotations = net.encoder(batch.source).states
    expected = torch.stack([by_equations(net, a, tokens) for a, tokens in zip(annotations, read.tolist(), strict=True)])
    found = net.whole(batch.source, read)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    real = batch.targets.is_real
    ours = gradients(net, found[real].sin().sum())
    theirs = gradients(net, expected[real].sin().sum())
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-10, atol=1e-12, msg=name)
    assert all(value.any() for value in ours.values())


def test_annotations_are_those_of_a_loop_over_cells() -> None:
    """Convolutions as sums over windows, a norm of each cell, and places by Carion et al. 2020, A.4."""
    net, source = recurrent().encoder, doubled(pictures([0])).source
    assert source.pixels is not None
    x = source.pixels[0]
    for layer in (net.layers[0], net.layers[2]):
        step, reach, side = layer.stride[0], layer.padding[0], layer.weight.shape[-1]
        padded = torch.nn.functional.pad(x, [reach] * 4)
        rows = []
        for top in range(0, x.shape[1], step):
            windows = [padded[:, top : top + side, left : left + side] for left in range(0, x.shape[2], step)]
            rows.append(torch.stack([(layer.weight * window).sum((1, 2, 3)) + layer.bias for window in windows], 1))
        x = torch.stack(rows, 1).clamp(min=0.0)
    assert x.shape[1:] == net.grid == (4, 4)
    cells = x.flatten(1).T
    normed = (cells - cells.mean(1, keepdim=True)) / (cells.var(1, correction=0, keepdim=True) + net.norm.eps).sqrt()
    normed = normed * net.norm.weight + net.norm.bias
    places = []
    for row in range(4):
        for column in range(4):
            angles = [torch.tensor(at / 10_000 ** (2 * pair / 4)).double() for at in (row, column) for pair in range(2)]
            places.append(torch.stack([wave for angle in angles for wave in (angle.sin(), angle.cos())]))
    expected = normed + torch.stack(places)
    torch.testing.assert_close(net(source).states[0], expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(net(source).summary[0], expected.mean(0), rtol=1e-6, atol=1e-6)


def test_steps_agree_with_the_whole_and_attend_to_cells() -> None:
    net, batch = recurrent().eval(), doubled(pictures())
    assert batch.targets is not None
    texts = [[*text, END] for text in batch.targets.texts()]
    with record(net, layers=[net.align]) as maps, torch.no_grad():
        found = force_decode(net, batch.source, torch.full((4,), BEGIN), texts)
    whole = net.whole(batch.source, batch.targets.read).log_softmax(-1)
    expected = whole.gather(2, batch.targets.tokens.unsqueeze(2)).squeeze(2)
    real = batch.targets.is_real
    torch.testing.assert_close(found[real], expected[real])
    weights = torch.cat([step.dense() for step in maps["decoder.attention.attend"].steps()], 2)
    assert weights.shape == (4, 1, batch.targets.tokens.shape[1], 16)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_a_closed_gate_hides_the_picture_from_each_step() -> None:
    net, batch = recurrent(), doubled(pictures())
    assert batch.targets is not None
    with torch.no_grad():
        net.decoder.selector.bias.fill_(-1e4)
    annotations = net.encoder(batch.source)
    other = type(annotations)(annotations.states + 1.0, annotations.support, annotations.summary)
    read = batch.targets.read
    assert torch.equal(net.decoder.features(annotations, read), net.decoder.features(other, read))


def test_without_attention_there_is_no_gate() -> None:
    net = recurrent(MechanismFactory(site=NoAttention))
    assert net.align is None
    assert net.decoder.selector is None
    assert recurrent(decoder=lambda **sizes: DECODER(**{**sizes, "selector": False})).decoder.selector is None


def test_uniform_attention_reads_the_mean() -> None:
    net, batch = recurrent(AttentionFactory(score=Constant, normalizer=Uniform)).eval(), doubled(pictures())
    with record(net) as maps:
        net.whole(batch.source, torch.full((4, 1), BEGIN))
    (found,) = maps.values()
    torch.testing.assert_close(found.dense(), torch.full_like(found.dense(), 1 / 16))


def test_channels_and_strides_belong_together() -> None:
    with pytest.raises(ValueError, match="a number of channels for each stride"):
        recurrent(ADDITIVE, encoder=lambda **sizes: PlainCNN(channels=[4, 4], strides=[2], **sizes))
