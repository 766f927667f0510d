"""The planted graph: its labels follow from the gold edges, and from nothing simpler."""

import time

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from zoo.errors import ConfigError
from zoo.tasks.graph.graph import TEST, TRAIN, VAL, Graph
from zoo.tasks.graph.synthetic import _facts, plant

CLASSES, TAGS, NODES = 5, 8, 3000


@pytest.fixture(params=["static", "dynamic"])
def cue(request) -> str:
    return request.param


@pytest.fixture
def graph(cue) -> Graph:
    return plant(cue=cue)


@pytest.fixture
def facts() -> list[np.ndarray]:
    """Class, tag and named tag of each node of `plant(seed=0)`."""
    return list(_facts(np.random.default_rng(0), NODES, CLASSES, TAGS))


def probability(table: np.ndarray) -> float:
    """How probable a table of counts is if its rows and columns are independent."""
    return chi2_contingency(table).pvalue


def counts(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return table


def test_equal_arguments_give_equal_graphs(cue, graph) -> None:
    same, other = plant(cue=cue), plant(cue=cue, seed=1)
    for name in ("features", "edges", "labels", "split", "gold"):
        assert torch.equal(getattr(graph, name), getattr(same, name)), name
        assert not torch.equal(getattr(graph, name), getattr(other, name)), name


def test_it_is_made_at_once(cue) -> None:
    start = time.perf_counter()
    plant(cue=cue)
    assert time.perf_counter() - start < 0.5


def test_features_are_the_facts_rotated(cue, facts) -> None:
    one_hot = [np.eye(CLASSES)[facts[0]], np.eye(TAGS)[facts[1]], np.eye(TAGS)[facts[2]]]
    design = np.concatenate(one_hot if cue == "dynamic" else one_hot[:2], axis=1)
    clean, noisy = (plant(cue=cue, noise=noise).features.numpy().astype(np.float64) for noise in (0.0, 0.1))
    # Equal inner products, and as many dimensions as a rotation needs: nothing but a rotation does this.
    np.testing.assert_allclose(clean @ clean.T, design @ design.T, atol=1e-5)
    assert np.std(noisy - clean) == pytest.approx(0.1, rel=0.02)


def test_gold_neighbours_show_the_label_and_are_trusted(cue, graph, facts) -> None:
    shown, tag, named = facts
    source, target = graph.edges.numpy()
    gold, label = graph.gold.numpy(), graph.labels.numpy()
    np.testing.assert_array_equal(shown[source[gold]], label[target[gold]])
    trusted = tag[source] == named[target] if cue == "dynamic" else tag[source] < TAGS // 2
    np.testing.assert_array_equal(trusted, gold)


def test_each_node_has_its_neighbours_once_and_not_itself(graph) -> None:
    source, target = graph.edges
    assert torch.bincount(target).tolist() == [9] * NODES
    assert torch.bincount(target[graph.gold]).tolist() == [3] * NODES
    assert not (source == target).any()
    assert len(torch.unique(graph.edges, dim=1).t()) == graph.edges.shape[1]
    assert graph.gold.reshape(NODES, 9).sum(0).min() > 0.3 * NODES  # the place in the list does not say which is gold


def test_distractors_are_drawn_as_the_trusted_are(graph, facts) -> None:
    shown, tag, _ = facts
    source, target = (graph.edges[:, ~graph.gold]).numpy()
    # Crowds of three show one class: each counts once, whence the division by three.
    assert chisquare(np.bincount(shown[source]) / 3).pvalue > 0.01
    assert chisquare(np.bincount(graph.labels.numpy())).pvalue > 0.01
    assert probability(counts(shown[source], graph.labels.numpy()[target]) / 3) > 0.01
    assert probability(counts(tag[source] % 4, shown[source]) / 3) > 0.01


def test_counting_neighbours_is_weak_where_trust_is_exact(graph, facts) -> None:
    shown, label = facts[0], graph.labels.numpy()
    source, target = graph.edges.numpy()
    votes = counts(target, shown[source])
    ties = votes == votes.max(1, keepdims=True)
    assert (ties[np.arange(NODES), label] / ties.sum(1)).mean() < 0.56  # .52 expected of the best that counts


def test_nothing_of_the_node_itself_tells_its_label(graph, facts) -> None:
    label, split = graph.labels.numpy(), graph.split.numpy()
    for fact in facts:
        assert probability(counts(fact, label)) > 0.01
    assert probability(counts(split, label)) > 0.01


def test_a_tag_says_nothing_about_the_class(facts) -> None:
    np.testing.assert_array_equal(counts(facts[0], facts[1]), NODES / (CLASSES * TAGS))


def test_a_crowd_shows_one_class_and_one_tag_and_crowds_differ_in_tag(graph, facts) -> None:
    shown, tag, _ = facts
    source = graph.edges[0].reshape(NODES, 9).numpy()
    for node in range(0, NODES, 100):
        crowds = {(shown[i], tag[i]) for i in source[node]}
        assert len(crowds) == len({tag for _, tag in crowds}) == 3


def test_the_split_is_60_20_20(graph) -> None:
    assert [int((graph.split == part).sum()) for part in (TRAIN, VAL, TEST)] == [1800, 600, 600]


def test_other_sizes(cue) -> None:
    graph = plant(nodes=400, classes=3, tags=4, trusted=2, distractors=5, width=11, cue=cue)
    assert torch.bincount(graph.edges[1]).tolist() == [7] * 400
    assert int(graph.gold.sum()) == 800
    assert plant(nodes=400, classes=3, tags=4, distractors=0, cue=cue).gold.all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cue": "statical"}, "'static' or 'dynamic'"),
        ({"width": 12}, "13 features"),
        ({"width": 20, "cue": "dynamic"}, "21 features"),
        ({"nodes": 100}, "make it 400 or more"),
        ({"trusted": 0}, "trusted is to be a whole number of at least 1"),
        ({"tags": 1}, "tags is to be a whole number of at least 2"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict, words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        plant(**options)
