"""Recurrent translators against the equations of their papers, a sentence, a step and a number at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from recurrent_cases import EXACT, SOURCE, SOURCES, TARGET, TARGETS, gradients, translator
from torch import Tensor

from zoo.attention import (
    Additive,
    AttentionFactory,
    Concat,
    CoverageAware,
    Dot,
    Gaussian,
    General,
    LocalM,
    LocalP,
    Softmax,
)
from zoo.tasks.seq2seq.text_codec import BEGIN
from zoo.tasks.translation import RecurrentTranslator

GATED = {"gru": 3, "lstm": 4}
FERTILITY = 1.5


def cell(kind: str, x: Tensor, states: list[Tensor], weights: tuple[Tensor, ...]) -> list[Tensor]:
    """One step: a GRU as in Cho et al. 2014, with the reset gate after the product; or an LSTM."""
    w, u, b, c = weights
    of_input, of_state = (w @ x + b).chunk(GATED[kind]), (u @ states[0] + c).chunk(GATED[kind])
    if kind == "gru":
        r, z = (torch.sigmoid(of_input[k] + of_state[k]) for k in range(2))
        n = torch.tanh(of_input[2] + r * of_state[2])
        return [(1 - z) * n + z * states[0]]
    i, f, g, o = (a + s for a, s in zip(of_input, of_state, strict=True))
    c_t = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c_t), c_t]


def encoded(net: RecurrentTranslator, tokens: list[int]) -> tuple[list[Tensor], Tensor]:
    """Bahdanau et al. 2015, section 3.2: states of both directions, and the last of each."""
    vectors, layer = net.encoder.vectors.table.weight[torch.tensor(tokens)], net.encoder.recurrent.layers[0]
    found = []
    for end, order in (("", 1), ("_reverse", -1)):
        weights = tuple(getattr(layer, f"{part}_l0{end}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        states, rows = [vectors.new_zeros(weights[1].shape[1])], []
        for x in list(vectors)[::order]:
            states = cell("gru", x, states, weights)
            rows.append(states[0])
        found.append(rows[::order])
    forward, backward = found
    return [torch.cat(pair) for pair in zip(forward, backward, strict=True)], torch.cat([forward[-1], backward[0]])


def first(net: Any, summary: Tensor, kind: str) -> list[Tensor]:
    both = (net.decoder.first.project.weight @ summary + net.decoder.first.project.bias).chunk(
        1 if kind == "gru" else 2
    )
    return [torch.tanh(both[0]), *both[1:]]


def attended(net: Any, name: str, state: Tensor, keys: list[Tensor], step: int, past: list[Tensor]) -> Tensor:
    """The context of one query: eq. 5-6 and A.1.2 of Bahdanau et al. 2015; eq. 7-8 and 9-10 of Luong et al. 2015.

    Coverage is that of Tu et al. 2016, section 3.1: eq. 8 with the sum of past weights, which a fertility divides.
    """
    site, score = net.decoder.attention, net.decoder.attention.attend.score
    if name == "additive":
        s = [score.vector[0] @ torch.tanh(site.query.weight @ state + site.key.weight @ h) for h in keys]
    elif name in ("coverage", "fertility"):
        s = []
        for place, h in enumerate(keys):
            key, covered = site.key.weight @ h, sum((weights[place] for weights in past), torch.tensor(0.0))
            if name == "fertility":
                covered = covered / (FERTILITY * torch.sigmoid(score.to_fertility[0] @ key))
            inside = site.query.weight @ state + key + score.from_coverage[0] * covered
            s.append(score.vector[0] @ torch.tanh(inside))
    elif name == "dot":
        s = [state @ h for h in keys]
    elif name == "concat":
        s = [score.vector[0] @ torch.tanh(score.weight[0] @ torch.cat([state, h])) for h in keys]
    elif name in ("general", "local_m", "local_p"):
        s = [state @ (score.weight[0] @ h) for h in keys]
    else:
        raise AssertionError(name)
    a, at = torch.stack(s), torch.arange(len(keys), dtype=torch.float64)
    if name == "local_p":
        restrict = site.attend.restrict
        p = len(keys) * torch.sigmoid(restrict.vector[0] @ torch.tanh(restrict.weight[0] @ state))
        a = a.masked_fill((at - p).abs() > restrict.radius, -torch.inf).softmax(0)
        a = a * torch.exp(-((at - p) ** 2) / (2 * (restrict.radius / 2) ** 2))
    elif name == "local_m":
        inside = (at - step).abs() <= site.attend.restrict.radius
        a = a.masked_fill(~inside, -torch.inf).softmax(0) if inside.any() else torch.zeros_like(a)
    else:
        a = a.softmax(0)
    past.append(a)
    return sum(w * h for w, h in zip(a, keys, strict=True))  # type: ignore[return-value]


def by_equations(net: Any, decoder: str, name: str, kind: str, source: list[int], target: list[int]) -> Tensor:
    keys, summary = encoded(net, source)
    states, d, logits = first(net, summary, kind), net.decoder, []
    fed, past = torch.zeros_like(states[0]), list[Tensor]()
    layer = d.layers if decoder == "luong" else d.stack.layers[0]
    end = "_l0" if decoder == "luong" else ""
    weights = tuple(getattr(layer, f"{part}{end}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    for step, word in enumerate([BEGIN, *target]):
        y = d.vectors.table.weight[word]
        if decoder == "bahdanau":  # c_i of s_{i-1}; s_i; t_i
            context = attended(net, name, states[0], keys, step, past)
            states = cell(kind, torch.cat([y, context]), states, weights)
            pairs = d.readout.weight @ torch.cat([states[0], context, y]) + d.readout.bias
            t = torch.stack([torch.maximum(pairs[2 * j], pairs[2 * j + 1]) for j in range(len(pairs) // 2)])
        else:  # h_t; c_t of h_t; t = tanh(W [c_t; h_t])
            states = cell(kind, y if decoder == "luong" else torch.cat([y, fed]), states, weights)
            context = attended(net, name, states[0], keys, step, past)
            t = fed = torch.tanh(d.readout.weight @ torch.cat([context, states[0]]) + d.readout.bias)
        logits.append(net.head.weight @ t + net.head.bias)
    return torch.stack(logits)


def given(score: Any, normalizer: Any = Softmax, **options: Any) -> AttentionFactory:
    return AttentionFactory(score=score, normalizer=normalizer, **options)


PROJECTED = {
    "additive": given(Additive),
    "coverage": given(CoverageAware),
    "fertility": given(partial(CoverageAware, fertility=FERTILITY)),
}
"""Those that compare projections of states and keys."""
LUONG = {
    "dot": given(Dot),
    "general": given(General),
    "concat": given(Concat),
    "local_m": given(General, restrict=partial(LocalM, radius=2)),
    "local_p": given(General, Gaussian, restrict=partial(LocalP, radius=2)),
}
CASES = [
    *(("bahdanau", name) for name in PROJECTED),
    *((decoder, name) for decoder in ("luong", "input_feeding") for name in ("coverage", "fertility", *LUONG)),
]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("decoder", "name"), CASES)
def test_equations_and_gradients(decoder: str, name: str, kind: str) -> None:
    attend, compared = (LUONG[name], None) if name in LUONG else (PROJECTED[name], 6)
    net = translator(decoder, attend, cell=kind, compared=compared)
    whole = net.whole(SOURCE, TARGET.read)
    rows = [by_equations(net, decoder, name, kind, s, t) for s, t in zip(SOURCES, TARGETS, strict=True)]
    real = torch.cat([whole[number, : len(row)] for number, row in enumerate(rows)])
    torch.testing.assert_close(real, torch.cat(rows), **EXACT)
    for one, other in zip(gradients(net, real), gradients(net, torch.cat(rows)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
