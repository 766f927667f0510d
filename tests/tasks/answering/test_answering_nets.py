"""The networks of question answering: their papers' formulas, one example after another, without padding."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from answering_cases import BATCHES, DOT, NETS, examples_for
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from zoo.attention import AttentionFactory, Constant, Uniform, record
from zoo.config import plugins
from zoo.errors import ConfigError
from zoo.nn.rnn.modules import Recurrent
from zoo.tasks.answering.attention_targets import ScoredMap, choose_level
from zoo.tasks.answering.batch import QABatch, QuestionExample, VQABatch
from zoo.tasks.answering.models.padded_rnn import PaddedRecurrent

UNIFORM = AttentionFactory(score=Constant, normalizer=Uniform)
every_net = pytest.mark.parametrize("name", NETS)


def made(name: str, **how: object) -> nn.Module:
    torch.default_generator.manual_seed(0)
    return NETS[name](**how).double().eval()


def batch_for(name: str) -> QABatch[Any]:
    batch = BATCHES[name].collate(examples_for(name))
    return replace(batch, pixels=batch.pixels.double()) if isinstance(batch, VQABatch) else batch


def states(x: Tensor, layer: Recurrent) -> Tensor:
    """PyTorch's own pass over one text."""
    for each in layer.layers:
        x = each(x.unsqueeze(1))[0].squeeze(1)
    return x


def softmax(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


def bidaf(net: nn.Module, asked: QuestionExample, batch: QABatch[Any], number: int) -> tuple[Tensor, Tensor]:
    """Seo et al. 2017: contextual, attention flow, modelling and output layers."""
    paragraph, question = (
        states(net.vectors.table.weight[torch.tensor(text)], net.encoder.recurrent)
        for text in (asked.passage, asked.question)
    )
    w = net.flow.of_pair.flatten()
    similar = torch.stack([torch.stack([w @ torch.cat([h, u, h * u]) for u in question]) for h in paragraph])  # eq. 1
    read = torch.stack([softmax(row) @ question for row in similar])
    whole = softmax(torch.stack([row.max() for row in similar])) @ paragraph
    flow = torch.stack([torch.cat([h, u, h * u, h * whole]) for h, u in zip(paragraph, read, strict=True)])  # eq. 2-3
    model = states(flow, net.model.recurrent)
    model_end = states(model, net.model_end.recurrent)
    start = torch.cat([flow, model], 1) @ net.start.weight[0]  # eq. 4
    return start, torch.cat([flow, model_end], 1) @ net.end.weight[0]


def esim(net: nn.Module, asked: QuestionExample, batch: QABatch[Any], number: int) -> tuple[Tensor]:
    """Chen et al. 2017, eq. 11-20."""
    a, b = (
        states(net.vectors.table.weight[torch.tensor(text)], net.encoder.recurrent)
        for text in (asked.passage, asked.question)
    )
    e = torch.stack([torch.stack([(net.both.affinity.weight @ x) @ y for y in b]) for x in a])
    of_a = torch.stack([softmax(row) @ b for row in e])
    of_b = torch.stack([softmax(column) @ a for column in e.T])
    read = []
    for x, context in ((a, of_a), (b, of_b)):
        m = torch.cat([x, context, x - context, x * context], 1)
        v = states((m @ net.compare.weight.T + net.compare.bias).clamp(min=0), net.compose.recurrent)
        read += [v.mean(0), v.max(0).values]
    return (net.head(torch.tanh(net.fuse(torch.cat(read)))),)


def coattention(net: nn.Module, asked: QuestionExample, batch: QABatch[Any], number: int) -> tuple[Tensor]:
    """Lu et al. 2016, eq. 1-7; co-attention itself has tests of its own."""
    cells = net.of_picture(net.picture.annotations(batch.picture.select(torch.tensor([number])))[0])
    levels = asked_at_levels(net, asked)
    hidden = torch.zeros(0, dtype=torch.float64)
    for level in net.levels:
        words, both = levels[level], net.both[level]
        affinity = torch.stack(
            [torch.stack([torch.tanh((both.affinity.matrix @ q) @ v) for v in cells]) for q in words]
        )
        of_cells, of_words = both.of_first(cells), both.of_second(words)
        seen = softmax(torch.tanh(of_cells + affinity.T @ of_words) @ both.query_first) @ cells  # eq. 4-5
        said = softmax(torch.tanh(of_words + affinity @ of_cells) @ both.query_second) @ words
        hidden = torch.tanh(net.fuse[level](torch.cat([seen + said, hidden])))  # eq. 7
    return (net.head(hidden),)


def asked_at_levels(net: nn.Module, asked: QuestionExample) -> dict[str, Tensor]:
    """Words, phrases (eq. 1-2) and states of one question."""
    words = net.vectors.table.weight[torch.tensor(asked.question)]
    padded = torch.cat([words, torch.zeros(2, words.shape[1], dtype=words.dtype)])
    phrases = []
    for t in range(len(words)):
        said = []
        for s, window in enumerate(net.phrases.windows, 1):
            weights = window.weight.permute(0, 2, 1).flatten(1)
            said.append(torch.tanh(weights @ padded[t : t + s].flatten() + window.bias))
        phrases.append(torch.stack(said).max(0).values)
    phrase = torch.stack(phrases)
    return {"word": words, "phrase": phrase, "question": states(phrase, net.question.recurrent)}


REFERENCES = {"coattention": coattention, "bidaf": bidaf, "esim": esim}


def outputs(net: nn.Module, batch: QABatch[Any]) -> tuple[Tensor, ...]:
    found = net(batch)
    return found if isinstance(found, tuple) else (found,)


@every_net
def test_formula(name: str) -> None:
    """A padded batch gives each example what the formula gives it alone, gradients too."""
    net, asked, batch = made(name), examples_for(name), batch_for(name)
    parameters = list(net.parameters())
    totals = [torch.zeros((), dtype=torch.float64) for _ in range(2)]
    for part, found in enumerate(outputs(net, batch)):
        for number, each in enumerate(asked):
            expected = REFERENCES[name](net, each, batch, number)[part]
            torch.testing.assert_close(found[number, : len(expected)], expected, rtol=0.0, atol=1e-12)
            assert (found[number, len(expected) :] == -math.inf).all()
            totals[0] = totals[0] + found[number, : len(expected)].square().sum()
            totals[1] = totals[1] + expected.square().sum()
    gradients = [torch.autograd.grad(total, parameters) for total in totals]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-10)


@every_net
@pytest.mark.parametrize("attend", [DOT, UNIFORM], ids=["dot", "uniform"])
def test_every_parameter_learns(name: str, attend: AttentionFactory) -> None:
    net = made(name, attend=attend)
    sum(x[x.isfinite()].square().sum() for x in outputs(net, batch_for(name))).backward()
    assert not [
        name for name, parameter in net.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]


@pytest.mark.parametrize("order", ["parallel", "alternating"])
@pytest.mark.parametrize("fusion", ["sum", "product", "concatenation"])
@pytest.mark.parametrize("levels", [["word", "phrase", "question"], ["question"], ["word", "phrase"]])
def test_orders_fusions_and_levels(order: str, fusion: str, levels: list[str]) -> None:
    net = made("coattention", order=order, fusion=fusion, levels=levels)
    batch = batch_for("coattention")
    with record(net) as maps:
        logits = net(batch)
    sites = [f"both.{level}.{side}" for level in levels for side in ("first", "second")]
    assert [name for name in maps if name.endswith(("first", "second"))] == sites
    cells, hidden = net.of_picture(net.picture(batch.picture).states), torch.zeros(2, 0, dtype=torch.float64)
    for level in levels:
        seen, said = (
            (maps[f"both.{level}.{side}"].weights.flatten(1).unsqueeze(1) @ rows).squeeze(1)
            for side, rows in (("first", cells), ("second", net.encode_levels(batch.question)[level]))
        )
        both = {"sum": seen + said, "product": seen * said, "concatenation": torch.cat([seen, said], -1)}[fusion]
        hidden = torch.tanh(net.fuse[level](torch.cat([both, hidden], -1)))
    torch.testing.assert_close(logits, net.head(hidden))


def test_the_map_that_is_scored_is_the_mean_of_the_levels() -> None:
    net, batch = made("coattention"), batch_for("coattention")
    with record(net) as maps:
        output, seen = choose_level("both.first", net.levels, None).record(net, batch)
    torch.testing.assert_close(output, net(batch), rtol=0.0, atol=0.0)
    assert seen is not None
    expected = sum(maps[f"both.{level}.first"].dense() for level in net.levels) / 3
    torch.testing.assert_close(seen.dense(), expected)
    assert (seen.site, seen.dense().shape) == ("both.first", (2, 1, 1, 12))


def test_the_map_that_is_scored_is_the_mean_of_the_levels_or_that_of_one_that_is_named() -> None:
    net, batch = made("coattention"), batch_for("coattention")
    with record(net) as maps:
        net(batch)
    mean = ScoredMap("both.first", ("word", "phrase", "question"))
    assert choose_level("both.first", net.levels, None) == mean
    for level in net.levels:
        chosen = choose_level("both.first", net.levels, level)
        assert chosen == ScoredMap(f"both.{level}.first")
        seen = chosen.record(net, batch)[1]
        assert seen is not None
        assert seen.site == f"both.{level}.first"
        torch.testing.assert_close(seen.dense(), maps[seen.site].dense(), rtol=0.0, atol=0.0)
    assert choose_level("both.first", net.levels, "mean") == mean
    with pytest.raises(ConfigError, match=r"model\.explain=phrase: .* write word, question, mean or null"):
        choose_level("both.first", ("word", "question"), "phrase")


@pytest.mark.parametrize("layers", [1, 2])
def test_forget_gates_start_open(layers: int) -> None:
    """Jozefowicz et al. 2015, section 2.1: a bias near 1; the other biases are PyTorch's, at most 1 / sqrt(hidden)."""
    net = PaddedRecurrent(dim=3, hidden=25, cell="lstm", layers=layers, forget=1.0)
    for layer in net.recurrent.layers:
        for end in ("", "_reverse"):
            both = getattr(layer, f"bias_ih_l0{end}") + getattr(layer, f"bias_hh_l0{end}")
            enter, forget, new, out = both.chunk(4)
            assert (forget - 1).abs().max() <= 0.2
            assert all((each.abs() <= 0.4).all() for each in (enter, new, out))
    torch.default_generator.manual_seed(0)
    gru = PaddedRecurrent(dim=3, hidden=25, cell="gru", forget=1.0).recurrent.state_dict()
    torch.default_generator.manual_seed(0)
    torch.testing.assert_close(gru, Recurrent(dim=3, hidden=25, kind="gru").state_dict())


def test_bidaf_starts_with_open_gates_and_with_products() -> None:
    net = NETS["bidaf"](hidden=25, layers=2, forget=1.0, product=4.0)
    recurrent = [part for part in net.modules() if isinstance(part, PaddedRecurrent)]
    biases = [bias for part in recurrent for name, bias in part.named_parameters() if ".bias_hh_" in name]
    assert len(biases) == 8  # four layers, both ways
    assert all((bias[25:50] == 1).all() for bias in biases)
    assert (net.flow.of_pair[2] == 4).all()


REFUSED = {
    "bigbird": "BigBird depends on the positions",
    "convolution": "replaces self-attention over a whole sequence",
    "coverage": "the weights of a query from those of the queries before it",
    "degree": "Degree works on EdgeSupport only",
    "dilated": "SlidingWindow depends on the positions",
    "fourier": "replaces self-attention",
    "global_window": "SlidingWindow depends on the positions",
    "location": "the weights of a query from those of the queries before it",
    "location_window": "the weights of a query from those of the queries before it",
    "mocha": "the weights of a query from those of the queries before it",
    "monotonic": "the weights of a query from those of the queries before it",
    "none": "is for recurrent decoders",
    "position_aware": "PositionAware depends on the distance",
    "recurrent": "replaces self-attention",
    "state_space": "replaces self-attention",
    "window": "SlidingWindow depends on the positions",
}
OF_ONE_QUERY = ("linear", "linformer", "performer")
"""Mechanisms that need the same keys for all queries, as where each input has one query."""


@every_net
@pytest.mark.parametrize("path", plugins.find_choices("attention").values(), ids=lambda path: path.stem)
def test_every_mechanism_serves_or_is_refused_when_the_net_is_built(name: str, path: Path) -> None:
    attend = instantiate(OmegaConf.load(path), _convert_="all")
    reason = REFUSED.get(path.stem)
    if reason is None and path.stem in OF_ONE_QUERY and name != "coattention":
        reason = "sums the keys once for all queries, and padded queries of"
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            made(name, attend=attend)
        return
    for found in outputs(made(name, attend=attend), batch_for(name)):
        assert not found.isnan().any()


def test_options_and_batches_of_another_kind_are_refused() -> None:
    for wrong in ({"order": "both"}, {"fusion": "mean"}):
        with pytest.raises(ValueError, match="is one of"):
            made("coattention", **wrong)
    for levels in ([], ["phrase", "word"], ["word", "word"], ["sentence"]):
        with pytest.raises(ValueError, match="levels are some of word, phrase, question, in this order"):
            made("coattention", levels=levels)
    with pytest.raises(ValueError, match="dim must be even"):
        made("coattention", dim=5)
    with pytest.raises(ValueError, match="not about pictures"):
        made("coattention")(batch_for("bidaf"))
    with pytest.raises(ValueError, match="not about paragraphs"):
        made("bidaf")(batch_for("coattention"))
    with pytest.raises(ValueError, match="no premise"):
        made("esim")(batch_for("coattention"))
