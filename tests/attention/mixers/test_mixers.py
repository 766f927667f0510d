"""Mixers: the loops of their papers, padding that is nothing, a future that is unknown, steps that equal them all."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from jaxtyping import config
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import (
    AttentionFree,
    AttentionFreeSimple,
    DenseSupport,
    DilatedConvolution,
    EdgeSupport,
    EncoderBlock,
    FeedForward,
    FourierMixer,
    GatedRecurrent,
    MixerFactory,
    SelectiveStateSpace,
    StateSpace,
    record,
)

DIM = 4
MIXERS: dict[str, Callable[[], nn.Module]] = {
    "fourier": FourierMixer,
    "fourier, causal": lambda: FourierMixer(length=9),
    "gated recurrent": lambda: GatedRecurrent(dim=DIM),
    "dilated convolution": lambda: DilatedConvolution(dim=DIM, layers=3),
    "attention free": lambda: AttentionFree(dim=DIM, length=9, rank=3),
    "attention free, local": lambda: AttentionFree(dim=DIM, length=9, window=2, rank=3),
    "attention free, simple": lambda: AttentionFreeSimple(dim=DIM),
    "state space": lambda: StateSpace(dim=DIM, states=6),
    "selective state space": lambda: SelectiveStateSpace(dim=DIM, states=3, rank=2),
}
CAUSAL = [name for name in MIXERS if name != "fourier"]
RELATIVE = [name for name in CAUSAL if name not in ("attention free", "attention free, local", "fourier, causal")]
"""Those that padding in front does not move."""
every_mixer = pytest.mark.parametrize("name", MIXERS)
every_causal = pytest.mark.parametrize("name", CAUSAL)
EXACT = {"rtol": 0.0, "atol": 1e-12}
RAGGED = torch.tensor([[True] * 7, [False, True, True, False, True, False, False], [False] * 7])


def mixer(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    layer = MIXERS[name]()
    for key, parameter in layer.named_parameters():
        if key.startswith("at_"):
            nn.init.normal_(parameter)  # position biases that matter
    return layer.to(dtype)


def made(name: str, *, causal: bool) -> nn.Module:
    """By what a net makes it with: a mixer that asks for it is told whether it will be causal."""
    whole = mixer(name)
    options = {key: getattr(whole, key) for key in ("length", "window") if getattr(whole, key, None) is not None}
    sizes = {"state space": {"states": 6}, "selective state space": {"states": 3, "rank": 2}}.get(name, {})
    factory = MixerFactory(partial(type(whole), **options, **sizes))
    torch.manual_seed(3)
    return factory.make(dim=DIM, length=9, causal=causal).double()


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_loops(layer: nn.Module, x: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """One sequence at a time; zeros at padding."""
    rows = []
    for sequence, real in zip(x, mask.tolist(), strict=True):
        clean = torch.stack([v if keep else torch.zeros_like(v) for v, keep in zip(sequence, real, strict=True)])
        result = REFERENCES[type(layer)](layer, clean, real, causal)
        rows.append(
            torch.stack([y if keep else torch.zeros(DIM).double() for y, keep in zip(result, real, strict=True)])
        )
    return torch.stack(rows)


def fourier(layer: FourierMixer, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    n, result = len(x), []
    period = layer.length if causal else n
    for t in range(n):
        row, seen = [], range(t + 1 if causal else n)
        for j in range(DIM):
            angles = [[2 * math.pi * (t * s / period + j * i / DIM) for i in range(DIM)] for s in seen]
            row.append(sum(x[s, i] * math.cos(angles[s][i]) for s in seen for i in range(DIM)))
        result.append(torch.stack(row))
    return result


def gated_recurrent(layer: GatedRecurrent, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    def states(gru: nn.GRU, order: list[int]) -> dict[int, Tensor]:
        h, found = x.new_zeros(DIM), {}
        for t in order:
            if not real[t]:
                continue
            r, z, c = (gru.weight_ih_l0 @ x[t] + gru.bias_ih_l0).chunk(3)
            r_h, z_h, c_h = (gru.weight_hh_l0 @ h + gru.bias_hh_l0).chunk(3)
            r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
            h = (1 - z) * torch.tanh(c + r * c_h) + z * h
            found[t] = h
        return found

    ahead, back = states(layer.ahead, list(range(len(x)))), states(layer.back, list(range(len(x)))[::-1])
    nothing = x.new_zeros(DIM)
    result = [layer.out_ahead(ahead.get(t, nothing)) for t in range(len(x))]
    return result if causal else [y + layer.out_back(back.get(t, nothing)) for t, y in enumerate(result)]


def dilated_convolution(layer: DilatedConvolution, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    n, total = len(x), [x.new_zeros(DIM)] * len(x)
    for level, (filters, out) in enumerate(zip(layer.filters, layer.outs, strict=True)):
        inputs, taps = [x[t] + total[t] for t in range(n)], filters.weight.shape[2]
        for t in range(n):
            sums = filters.bias
            for tap in range(taps):
                at = t + (tap - (taps - 1 if causal else taps // 2)) * 2**level
                if 0 <= at < n and real[at]:
                    sums = sums + filters.weight[:, :, tap] @ inputs[at]
            update = out(torch.tanh(sums[:DIM]) * torch.sigmoid(sums[DIM:]))
            total[t] = total[t] + (update if real[t] else 0.0 * update)
    return total


def attention_free(layer: nn.Module, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    result = []
    for t in range(len(x)):
        total, mass = x.new_zeros(DIM), x.new_zeros(DIM)
        for s in range(len(x)):
            if real[s] and (s <= t or not causal):
                bias = x.new_zeros(())
                if isinstance(layer, AttentionFree) and (layer.window is None or abs(t - s) < layer.window):
                    bias = layer.at_query[t] @ layer.at_key[s]
                weight = torch.exp(layer.key(x[s]) + bias)
                total, mass = total + weight * layer.value(x[s]), mass + weight
        result.append(layer.out(torch.sigmoid(layer.query(x[t])) * (total / mass if mass.any() else total)))
    return result


def state_space(layer: StateSpace, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    """The recurrence, of both members of every conjugate pair; the later positions by a second one, from the end."""
    decay = torch.complex(-layer.log_decay.exp(), layer.frequency)
    decay = torch.cat([decay, decay.conj()], 1)
    step = layer.log_step.exp().unsqueeze(1)
    carry = torch.exp(step * decay)
    into = (carry - 1.0) / decay

    def readout(pairs: Tensor) -> Tensor:
        one = torch.complex(pairs[..., 0], pairs[..., 1])
        return torch.cat([one, one.conj()], 1)

    ahead, back = readout(layer.ahead), readout(layer.back)
    h, result = torch.zeros_like(decay), []
    for t in range(len(x)):
        h = carry * h + into * x[t].unsqueeze(1)
        result.append((ahead * h).sum(1).real + layer.skip * x[t])
    h = torch.zeros_like(decay)
    for t in reversed(range(len(x))):
        result[t] = result[t] if causal else result[t] + (back * h).sum(1).real  # its own input is not among the later
        h = carry * h + into * x[t].unsqueeze(1)
    return [F.glu(layer.out(F.gelu(y)), -1) for y in result]


def selective_state_space(layer: SelectiveStateSpace, x: Tensor, real: list[bool], causal: bool) -> list[Tensor]:
    def scanned(part: nn.Module, order: list[int]) -> dict[int, Tensor]:
        h, found = x.new_zeros(DIM, part.log_decay.shape[1]), {}
        for t in order:
            u = layer.into(x[t])[:DIM]
            low, into, readout = part.select(u).split(part.sizes)
            for channel in range(DIM):
                step = torch.log1p(torch.exp(part.delta(low)[channel])) if real[t] else x.new_zeros(())
                new = torch.exp(-step * part.log_decay[channel].exp()) * h[channel] + step * into * u[channel]
                h = torch.cat([h[:channel], new.unsqueeze(0), h[channel + 1 :]])
            found[t] = h @ readout + part.skip * u
        return found

    ahead, back = scanned(layer.ahead, list(range(len(x)))), scanned(layer.back, list(range(len(x)))[::-1])
    gates = [layer.into(x[t])[DIM:] for t in range(len(x))]
    both = [ahead[t] if causal else ahead[t] + back[t] for t in range(len(x))]
    return [layer.out(y * z * torch.sigmoid(z)) for y, z in zip(both, gates, strict=True)]


REFERENCES: dict[type, Callable[..., list[Tensor]]] = {
    FourierMixer: fourier,
    GatedRecurrent: gated_recurrent,
    DilatedConvolution: dilated_convolution,
    AttentionFree: attention_free,
    AttentionFreeSimple: attention_free,
    StateSpace: state_space,
    SelectiveStateSpace: selective_state_space,
}


@every_mixer
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_loops_of_the_paper(name: str, causal: bool, ragged: bool) -> None:
    if causal and name == "fourier":
        return
    mask = RAGGED if ragged else torch.ones_like(RAGGED)
    layer, x = mixer(name), draw(3, 7, DIM).requires_grad_()
    expected = by_loops(layer, x, mask, causal)
    wanted = gradients(layer, x, expected)
    support = DenseSupport.from_key_mask(mask, causal) if ragged else DenseSupport(causal=causal)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        low, leaf = layer.to(dtype), x.detach().to(dtype).requires_grad_()
        output, state = low(leaf, support=support)
        assert state is None
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
        for key, gradient in gradients(low, leaf, output).items():
            torch.testing.assert_close(
                gradient.double(),
                wanted[key],
                rtol=20 * tolerance,
                atol=20 * tolerance,
                msg=lambda m, k=key: f"{k}: {m}",
            )


def gradients(layer: nn.Module, x: Tensor, output: Tensor) -> dict[str, Tensor]:
    named = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad((output + output.square()).sum(), list(named.values()), materialize_grads=True)
    return dict(zip(named, found, strict=True))


@every_mixer
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, 1e30])
def test_padding_has_no_say(name: str, causal: bool, junk: float) -> None:
    if causal and name == "fourier":
        return
    layer, support, x = mixer(name), DenseSupport.from_key_mask(RAGGED, causal), draw(3, 7, DIM)
    spoilt = torch.where(RAGGED.unsqueeze(-1), x, junk).requires_grad_()
    output, _ = layer(spoilt, support=support)
    assert torch.equal(output, layer(x, support=support)[0])
    assert not output[~RAGGED].any()
    found = gradients(layer, spoilt, output)
    assert not found["x"][~RAGGED].any()
    assert all(gradient.isfinite().all() for gradient in found.values())


@every_mixer
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("front", [False, True])
def test_padded_is_as_if_alone(name: str, causal: bool, front: bool) -> None:
    if (not causal and name.startswith("fourier")) or name == "fourier" or (front and name not in RELATIVE):
        return
    layer, x = mixer(name), draw(1, 7, DIM)
    mask = torch.arange(7) >= 3 if front else torch.arange(7) < 4
    padded, _ = layer(x, support=DenseSupport.from_key_mask(mask.unsqueeze(0), causal))
    alone, _ = layer(x[:, mask], support=DenseSupport(causal=causal))
    torch.testing.assert_close(padded[:, mask], alone, **EXACT)


def test_fourier_counts_padding_as_zeros() -> None:
    x = draw(1, 5, DIM)
    mask = torch.tensor([[True, True, True, False, False]])
    padded, _ = FourierMixer()(x, support=DenseSupport.from_key_mask(mask))
    zeroed, _ = FourierMixer()(x * mask.unsqueeze(-1))
    torch.testing.assert_close(padded[mask], zeroed[mask], **EXACT)
    assert not torch.allclose(padded[:, :3], FourierMixer()(x[:, :3])[0])


@every_causal
def test_no_leak_from_the_future(name: str) -> None:
    layer, x = mixer(name), draw(2, 7, DIM).requires_grad_()
    support = DenseSupport(causal=True)
    before, _ = layer(x, support=support)
    for t in range(6):
        later = torch.cat([x[:, : t + 1], 50.0 - 40.0 * x[:, t + 1 :]], 1)
        after, _ = layer(later, support=support)
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], **EXACT)
        (gradient,) = torch.autograd.grad(before[:, t].square().sum(), x, retain_graph=True)
        torch.testing.assert_close(gradient[:, t + 1 :], torch.zeros_like(gradient[:, t + 1 :]), **EXACT)
    assert not torch.allclose(layer(x)[0][:, 0], before[:, 0])  # both directions where nothing is forbidden


@every_causal
@pytest.mark.parametrize("ragged", [False, True])
def test_steps_equal_the_full_pass(name: str, ragged: bool) -> None:
    layer, x = mixer(name), draw(3, 7, DIM)
    x = torch.where(RAGGED.unsqueeze(-1), x, torch.nan) if ragged else x
    support = DenseSupport.from_key_mask(RAGGED, causal=True) if ragged else DenseSupport(causal=True)
    whole, _ = layer(x, support=support)
    for chunks in ([1] * 7, [3, 1, 3], [7], [0, 2, 5]):
        state, rows, stop = None, [], 0
        for part in x.split(chunks, 1):
            stop += part.shape[1]
            so_far = DenseSupport.from_key_mask(RAGGED[:, :stop], causal=True) if ragged else None
            row, state = layer.step(part, state, so_far)
            rows.append(row)
        torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)


@every_mixer
@pytest.mark.parametrize("causal", [False, True])
def test_every_parameter_has_a_gradient(name: str, causal: bool) -> None:
    """Every parameter of a mixer made by `self_attention` has a gradient, for which distributed training would wait."""
    layer = made(name, causal=causal)
    if not list(layer.parameters()):
        return
    layer(draw(2, 7, DIM), support=DenseSupport(causal=causal))[0].square().sum().backward()
    assert [key for key, each in layer.named_parameters() if each.grad is None] == []


@pytest.mark.parametrize("name", ["gated recurrent", "state space", "selective state space"])
def test_made_causal_it_is_what_it_would_be_without_its_way_back(name: str) -> None:
    layer, both, x = made(name, causal=True), made(name, causal=False), draw(2, 7, DIM)
    assert sum(p.numel() for p in layer.parameters()) < sum(p.numel() for p in both.parameters())
    layer.load_state_dict({key: each for key, each in both.state_dict().items() if key in layer.state_dict()})
    support = DenseSupport.from_key_mask(RAGGED[:2], causal=True)
    assert torch.equal(layer(x, support=support)[0], both(x, support=support)[0])
    first, state = layer.step(x[:, :3])
    rest, _ = layer.step(x[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), both(x, support=DenseSupport(causal=True))[0], **EXACT)
    for ahead in (None, DenseSupport(), DenseSupport.from_key_mask(RAGGED[:2])):
        with pytest.raises(ValueError, match=f"{type(layer).__name__} was made with causal=True"):
            layer(x, support=ahead)


@every_causal
def test_gradients_through_steps(name: str) -> None:
    layer, x = mixer(name), draw(2, 5, DIM).requires_grad_()
    whole, _ = layer(x, support=DenseSupport(causal=True))
    first, state = layer.step(x[:, :2])
    rest, _ = layer.step(x[:, 2:], state)
    wanted = gradients(layer, x, whole)
    for key, gradient in gradients(layer, x, torch.cat([first, rest], 1)).items():
        torch.testing.assert_close(gradient, wanted[key], rtol=1e-11, atol=1e-11)


@every_causal
def test_states_follow_their_hypotheses(name: str) -> None:
    layer, x, y = mixer(name), draw(3, 4, DIM), draw(4, 2, DIM, seed=1)
    beams = torch.tensor([2, 0, 0, 1])
    _, state = layer.step(x)
    expected, _ = layer(torch.cat([x[beams], y], 1), support=DenseSupport(causal=True))
    torch.testing.assert_close(layer.step(y, state.reorder(beams))[0], expected[:, 4:], **EXACT)


@every_mixer
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_short_sequences(name: str, batch: int, length: int) -> None:
    layer, x = mixer(name), draw(batch, length, DIM).requires_grad_()
    for causal in {False, name != "fourier"}:
        for mask in (None, torch.zeros(batch, length, dtype=torch.bool)):
            support = DenseSupport(causal=causal) if mask is None else DenseSupport.from_key_mask(mask, causal)
            output, _ = layer(x, support=support)
            assert output.shape == x.shape
            assert output.isfinite().all()
            assert mask is None or not output.any()
            assert all(each.isfinite().all() for each in gradients(layer, x, output).values())


@every_mixer
def test_a_thousand_steps_in_half_precision_stay_finite(name: str) -> None:
    torch.manual_seed(0)
    window = 2 if name.endswith("local") else None
    is_biased = name in ("attention free", "attention free, local")
    layer = AttentionFree(dim=DIM, length=1000, window=window, rank=3) if is_biased else MIXERS[name]()
    layer = FourierMixer(length=1000) if name == "fourier, causal" else layer
    for dtype, autocast in ((torch.bfloat16, False), (torch.float32, True)):
        low, x = layer.to(dtype), (5.0 * draw(1, 1000, DIM)).to(dtype).requires_grad_()
        for causal in {False, name != "fourier"}:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output, _ = low(x, support=DenseSupport(causal=causal))
            assert output.isfinite().all()
            assert all(each.isfinite().all() for each in gradients(low, x, output.float()).values())
        state = None
        for part in () if name == "fourier" else x.detach().split(50, 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.no_grad():
                output, state = low.step(part, state)
            assert output.isfinite().all()


@every_mixer
def test_autocast_agrees_with_single_precision(name: str) -> None:
    layer, x = mixer(name, torch.float32), draw(2, 7, DIM, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = layer(x)
    torch.testing.assert_close(low.float(), layer(x)[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["attention free", "attention free, local", "attention free, simple"])
@pytest.mark.parametrize("rising", [False, True])
def test_keys_of_any_size(name: str, rising: bool) -> None:
    """exp(k) is out of range, and the earliest keys beyond the reach of the last: each row is a mean of its own."""
    layer = mixer(name, torch.float32)
    with torch.no_grad():
        layer.key.weight.copy_(torch.eye(DIM))
        layer.key.bias.zero_()
    ramp = 300.0 * torch.arange(9.0)
    x = (ramp if rising else ramp.flip(0)).view(1, 9, 1).expand(2, -1, DIM).clone().requires_grad_()
    output, _ = layer(x, support=DenseSupport(causal=True))
    top = x if rising else x[:, :1].expand_as(x)  # of all keys so far
    expected = layer.out(layer.query(x).sigmoid() * layer.value(top))
    torch.testing.assert_close(output, expected)
    assert all(each.isfinite().all() for each in gradients(layer, x, output).values())


@pytest.mark.parametrize("length", [31, 32, 33, 100])
def test_blocks_of_rows(length: int) -> None:
    """Causal rows are summed up 32 at a time: the same as with a mask over all pairs."""
    torch.manual_seed(0)
    layer = AttentionFree(dim=DIM, length=length, rank=3).double()
    x = draw(2, length, DIM)
    scores = layer.key(x).unsqueeze(1) + (layer.at_query @ layer.at_key.T).unsqueeze(-1)
    later = torch.ones(length, length, dtype=torch.bool).triu(1).unsqueeze(-1)
    weights = scores.masked_fill(later, -torch.inf).softmax(2)
    expected = layer.out(layer.query(x).sigmoid() * (weights * layer.value(x).unsqueeze(1)).sum(2))
    torch.testing.assert_close(layer(x, support=DenseSupport(causal=True))[0], expected, **EXACT)


@every_mixer
def test_mixers_say_that_they_have_no_weights(name: str) -> None:
    torch.manual_seed(0)
    block = EncoderBlock(dim=DIM, mixer=MIXERS[name](), feed_forward=FeedForward(dim=DIM, width=8))
    x = draw(2, 5, DIM, dtype=torch.float32)
    plain = block(x)
    with record(block) as maps:
        assert torch.equal(block(x), plain)
    assert not list(maps)
    assert list(maps.silent) == ["mixer"]
    assert not block.mixer.probe.is_open


@every_mixer
def test_what_no_mixer_can_do_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    layer, x, kind = mixer(name), draw(2, 5, DIM), type(mixer(name)).__name__
    with pytest.raises(ValueError, match=f"{kind} has no pairs to forbid: its mask must be of keys"):
        layer(x, support=DenseSupport(torch.ones(1, 1, 5, 5, dtype=torch.bool)))
    with pytest.raises(ValueError, match=f"{kind} has no pairs to forbid"):
        layer(x, support=DenseSupport(torch.ones(1, 3, 1, 5, dtype=torch.bool)))
    with pytest.raises(ValueError, match=f"{kind} mixes one sequence with itself: .* no source, not Tensor"):
        layer(x, draw(2, 3, DIM))
    with pytest.raises(ValueError, match="not EdgeSupport"):
        layer(x, support=EdgeSupport.from_edges(torch.zeros(2, 1, dtype=torch.long), 5))
    with pytest.raises(ValueError, match="got 5 positions and a mask of 4"):
        layer(x, support=DenseSupport.from_key_mask(torch.ones(2, 4, dtype=torch.bool)))
    if name == "fourier":
        for call in (lambda: layer(x, support=DenseSupport(causal=True)), lambda: layer.step(x)):
            with pytest.raises(ValueError, match="sees the whole sequence at once; to be causal it must be"):
                call()
    else:
        with pytest.raises(ValueError, match=f"the steps of {kind} are causal"):
            layer.step(x, None, DenseSupport())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DilatedConvolution(dim=DIM, kernel=2), "kernel must be odd"),
        (lambda: FourierMixer(length=0), "length is to be a whole number of at least 1 or null"),
        (lambda: FourierMixer(length=4).step(draw(1, 5, DIM)), "made for 4 positions, got 5"),
        (lambda: DilatedConvolution(dim=DIM, layers=0), "layers is to be a whole number of at least 1"),
        (lambda: StateSpace(dim=DIM, states=3), "states must be even, got 3"),
        (lambda: SelectiveStateSpace(dim=DIM, states=0), "at least 1"),
        (lambda: AttentionFree(dim=DIM, length=0), "at least 1"),
        (lambda: AttentionFree(dim=DIM, length=4, window=0), "window is to be a whole number of at least 1 or null"),
        (lambda: AttentionFree(dim=DIM, length=4)(draw(1, 5, DIM).float()), "biases for 4 positions, not for 5"),
    ],
)
def test_bad_values(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_kernel_of_a_state_space_starts_as_s4d_lin() -> None:
    """K_l = 2 Re sum_n C_n (exp(delta A_n) - 1) / A_n exp(l delta A_n), A_n = -1/2 + i pi n, read as a response."""
    layer = StateSpace(dim=1, states=4).double()
    impulse = F.one_hot(torch.tensor([0]), 6).double().view(1, 6, 1)
    response = layer._convolve(impulse, causal=True)
    step = layer.log_step.exp().item()
    for lag in range(6):
        total = 0j
        for n in range(2):
            decay = complex(-0.5, math.pi * n)
            total += (
                complex(*layer.ahead[0, n].tolist())
                * (cmath.exp(step * decay) - 1)
                / decay
                * cmath.exp(lag * step * decay)
            )
        assert response[0, lag, 0].item() == pytest.approx(2 * total.real, abs=1e-6)  # parameters are drawn in fp32
