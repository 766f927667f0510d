"""Data that a model cannot be trained on are refused before they are read, with those that fit."""

from __future__ import annotations

from typing import Any

import pytest

from zoo.config import checks, compose, plugins


@pytest.mark.parametrize("command", ["check", "train"])
def test_data_of_another_domain(cli: Any, command: str) -> None:
    done = cli(command, "model=han", "data=text_pairs", "data.table=none.csv")
    assert done.code == 2
    said = "model=han cannot be trained on data=text_pairs. Data that fit: imdb, imdb_ratings, newsgroups20, "
    assert said in done.err
    assert "text_folder, text_table, yelp." in done.err


def test_other_examples_of_the_same_domain() -> None:
    composed = compose.compose(["model=esim", "data=picture_questions", "data.table=none.csv"])
    (error,) = checks.iter_data_errors(composed)
    assert str(error).endswith("Data that fit: hypotheses, planted_inference, sick.")


def test_every_recipe_fits() -> None:
    for name in plugins.find_choices("experiment"):
        assert list(checks.iter_data_errors(compose.compose([f"experiment={name}"]))) == []


OURS = [name for name, path in plugins.find_choices("model").items() if path.is_relative_to(plugins.CONF)]


@pytest.mark.parametrize("model", OURS)
def test_every_model_has_data_that_fit(model: str) -> None:
    """Otherwise nothing would be refused for it."""
    composed = compose.compose([f"model={model}"])
    assert list(checks.iter_data_errors(composed)) == []
    other = "cora" if composed["names"]["data"] != "planted_graph" else "imdb"
    (error,) = checks.iter_data_errors({**composed, **_with_data(model, other)})
    assert f"model={model} cannot be trained on data={other}. Data that fit: " in str(error)
    assert composed["names"]["data"] in str(error)


def _with_data(model: str, data: str) -> dict[str, Any]:
    composed = compose.compose([f"model={model}", f"data={data}"])
    return {"data": composed["data"], "names": composed["names"]}
