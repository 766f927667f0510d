"""Attention finds what the words of generated scenes speak of; a mean over the picture does not say it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.attention import Additive, AttentionFactory, Constant, Softmax, Uniform
from zoo.nn import Bahdanau, PlainCNN
from zoo.tasks.captioning import CaptionData, ShowAttendTell, planted_scenes
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import force_decode_texts


def trained(data: CaptionData, attend: AttentionFactory, epochs: int) -> ShowAttendTell:
    torch.default_generator.manual_seed(0)
    net = ShowAttendTell(
        **data.sizes(),
        attend=attend,
        encoder=partial(PlainCNN, channels=[32, 64], dim=64),
        decoder=partial(Bahdanau, dim=64, hidden=128, compared=64, cell="lstm", readout="tanh", selector=True),
    )
    optimizer = torch.optim.Adam(net.parameters(), 0.002)
    loader = data.train_dataloader()
    for _ in range(epochs):
        for batch in loader:
            is_real = batch.targets.is_real
            features = net.features(batch.source, batch.targets.read)
            optimizer.zero_grad()
            F.cross_entropy(net.head(features[is_real]), batch.targets.tokens[is_real]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    return net.eval()


def content_words(net: Any, batch: CaptionBatch) -> tuple[float, float]:
    """How many of them are right, and how often the heaviest weight lies on what they speak of."""
    assert batch.targets is not None
    gold = batch.gold_cells(net.encoder.grid)
    assert gold is not None
    speaks = gold.any(2)
    with torch.no_grad():
        right = net.whole(batch.source, batch.targets.read).argmax(2) == batch.targets.tokens
    weights = force_decode_texts(net, batch.source, [[*text, END] for text in batch.targets.texts()]).weights
    assert weights is not None
    pointed = gold.gather(2, weights.argmax(2, keepdim=True)).squeeze(2)
    return right[speaks].float().mean().item(), pointed[speaks].float().mean().item()


@pytest.mark.slow
def test_attention_finds_what_words_speak_of_and_a_mean_does_not() -> None:
    data = planted_scenes(
        pictures=3000, held_out=200, least=2, most=3, max_epochs=1, batch_size=32, eval_batch_size=400
    )
    (test,) = data.loader("test")
    right, pointing = content_words(
        trained(data, AttentionFactory(score=Additive, normalizer=Softmax), epochs=10), test
    )
    control, _ = content_words(trained(data, AttentionFactory(score=Constant, normalizer=Uniform), epochs=10), test)
    assert right >= 0.8
    assert pointing >= 0.8
    assert control <= right - 0.2
