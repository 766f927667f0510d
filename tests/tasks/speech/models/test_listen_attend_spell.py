"""Listen, Attend and Spell: all steps at once and one by one, and each recording alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from listener_cases import EXACT, FEATURES, LENGTHS, frames
from torch import nn

from zoo.attention import Additive, AttentionFactory, LocationAware, Monotonic, Softmax, record
from zoo.nn import Bahdanau, InputFeeding, Luong
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.speech import ConvRNNEncoder, ListenAttendSpell, PyramidalRNNEncoder, TransformerSpeechEncoder

ATTEND: dict[str, Any] = {
    "additive": AttentionFactory(score=Additive, normalizer=Softmax),
    "location": AttentionFactory(score=partial(LocationAware, filters=3, kernel_size=3), normalizer=Softmax),
    "monotonic": AttentionFactory(score=Additive, normalizer=Monotonic),
}
LISTENERS: dict[str, Any] = {
    "pyramidal": partial(PyramidalRNNEncoder, hidden=4, joined=(1, 2)),
    "convolutional": partial(ConvRNNEncoder, channels=(5,), hidden=4),
    "transformer": partial(TransformerSpeechEncoder, channels=(5,), dim=8, layers=1, heads=2, hidden=6),
}
TARGETS = Targets.pad([[4, 5, 6, 4], [4], [], [7, 7], [5, 6], [4, 8, 8, 5, 9], [6]])


def speller(attend: str = "location", listener: str = "pyramidal", decoder: Any = Bahdanau) -> ListenAttendSpell:
    torch.manual_seed(0)
    net = ListenAttendSpell(
        features=FEATURES,
        tokens=10,
        attend=ATTEND[attend],
        listener=LISTENERS[listener],
        decoder=partial(decoder, dim=5, hidden=8, compared=6),
    )
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.4)
    return net.double().eval()


@pytest.mark.parametrize("attend", ATTEND)
@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("decoder", [Bahdanau, Luong, InputFeeding])
def test_steps_are_those_of_the_whole_text(attend: str, listener: str, decoder: Any) -> None:
    net, source = speller(attend, listener, decoder), frames()
    whole = net.whole(source, TARGETS.read)
    state = net.start(source)
    for number in range(TARGETS.read.shape[1]):
        row, state = net.step(TARGETS.read[:, number : number + 1], state)
        torch.testing.assert_close(row[:, 0], whole[:, number], **EXACT)
    for number in (1, 5):
        alone = net.whole(source.select(torch.tensor([number])), TARGETS.read[[number]])
        torch.testing.assert_close(alone[0], whole[number], **EXACT)


@pytest.mark.parametrize("listener", LISTENERS)
def test_the_site_that_aligns_has_a_row_for_each_step_and_a_column_for_each_place(listener: str) -> None:
    net = speller(listener=listener)
    assert net.stride == 2
    assert net.align is not None
    with record(net) as maps:
        net.whole(frames(), TARGETS.read)
    weights = torch.cat([step.dense() for step in maps[net.align].steps()], 2)
    assert weights.shape == (len(LENGTHS), 1, 6, 7)
    for number, length in enumerate(LENGTHS):
        places = -(-length // net.stride)
        torch.testing.assert_close(weights[number, 0, :, :places].sum(-1), torch.ones(6).double(), **EXACT)


def test_tokens_are_matched_by_name() -> None:
    found = speller().vocabularies()
    shapes = {name: parameter.shape for name, parameter in speller().named_parameters()}
    assert set(found) == {"target_tokens"}
    assert all(shapes[name][axis] == 10 for name, axis in found["target_tokens"].items())
