"""`zoo predict`, `evaluate` and `maps` on texts of the user's own, as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from translation_run_cases import checkpoint


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def test_texts_of_the_command_line(cli: Any) -> None:
    words = ["--text", "old dog sees cat", "--text", "king"]
    done = cli("predict", str(checkpoint()), *words, "--n-best", "2", "--alignments")
    assert done.code == 0, done.err
    found = rows(done.out)
    columns = ["rank", "translation", "score", "probability", "alignment"]
    assert list(found[0]) == ["id", "split", "text", "reference", *columns]
    assert {row["id"] for row in found} == {"text 1", "text 2"}
    for row in found:
        links = [link.split("-") for link in row["alignment"].split()]
        assert all(int(of) < len(row["text"].split()) for of, _ in links)
        assert [int(to) for _, to in links] == list(range(len(row["translation"].split())))


def test_lines_of_standard_input_stay_in_order(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["dog", "old dog sees cat", "cat sees", "king"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    done = cli("predict", str(checkpoint()), "-")
    assert done.code == 0, done.err
    assert [row["text"] for row in rows(done.out)] == texts
    Path("texts.txt").write_text("\n".join(texts) + "\n")
    of_file = cli("predict", str(checkpoint()), "texts.txt")
    assert [row["translation"] for row in rows(of_file.out)] == [row["translation"] for row in rows(done.out)]


def test_samples_are_those_of_their_seed(cli: Any) -> None:
    asked = ["predict", str(checkpoint()), "--text", "old dog sees cat", "--sample", "--top-k", "20", "--seed"]
    first, again, other = (cli(*asked, seed) for seed in ("1", "1", "2"))
    assert first.code == 0, first.err
    assert first.out == again.out
    assert first.out != other.out


def test_an_unknown_word_is_replaced_by_its_source(cli: Any) -> None:
    done = cli("predict", str(checkpoint()), "--text", "Xanthippe sees", "--replace-unknown", "--beam", "1")
    assert done.code == 0, done.err
    assert "<unk>" not in rows(done.out)[0]["translation"]


def test_options_that_do_not_fit_together(cli: Any) -> None:
    done = cli("predict", str(checkpoint()), "--text", "dog", "--top-p", "0.5")
    assert (done.code, "--top-p is for samples; give --sample too" in done.err) == (2, True)


def test_evaluation_prints_its_protocol_and_the_worst(cli: Any) -> None:
    done = cli("evaluate", str(checkpoint()), "--worst", "2", "--out", "test.json")
    assert done.code == 0, done.err
    found = json.loads(Path("test.json").read_text())
    assert found["protocol"].startswith("BLEU case:mixed|eff:no|tok:13a")
    assert "chrF case:mixed" in found["protocol"]
    with open("test_worst.csv", newline="") as file:
        worst = list(csv.DictReader(file))
    assert len(worst) == 2
    assert " < " in worst[0]["where it looks"]
    assert Path("test_bleu_by_length.csv").exists()


def test_maps_of_the_users_own_pairs(cli: Any) -> None:
    Path("own.tsv").write_text("source\ttarget\nold dog sees cat\tle minir\nking sees\tlo\n")
    done = cli("maps", str(checkpoint()), "--data", "own.tsv", "--out", "maps", "--faithfulness", "2")
    assert done.code == 0, done.err
    assert "faithfulness over 2 texts" in done.out
    with open("maps/translations.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["reference"] for row in found] == ["le minir", "lo"]
    assert (Path("maps") / "pictures" / "bleu_by_length.png").exists()


def test_a_table_of_predictions_is_data(cli: Any) -> None:
    """Its column of splits is empty, as its texts were in none: that is a table without splits."""
    Path("texts.txt").write_text("old dog sees cat\nking sees\n" * 10)
    assert cli("predict", str(checkpoint()), "texts.txt", "--out", "back.csv").code == 0
    options = ["data.table=back.csv", "data.source=translation", "data.target=text"]
    done = cli("check", "model=nmt", "data=text_pairs", *options)
    assert done.code == 0, done.err
