"""The recurrent decoders on batches of every size."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from zoo.attention import Additive, Attention, DenseSupport, Dot, LocalM, LocationAware, Softmax
from zoo.nn.seq2seq.bahdanau import Bahdanau
from zoo.nn.seq2seq.luong import InputFeeding, Luong
from zoo.nn.seq2seq.state import Encoded

ATTENDS: dict[str, Any] = {
    "additive": lambda d, h: Attention(Additive(dim=d, heads=h), Softmax()),
    "location": lambda d, h: Attention(LocationAware(dim=d, heads=h), Softmax()),
    "local-m": lambda d, h: Attention(Dot(), Softmax(), restrict=LocalM(radius=2)),
}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("decoder", [Bahdanau, Luong, InputFeeding])
def test_a_batch_of_nothing(decoder: Any, cell: Any) -> None:
    """No sentences, or sentences without a word: in training, and by steps of several hypotheses."""
    for attend, (batch, places), grad in itertools.product(ATTENDS.values(), ((0, 4), (0, 0), (2, 0)), (True, False)):
        sizes = {"words": 7, "source_dim": 6, "summary_dim": 5, "key_dim": 6}
        net = decoder(**sizes, attend=attend, dim=4, hidden=6, compared=6, cell=cell, layers=2)
        support = DenseSupport.from_key_mask(torch.ones(batch, places, dtype=torch.bool))
        source = Encoded(torch.randn(batch, places, 6), support, torch.randn(batch, 5))
        with torch.set_grad_enabled(grad):
            found = net.features(source, torch.zeros(batch, 3, dtype=torch.long))
            assert found.shape == (batch, 3, net.width)
            if grad:
                found.sum().backward()
            state = net.start(source).reorder(torch.zeros(batch, 2, dtype=torch.long))
            for _ in range(2):
                found, state = net.step(torch.zeros(batch, 2, dtype=torch.long), state)
                assert found.shape == (batch, 2, net.width)
            assert state.select(torch.arange(batch)).top.shape == (batch, 2, 6)
