"""Listeners: their formulas, a recording alone and in a batch, and a recording in parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from listener_cases import EXACT, FEATURES, LENGTHS, RECURRENT, SIZES, frames, listener
from torch import Tensor
from torch.nn import functional as F

from zoo.tasks.speech import ConvRNNEncoder, PyramidalRNNEncoder


def pyramid(net: Any, x: Tensor) -> Tensor:
    """Chan et al. 2016, eq. 5: layer j reads [h_{2i}; h_{2i+1}] of the layer below; zeros stand behind the end."""
    for number, count in enumerate((1, 2, 3)):
        x = torch.cat([x, x.new_zeros(-len(x) % count, x.shape[1])])
        x = torch.stack([x[at : at + count].flatten() for at in range(0, len(x), count)])
        stage = [each for each in net.stages if hasattr(each, "recurrent")][number]
        x = stage.recurrent.layers[0](x)[0]
    return x


def convolved(net: Any, x: Tensor) -> Tensor:
    """Two convolutions of three rows with stride 2 and one row of zeros at each end, then an LSTM."""
    for stage in net.stages[:2]:
        x = F.relu(F.conv1d(x.t(), stage.filters.weight, stage.filters.bias, stride=2, padding=1)).t()
    return net.stages[2].recurrent.layers[0](x)[0]


@pytest.mark.parametrize(("name", "formula"), [("pyramidal", pyramid), ("convolutional", convolved)])
def test_listeners_compute_their_formulas(name: str, formula: Any) -> None:
    net, source = listener(name), frames()
    found = net(source)
    for number, length in enumerate(LENGTHS):
        expected = formula(net, source.features[number, :length])
        torch.testing.assert_close(found.states[number, : len(expected)], expected, **EXACT)
        forward, backward = expected.chunk(2, -1)
        torch.testing.assert_close(found.summary[number], torch.cat([forward[-1], backward[0]]), **EXACT)


@pytest.mark.parametrize("name", SIZES)
def test_a_recording_is_heard_alike_alone_and_in_a_batch(name: str) -> None:
    net, source = listener(name), frames()
    found = net(source)
    assert net.width == found.states.shape[2]
    assert net.summary_width == found.summary.shape[1]
    for number, length in enumerate(LENGTHS):
        alone = net(source.select(torch.tensor([number])))
        places = -(-length // net.stride)
        assert alone.states.shape[1] == places
        assert found.support.permitted[number].sum() == places
        torch.testing.assert_close(found.states[number, :places], alone.states[0], **EXACT)
        torch.testing.assert_close(found.summary[number], alone.summary[0], **EXACT)
    assert not found.states[~found.support.permitted[:, 0, 0]].any()


@pytest.mark.parametrize("name", SIZES)
def test_padding_has_no_gradient(name: str) -> None:
    net, source = listener(name), frames()
    source.features.requires_grad_()
    net(source).states.sum().backward()
    assert source.features.grad is not None
    assert not source.features.grad[~source.is_real].any()
    assert source.features.grad[source.is_real].isfinite().all()


@pytest.mark.parametrize("name", RECURRENT)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_recording_is_heard_alike_in_parts(name: str, data: Any) -> None:
    net = listener(name, bidirectional=False)
    length = data.draw(st.integers(1, 30))
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=6)))
    source = frames((length,))
    found, heard = [], None
    for start, stop in zip([0, *cuts], [*cuts, length], strict=True):
        states, heard = net.hear(source.features[0, start:stop], heard)
        found.append(states)
    states, _ = net.hear(source.features[0, :0], heard, last=True)
    torch.testing.assert_close(torch.cat([*found, states]), net(source).states[0], **EXACT)


def test_one_directional_listeners_do_not_look_ahead() -> None:
    net, source = listener("pyramidal", bidirectional=False), frames((12,))
    before = net(source)
    source.features[0, 6:] += 1.0
    torch.testing.assert_close(net(source).states[0, :1], before.states[0, :1], rtol=0, atol=0)
    assert not torch.equal(net(source).states[0, 1:], before.states[0, 1:])
    assert not before.summary.any()
    with pytest.raises(ValueError, match="cannot be read backwards: give bidirectional=False"):
        listener("pyramidal").hear(source.features[0])


def test_listeners_refuse_what_they_cannot_read() -> None:
    with pytest.raises(ValueError, match="joined is to be a list, each a whole number of at least 1"):
        PyramidalRNNEncoder(features=FEATURES, joined=(2, 0))
    with pytest.raises(ValueError, match="filters of 1 rows leave out some of each 2: make size larger"):
        ConvRNNEncoder(features=FEATURES, size=1)
