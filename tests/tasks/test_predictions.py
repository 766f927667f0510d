"""`zoo predict` in every domain: splits, references, forms of output, and options of the search."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from run_cases import DOMAINS, predicted

REFERENCES = {
    **dict.fromkeys(("graph", "vision", "documents"), "label"),
    **dict.fromkeys(("translation", "captioning", "speech"), "reference"),
    "recommendation": "held_out",
    "answering": "answer",
}
ANSWERS = {
    **dict.fromkeys(("graph", "vision", "documents", "answering"), "prediction"),
    "recommendation": "item",
    "translation": "translation",
    "captioning": "caption",
    "speech": "transcript",
}
WRITERS = ("translation", "captioning", "speech")


@pytest.mark.parametrize("name", DOMAINS)
def test_a_split_is_predicted_alone_and_its_references_stand_beside(cli: Any, best: Any, name: str) -> None:
    reference, answer = REFERENCES[name], ANSWERS[name]
    known = {split: predicted(cli, best(name), "--split", split) for split in ("val", "test")}
    for split, rows in known.items():
        assert {row["split"] for row in rows} == {split}
        assert all(row[reference] for row in rows)
        assert answer in rows[0]
    columns = list(known["test"][0])
    assert columns.index("split") == 1
    assert columns.index(reference) < columns.index(answer)
    every = predicted(cli, best(name))
    if name == "recommendation":  # the users of the splits are the same: after all their items nothing is held out
        assert {row["split"] for row in every} == {""}
    else:
        told = ("id", reference, answer)  # probabilities of other batches differ in the last digit
        of_all = [[row[key] for key in told] for row in every if row["split"] == "test"]
        assert of_all == [[row[key] for key in told] for row in known["test"]]


@pytest.mark.parametrize("name", DOMAINS)
def test_the_forms_of_output(cli: Any, best: Any, name: str) -> None:
    """By the ending of --out, or by --format: a line of answers for each example is all that text has."""
    rows = predicted(cli, best(name), "--split", "test")
    for file, form in (("a.tsv", None), ("b.jsonl", None), ("c.txt", None), ("d", "text")):
        asked = [] if form is None else ["--format", form]
        assert cli("predict", best(name), "--split", "test", "--out", file, *asked).code == 0
    with open("a.tsv", newline="") as table:
        assert list(csv.DictReader(table, delimiter="\t")) == rows
    lines = Path("b.jsonl").read_text().splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(row) for row in rows]
    ids: dict[str, list[str]] = {}
    for row in rows:
        ids.setdefault(row.get("id") or row["user"], []).append(row[ANSWERS[name]])
    text = "".join("\t".join(answers) + "\n" for answers in ids.values())
    assert Path("c.txt").read_text() == Path("d").read_text() == text


def test_an_ending_of_no_form_is_refused(cli: Any, best: Any) -> None:
    done = cli("predict", best("graph"), "--out", "out.parquet")
    assert (done.code, Path("out.parquet").exists()) == (2, False)
    assert "end it in .txt, .csv, .tsv, .jsonl, or give --format" in done.err


@pytest.mark.parametrize("name", WRITERS)
def test_the_search_is_chosen_by_the_command(cli: Any, best: Any, name: str) -> None:
    """In predictions, in figures, whose protocol says so, and in maps."""
    asked = ["--beam", 3, "--length-penalty", 0, "--max-length", 4, "--no-repeat", 1]
    rows = predicted(cli, best(name), "--split", "test", *asked)
    for row in rows:  # ranked by probability alone
        assert float(row["score"]) == pytest.approx(math.log(float(row["probability"])), rel=1e-3)
    texts = [row[ANSWERS[name]] for row in rows]
    tokens = [list(text) if name == "speech" else text.split() for text in texts]
    assert all(len(each) <= 4 and len(set(each)) == len(each) for each in tokens)
    assert cli("evaluate", best(name), *asked, "--out", "test.json").code == 0
    found = json.loads(Path("test.json").read_text())
    said = "beam 3, length GNMTLength(alpha=0.0), coverage 0, no 1 tokens twice, at most 0 x source + 4 tokens"
    assert found["protocol"].endswith(said)
    done = cli("maps", best(name), "--beam", 1, "--max-length", 2, "--out", "maps", "--pictures", 1)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("name", "option", "value", "range_"),
    [
        ("translation", "--beam", "0", "a whole number from 1"),
        ("captioning", "--max-length", "0", "a whole number from 1"),
        ("captioning", "--no-repeat", "1.5", "a whole number from 1"),
        ("speech", "--length-penalty", "-0.1", "a number from 0"),
        ("speech", "--coverage-penalty", "nan", "a number from 0"),
    ],
)
def test_numbers_out_of_range_are_refused_with_the_range(
    cli: Any, best: Any, capsys: pytest.CaptureFixture[str], name: str, option: str, value: str, range_: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli("predict", best(name), option, value)
    assert ended.value.code == 2
    assert f"argument {option}: {value!r} is out of its range: write {range_}" in capsys.readouterr().err


def test_text_has_a_line_for_each_line_of_the_input(cli: Any, best: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines are kept, from a file and from standard input."""
    lines = ["", "dog sees cat", "", "", "king", "dog sees cat", "", ""]
    Path("in.txt").write_text("".join(f"{line}\n" for line in lines))
    done = cli("predict", best("translation"), "in.txt", "--out", "out.txt")
    assert done.code == 0, done.err
    assert "3 predictions" in done.out
    text = Path("out.txt").read_text()
    found = text.splitlines()
    assert [bool(line) for line in found] == [bool(line) for line in lines]
    assert found[1] == found[5]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path("in.txt").read_bytes())))
    assert cli("predict", best("translation"), "-", "--format", "text").out == text
    rows = predicted(cli, best("translation"), "in.txt")  # a table has no row for them
    assert [row["id"] for row in rows] == ["2", "5", "6"]
    Path("in.txt").write_text(f"king\n{'dog ' * 10_000}\nking\n")
    with pytest.warns(UserWarning, match="skipped 1 bad line"):
        assert cli("predict", best("translation"), "in.txt", "--on-bad-row", "skip", "--out", "out.txt").code == 0
    assert [bool(line) for line in Path("out.txt").read_text().splitlines()] == [True, False, True]


def test_lines_of_documents_on_standard_input(cli: Any, best: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the food was good\n\nawful\n")))
    done = cli("predict", best("documents"), "-", "--format", "text")
    assert [bool(line) for line in done.out.split("\n")] == [True, False, True, False]


def test_questions_stand_in_the_tables_of_answers(cli: Any, best: Any) -> None:
    rows = predicted(cli, best("answering"), "--split", "test")
    assert all(row["question"].endswith("?") for row in rows)
    done = cli("evaluate", best("answering"), "--worst", 2, "--out", "test.json")
    assert done.code == 0, done.err
    with open("test_worst.csv", newline="") as file:
        worst = list(csv.DictReader(file))
    assert list(worst[0])[:3] == ["id", "question", "label"]
    assert all(row["question"].endswith("?") for row in worst)
