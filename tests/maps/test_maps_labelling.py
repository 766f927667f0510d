"""The map of one example from a recording: the right rows and labels, without padding."""

from typing import Any

import pytest
import torch
from largest import Largest
from map_cases import by_hand, dense_map, edge_map, random_edges, star
from torch import nn

from zoo.attention import (
    Attention,
    AttentionMap,
    BlockSupport,
    DenseSupport,
    Dot,
    EdgeSupport,
    Gaussian,
    LocalM,
    LocalP,
    LocalSupport,
    SlidingWindow,
    Softmax,
    record,
)
from zoo.maps import build_labelled_map, edge_gold, label_map
from zoo.maps.build_labelled_map import mean_of_heads
from zoo.maps.describe import describe
from zoo.maps.diagnose import table
from zoo.maps.plots import heat_map


def test_padding_is_cut_off_for_each_example() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 0, 0]]).bool()
    found = dense_map(batch=3, queries=5, keys=5, key_mask=mask)
    whole = label_map(found, {"query": "abcde", "key": "abcde"}, index_in_batch=0)
    assert torch.equal(whole.weights, found.weights[0])
    assert whole.permitted is None
    right = label_map(found, {"query": "abc", "key": "abc"}, index_in_batch=1)
    assert torch.equal(right.weights, found.weights[1, :, :3, :3])
    left = label_map(found, {"query": "bc", "key": "bc"}, index_in_batch=2)
    assert torch.equal(left.weights, found.weights[2, :, 1:3, 1:3])
    assert left.permitted is None


def test_what_has_no_labels_keeps_its_positions() -> None:
    mask = torch.tensor([[0, 1, 1]]).bool()
    found = label_map(dense_map(batch=1, queries=2, keys=3, key_mask=mask), {})
    assert found.labels == {"query": ("0", "1"), "key": ("1", "2")}


def test_queries_of_cross_attention_end_with_their_labels() -> None:
    found = dense_map(batch=1, queries=6, keys=4)
    one = label_map(found, {"query": ["x", "y"], "key": list("abcd")})
    assert torch.equal(one.weights, found.weights[0, :, :2])


def test_a_mask_inside_stays() -> None:
    found = label_map(dense_map(batch=1, queries=4, keys=4, causal=True), {})
    assert found.permitted is not None
    assert torch.equal(found.permitted[0], torch.ones(4, 4).tril().bool())
    pairs = found.pairs(0)
    assert len(pairs.weights) == 10
    assert torch.equal(pairs.weights, found.weights[0][found.permitted[0]])


def test_masks_of_heads_go_with_their_heads() -> None:
    permitted = torch.rand(1, 3, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    support = DenseSupport(permitted)
    weights = support.softmax(torch.randn(1, 3, 4, 5))[:, [2, 0]]
    found = label_map(AttentionMap("a", weights, ("batch", "head", "query", "key"), support, (2, 0)), {"key": "abcde"})
    for head in (2, 0):
        rows = permitted[0, head][permitted[0].any(0).any(1)]
        assert len(found.pairs(head).weights) == rows.sum()
    assert len(found.pairs().weights) == (permitted[0, 2] | permitted[0, 0]).sum()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"key": "ab"}, "5 along 'key', 3 of them permitted, and 2 labels"),
        ({"query": "abcdefgh"}, "4 along 'query'"),
        ({"keys": "abc"}, "Did you mean 'key'"),
    ],
)
def test_labels_that_do_not_fit(labels: dict[str, str], said: str) -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0]] * 2).bool()
    with pytest.raises(ValueError, match=said):
        label_map(dense_map(key_mask=mask), labels)


def test_an_example_that_the_batch_does_not_have() -> None:
    with pytest.raises(ValueError, match="no example 2"):
        label_map(dense_map(), {}, index_in_batch=2)
    with pytest.raises(ValueError, match="no batch"):
        label_map(edge_map(random_edges(4, 6), 4), {}, index_in_batch=1)


def test_gold_is_cut_like_the_map() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]]).bool()
    found = dense_map(queries=5, keys=5, key_mask=mask)
    gold = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(2)) < 0.4
    labels = {"query": "abc", "key": "abc"}
    for given in (gold, gold[1], gold[1, 1:4, 1:4]):
        one = label_map(found, labels, gold=given, index_in_batch=1)
        assert one.gold is not None
        assert torch.equal(one.gold, gold[1, 1:4, 1:4])
    with pytest.raises(ValueError, match="gold of shape"):
        label_map(found, labels, gold=gold[1, :4], index_in_batch=1)


def test_edges_keep_their_order_and_gold_follows() -> None:
    edges = torch.tensor([[3, 0, 1, 2, 2], [1, 1, 0, 1, 2]])  # 2 -> 2 is replaced by the self-loop that each node gets
    gold = torch.tensor([True, False, True, False, True])
    support = EdgeSupport.from_edges(edges, 4, self_loops=True)
    aligned = edge_gold(gold, support)
    found = label_map(edge_map(edges, 4, support=support), {}, gold=aligned)
    assert found.source is not None
    assert found.target is not None
    marked = {(int(s), int(t)) for s, t, g in zip(found.source, found.target, aligned, strict=True) if g}
    assert marked == {(3, 1), (1, 0)}
    assert int(found.is_self_loop.sum()) == 4
    with pytest.raises(ValueError, match="see edge_gold"):
        label_map(edge_map(edges, 4, support=support), {}, gold=gold)


def test_gold_of_a_graph_without_edges() -> None:
    support = EdgeSupport.from_edges(torch.empty(2, 0, dtype=torch.int64), 3, self_loops=True)
    assert not edge_gold(torch.empty(0, dtype=torch.bool), support).any()


def test_the_mean_of_heads() -> None:
    found = dense_map(dtype=torch.bfloat16)
    one = label_map(found, {}, heads="mean")
    torch.testing.assert_close(one.weights[0], found.weights[0].float().mean(0), rtol=0, atol=0)
    assert (one.weights.dtype, one.heads, one.head().shape) == (torch.float32, (-1,), (4, 5))
    with pytest.raises(ValueError, match="not 'max'"):
        label_map(found, {}, heads="max")  # type: ignore[arg-type]


class _Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = Attention(Dot(), Softmax())

    def forward(self, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> None:
        for step in range(query.shape[2]):
            support = DenseSupport() if mask is None else DenseSupport.from_key_mask(mask)
            there = key if mask is not None else key[:, :, : step + 1]
            self.attend(query[:, :, step : step + 1], there, there, support)


def test_a_decoder_s_steps_are_its_queries() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, 4, 6), torch.randn(2, 2, 5, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
    decoder = _Decoder()
    with record(decoder) as maps:
        decoder(query, key, mask)
    found = label_map(maps["attend"], {"step": ["der", "hund"], "key": ["the", "dog"]}, index_in_batch=1)
    assert (found.axes, tuple(found.weights.shape)) == (("head", "step", "key"), (2, 2, 2))
    whole = DenseSupport.from_key_mask(mask)
    expected = decoder.attend.weights(query, key, whole)[1, :, :2, :2]
    torch.testing.assert_close(found.weights, expected)
    assert found.query_axes == ("step",)
    assert not found.attends_to_itself


def test_a_decoder_s_own_keys_grow() -> None:
    decoder = _Decoder()
    with record(decoder) as maps:
        decoder(torch.randn(1, 2, 4, 6), torch.randn(1, 2, 4, 6), None)
    found = label_map(maps["attend"], {})
    assert found.permitted is not None
    assert torch.equal(found.permitted[0], torch.ones(4, 4).tril().bool())


def test_steps_over_edges() -> None:
    one = edge_map(random_edges(5, 9), 5)
    steps = torch.stack([one.weights, one.weights.flip(1), one.weights])
    found = label_map(
        AttentionMap("a", steps, ("step", "edge", "head"), [one.support] * 3, one.heads), {"step": ["x", "y", "z"]}
    )
    pairs = found.pairs(1)
    assert pairs.queries == 15
    assert torch.equal(pairs.weights, steps[:, :, 1].flatten())
    other = EdgeSupport.from_edges(random_edges(5, 9, seed=3), 5, self_loops=True)
    with pytest.raises(ValueError, match="different edges at different steps"):
        label_map(AttentionMap("a", steps, ("step", "edge", "head"), [one.support, one.support, other], one.heads), {})


def test_self_loops_are_of_the_same_things_only() -> None:
    support = EdgeSupport.from_edges(torch.tensor([[0, 1], [0, 1]]), 2, 2)
    found = AttentionMap("a", torch.ones(2, 1), ("edge", "head"), support, (0,))
    assert label_map(found, {"source": ["a", "b"], "target": ["a", "b"]}).is_self_loop.all()
    assert not label_map(found, {"source": ["film", "book"], "target": ["ann", "bob"]}).is_self_loop.any()


def test_a_label_that_is_not_there_gets_an_offer() -> None:
    with pytest.raises(KeyError, match="Did you mean 'river'"):
        by_hand([[1.0, 0.0]], "bank", "river money").position("key", "rivers")
    assert star({"4": 1.0}).position("target", "17") == 0


def test_a_key_without_weight_is_there_all_the_same() -> None:
    """The number of keys of a step is known, even if the last of them has weight 0."""
    attend, x = Attention(Dot(), Softmax()), torch.tensor([0.0, 1.0, -2000.0]).view(1, 1, 3, 1)
    with record(attend) as maps:
        for step in range(3):
            there = x[:, :, : step + 1]
            attend(torch.ones(1, 1, 1, 1), there, there, DenseSupport())
    assert maps[""].weights[2, 0, 0, 0, 2] == 0
    found = label_map(maps[""], {})
    assert found.labels["key"] == ("0", "1", "2")
    assert found.permitted is not None
    assert found.permitted[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_what_is_not_of_pairs_is_refused() -> None:
    found = AttentionMap("site", torch.ones(2, 3, 4), ("batch", "head", "query"), DenseSupport(), (0, 1, 2))
    with pytest.raises(ValueError, match="site has the axes batch, head, query: only queries, keys, edges, channels"):
        label_map(found, {})


def windowed(
    heads: int = 2, length: int = 7, mask: torch.Tensor | None = None, causal: bool = False
) -> tuple[AttentionMap, torch.Tensor]:
    """Returns the recorded map of a sliding window, and the same weights as a matrix."""
    torch.manual_seed(0)
    attend = Attention(Dot(), Softmax(), restrict=SlidingWindow(radius=1, global_tokens=1))
    query, key, value = torch.randn(3, 2, heads, length, 4)
    support = DenseSupport(None if mask is None else mask[:, None, None, :], causal)
    with record(attend) as maps:
        attend(query, key, value, support)
    near = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= 1
    near[0] = near[:, 0] = True
    near = near.tril() if causal else near
    permitted = near.expand(2, 1, -1, -1) if mask is None else near & mask[:, None, None, :]
    scores = (query @ key.mT).masked_fill(~permitted, -torch.inf)
    return maps[""], scores.softmax(-1).nan_to_num(0.0)


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_become_queries_and_keys(causal: bool) -> None:
    found, expected = windowed(causal=causal)
    assert isinstance(found.support, BlockSupport)
    for index in (0, 1):
        one = label_map(found, {"query": "abcdefg", "key": "abcdefg"}, index_in_batch=index)
        torch.testing.assert_close(one.weights, expected[index])
        assert one.axes == ("head", "query", "key")
        pairs = one.pairs(1)
        assert len(pairs.weights) == int((expected[index, 1] > 0).sum()) < 49
        assert (pairs.weights > 0).all()


@pytest.mark.parametrize("heads", ["each", "mean"])
def test_blocks_of_a_long_sequence_become_a_list_of_pairs(heads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of the matrix that it would be, and nothing as large as that."""
    found, _ = windowed(length=200)
    given: Any = {"axis_labels": {"query": range(200), "key": range(200)}, "index_in_batch": 1, "heads": heads}
    gold = torch.eye(200).bool()
    dense = label_map(found, gold=gold, **given).pairs()
    monkeypatch.setattr(build_labelled_map, "_MOST_DENSE", 2 * 200 * 200 - 1)
    with Largest() as largest:
        one = label_map(found, nouns={"query": "word", "key": "token"}, **given)
    assert one.axes == ("edge", "head")
    assert one.nouns == {"target": "word", "source": "token"}
    assert largest.elements < 200 * 200
    listed = label_map(found, gold=gold, **given).pairs()
    order, expected = (each.query * 200 + each.key for each in (listed, dense))
    assert torch.equal(order.sort().values, expected.sort().values)
    torch.testing.assert_close(listed.weights[order.argsort()], dense.weights[expected.argsort()])
    assert listed.gold is not None
    assert dense.gold is not None
    assert torch.equal(listed.gold[order.argsort()], dense.gold[expected.argsort()])


def test_a_list_of_pairs_needs_labels_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_labelled_map, "_MOST_DENSE", 2)
    with pytest.raises(ValueError, match="has 7 along 'key', and 5 labels"):
        label_map(windowed()[0], {"query": "abcdefg", "key": "abcde"})


def test_padding_of_blocks_is_cut_off() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]]).bool()
    found, expected = windowed(mask=mask)
    one = label_map(found, {"query": "abcd", "key": "abcd"}, index_in_batch=1)
    torch.testing.assert_close(one.weights, expected[1, :, :4, :4])
    whole = label_map(found, {}, index_in_batch=0)
    torch.testing.assert_close(whole.weights, expected[0])


def test_some_heads_of_blocks_and_their_average() -> None:
    found, expected = windowed(heads=3)
    some = AttentionMap("a", found.weights[:, [2, 0]], found.axes, found.support, (2, 0))
    torch.testing.assert_close(label_map(some, {}).weights, expected[0, [2, 0]])
    mean = label_map(found.mean_heads(), {}, index_in_batch=1)
    torch.testing.assert_close(mean.weights[0], expected[1].mean(0))
    torch.testing.assert_close(label_map(found, {}, heads="mean", index_in_batch=1).weights[0], expected[1].mean(0))


def test_keys_around_a_position_of_each_head() -> None:
    torch.manual_seed(0)
    attend = Attention(Dot(), Gaussian(), restrict=LocalP(dim=4, heads=3, radius=1))
    query, key, value = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4)
    with record(attend) as maps:
        attend(query, key, value, DenseSupport())
    found = maps[""]
    support = found.support
    assert isinstance(support, LocalSupport)
    one = label_map(found, {"key": "abcdefghi"}, index_in_batch=1)
    for head in range(3):
        expected = torch.zeros(9)
        for slot in range(3):
            if support.permitted[1, head, 0, slot]:
                expected[support.key_at[1, head, 0, slot]] += found.weights[1, head, 0, slot]
        torch.testing.assert_close(one.weights[head, 0], expected)
        assert len(one.pairs(head).weights) == int(support.permitted[1, head].sum())
    with pytest.raises(ValueError, match="each head attends to keys of its own"):
        label_map(found.mean_heads(), {})


def test_a_decoder_that_looks_around_a_position() -> None:
    torch.manual_seed(0)
    attend = Attention(Dot(), Softmax(), restrict=LocalM(radius=1))
    query, key = torch.randn(2, 2, 4, 6), torch.randn(2, 2, 5, 6)
    with record(attend) as maps:
        for step in range(4):
            attend(query[:, :, step : step + 1], key, key, DenseSupport(first=step))
    found = label_map(maps[""], {"step": "wxyz", "key": "abcde"}, index_in_batch=1)
    near = (torch.arange(4)[:, None] - torch.arange(5)).abs() <= 1
    expected = (query[1] @ key[1].mT).masked_fill(~near, -torch.inf).softmax(-1)
    assert found.axes == ("head", "step", "key")
    torch.testing.assert_close(found.weights, expected)
    assert len(found.pairs(0).weights) == int(near.sum())


def gates(*shape: int) -> AttentionMap:
    axes = ("batch", "channel") if len(shape) == 2 else ("batch", "height", "width")
    return AttentionMap("gate", torch.rand(shape, generator=torch.Generator().manual_seed(0)), axes, None, ())


def test_gates_have_their_own_axes() -> None:
    found = gates(2, 3, 4)
    gold = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    one = label_map(found, {"height": "abc"}, gold=gold, index_in_batch=1, nouns={"height": "row"})
    assert (one.axes, one.heads, one.nouns) == (("height", "width"), (), {"height": "row"})
    assert torch.equal(one.weights, found.weights[1])
    assert one.labels == {"height": "abc", "width": ("0", "1", "2", "3")}
    assert one.gold is not None
    assert torch.equal(one.gold, gold[1])
    assert one.is_gate
    assert not one.attends_to_itself
    assert mean_of_heads(one) is one
    channels = label_map(gates(2, 6), {}, index_in_batch=1)
    assert (channels.axes, tuple(channels.weights.shape)) == (("channel",), (6,))


@pytest.mark.parametrize(
    ("labels", "index", "said"),
    [
        ({"height": "ab"}, 0, "3 along 'height', and 2 labels"),
        ({"key": "abc"}, 0, "gate has no axis 'key'"),
        ({}, 2, "there is no example 2"),
    ],
)
def test_labels_that_do_not_fit_a_gate(labels: dict[str, str], index: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        label_map(gates(2, 3, 4), labels, index_in_batch=index)


def test_a_gate_has_no_queries() -> None:
    one = label_map(gates(1, 3, 4), {})
    for use in (heat_map, table, lambda each: describe(each, 0), lambda each: each.head(0)):
        with pytest.raises(ValueError, match="gate is a gate"):
            use(one)  # type: ignore[operator]
