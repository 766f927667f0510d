"""Commands on pairs of the user's own, good and bad, as a user runs them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from translation_run_cases import TRANSFORMER, checkpoint

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "translation"
FILES = ["data=text_pairs", "data.source_file=own.de", "data.target_file=own.en"]


def lines(side: str, count: int = 20) -> str:
    return "".join(f"{side} {number}\n" for number in range(count))


def pairs(source: str | bytes, target: str | bytes) -> None:
    for side, content in (("de", source), ("en", target)):
        Path(f"own.{side}").write_bytes(content.encode() if isinstance(content, str) else content)


BAD = [
    pytest.param(lines("de"), lines("en", 19), "own.de has 20 lines and own.en has 19 lines", id="misaligned"),
    pytest.param(lines("de") + "x\n", lines("en") + "\n", "own.en, line 21: the text is empty", id="empty"),
    pytest.param(lines("de") + f"{'x' * 10_001}\n", lines("en", 21), "own.de, line 21: the text has 10,001", id="long"),
    pytest.param(lines("de") + "a\0b\n", lines("en", 21), "own.de, line 21: it has NUL characters", id="NUL"),
    pytest.param(lines("de"), lines("en").encode("utf-16-le"), "own.en, line 1: it has NUL characters", id="UTF-16"),
    pytest.param(lines("de").encode() + b"\xfc\n", lines("en", 21), "own.de, line 21: byte 0xfc is not UTF-8", id="1"),
]


@pytest.mark.parametrize(("source", "target", "message"), BAD)
def test_bad_files_are_named(cli: Any, source: Any, target: Any, message: str) -> None:
    pairs(source, target)
    done = cli("train", *TRANSFORMER, *FILES)
    assert (done.code, message in done.err) == (2, True), done.err
    assert "Traceback" not in done.err


def test_the_preflight_names_all_bad_lines_of_a_file(cli: Any) -> None:
    pairs(lines("de") + "\nx\na\0b\n", lines("en") + "y\n\nz\n")
    done = cli("check", *TRANSFORMER, *FILES)
    assert done.code == 2
    for place in ("own.de, line 21: the text", "own.en, line 22: the text", "own.de, line 23: it has NUL"):
        assert place in done.err
    with pytest.warns(UserWarning, match=r"own.de: skipped 3 bad lines. The first: own.de, line 21"):
        done = cli("train", *TRANSFORMER, *FILES, "data.on_bad_row=skip", "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    "options",
    [
        [f"data.table={SAMPLES}/phrases.tsv", "data.tokeniser=subwords", "data.subwords=300"],
        [
            *(f"data.{side}_file={SAMPLES}/phrases.{end}" for side, end in (("source", "de"), ("target", "en"))),
            f"data.alignment_file={SAMPLES}/phrases.align",
            "data.tokeniser=characters",
        ],
        [f"data.table={SAMPLES}/notes.jsonl", "data.source=document", "data.target=summary", "data.joint=true"],
        [
            f"data.{side}_file={{{','.join(f'{split}:{SAMPLES}/phrases.{end}' for split in ('train', 'val', 'test'))}}}"
            for side, end in (("source", "de"), ("target", "en"))
        ],
    ],
)
def test_the_samples_can_be_trained_on(cli: Any, options: list[str]) -> None:
    done = cli("check", *TRANSFORMER, "data=text_pairs", *options)
    assert done.code == 0, done.err
    assert "no problem found" in done.out


def test_evaluation_on_own_texts_with_references(cli: Any) -> None:
    texts, references = "old dog sees cat\nking hates bird\n", "le minir\nla lo\n"
    Path("own.txt").write_text(texts)
    Path("own.ref").write_text(references)
    done = cli("evaluate", str(checkpoint()), "own.txt", "--references", "own.ref", "--out", "found.json")
    assert done.code == 0, done.err
    assert "test/bleu" in json.loads(Path("found.json").read_text())
    done = cli("predict", str(checkpoint()), "--text", "dog", "--references", "own.ref")
    assert (done.code, "--references belong to a text file" in done.err) == (2, True)
    Path("own.ref").write_text("le minir\n")
    done = cli("evaluate", str(checkpoint()), "own.txt", "--references", "own.ref")
    assert (done.code, "own.txt has 2 lines and own.ref has 1 lines" in done.err) == (2, True)


def test_bad_lines_of_a_trained_models_input(cli: Any) -> None:
    Path("own.txt").write_text("old dog\n\nking\0\nbird\n")
    done = cli("predict", str(checkpoint()), "own.txt")
    assert (done.code, "own.txt, line 3: it has NUL" in done.err) == (2, True)
    assert "--on-bad-row=skip leaves such lines out and counts them" in done.err
    with pytest.warns(UserWarning, match="skipped 1 bad line"):
        done = cli("predict", str(checkpoint()), "own.txt", "--on-bad-row=skip")
    assert [row["id"] for row in csv.DictReader(io.StringIO(done.out))] == ["1", "4"]


def test_fine_tuning_says_which_tokenisers_are_kept(cli: Any) -> None:
    learned = ["data.tokeniser=subwords", "data.subwords=300"]
    start = checkpoint(*learned)
    pairs(lines("alter Hund"), lines("old dog"))
    own = [f"init={start}", *FILES, *learned, "data.kept_tokenisers=source", "data.max_epochs=1", "run_dir=own"]
    done = cli("train", *own)
    assert done.code == 0, done.err
    table = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines()]
    assert [row for row in table if row and row[0].endswith("tokeniser")] == [
        ["source_tokeniser", "yes", "", ""],
        ["target_tokeniser", "", "yes", ""],
    ]


def test_multi30k_without_a_network_says_what_to_do(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refused)
    done = cli("train", *TRANSFORMER, "data=multi30k", "data.direction=en-de")
    assert done.code == 2
    assert "train.en.gz is needed and cannot be downloaded" in done.err
    assert "place it there, or set $ZOO_DATA" in done.err
