"""Measures of faithfulness against loops in float64 and scipy, and an example whose answer depends on known inputs."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pandas as pd
import pytest
import torch
from largest import Largest
from scipy.stats import kendalltau
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    DenseSupport,
    EdgeSupport,
    MultiheadAttention,
    ScaledDot,
    SlidingWindow,
    Softmax,
    record,
)
from zoo.attention.normalizers.hard import HardReinforce
from zoo.errors import DataError
from zoo.maps import faithfulness_table
from zoo.maps.explainer import MapOptions
from zoo.maps.faithfulness import SHARES, comprehensiveness, first_inputs, kendall_tau, rank, sufficiency
from zoo.maps.faithfulness_table import Faithfulness
from zoo.maps.perturbation import (
    Perturbable,
    freeze_weights,
    gradient_at_rows,
    has_weights,
    make_uniform,
    permute_weights,
)


def tau_by_loop(first: list[float], second: list[float]) -> float:
    """Concordant pairs without discordant ones, by the pairs that are not tied in one ranking and in the other."""
    agreed = untied_first = untied_second = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = (math.copysign(1, x[i] - x[j]) if x[i] != x[j] else 0 for x in (first, second))
        agreed += a * b
        untied_first += a != 0
        untied_second += b != 0
    return agreed / math.sqrt(untied_first * untied_second)


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("inputs", [2, 3, 17, 60])
def test_kendall_tau(inputs: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(inputs + levels)
    first, second = torch.randint(levels, (2, inputs), generator=generator).double()
    first[0], first[1], second[0], second[1] = 0, 1, 1, 0  # not all are tied
    found = kendall_tau(first, second)
    assert found == pytest.approx(tau_by_loop(first.tolist(), second.tolist()), abs=1e-12)
    assert found == pytest.approx(kendalltau(first, second, variant="b").statistic, abs=1e-12)


@pytest.mark.parametrize("levels", [3, 50_000])
def test_kendall_tau_of_many_inputs_compares_no_pairs(levels: int) -> None:
    """A matrix of all pairs would have 2.5e9 entries."""
    first, second = torch.randint(levels, (2, 50_000), generator=torch.Generator().manual_seed(0)).float()
    with Largest() as largest:
        found = kendall_tau(first, second)
    assert found == pytest.approx(kendalltau(first, second, variant="b").statistic, abs=1e-12)
    assert largest.elements <= 100_000


def test_kendall_tau_of_equal_weights_is_not_known() -> None:
    assert kendall_tau(torch.ones(4), torch.arange(4.0)) is None
    assert kendall_tau(torch.ones(1), torch.ones(1)) is None


def test_the_first_inputs_are_shares_rounded_up() -> None:
    order = torch.tensor([3, 0, 2, 1, *range(4, 200)])
    counts = first_inputs(order).sum(1).tolist()
    assert counts == [2, 10, 20, 40, 100]
    assert first_inputs(order)[0].nonzero().flatten().tolist() == [0, 3]
    assert first_inputs(torch.arange(3)).sum(1).tolist() == [1, 1, 1, 1, 2]


def test_equal_values_are_ranked_at_random() -> None:
    """Otherwise uniform attention would rank the first inputs first."""
    generator = torch.Generator().manual_seed(0)
    first = torch.stack([rank(torch.tensor([1.0, 1, 1, 1, 2]), generator) for _ in range(400)])
    assert (first[:, 0] == 4).all()
    counts = torch.bincount(first[:, 1], minlength=5)[:4]
    assert counts.min() > 60


def test_erased_and_kept_by_loop() -> None:
    whole, *rest = torch.tensor([0.9, 0.8, 0.5, 0.1, 0.95], dtype=torch.float64)
    parts = torch.stack(rest)
    by_loop = sum(0.9 - part for part in parts.tolist()) / 4
    assert comprehensiveness(whole, parts) == pytest.approx(by_loop, abs=1e-12)
    assert sufficiency(whole, parts) == pytest.approx(by_loop, abs=1e-12)


class Weighed(Perturbable):
    """The answer's probability is sigmoid(sum of w_i), of which what is left out is missing."""

    noun = "word"

    def __init__(self, w: Tensor, attention: Tensor) -> None:
        self.w, self.attention = w.double(), attention

    def score_batch(self, keep: Tensor) -> Tensor:
        return (keep.double() @ self.w).sigmoid()

    def gradient(self) -> Tensor:
        return self.w.abs()


class Words:
    """As much of a source of maps as is asked for."""

    noun, net = "sentence", nn.Linear(1, 1)
    options = MapOptions(faithfulness=3)

    def __init__(self, attention: Any, inputs: int = 20) -> None:
        w = torch.randn(5, inputs, generator=torch.Generator().manual_seed(1)).abs()
        self.found = [Weighed(each, attention(each)) for each in w]

    def names(self) -> list[str]:
        return list("abcde")

    def sample_for_faithfulness(self, count: int) -> list[int]:
        return list(range(5))[:count]

    def make_perturbable(self, position: int) -> list[Perturbable]:
        return [self.found[position]]


def measured(words: Any, count: int = 3) -> tuple[Faithfulness, pd.DataFrame]:
    found = Faithfulness(words, count)
    return found, pd.concat(list(found.frames()), ignore_index=True)


def test_an_example_whose_answer_is_known() -> None:
    """The map is what the answer depends on: tau is 1, and the falls are those of a loop over shares."""
    words = Words(lambda w: w / w.sum())
    found, rows = measured(words)
    assert list(rows.columns) == ["id", "left_out", "inputs", "ranking", "measure", "value"]
    assert sorted(set(rows.id)) == ["a", "b", "c"]
    value = rows.set_index(["id", "ranking", "measure"])["value"]
    for name, example in zip("abc", words.found, strict=False):
        order = sorted(example.w.tolist(), reverse=True)
        whole = 1 / (1 + math.exp(-sum(order)))
        counts = [math.ceil(share * 20) for share in SHARES]
        without = sum(whole - 1 / (1 + math.exp(-sum(order[k:]))) for k in counts) / len(counts)
        alone = sum(whole - 1 / (1 + math.exp(-sum(order[:k]))) for k in counts) / len(counts)
        assert value[name, "map", "comprehensiveness"] == pytest.approx(without, abs=1e-12)
        assert value[name, "map", "sufficiency"] == pytest.approx(alone, abs=1e-12)
        assert value[name, "", "probability"] == pytest.approx(whole, abs=1e-12)
        assert value[name, "gradient", "comprehensiveness"] == value[name, "map", "comprehensiveness"]
        assert value[name, "map", "kendall_tau_gradient"] == 1.0
        assert value[name, "map", "kendall_tau_leave_one_out"] == 1.0
    assert (value[:, "random", "comprehensiveness"] < value[:, "map", "comprehensiveness"]).all()
    means = {(each["ranking"], each["measure"]): each for each in found.means()}
    own = rows[(rows.ranking == "random") & (rows.measure == "sufficiency")].value
    assert means["random", "sufficiency"]["mean"] == pytest.approx(own.mean())
    assert means["random", "sufficiency"]["standard_error"] == pytest.approx(own.sem())
    assert means["random", "sufficiency"]["examples"] == 3
    lines = found.lines()
    assert lines[1].startswith("  probability of the answer: 1.000 ± 0.000")
    assert lines[-1].startswith("the answer depends on the words that the map ranks first: without them")


@pytest.mark.parametrize(("attention", "tau"), [(lambda w: -w, -1.0), (torch.ones_like, None)])
def test_a_map_of_something_else(attention: Any, tau: float | None) -> None:
    found, rows = measured(Words(attention), 5)
    agreed = rows[rows.measure == "kendall_tau_gradient"].value
    assert agreed.isna().all() if tau is None else (agreed == tau).all()
    means = {(each["ranking"], each["measure"]): each["mean"] for each in found.means()}
    assert means["map", "kendall_tau_gradient"] == tau
    assert any("not defined, since the map's values are equal" in line for line in found.lines()) == (tau is None)
    assert found.lines()[-1].startswith("the map does not say what the answer depends on")


def test_the_table_does_not_depend_on_what_else_is_measured() -> None:
    _, few = measured(Words(torch.ones_like), 1)
    _, more = measured(Words(torch.ones_like), 4)
    pd.testing.assert_frame_equal(few, more[more.id == "a"])


class Pairs(Weighed):
    """Two words at a time."""

    noun = "pair"


class WordsAndPairs(Words):
    """Examples with two kinds of inputs; the first has one pair alone."""

    def make_perturbable(self, position: int) -> list[Perturbable]:
        (words,) = super().make_perturbable(position)
        w = words.w.view(-1, 2).sum(1)[: 1 if position == 0 else None]
        return [words, Pairs(w, -w)]


def test_two_kinds_of_inputs() -> None:
    """Each has rows, a part of the report and a verdict of its own."""
    found, rows = measured(WordsAndPairs(lambda w: w))
    counts = rows.groupby(["left_out", "id"]).inputs.first()
    assert counts["word"].to_dict() == {"a": 20, "b": 20, "c": 20}
    assert counts["pair"].to_dict() == {"b": 10, "c": 10}
    _, words = measured(Words(lambda w: w))
    pd.testing.assert_frame_equal(rows[rows.left_out != "pair"].reset_index(drop=True), words)
    tau = rows[rows.measure == "kendall_tau_gradient"].set_index(["id", "left_out"])["value"]
    assert tau["b", "word"] == 1.0
    assert tau["b", "pair"] == -1.0
    lines = found.lines()
    assert [line for line in lines if line.startswith(" leaving out")] == [" leaving out words:", " leaving out pairs:"]
    assert lines[-2].startswith("the answer depends on the words that the map ranks first")
    assert lines[-1].startswith("the map does not say what the answer depends on: the pairs that")


def test_one_input_cannot_be_left_out() -> None:
    with pytest.raises(DataError, match="no sentence has two inputs or more"):
        measured(Words(torch.ones_like, inputs=1))


def test_variants_go_through_the_net_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block has more flags than the limit, and the measures are those of one block."""
    _, whole = measured(Words(lambda w: w.flip(0)))
    monkeypatch.setattr(faithfulness_table, "_FLAGS", 60)
    words, seen = Words(lambda w: w.flip(0)), list[int]()
    for each in words.found:
        score = each.score
        monkeypatch.setattr(each, "score", lambda keep, score=score: (seen.append(keep.numel()), score(keep))[1])
    with Largest() as largest:
        _, parts = measured(words)
    pd.testing.assert_frame_equal(whole, parts)
    assert max(seen) <= 60
    assert largest.elements < 20 * 91  # of the variants of an example


def test_of_many_inputs_some_are_left_out_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithfulness_table, "_READ", 2_000)
    monkeypatch.setattr(faithfulness_table, "_FEWEST_SINGLES", 5)
    words = Words(lambda w: w, inputs=100)
    seen = list[int]()
    for each in words.found:
        each.w /= 50  # else the answer is certain without any input
        score = each.score
        monkeypatch.setattr(each, "score", lambda keep, score=score: (seen.append(len(keep)), score(keep))[1])
    found, rows = measured(words, 1)
    assert sum(seen) <= 1 + 20 + 40 + 20 + 1
    assert (rows[rows.measure == "kendall_tau_leave_one_out"]["value"] == 1).all()
    (said,) = (line for line in found.lines() if "one at a time" in line)
    assert said.strip() == "one at a time were left out 20 of 100 words, drawn at random: all would take too long"
    assert found.variants == 20 + 1 + 20 + 40


def test_the_longest_examples_have_the_fewest_variants() -> None:
    """Of a node with a million neighbours, the net reads 56 variants."""
    found = Faithfulness(Words(lambda w: w, inputs=1_000_000), 1)  # type: ignore[arg-type]
    assert found.variants == 1 + 20 + 2 * 3 * 5 + 5
    assert found.announcement == (
        "faithfulness passes about 56 variants of a sentence of 1,000,000 inputs through the net; "
        "--ids names a shorter one"
    )


def test_few_inputs_of_a_long_example_are_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a variant costs is the size of the example, not the number of its sentences."""
    monkeypatch.setattr(faithfulness_table, "_READ", 500)
    monkeypatch.setattr(faithfulness_table, "_FEWEST_SINGLES", 3)
    words, sentences = (Words(lambda w: w, inputs=inputs).found for inputs in (100, 20))
    source = Words(lambda w: w)
    for each in sentences:
        each.noun = "sentence"
    monkeypatch.setattr(source, "make_perturbable", lambda position: [words[position], sentences[position]])
    found, _ = measured(source, 1)
    said = [line.split(":")[0].strip() for line in found.lines() if "one at a time" in line]
    assert said == [
        f"one at a time were left out 5 of {inputs}, drawn at random" for inputs in ("100 words", "20 sentences")
    ]


def test_many_variants_are_announced() -> None:
    assert Faithfulness(Words(torch.ones_like), 5).announcement is None  # type: ignore[arg-type]
    words = Words(torch.ones_like, inputs=9000)
    said = Faithfulness(words, 5).announcement  # type: ignore[arg-type]
    assert said == (
        "faithfulness passes about 646 variants of each of 5 sentences through the net; --faithfulness=N takes fewer"
    )


def attending() -> tuple[MultiheadAttention, Tensor]:
    torch.manual_seed(0)
    net = MultiheadAttention(dim=4, heads=2, attend=lambda dim, heads: Attention(ScaledDot(), Softmax())).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    return net, torch.randn(1, 5, 4, dtype=torch.float64)


def test_uniform_weights_of_a_trained_net() -> None:
    net, x = attending()
    before = net(x)[0]
    with make_uniform(net), record(net) as maps:
        net(x)
    (found,) = maps.values()
    assert torch.equal(found.weights, torch.full_like(found.weights, 0.2))
    assert torch.equal(net(x)[0], before)
    assert has_weights(net)
    assert not has_weights(nn.Linear(1, 1))


def test_frozen_weights_are_constants_to_the_gradient() -> None:
    net, x = attending()
    with record(net) as maps:
        expected = net(x)[0]
    (found,) = maps.values()
    x.requires_grad_()
    with freeze_weights(net):
        out = net(x)[0]
        (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, expected)
    # by hand: the same weights, whatever x is
    value = net.value(x).view(1, 5, 2, 2).transpose(1, 2)
    by_hand = net.out((found.weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(gradient, torch.autograd.grad(by_hand.sum(), x)[0])
    assert not torch.allclose(gradient, torch.autograd.grad(net(x)[0].sum(), x)[0])


@pytest.mark.parametrize("kind", ["dense", "masked", "window", "edges"])
def test_permuted_weights_stay_with_their_query(kind: str) -> None:
    """In every layout each query keeps its weights, at keys that it may see, and heads differ."""
    torch.manual_seed(0)
    site = Attention(ScaledDot(), Softmax(), restrict=SlidingWindow(radius=2) if kind == "window" else None)
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64)
    support: Any = DenseSupport(torch.rand(1, 1, 9, 9) < 0.6) if kind == "masked" else DenseSupport()
    if kind == "edges":
        x, support = x[0].transpose(0, 1), EdgeSupport.from_edges(torch.randint(9, (2, 40)), 9)

    def weights() -> Tensor:
        with record(site) as maps:
            site(x, x, x, support)
        (found,) = maps.values()
        if kind != "edges":
            return found.dense()
        laid = torch.zeros(1, 2, 9, 40, dtype=torch.float64)
        laid[0, :, found.support.target.long(), torch.arange(40)] = found.weights.t()  # type: ignore[union-attr]
        return laid

    before = weights()
    with permute_weights(site, torch.Generator().manual_seed(0)):
        first, second = weights(), weights()
    assert torch.equal(weights(), before)
    for each in (first, second):
        torch.testing.assert_close(each.sort(-1).values, before.sort(-1).values)
        assert torch.equal(each > 0, before > 0)
        assert not torch.equal(each, before)
    assert not torch.equal(first, second)


def test_hard_attention_stays_hard_when_it_is_frozen() -> None:
    site = Attention(ScaledDot(), HardReinforce()).eval()
    x = torch.randn(1, 1, 4, 3, generator=torch.Generator().manual_seed(0))
    expected, _ = site(x, x, x, DenseSupport())
    with freeze_weights(site):
        found, _ = site(x, x, x, DenseSupport())
    assert torch.equal(found, expected)


def test_the_gradient_at_rows_is_that_of_scaled_rows() -> None:
    torch.manual_seed(0)
    table, head = nn.Embedding(9, 3).double(), nn.Linear(3, 1).double()
    table.weight.requires_grad_(False)
    numbers = torch.tensor([4, 1, 4])

    def passed(scale: Tensor) -> Tensor:
        other = table(torch.tensor([2]))  # another call of the table is not looked at
        return (head((table(numbers) * scale[:, None]).tanh()).sum() * other.sum()).sigmoid().log()

    found = gradient_at_rows(lambda: passed(torch.ones(3)), table, numbers)
    for row in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[row] = 1e-6
        slope = (passed(1 + step) - passed(1 - step)).detach() / 2e-6
        assert found[row].item() == pytest.approx(abs(float(slope)), abs=1e-8)
    assert not table._forward_hooks
