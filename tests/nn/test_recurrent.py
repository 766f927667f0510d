"""GRU and LSTM over packed rows: their formulas a step at a time, PyTorch's modules, gradients, sequences apart."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from zoo.nn.rnn.kernels import Steps, shift_states
from zoo.nn.rnn.modules import Recurrent, padded_lstm, run_packed

LENGTHS = torch.tensor([3, 1, 7, 4, 7])
OWNERS = torch.arange(5).repeat_interleave(LENGTHS)
KINDS = ("gru", "lstm")


def drawn(kind: Literal["gru", "lstm"], layers: int = 1, dropout: float = 0.0) -> tuple[Recurrent, Tensor]:
    torch.default_generator.manual_seed(0)
    net = Recurrent(dim=4, hidden=3, kind=kind, layers=layers, dropout=dropout).double()
    return net, torch.randn(int(LENGTHS.sum()), 4, dtype=torch.float64, requires_grad=True)


def gru(x: Tensor, layer: nn.GRU, end: str) -> list[Tensor]:
    """Cho et al. 2014, section 2.3: h' = z h + (1 - z) n, the second bias of n inside the reset."""
    w, u, b, c = (getattr(layer, f"{part}_l0{end}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n), (c_r, c_z, c_n) = (part.chunk(3) for part in (w, u, b, c))
    state, states = x.new_zeros(u.shape[1]), []
    for each in x:
        reset = torch.sigmoid(w_r @ each + b_r + u_r @ state + c_r)
        update = torch.sigmoid(w_z @ each + b_z + u_z @ state + c_z)
        new = torch.tanh(w_n @ each + b_n + reset * (u_n @ state + c_n))
        state = update * state + (1 - update) * new
        states.append(state)
    return states


def lstm(x: Tensor, layer: nn.LSTM, end: str) -> list[Tensor]:
    """Hochreiter & Schmidhuber 1997 with Gers et al.'s forget gate: c' = f c + i g, h' = o tanh(c')."""
    w, u, b, c = (getattr(layer, f"{part}_l0{end}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    state, cell, states = x.new_zeros(u.shape[1]), x.new_zeros(u.shape[1]), []
    for each in x:
        enter, forget, new, out = (w @ each + b + u @ state + c).chunk(4)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        state = torch.sigmoid(out) * torch.tanh(cell)
        states.append(state)
    return states


def by_loops(net: Recurrent, x: Tensor) -> Tensor:
    """A sequence at a time, a row at a time, forwards and backwards."""
    of = {"gru": gru, "lstm": lstm}["gru" if isinstance(net.layers[0], nn.GRU) else "lstm"]
    for layer in net.layers:
        rows: list[Tensor] = []
        for sequence in x.split(LENGTHS.tolist()):
            forward, backward = of(sequence, layer, ""), of(sequence.flip(0), layer, "_reverse")[::-1]
            rows += [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
        x = torch.stack(rows)
    return x


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_formula_and_gradients(kind: Literal["gru", "lstm"], layers: int) -> None:
    net, x = drawn(kind, layers)
    found, expected = net(x, OWNERS, LENGTHS), by_loops(net, x)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
    named, weight = [x, *net.parameters()], torch.randn_like(found)
    gradients = torch.autograd.grad((expected.sin() * weight).sum(), named)
    for one, other in zip(torch.autograd.grad((found.sin() * weight).sum(), named), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_pytorchs_module_on_the_same_rows(kind: Literal["gru", "lstm"], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device has a fused one: the same states, in the same order of rows."""
    net, x = drawn(kind, layers=2)
    before = net(x, OWNERS, LENGTHS)
    monkeypatch.setattr("zoo.nn.rnn.modules._goes_by_steps", lambda x: False)
    torch.testing.assert_close(net(x, OWNERS, LENGTHS), before, rtol=0.0, atol=1e-12)
    steps = Steps.from_sequences(OWNERS, LENGTHS, 2)
    of_one = Recurrent(dim=4, hidden=3, kind=kind).double()
    assert run_packed(of_one.layers[0], x, steps).shape == (len(x), 6)


@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor([4] * 5)], ids=["of several lengths", "of one"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_padded_sequences_give_the_states_and_gradients_of_steps(bidirectional: bool, lengths: Tensor) -> None:
    owners = torch.arange(5).repeat_interleave(lengths)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Recurrent(dim=4, hidden=3, kind="lstm", bidirectional=bidirectional)
        x = torch.randn(len(owners), 4, requires_grad=True)
    expected = net.double()(x.double(), owners, lengths)
    named = [x, *net.parameters()]
    gradients = torch.autograd.grad(expected.sin().sum(), named)
    found = padded_lstm(net.float().layers[0], x, owners, lengths)
    torch.testing.assert_close(found, expected.float(), rtol=0.0, atol=1e-6)
    for one, other in zip(torch.autograd.grad(found.sin().sum(), [x, *net.parameters()]), gradients, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=0.0, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(padded_lstm(net.layers[0], x, owners, lengths), found, rtol=0.0, atol=1e-6)
        spoilt = padded_lstm(net.layers[0], x.index_fill(0, torch.tensor([3]), torch.nan), owners, lengths)
    assert spoilt[3].isnan().all()
    assert not spoilt[owners != owners[3]].isnan().any()


def test_an_lstm_pads_sequences_of_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that at most a third of the rows is padding; in fp64 there is no kernel."""
    calls = []

    def counted(*given: Any) -> Tensor:
        calls.append(len(given[1]))
        return padded_lstm(*given)

    monkeypatch.setattr("zoo.nn.rnn.modules.padded_lstm", counted)
    net = Recurrent(dim=4, hidden=3, kind="lstm", layers=2)
    for lengths, used in (([4, 6], 2), ([2, 6], 2), ([1, 6, 1], 0)):
        calls.clear()
        owners = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        found = net(torch.ones(sum(lengths), 4), owners, torch.tensor(lengths))
        assert (found.shape, len(calls)) == ((sum(lengths), 6), used)
    calls.clear()
    net.double()(torch.ones(6, 4, dtype=torch.float64), torch.zeros(6, dtype=torch.int64), torch.tensor([6]))
    assert not calls


@pytest.mark.parametrize("kind", KINDS)
def test_other_sequences_and_their_order_change_nothing(kind: Literal["gru", "lstm"]) -> None:
    net, x = drawn(kind)
    together = net(x, OWNERS, LENGTHS).split(LENGTHS.tolist())
    parts, order = x.split(LENGTHS.tolist()), [4, 0, 3, 2, 1]
    lengths = LENGTHS[order]
    moved = net(torch.cat([parts[k] for k in order]), torch.arange(5).repeat_interleave(lengths), lengths)
    for place, part in zip(order, moved.split(lengths.tolist()), strict=True):
        torch.testing.assert_close(part, together[place], rtol=0.0, atol=1e-14)
    for part, expected in zip(parts, together, strict=True):
        alone = net(part, torch.zeros(len(part), dtype=torch.int64), torch.tensor([len(part)]))
        torch.testing.assert_close(alone, expected, rtol=0.0, atol=1e-14)


def test_what_is_not_a_number_stays_in_its_sequence() -> None:
    net, x = drawn("gru")
    before = net(x, OWNERS, LENGTHS)
    spoilt = net(x.detach().index_fill(0, torch.tensor([3]), torch.nan), OWNERS, LENGTHS)
    assert spoilt[3].isnan().all()
    assert torch.equal(spoilt[OWNERS != 1], before[OWNERS != 1])


def test_rows_by_step() -> None:
    steps = Steps.from_sequences(OWNERS, LENGTHS, 2)
    assert steps.sizes == (5, 4, 4, 3, 2, 2, 2)
    assert torch.equal(OWNERS[steps.order[0]], OWNERS[steps.order[1]])
    assert OWNERS[steps.order[0]].tolist()[:9] == [2, 4, 3, 0, 1, 2, 4, 3, 0]
    numbers = torch.arange(len(OWNERS))
    for order, places in zip(steps.order, steps.places, strict=True):
        assert torch.equal(order[places], numbers)
    rows = steps.order[0].view(1, -1, 1)
    before = shift_states(rows + 1, steps.sizes)[0, :, 0] - 1  # -1 where there was none
    is_first = torch.cat([torch.tensor([True]), OWNERS.diff() > 0])[steps.order[0]]
    assert torch.equal(before, torch.where(is_first, -1, steps.order[0] - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_at_least_single_under_autocast(kind: Literal["gru", "lstm"]) -> None:
    net, x = drawn(kind)
    net, x = net.float(), x.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        found = net(x.bfloat16(), OWNERS, LENGTHS)
    assert found.dtype == torch.float32
    expected = net(x, OWNERS, LENGTHS)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.05)
    found = net.bfloat16()(x.bfloat16(), OWNERS, LENGTHS)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.0, atol=0.05)
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_dropout_between_layers_and_bad_options() -> None:
    net, x = drawn("gru", layers=2, dropout=0.5)
    assert not torch.equal(net(x, OWNERS, LENGTHS), net(x, OWNERS, LENGTHS))
    assert torch.equal(net.eval()(x, OWNERS, LENGTHS), net(x, OWNERS, LENGTHS))
    with pytest.raises(ValueError, match="kind is 'gru' or 'lstm', got 'rnn'"):
        Recurrent(dim=4, hidden=3, kind="rnn")
    with pytest.raises(ValueError, match="layers is to be a whole number of at least 1"):
        Recurrent(dim=4, hidden=3, layers=0)
