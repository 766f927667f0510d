"""Means by distance, compared with loops, and the content of pictures."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from zoo.maps import plots
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.maps.distance_table import ByDistance
from zoo.tasks.recommendation.plots import Bars, Panel, distance_figure, session


def _padded(weights: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    real = torch.arange(weights.shape[-1]) < torch.tensor(lengths)[:, None]
    causal = torch.ones(weights.shape[-1], weights.shape[-1]).tril().bool()
    return weights * (real[:, None, :, None] & real[:, None, None, :] & causal), real


def test_by_distance_against_loops() -> None:
    torch.manual_seed(0)
    parts = [([5, 3], torch.rand(2, 2, 5, 5)), ([2, 8, 1], torch.rand(3, 2, 8, 8))]
    found = ByDistance()
    values: dict[tuple[int, int], list[float]] = {}
    even: dict[int, list[float]] = {}
    for lengths, drawn in parts:
        weights, real = _padded(drawn, lengths)
        found.add("a", weights, real)
        for user, length in enumerate(lengths):
            for query in range(length):
                for key in range(query + 1):
                    even.setdefault(query - key, []).append(1 / (query + 1))
                    for head in range(2):
                        weight = float(drawn[user, head, query, key])
                        values.setdefault((head, query - key), []).append(weight)
    table = found.frame(["b", "a"])
    assert len(table) == len(values) == 16
    for row in table.itertuples():
        each = values[row.head, row.distance]  # type: ignore[index]
        assert (row.layer, row.site, row.queries) == (1, "a", len(each))
        assert row.weight == pytest.approx(sum(each) / len(each))
        assert row.uniform == pytest.approx(sum(even[row.distance]) / len(each))  # type: ignore[index]


def test_by_distance_of_candidates() -> None:
    """The last item of a history is one position before a candidate."""
    lengths = torch.tensor([2, 3])
    batch = SequenceBatch(
        items=torch.zeros(5, dtype=torch.int64),
        lengths=lengths,
        targets=torch.full((5,), -1),
        held_out=torch.full((2,), -1),
        seen=torch.zeros(0, dtype=torch.int64),
        seen_lengths=torch.zeros(2, dtype=torch.int64),
        ids=("a", "b"),
        splits=("", ""),
        catalogue=Catalogue(["x"], None, torch.ones(1, dtype=torch.int64)),
    )
    found = ByDistance()
    found.add_last("attend", torch.tensor([0.4, 0.6, 0.1, 0.2, 0.7]), batch)
    table = found.frame(["attend"])
    assert table["distance"].tolist() == [1, 2, 3]
    assert table["weight"].tolist() == pytest.approx([0.65, 0.3, 0.1])
    assert table["uniform"].tolist() == pytest.approx([(1 / 2 + 1 / 3) / 2, (1 / 2 + 1 / 3) / 2, 1 / 3])
    assert table["queries"].tolist() == [2, 2, 1]


def _texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in [*axes.get_yticklabels(), *axes.get_xticklabels()]]


def test_a_session_names_its_items() -> None:
    titles = ["Toy Story (1995)", "Costs $5 and $6", "A title that is much too long to stand beside a bar (1999)"]
    gold = torch.tensor([False, True, False])
    bars = [Bars("whatever comes next", torch.tensor([0.2, 0.5, 0.3]), "share of attention")]
    bars.append(Bars("1. Heat (1995)", torch.tensor([-1.0, 2.0, 0.0]), "what it adds to the score"))
    figure = session(titles, title="u1", bars=bars, panels=[Panel("layer 0", torch.rand(3, 3).tril())], gold=gold)
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [
        "Toy Story (1995)  1",
        "Costs $5 and $6  2",
        "A title that is much too long…  3",
    ]
    assert [label.get_color() for label in labels] == [plots.INK, plots.GOLD, plots.INK]
    figure.canvas.draw()  # dollar signs are not parsed as mathematics
    written = {text.get_text() for text in figure.axes[1].texts}
    assert written == {"-1.00", "+2.00"}
    assert ".50" in {text.get_text() for text in figure.axes[0].texts}


def test_of_a_long_history_what_weighs_most_is_drawn_in_its_order() -> None:
    values = torch.zeros(200)
    heavy = torch.arange(3, 200, 7)
    values[heavy] = 1.0 + torch.rand(len(heavy))
    figure = session([f"t{n}" for n in range(200)], title="u", bars=[Bars("x", values, "share of attention")])
    places = [int(label.get_text().split()[1]) for label in figure.axes[0].get_yticklabels()]
    assert len(places) == 30
    assert places == sorted(places)
    assert {int(place) + 1 for place in heavy} <= set(places)
    assert "the 30 of 200 items that weigh most" in figure.axes[0].get_ylabel()


def test_a_session_of_one_item_can_be_drawn() -> None:
    bars = [Bars("x", torch.ones(1), "share of attention"), Bars("y", torch.zeros(1), "what it adds to the score")]
    session(["only"], title="u", bars=bars, panels=[Panel("layer 0", torch.ones(1, 1))]).canvas.draw()


def test_distance_figure_has_a_line_a_head() -> None:
    rows = {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "distance": [0] * 4, "weight": [0.5] * 4, "uniform": [0.3] * 4}
    figure = distance_figure(pd.DataFrame(rows))
    names = [line.get_label() for line in figure.axes[0].get_lines()]
    assert names == [f"layer {layer}, head {head}" for layer in (0, 1) for head in (0, 1)] + ["uniform"]
