"""The table reader: what it reads, and what it says of a file that it cannot read."""

import csv
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data.json_lines import open_table
from zoo.data.option_hints import set_offered_options
from zoo.data.tables import RowError, read_table
from zoo.errors import DataError

NAME = "t.csv"


def said(path: Path, line: int | None, *words: str) -> str:
    """A pattern: the place and then the words, in this order."""
    place = str(path) if line is None else f"{path}, line {line}"
    return ".*".join(re.escape(part) for part in (place, *words))


def test_rows_know_their_lines(write) -> None:
    path = write('id,note\na,one\n\nb,"two\nlines, and a ""quote"""\nc,three\n')
    rows = [(row.line, row.text("id"), row.text("note")) for row in read_table(path, required=["id"])]
    assert rows == [(2, "a", "one"), (4, "b", 'two\nlines, and a "quote"'), (6, "c", "three")]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings_and_a_byte_order_mark(write, ending: str) -> None:
    path = write(b"\xef\xbb\xbf" + ending.join([" id ,x", "a,1", "b,2"]).encode())
    table = read_table(path, required=["id", "x"])
    assert [(row.line, row.text("id"), row.number("x")) for row in table] == [(2, "a", 1.0), (3, "b", 2.0)]


def test_names_that_no_file_can_have(write, tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    table = read_table(write(f"path\n{'x' * 300}\n{'x/' * 3000}\nround\n"), required=["path"], on_bad_row="skip")
    assert list(table.parse(lambda row: row.path("path", tmp_path).name)) == ["round"]
    assert table.bad.skipped == 2
    assert "the name of 300 characters is too long for a file" in table.report()


def test_tabs_by_extension(write) -> None:
    table = read_table(write("id\tx\na,b\t2\n", "t.tsv"))
    assert [(row.text("id"), row.number("x")) for row in table] == [("a,b", 2.0)]


# White space around a cell is not part of it, a lone "\r" ends a line for csv as for any editor, and NUL is no text.
_cells = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).map(str.strip).filter(bool)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(_cells, _cells, st.floats(width=32, allow_nan=False, allow_infinity=False)), min_size=1))
def test_what_csv_writes_is_read_back(tmp_path: Path, rows: list[tuple[str, str, float]]) -> None:
    for name, dialect in (("t.csv", "excel"), ("t.tsv", "excel-tab")):
        with open(tmp_path / name, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, dialect).writerows([("a", "b", "x"), *rows])
        table = read_table(tmp_path / name, required=["a", "b", "x"])
        assert [(row.text("a"), row.text("b"), row.number("x")) for row in table] == rows
        assert [row.numbers(["x", "x"]).tolist() for row in table] == [[x, x] for *_, x in rows]


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("t.csv", "", None, ["empty", "first line"]),
        ("t.csv", "\n \n", None, ["empty"]),
        ("t.csv", "id,x\n", None, ["header and no rows"]),
        ("t.xlsx", "id,x\n", None, [".xlsx", ".csv"]),
        ("t.csv", "idd,x\na,1\n", 1, ["column 'id'", "Did you mean 'idd'?"]),
        ("t.csv", "id;x\na;1\n", 1, ["column 'id'", "semicolons"]),
        ("t.csv", ",id,x\n0,a,1\n", 1, ["column 1 of 3 has no name", "index=False"]),
        ("t.csv", "id,x,x\na,1,2\n", 1, ["column 'x'", "more than once"]),
        ("t.csv", "id,x\na,1\nb\n", 3, ["1 field where the header has 2 fields", "on_bad_row=skip"]),
        ("t.csv", "id,x\na,1,2\n", 2, ["3 fields where the header has 2 fields", "quote"]),
        ("t.csv", 'id,x\na,1\n"b,2\nc,3\n', 3, ["never closed"]),
        ("t.csv", 'id,x\n"a"b,1\n', 2, ["quotes"]),
        ("t.csv", 'id,"x\n', 1, ["never closed"]),
        ("t.csv", "id,x\na,\n", 2, ["column 'x'", "empty"]),
        ("t.csv", "id,x\n ,1\n", 2, ["column 'id'", "empty"]),
        ("t.csv", "id,x\na,1\nb,many\n", 3, ["column 'x'", "'many' is not a number"]),
        ("t.csv", 'id,x\na,"0,5"\n', 2, ["column 'x'", "'0,5' is not a number", "0.5"]),
        ("t.csv", "id,x\na,1_000\n", 2, ["column 'x'", "'1_000' is not a number"]),
        ("t.csv", "id,x\na,nan\n", 2, ["column 'x'", "'nan' is not finite"]),
        ("t.csv", "id,x\na,-inf\n", 2, ["column 'x'", "'-inf' is not finite"]),
        ("t.csv", "id,x\na,1e39\n", 2, ["column 'x'", "too large"]),
        ("t.csv", "id,x\na,1\nbäh,2\n".encode("latin-1"), 3, ["0xe4 is not UTF-8", "Save the file as UTF-8"]),
        ("t.csv", "id,x\na,1\n".encode("utf-16"), 1, ["0xff is not UTF-8"]),
        ("t.csv", "id,x\na,1\nb\0,2\n", 3, ["NUL characters", "on_bad_row=skip"]),
        ("t.csv", 'id,x\n"a\n\0",1\n', 2, ["NUL characters"]),
        ("t.csv", "id,x\na,1\n".encode("utf-16-le"), 1, ["NUL characters", "UTF-16", "Save the file as UTF-8"]),
    ],
)
def test_one_message_with_file_line_column_and_remedy(write, name, content, line, words) -> None:
    path = write(content, name)
    for numbers in (lambda row: row.number("x"), lambda row: row.numbers(["x"])):
        with pytest.raises(DataError, match=said(path, line, *words)) as caught:
            [(row.text("id"), numbers(row)) for row in read_table(path, required=["id", "x"])]
        assert "\n" not in str(caught.value)


ROWS = [("gr\u00fcn", 1.0), ("blau, \u201ehell\u201c\n", 2.0), ("rot", 3.0)]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_tables_in_other_encodings(write, encoding) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("id", "x"), *ROWS])
    lines = "".join(json.dumps({"id": name, "x": x}, ensure_ascii=False) + "\n" for name, x in ROWS)
    for name, text in (("t.csv", file.getvalue()), ("t.jsonl", lines)):
        table = open_table(write(text.encode(encoding), name), required=["id"], on_bad_row="error", encoding=encoding)
        assert [(row.cells[0], row.number("x")) for row in table] == ROWS


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_row_that_is_not_utf8_is_a_bad_row(write, name) -> None:
    text = "id,x\na,1\nb\u00e4h,2\nc,3\n"
    if name == "t.jsonl":
        text = '{"id": "a"}\n{"id": "a"}\n{"id": "b\u00e4h"}\n{"id": "c"}\n'
    path = write(text.encode("latin-1"), name)
    table = open_table(path, required=["id"], on_bad_row="skip")
    assert [row.text("id") for row in table][-2:] == ["a", "c"]
    assert table.bad.skipped == 1
    assert "line 3: byte 0xe4 is not UTF-8 text. Save the file as UTF-8, or read it as it is: " in table.report()
    assert "data.encoding=cp1252." in table.report()
    hints = set_offered_options(["on-bad-row", "encoding"])
    with hints, pytest.raises(DataError, match=r"--encoding=cp1252\. --on-bad-row"):
        list(open_table(path, required=["id"], on_bad_row="error"))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_table(tmp_path / "folder.csv")


def test_a_wide_header_is_not_listed(write) -> None:
    path = write(",".join(f"column{i}" for i in range(1000)) + "\n" + "1," * 999 + "1\n")
    with pytest.raises(DataError, match="None of the 1000 columns"):
        read_table(path, required=["zzz", "yyy"])


def test_a_wrong_encoding_late_in_a_large_file(write) -> None:
    path = write(b"id\n" + b"good\n" * 50_000 + b"\xff\n")
    with pytest.raises(DataError, match="line 50002"):
        list(read_table(path))


def test_choice_offers_the_nearest(write) -> None:
    row = next(iter(read_table(write("split\ntrian\n"))))
    with pytest.raises(RowError, match=r"line 2, column 'split': 'trian' .* Did you mean 'train'\?"):
        row.choice("split", ["train", "val"])


def test_skipped_rows_are_counted_and_the_first_is_told(write) -> None:
    path = write('id,x\na,1\nb\nc,many\n"d"e,4\nf,5\n')
    table = read_table(path, on_bad_row="skip")
    for _ in range(2):  # each reading counts anew
        assert list(table.parse(lambda row: (row.text("id"), row.number("x")))) == [("a", 1.0), ("f", 5.0)]
        assert table.bad.skipped == 3
    assert table.report().startswith(f"{path}: skipped 3 bad rows. The first: {path}, line 3: the row has 1 field")
    assert "on_bad_row" not in table.report()


def test_nothing_skipped_nothing_reported(write) -> None:
    table = read_table(write("id\na\n"), on_bad_row="skip")
    assert (len(list(table)), table.report()) == (1, "")


def test_skip_does_not_hide_that_nothing_is_left(write) -> None:
    table = read_table(write("id,x\na,?\nb,?\n"), on_bad_row="skip")
    with pytest.raises(DataError, match=r"no row is usable.*skipped 2 bad rows.*'\?' is not a number"):
        list(table.parse(lambda row: row.number("x")))


def test_an_error_that_is_not_of_a_row_is_not_skipped(write) -> None:
    def read(row) -> None:
        raise DataError("something else")

    with pytest.raises(DataError, match="something else"):
        list(read_table(write("id\na\n"), on_bad_row="skip").parse(read))


def test_on_bad_row_has_two_values(write) -> None:
    with pytest.raises(DataError, match="either 'error' or 'skip'"):
        read_table(write("id\na\n"), on_bad_row="ignore")  # type: ignore[arg-type]


def test_a_long_cell(write) -> None:
    text = "word " * 100_000
    assert next(iter(read_table(write(f"text\n{text}\n")))).text("text") == text.strip()


def test_a_million_cells_a_second(write) -> None:
    names = [f"c{i}" for i in range(200)]
    values = np.random.default_rng(0).standard_normal((1000, 200)).round(4)
    lines = [",".join(names), *(",".join(map(str, row)) for row in values.tolist())]
    table = read_table(write("\n".join(lines)))
    start = time.perf_counter()
    features = np.stack([row.numbers(names) for row in table])
    assert time.perf_counter() - start < 1.0  # 200,000 cells: five times the time allowed, for a busy machine
    np.testing.assert_array_equal(features, values.astype(np.float32))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_missing_column_is_named_with_the_option_that_says_which_is_meant(
    write: Callable[..., Path], name: str
) -> None:
    options = {"text": "data.text", "label": "data.label"}

    def said(columns: Sequence[str], required: Any = options) -> str:
        content = f"{','.join(columns)}\n" if name == "t.csv" else json.dumps(dict.fromkeys(columns, "x"))
        with pytest.raises(DataError) as error:
            open_table(write(content, name), required=required, on_bad_row="error")
        return str(error.value)

    assert "such as data.text=review data.label=sentiment, or rename it." in said(["review", "sentiment"])
    assert "such as data.label=sentiment, or rename it." in said(["text", "sentiment"])
    assert "such as data.text=COLUMN data.label=COLUMN, or rename it." in said(["id", "review", "sentiment"])
    assert """such as data.text=review "data.label='my label'", or rename it.""" in said(["review", "my label"])
    assert "Add the column, or rename the one that is meant." in said(["review", "sentiment"], list(options))
