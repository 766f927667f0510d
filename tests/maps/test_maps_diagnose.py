"""Entropy, effective keys and self-loops: computed by hand, and equal for dense maps and edges."""

import math

import pytest
import torch
from map_cases import by_hand, dense_map, edge_map, random_edges, star

from zoo.attention import AttentionMap
from zoo.maps import diagnose, label_map


def test_entropy_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.25] * 4, [1.0, 0, 0, 0], [0.0] * 4])
    found = diagnose.entropy(weights)
    torch.testing.assert_close(found[:3], torch.tensor([math.log(2), math.log(4), 0.0]))
    assert found[3].isnan()
    torch.testing.assert_close(diagnose.effective_keys(found[:3]), torch.tensor([2.0, 4.0, 1.0]))
    torch.testing.assert_close(diagnose.normalize(found[:2], torch.tensor([4, 4])), torch.tensor([0.5, 1.0]))
    assert diagnose.normalize(torch.tensor([0.0]), torch.tensor([1])).isnan().all()


def test_weights_are_read_as_a_distribution() -> None:
    weights = torch.rand(2, 3, 5)
    torch.testing.assert_close(diagnose.entropy(weights), diagnose.entropy(weights * 0.1))
    permitted = torch.tensor([True, True, False, True, False])
    torch.testing.assert_close(diagnose.entropy(weights, permitted), diagnose.entropy(weights[..., permitted]))


def test_edges_of_a_complete_graph_are_a_dense_map() -> None:
    weights = torch.rand(4, 4, 2).softmax(1)
    target = torch.arange(4).repeat_interleave(4)
    found = diagnose.edge_entropy(weights.reshape(16, 2), target, 5)
    torch.testing.assert_close(found[:4], diagnose.entropy(weights.movedim(2, 0)).T)
    assert found[4].isnan().all()  # a node without edges


def test_the_table_of_a_graph() -> None:
    found = label_map(edge_map(random_edges(6, 20), 6), {"source": list("abcdef"), "target": list("abcdef")})
    table = diagnose.table(found)
    assert list(table.columns) == [
        "layer", "head", "target", "keys", "entropy", "normalised_entropy", "effective_keys", "self_loop_share",
    ]  # fmt: skip
    assert len(table) == 12
    row = table[(table["head"] == 1) & (table["target"] == "c")].iloc[0]
    at = found.target == 2
    own = found.weights[at, 1]
    assert row["keys"] == len(own)
    assert row["entropy"] == pytest.approx(float(-(own * own.log()).sum()), abs=1e-6)
    assert row["self_loop_share"] == pytest.approx(float(found.weights[at & (found.source == 2), 1]), abs=1e-6)
    assert row["normalised_entropy"] == pytest.approx(row["entropy"] / math.log(len(own)), abs=1e-6)


def test_the_table_of_a_dense_map_counts_permitted_keys() -> None:
    found = label_map(dense_map(batch=1, queries=4, keys=4, causal=True), {"query": "abcd", "key": "abcd"})
    table = diagnose.table(found)
    assert table[table["head"] == 2]["keys"].tolist() == [1, 2, 3, 4]
    assert table["normalised_entropy"].isna().sum() == 3
    torch.testing.assert_close(
        torch.tensor(table["self_loop_share"]), found.weights.diagonal(dim1=1, dim2=2).flatten(), check_dtype=False
    )
    assert "self_loop_share" not in diagnose.table(by_hand([[0.5, 0.5]], "q", "a b"))


def test_the_table_of_steps_over_edges() -> None:
    one = edge_map(random_edges(3, 6), 3, heads=1)
    steps = torch.stack([one.weights, one.weights * 0.5])
    found = label_map(AttentionMap("a", steps, ("step", "edge", "head"), [one.support] * 2, one.heads), {})
    table = diagnose.table(found)
    assert table["step"].tolist() == ["0"] * 3 + ["1"] * 3
    assert table["target"].tolist() == ["0", "1", "2"] * 2
    first, second = table[table["step"] == "0"], table[table["step"] == "1"]
    for name in ("entropy", "self_loop_share"):
        assert first[name].tolist() == pytest.approx(second[name].tolist(), abs=1e-6)


def test_a_node_that_nobody_feeds() -> None:
    table = diagnose.table(star({"4": 0.75, "9": 0.25}))
    lonely = table[table["target"] == "4"].iloc[0]
    assert lonely["keys"] == 0
    assert math.isnan(lonely["entropy"])
    assert math.isnan(lonely["self_loop_share"])
