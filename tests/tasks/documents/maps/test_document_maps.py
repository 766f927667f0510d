"""`zoo maps` of documents: the folder, its tables, and pages to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from document_run_cases import checkpoint

from zoo import maps
from zoo.tasks.documents.plots import Line, page

SITES = {
    "han": {"words.pool.attend", "sentences.pool.attend", "words x sentences"},
    "han_transformer": {
        "words.pool.attend",
        "sentences.pool.attend",
        "sentences.encoder.layers.0.mixer.attend",
        "words x sentences",
    },
    "flat_attention": {"words.pool.attend", "words x sentences"},
    "long_document": {
        "encoder.layers.0.mixer.attend",
        "encoder.layers.1.mixer.attend",
        "words x sentences",
    },
}


@pytest.mark.parametrize("model", SITES)
def test_the_folder(cli: Any, model: str) -> None:
    done = cli("maps", checkpoint(model), "--out", "maps", "--pictures", 2)
    assert done.code == 0, done.err
    found = maps.load("maps")
    for example in found.values():
        assert set(example) == SITES[model]
        scored = example["words x sentences"]
        assert scored.gold is not None
        assert scored.nouns == {"source": "word", "target": "document"}
    table = pd.read_csv("maps/words.csv")
    assert list(table) == [
        "id", "sentence", "word", "text", "weight_in_sentence", "sentence_weight", "weight", "gold"
    ]  # fmt: skip
    product = table["weight_in_sentence"] * table["sentence_weight"]
    assert (product - table["weight"]).abs().max() < 1e-6
    if model != "long_document":
        assert table.groupby("id")["weight"].sum().to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert len(pd.read_csv("maps/documents.csv")) == 12
    assert len(list(Path("maps/pictures").glob("*.png"))) == 2
    assert "truth/sentence_pointing" in done.out
    if model == "han":
        words = next(iter(found.values()))["words.pool.attend"]
        assert len(words.labels["source"]) == len(words.gold)
        assert " ".join(words.labels["source"][:3]) in words.labels["target"][0]


def test_own_texts_without_gold(cli: Any) -> None:
    Path("own.csv").write_text('text,label\n"The food was good. $x$ & <b>we</b> left ' + "z" * 50 + '",good\nA bus.,\n')
    done = cli("maps", checkpoint(), "own.csv", "--out", "maps", "--ids", "3,2")
    assert done.code == 0, done.err
    assert list(maps.load("maps")) == ["3", "2"]
    assert "gold" not in pd.read_csv("maps/words.csv")
    assert "truth" not in done.out


def test_documents_are_in_the_order_of_the_input(cli: Any) -> None:
    """Batches are of similar length."""
    lengths = [(number * 37) % 11 + 1 for number in range(80)]
    texts = [f"food {'was ' * length}good." for length in lengths]
    Path("own.csv").write_text("text,label\n" + "".join(f"{text},\n" for text in texts))
    done = cli("maps", checkpoint("han", "data.eval_batch_size=4"), "own.csv", "--out", "maps", "--pictures", 0)
    assert done.code == 0, done.err
    assert pd.read_csv("maps/documents.csv").id.tolist() == list(range(2, 82))
    assert done.out.startswith("80 documents in documents.csv")


def texts_of(figure: Any) -> list[str]:
    return [each.get_text() for each in figure.axes[0].texts]


def line(words: str, weight: float, is_gold: bool = False) -> Line:
    spelled = [f" {word}" for word in words.split()]
    return Line(spelled, weight, [1 / len(spelled)] * len(spelled), [is_gold] * len(spelled), is_gold)


def test_a_page_says_every_word_in_its_order() -> None:
    figure = page([line("a b c", 0.8, True), line("d e", 0.2)], title="one")
    assert texts_of(figure) == [".80", ".20", "a", "b", "c", "d", "e"]
    assert "gold" in figure.texts[-1].get_text()


def test_of_a_long_document_the_heaviest_sentences_are_shown() -> None:
    many = [line(f"sentence{n}", 0.5 if n in (3, 700) else 0.0) for n in range(1000)]
    found = texts_of(page(many, title="long"))
    assert "sentence3" in found
    assert "sentence700" in found
    assert any("sentences left out that weigh less" in each for each in found)
    assert len(found) < 200


def test_a_sentence_longer_than_a_page_is_cut() -> None:
    found = texts_of(page([line("word " * 1500, 1.0)], title="long"))
    assert found[-1] == "…"
    assert len(found) < 2000
