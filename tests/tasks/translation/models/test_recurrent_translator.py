"""Steps of recurrent translators are the pass over all positions, with every admitted mechanism, in any company."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from recurrent_cases import (
    ADMITTED,
    ATTENTION,
    DECODERS,
    EXACT,
    REFUSED,
    SOURCE,
    SOURCES,
    TARGET,
    TARGETS,
    by_steps,
    gradients,
    mechanism,
    translator,
)
from tiers import each_once

from zoo.attention import record
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets

every_decoder = pytest.mark.parametrize("decoder", DECODERS)
with_one_decoder = each_once(decoder=DECODERS.keys(), path=ADMITTED)
"""In the fast tier, where each mechanism is built with every decoder but decodes with one of them."""


@every_decoder
@pytest.mark.parametrize("path", ATTENTION, ids=lambda path: path.stem)
def test_every_mechanism_is_admitted_or_refused_in_a_sentence(decoder: str, path: Path) -> None:
    if path.stem not in REFUSED:
        net = translator(decoder, mechanism(path))
        assert net.align == (None if path.stem == "none" else "decoder.attention.attend")
        return
    with pytest.raises(ValueError, match=REFUSED[path.stem]) as refusal:
        translator(decoder, mechanism(path))
    assert "\n" not in str(refusal.value)


@with_one_decoder
def test_steps_are_the_pass_over_all_positions(decoder: str, path: Path) -> None:
    """Gradients too, although those of weights are one product in the pass and one for each step otherwise."""
    net = translator(decoder, mechanism(path))
    whole, steps = net.whole(SOURCE, TARGET.read), by_steps(net)
    torch.testing.assert_close(steps, whole, **EXACT)
    for one, other in zip(gradients(net, steps), gradients(net, whole), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@with_one_decoder
def test_padding_and_company_change_nothing(decoder: str, path: Path) -> None:
    net = translator(decoder, mechanism(path))
    whole = net.whole(SOURCE, TARGET.read)
    for row, source, target in zip(whole, SOURCES, TARGETS, strict=True):
        alone = net.whole(Source.pad([source]), Targets.pad([target]).read)
        torch.testing.assert_close(row[None, : len(target) + 1], alone, **EXACT)
    longer = Source(torch.nn.functional.pad(SOURCE.tokens, (0, 3)), SOURCE.lengths)
    torch.testing.assert_close(net.whole(longer, TARGET.read), whole, **EXACT)


@with_one_decoder
def test_hypotheses_take_their_state_with_them(decoder: str, path: Path) -> None:
    """Several hypotheses of a sentence, reordered, and sentences that leave: as rows that are decoded on their own."""
    net = translator(decoder, mechanism(path))
    tokens = torch.tensor([[4, 7, 5], [6, 4, 8], [5, 5, 9]])
    _, state = net.step(tokens[:, :1], net.start(SOURCE))
    state = net.reorder(state, torch.tensor([[0, 0], [0, 0], [0, 0]]))
    second = torch.tensor([[4, 6], [7, 8], [9, 10]])
    _, state = net.step(second, state)
    beams, kept = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0]]), torch.tensor([2, 0])
    state = net.select(net.reorder(state, beams), kept)
    third = torch.tensor([[5, 6, 7], [8, 9, 10]])
    found, state = net.step(third, state)
    for row, sentence in enumerate(kept.tolist()):
        for number, beam in enumerate(beams[sentence].tolist()):
            read = torch.stack([tokens[sentence, 0], second[sentence, beam], third[row, number]])
            alone = net.whole(Source.pad([SOURCES[sentence]]), read[None])
            torch.testing.assert_close(found[row, number], alone[0, -1], **EXACT)
    if path.stem == "none":
        with pytest.raises(ValueError, match="attention=none has none"):
            net.coverage(state)
        return
    covered = net.coverage(state)
    assert covered.shape == (2, 3, 5)
    assert (covered[0, :, 4:] == 1.0).all()  # padding


@with_one_decoder
def test_a_recorder_changes_nothing_and_sees_all_steps(decoder: str, path: Path) -> None:
    net = translator(decoder, mechanism(path))
    plain = net.whole(SOURCE, TARGET.read)
    with record(net) as maps:
        assert torch.equal(net.whole(SOURCE, TARGET.read), plain)
    if net.align is None:
        assert maps.silent == {"decoder.attention.attend": "it is the control without attention"}
        return
    found: Any = maps[net.align]
    sizes = dict(zip(found.axes, found.weights.shape, strict=True))
    assert sizes["batch"] == 3
    assert sizes.get("step", sizes["query"]) == TARGET.read.shape[1]


def test_an_encoder_may_compare_words_by_their_vectors_too() -> None:
    net = translator(encoder={"keys": "both"})
    assert net.decoder.attention.key.weight.shape == (6, 8 + 6)
    torch.testing.assert_close(by_steps(net), net.whole(SOURCE, TARGET.read), **EXACT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "rnn"}, "(kind|cell) is 'gru' or 'lstm', got 'rnn'"),
        ({"compared": None, "hidden": 7}, "queries have width 7 and keys 8: give hidden"),
        ({"encoder": {"keys": "word"}}, "keys is 'state' or 'both', got 'word'"),
        ({"encoder": {"cell": "rnn"}}, "kind is 'gru' or 'lstm', got 'rnn'"),
    ],
)
@every_decoder
def test_bad_options_are_refused(decoder: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translator(decoder, **options)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_single_precision_is_close_to_double(decoder: str, cell: str) -> None:
    """In large sizes: outputs, gradients and steps."""
    made = translator(decoder, cell=cell, dim=400, hidden=600, compared=600)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    single = copy.deepcopy(made).float()
    expected, found = (net.whole(SOURCE, TARGET.read) for net in (made, single))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(gradients(single, found), gradients(made, expected), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        torch.testing.assert_close(by_steps(single).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_search_in_mixed_precision_is_one_in_single_precision(decoder: str, cell: str) -> None:
    """Nothing of a decoder is in half precision, from its first state on: only the encoder's and the output layer's."""
    net = translator(decoder, cell=cell).float()
    with torch.no_grad():
        expected = by_steps(net)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            state, found = net.start(SOURCE), by_steps(net)
    assert state.top.dtype == torch.float32
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)
