"""JSONL as a table: the rows that the same CSV has, what is wrong with the line, and any row again by its line."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data.json_lines import JSONTable
from zoo.data.line_index import Lines
from zoo.data.tables import RowError, collect_errors, read_table
from zoo.errors import DataError

Write = Callable[..., Path]
NAME = "t.jsonl"


_cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
_cells = _cells.map(str.strip).filter(bool)
_rows = st.lists(st.tuples(_cells, _cells, st.floats(width=32, allow_nan=False, allow_infinity=False)), min_size=1)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=_rows, as_ascii=st.booleans())
def test_it_is_the_table_that_csv_is(tmp_path: Path, rows: list[tuple[str, str, float]], as_ascii: bool) -> None:
    objects = [dict(zip("abx", row, strict=True)) for row in rows]
    lines = "".join(f"{json.dumps(each, ensure_ascii=as_ascii)}\n" for each in objects)
    (tmp_path / "t.jsonl").write_bytes(lines.encode())
    with open(tmp_path / "t.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("a", "b", "x"), *rows])
    found, expected = (
        [(row.text("a"), row.text("b"), row.number("x"), row.numbers(["x"]).tolist()) for row in table]
        for table in (JSONTable(tmp_path / "t.jsonl", required=["a", "x"]), read_table(tmp_path / "t.csv"))
    )
    assert found == expected


def test_rows_know_their_lines_and_are_found_again(write: Write, tmp_path: Path) -> None:
    content = '\ufeff{"text": "a", "n": 1}\n\n{"n": 2.5}\r\n \n{"text": null, "n": [1, "é"]}'
    path = write(content)
    table = JSONTable(path, required=["text"])
    rows = {row.line: row.cells for row in table}
    assert rows == {1: ["a", "1"], 3: ["", "2.5"], 5: ["", '[1, "é"]']}
    lines = Lines(path, tmp_path / "cache")
    assert {line: table.row(lines, line).cells for line in reversed(rows)} == rows
    with pytest.raises(RowError, match=r"t\.jsonl, line 3, column 'text': the cell is empty"):
        table.row(lines, 3).text("text")
    packed = JSONTable(write(gzip.compress(content.encode()), "t.jsonl.gz"))
    assert {row.line: row.cells for row in packed} == rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", r"t\.jsonl: the file is empty"),
        ("\n \n", r"t\.jsonl: the file is empty"),
        ("{}\n", "the first line names no column"),
        ("[1]\n", "line 1: it is JSON, and no object. The first line names the columns"),
        ("a,b\n1,2\n", r"line 1: it is not JSON \(Expecting value, at character 1\)"),
        ('{"texxt": 1}\n', r"line 1, column 'text': the first line does not name it. Did you mean 'texxt'\?"),
        (b'{"text": "caf\xe9"}\n', "line 1: byte 0xe9 is not UTF-8 text"),
        ('{"text": "a"}\n'.encode("utf-16"), "line 1: byte 0xff is not UTF-8 text"),
        ('{"text": "a"}\n'.encode("utf-16-le"), "line 1: it has NUL characters, as UTF-16 has"),
    ],
)
def test_a_file_that_is_no_table(write: Write, content: str | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        JSONTable(write(content), required=["text"])


BAD = {
    '{"text": "a"': r"it is not JSON \(Expecting ',' delimiter, at character 13\)",
    '{"text": "a"} x': r"it is not JSON \(Extra data, at character 15\)",
    '"a"': "it is JSON, and no object",
    "3": "it is JSON, and no object",
    '{"text": NaN}': "NaN is not a number",
    '{"text": ' + "1" * 5000 + "}": "it is not JSON",
    '{"text": "a", "text": "b"}': "'text' is named more than once",
    '{"text": "a", "other": 1}': "it has 'other', which line 1 does not have. Name all columns there",
    '{"text": "a\\u0000b"}': "it has NUL characters",
    '{"text": ["\\u0000"]}': "it has NUL characters",
    '{"text": "\\ud83d"}': "half of a surrogate pair",
    '{"text": "a\0b"}': "it has NUL characters",
    '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}": "nested too deeply",
    '{"text": "' + "a" * 300_000 + '"}': "the line has 300,012 bytes, and 250,000 are the most",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:20].encode().hex())
def test_a_bad_line_is_named_or_left_out_and_counted(write: Write, tmp_path: Path, line: str) -> None:
    path = write('{"text": "a"}\n' + line + '\n{"text": "\\u00e9 \\ud83d\\ude00 \\\\u0000"}\n')
    with pytest.raises(RowError, match=rf"t\.jsonl, line 2: .*{BAD[line]}.*on_bad_row=skip leaves such rows out"):
        list(JSONTable(path, longest=250_000))
    table = JSONTable(path, on_bad_row="skip", longest=250_000)
    assert list(table.parse(lambda row: row.text("text"))) == ["a", "é \U0001f600 \\u0000"]
    assert table.bad.skipped == 1
    assert f"{path}, line 2: " in table.report()
    with collect_errors() as problems:
        assert len(list(JSONTable(path, longest=250_000))) == 2
    assert len(problems) == 1
    with pytest.raises(DataError, match=r"line 2: "):
        table.row(Lines(path, tmp_path / "cache", longest=250_000), 2)


def test_a_file_that_is_not_there(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        JSONTable(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        JSONTable(tmp_path)
    with pytest.raises(DataError, match="either 'error' or 'skip'"):
        JSONTable(write('{"a": 1}'), on_bad_row="ignore")  # type: ignore[arg-type]
