"""`zoo predict` and `zoo evaluate` on texts of the user's own, as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from document_run_cases import checkpoint


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


def test_texts_of_the_command_line_and_what_weighed(cli: Any) -> None:
    done = cli("predict", checkpoint(), "--text", "The food was good. We left.", "--text", "A bus!", "--explain")
    assert done.code == 0, done.err
    first, second = rows(done.out)
    assert list(first) == ["id", "split", "label", "prediction", "probability", "sentences", "words"]
    assert (first["id"], second["id"]) == ("text 1", "text 2")
    assert first["prediction"] in ("awful", "poor", "good", "superb")
    assert any(each in first["sentences"] for each in ("The food was good. .", "We left. ."))
    assert second["sentences"] == "A bus! 1.00"


@pytest.mark.parametrize("model", ["flat_attention", "long_document", "han_transformer"])
def test_other_models_explain_too(cli: Any, model: str) -> None:
    done = cli("predict", checkpoint(model), "--text", "food was good", "--explain")
    assert done.code == 0, done.err
    assert rows(done.out)[0]["words"]


def test_a_model_without_weights_says_so(cli: Any) -> None:
    path = checkpoint("long_document", "attention=linear")
    done = cli("predict", path, "--text", "food was good", "--explain")
    assert (done.code, "its attention has no weights" in done.err) == (2, True)
    assert cli("predict", path, "--text", "food was good").code == 0
    assert cli("evaluate", path).code == 0


def test_rows_are_in_the_order_of_the_table(cli: Any) -> None:
    texts = ["word " * (n * 7 % 11 + 1) for n in range(200)]
    Path("own.csv").write_text("text\n" + "".join(f"{text}\n" for text in texts))
    done = cli("predict", checkpoint(), "own.csv")
    assert done.code == 0, done.err
    assert [row["id"] for row in rows(done.out)] == [str(n) for n in range(2, 202)]


class Arriving(io.RawIOBase):
    """Standard input whose parts arrive one after another; it notes what had been written when each was asked for."""

    def __init__(self, parts: list[bytes], written: Any) -> None:
        self.parts, self.written, self.seen = parts, written, []

    def read1(self, _: int) -> bytes:
        self.seen.append(self.written())
        return self.parts.pop(0) if self.parts else b""


def test_lines_of_standard_input_are_answered_as_they_arrive(
    cli: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out: list[str] = []

    def written() -> int:
        out.append(capsys.readouterr().out)
        return len("".join(out).splitlines())

    stream = Arriving([b"food was good\n\nA bus", b" came.\r\nfood was awful\nlast", b" one"], written)
    monkeypatch.setattr(sys, "stdin", type("Input", (), {"buffer": stream})())
    done = cli("predict", checkpoint(), "-")
    assert done.code == 0, done.err
    assert [row["id"] for row in rows("".join(out) + done.out)] == [f"text {n}" for n in range(1, 5)]
    assert stream.seen == [0, 2, 4, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\n\xff\n", "standard input, line 2: byte 0xff"), (b"\0\n", "line 1: it has NUL"), (b"\n", "has no line")],
)
def test_what_is_wrong_with_standard_input_is_named(
    cli: Any, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", type("Input", (), {"buffer": io.BytesIO(content)})())
    done = cli("predict", checkpoint(), "-")
    assert (done.code, message in done.err) == (2, True)


def test_evaluation_on_own_texts(cli: Any) -> None:
    Path("own.jsonl").write_text(
        "".join(f"{json.dumps({'text': 'food was good', 'label': label})}\n" for label in ("good", "awful"))
    )
    done = cli("evaluate", checkpoint(), "own.jsonl", "--out", "found.json", "--worst", 1)
    assert done.code == 0, done.err
    assert json.loads(Path("found.json").read_text())["test/accuracy"] in (0.0, 0.5)
    Path("own.jsonl").write_text('{"text": "x", "label": "nice"}\n')
    done = cli("evaluate", checkpoint(), "own.jsonl")
    assert (done.code, "own.jsonl, line 1, column 'label': 'nice' is not one of the 4 labels" in done.err) == (2, True)


def test_ratings_and_several_labels(cli: Any) -> None:
    kinds: dict[str, Iterator[str]] = {
        "ordinal": iter("1234" * 10),
        "multi": iter(["a; b", "b", "", "a; c"] * 10),
    }
    for targets, labels in kinds.items():
        Path(f"{targets}.csv").write_text("text,label\n" + "".join(f"text {label},{label}\n" for label in labels))
        own = ["data=text_table", f"data.table={targets}.csv", f"data.targets={targets}", "data.max_epochs=1"]
        small = ["model.net.dim=8", "model.class_weights=balanced", "trainer=cpu", f"run_dir={targets}"]
        done = cli("train", "model=han", *own, *small)
        assert done.code == 0, done.err
        found = json.loads(Path(targets, "metrics.json").read_text())
        assert ("test/mae" in found) == (targets == "ordinal")
        done = cli("predict", f"{targets}/checkpoints/best.ckpt", "--text", "text 3")
        (row,) = rows(done.out)
        assert list(row)[-1] == ("median" if targets == "ordinal" else "labels")


def test_no_other_domain_reads_lines_of_standard_input(cli: Any, tiny_run: Path) -> None:
    done = cli("predict", tiny_run / "checkpoints" / "best.ckpt", "-")
    assert (done.code, "no examples that are lines of text" in done.err) == (2, True)
