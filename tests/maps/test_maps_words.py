"""Maps in words: keys that stand out are named, and no others."""

import pytest
from map_cases import by_hand, star

from zoo.maps.describe import describe, sentence


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"4": 0.62, "9": 0.21, "2": 0.09, "3": 0.08}, "node 17 attends to 4 (.62) and, less, to 9 (.21)"),
        ({"9": 0.21, "4": 0.62, "2": 0.09, "3": 0.08}, "node 17 attends to 4 (.62) and, less, to 9 (.21)"),
        ({"4": 0.47, "9": 0.33, "2": 0.2}, "node 17 attends to 4 (.47) and 9 (.33) and, less, to 2 (.20)"),
        ({"17": 0.3, "4": 0.7}, "node 17 attends to 4 (.70) and, less, to itself (.30)"),
        ({"17": 0.95, "4": 0.05}, "node 17 attends to itself (.95)"),
        ({"4": 1.0}, "node 17 attends to 4 (1.00): it has no choice"),
        ({"17": 1.0}, "node 17 attends to itself (1.00): it has no choice"),
        ({"4": 0.0, "9": 0.0}, "node 17 attends to nothing: 2 neighbours, all with weight 0"),
        ({"4": 0.5, "9": 0.5}, "node 17 attends to 4 (.50) and 9 (.50)"),
    ],
)
def test_what_a_node_attends_to(weights: dict[str, float], said: str) -> None:
    assert describe(star(weights), "17") == said


def test_spread_out_attention_is_not_dressed_up() -> None:
    spread = {f"n{i}": 0.89 / 11 for i in range(11)} | {"4": 0.11}
    assert describe(star(spread), "17") == "node 17 attends to nothing in particular: 12 neighbours, none above .11"
    many = {f"n{i}": 0.001 for i in range(960)} | {"4": 0.04}  # forty times an equal share, but below .05
    assert describe(star(many), "17") == "node 17 attends to nothing in particular: 961 neighbours, none above .04"
    third = {"17": 0.34, "4": 0.332, "9": 0.328}
    said = "node 17 attends to nothing in particular: 2 neighbours and itself, none above .34"
    assert describe(star(third), "17") == said


def test_none_above_is_true() -> None:
    third = {"4": 0.3412, "9": 0.33, "2": 0.3288}
    assert describe(star(third), "17").endswith("none above .35")


def test_the_rest_is_counted() -> None:
    weights = {"4": 0.5} | {f"n{i}": 0.05 for i in range(10)}
    assert describe(star(weights), "17") == "node 17 attends to 4 (.50); 10 others share .50"
    assert describe(star({"4": 0.7, "9": 0.16, "2": 0.14}), "17").endswith("4 (.70); 2 others share .30")


def test_a_node_without_neighbours() -> None:
    assert describe(star({"4": 1.0}), "4") == "node 4 attends to nothing: it has no neighbours"


def test_words_and_patches() -> None:
    text = by_hand([[0.1, 0.8, 0.1], [0.45, 0.1, 0.45]], "bank ,", "the river the")
    assert describe(text, "bank", noun="word") == "word bank attends to river (.80)"
    assert describe(text, ",", noun="word") == 'word "," attends to the #1 (.45) and the #2 (.45)'
    assert sentence("sign", ["a", "b", "c"], [0.34, 0.33, 0.33], noun="question", among="patch") == (
        "question sign attends to nothing in particular: 3 patches, none above .34"
    )
    assert describe(text, 0, noun="item").startswith("item bank")


def test_a_word_itself_is_the_one_in_its_place() -> None:
    text = by_hand([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.9, 0.0, 0.1]], "the cat the", "the cat the")
    assert describe(text, 1, noun="word") == "word cat attends to the #2 (.80)"
    assert describe(text, 2, noun="word") == "word the #2 attends to the #1 (.90)"
    with pytest.raises(KeyError, match="no word at position 3"):
        describe(text, 3, noun="word")


def test_numbers_are_not_rounded_to_nothing() -> None:
    assert "(<.01)" in sentence("a", ["b"], [0.001])
    assert sentence("a", ["b", "c"], [0.999, 0.001]) == "node a attends to b (1.00)"
