"""Measures of a map against gold, compared with values computed by hand and with scikit-learn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from map_cases import by_hand, star
from sklearn.metrics import roc_auc_score

from zoo.attention import AttentionMap
from zoo.maps import label_map, metrics


@st.composite
def weighted_edges(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Generates weights with ties, gold of both kinds, and targets."""
    count = draw(st.integers(2, 40))
    values = st.integers(0, 5).map(lambda x: x / 5)
    weights = torch.tensor(draw(st.lists(values, min_size=count, max_size=count)))
    gold = torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    target = torch.tensor(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    return weights, gold, target


@settings(max_examples=150)
@given(weighted_edges())
def test_auc_is_scikit_learn_s(case: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    weights, gold, target = case
    found = metrics.edge_auc(weights, gold)
    if gold.all() or not gold.any():
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(gold, weights), abs=1e-12)
    each = [
        roc_auc_score(gold[target == t], weights[target == t])
        for t in target.unique()
        if gold[target == t].any() and not gold[target == t].all()
    ]
    per_target = metrics.edge_auc_per_target(weights, gold, target)
    assert per_target == (pytest.approx(sum(each) / len(each), abs=1e-12) if each else None)


def test_auc_of_many_edges() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(200_000, generator=generator, dtype=torch.float64)
    gold = torch.rand(200_000, generator=generator) < weights
    assert metrics.edge_auc(weights, gold) == pytest.approx(roc_auc_score(gold, weights), abs=1e-12)


def test_auc_of_permitted_edges_only() -> None:
    weights, gold = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([False, True, False])
    assert metrics.edge_auc(weights, gold) == 0.5
    assert metrics.edge_auc(weights, gold, torch.tensor([False, True, True])) == 1.0
    assert metrics.edge_auc(weights, gold, torch.tensor([True, False, True])) is None


def test_nothing_to_measure_is_none() -> None:
    weights, gold = torch.rand(3, 4), torch.zeros(3, 4, dtype=torch.bool)
    for measure in (metrics.edge_auc, metrics.pointing_accuracy, metrics.mass_on_gold, metrics.alignment_error):
        assert measure(weights, gold) is None
        assert measure(torch.empty(0, 4), torch.empty(0, 4, dtype=torch.bool)) is None
        assert measure(weights, ~gold, torch.zeros(3, 4, dtype=torch.bool)) is None
    assert metrics.edge_auc_per_target(torch.empty(0), torch.empty(0).bool(), torch.empty(0).long()) is None


def test_weights_that_are_not_numbers_are_not_scored() -> None:
    with pytest.raises(ValueError, match="NaN"):
        metrics.edge_auc(torch.tensor([0.5, math.nan]), torch.tensor([True, False]))


WEIGHTS = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]])
GOLD = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0]]).bool()


def test_pointing_of_many_examples() -> None:
    """An example without gold has no value and does not count, and there is no mean of no examples."""
    weights = torch.tensor([[0.1, 0.9], [0.1, 0.9], [0.1, 0.9], [0.5, 0.5]])
    gold = torch.tensor([[False, True], [False, False], [True, False], [True, False]])
    points = metrics.Pointing()
    assert points.truth() == {}
    assert math.isnan(points.add(weights[1:2], gold[1:2])[0])
    assert points.truth() == {}
    first, none, *others = points.add(weights, gold)
    assert [first, *others] == [1.0, 0.0, 0.5]
    assert math.isnan(none)
    assert points.truth() == {"pointing_accuracy": 0.5}


def test_pointing_counts_queries_with_gold() -> None:
    assert metrics.pointing(WEIGHTS, GOLD).tolist() == [1.0, 0.0, 0.0]
    assert metrics.pointing_accuracy(WEIGHTS, GOLD) == pytest.approx(1 / 3)
    permitted = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]]).bool()
    assert metrics.pointing(WEIGHTS, GOLD, permitted).tolist() == [1.0, 1.0, 0.5]


def test_equal_weights_score_as_chance_would() -> None:
    uniform = torch.full((2, 4), 0.25)
    assert metrics.pointing(uniform, torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]]).bool()).tolist() == [0.25, 0.5]


def test_a_query_without_weight_points_nowhere() -> None:
    assert metrics.pointing_accuracy(torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)) == 0.0


def test_mass_is_not_divided_by_anything() -> None:
    torch.testing.assert_close(metrics.gold_mass(WEIGHTS, GOLD), torch.tensor([0.6, 0.5, 0.3]))
    assert metrics.mass_on_gold(WEIGHTS / 2, GOLD) == pytest.approx(0.7 / 3)


def test_alignment_error() -> None:
    # Links: 0-0, 1-1, 2-2, 3-0. Sure: 0-0, 1-0, 1-2, 3-1.
    assert metrics.alignment_error(WEIGHTS, GOLD) == pytest.approx(1 - 2 * 1 / (4 + 4))
    possible = torch.zeros_like(GOLD)
    possible[1, 1] = possible[2, 2] = True
    assert metrics.alignment_error(WEIGHTS, GOLD, possible=possible) == pytest.approx(1 - (1 + 3) / 8)
    assert metrics.alignment_counts(WEIGHTS, GOLD, possible=possible) == (4.0, 8.0)
    assert metrics.alignment_error(torch.eye(3), torch.eye(3).bool()) == 0.0
    assert metrics.alignment_error(torch.eye(3), torch.eye(3).bool().roll(1, 0)) == 1.0


@settings(max_examples=50)
@given(seed=st.integers(0, 999))
def test_a_list_of_pairs_scores_as_its_matrix(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(0, 4, (5, 6), generator=generator) / 4
    gold = torch.rand(5, 6, generator=generator) < 0.3
    permitted = torch.rand(5, 6, generator=generator) < 0.7
    order = torch.randperm(int(permitted.sum()), generator=generator)
    query = permitted.nonzero()[order, 0]
    w, g = weights[permitted][order], gold[permitted][order]
    for measure in (metrics.pointing_accuracy, metrics.mass_on_gold, metrics.alignment_error):
        assert measure(w, g, query=query) == pytest.approx(measure(weights, gold, permitted), abs=1e-6), measure


def test_a_batch_scores_as_its_rows() -> None:
    batch, gold = torch.stack([WEIGHTS, WEIGHTS.flip(0)]), torch.stack([GOLD, GOLD])
    both = torch.cat([metrics.pointing(w, g) for w, g in zip(batch, gold, strict=True)])
    assert torch.equal(metrics.pointing(batch, gold), both)
    assert metrics.pointing_accuracy(batch[:, None].half(), gold[:, None]) == pytest.approx(float(both.mean()))


def test_the_measures_that_fit_a_map() -> None:
    text = by_hand([[0.7, 0.3], [0.4, 0.6]], "q r", "a b", gold=[(0, 0), (1, 0)])
    assert metrics.truth(text) == {
        "pointing_accuracy": 0.5,
        "mass_on_gold": pytest.approx(0.55),
        "alignment_error": pytest.approx(0.5),
    }
    # The self-loop has the greatest weight and is not permitted.
    graph = star({"17": 0.5, "4": 0.3, "9": 0.2}, gold={"4"})
    assert metrics.truth(graph, 0) == {
        "edge_auc": 1.0,
        "edge_auc_per_target": 1.0,
        "pointing_accuracy": 1.0,
        "mass_on_gold": pytest.approx(0.3),
    }
    assert metrics.truth(star({"4": 1.0})) == {}


def test_a_gate_points_at_its_greatest_place() -> None:
    weights = torch.tensor([[[0.1, 0.2, 0.9], [0.3, 0.9, 0.0]]])
    found = AttentionMap("gate", weights, ("batch", "height", "width"), None, ())
    gold = torch.tensor([[False, False, True], [False, False, True]])
    assert metrics.truth(label_map(found, {}, gold=gold)) == {"pointing_accuracy": 0.5}  # two values are the greatest
    assert metrics.truth(label_map(found, {}, gold=torch.zeros(2, 3, dtype=torch.bool))) == {"pointing_accuracy": None}
    assert metrics.truth(label_map(found, {})) == {}
