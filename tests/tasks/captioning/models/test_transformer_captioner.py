"""A Transformer decoder over the cells of a picture; its blocks are compared with PyTorch's in tests/attention."""

from __future__ import annotations

import torch
from captioning_cases import doubled, pictures, transformer

from zoo.attention import DenseSupport, record
from zoo.decoding.teacher_forcing import force_decode
from zoo.tasks.seq2seq.text_codec import BEGIN, END


def test_steps_agree_with_the_whole() -> None:
    net, batch = transformer().eval(), doubled(pictures())
    assert batch.targets is not None
    texts = [[*text, END] for text in batch.targets.texts()]
    found = force_decode(net, batch.source, torch.full((4,), BEGIN), texts)
    whole = net.whole(batch.source, batch.targets.read).log_softmax(-1)
    expected = whole.gather(2, batch.targets.tokens.unsqueeze(2)).squeeze(2)
    real = batch.targets.is_real
    torch.testing.assert_close(found[real], expected[real])


def test_words_are_scaled_rows_of_the_output_layer_with_positions_and_the_picture_is_projected() -> None:
    """Vaswani et al. 2017, sections 3.4 and 3.5."""
    net, batch = transformer().eval(), doubled(pictures([2]))
    assert batch.targets is not None
    read = batch.targets.read
    rows = []
    for place, token in enumerate(read[0].tolist()):
        angles = [torch.tensor(place / 10_000 ** (2 * pair / 8)).double() for pair in range(4)]
        waves = torch.stack([wave for angle in angles for wave in (angle.sin(), angle.cos())])
        rows.append(net.head.weight[token] * 8**0.5 + waves)
    source = torch.stack([net.project.weight @ a + net.project.bias for a in net.encoder(batch.source).states[0]])
    found = net.decoder(torch.stack(rows)[None], source[None], DenseSupport()) @ net.head.weight.T
    torch.testing.assert_close(net.whole(batch.source, read), found, rtol=1e-6, atol=1e-6)


def test_the_aligned_layer_is_recorded() -> None:
    net, batch = transformer(align=1).eval(), doubled(pictures())
    assert batch.targets is not None
    assert net.align == "decoder.blocks.0.cross.attend"
    with record(net, layers=[net.align]) as maps:
        net.whole(batch.source, batch.targets.read)
    assert maps[net.align].dense().shape == (4, 2, batch.targets.tokens.shape[1], 16)
