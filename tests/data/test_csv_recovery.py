"""Quotes that are opened and never closed, or closed where they should not be: every row is read, or is counted."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data.tables import collect_errors, read_table
from zoo.errors import DataError


def table(tmp_path: Path, text: str, **options):
    (tmp_path / "t.csv").write_bytes(text.encode())
    return read_table(tmp_path / "t.csv", **options)


def cells(table) -> list[list[str]]:
    return [row.cells for row in table]


@pytest.mark.parametrize("quoted_later", ["", '"a, b"', '"two\nlines"', '""', '", b"', '"says ""a"""'])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_stray_quote_costs_one_row_of_five_thousand(tmp_path: Path, column: int, quoted_later: str) -> None:
    lines = [f"u{number},i{number},{number}" for number in range(5000)]
    broken = lines[2498].split(",")
    broken[column] = f'"{broken[column]}'
    lines[2498] = ",".join(broken)
    if quoted_later:
        lines[3000] = f"u3000,{quoted_later},3000"
    found = table(tmp_path, "\n".join(["user,item,time", *lines]), on_bad_row="skip")
    assert len(cells(found)) == 4999
    assert found.bad.skipped == 1
    assert "line 2500: " in found.bad.first
    assert "quotes" in found.bad.first


def test_two_stray_quotes_that_fit_each_other_do_not_hide_what_is_between(tmp_path: Path) -> None:
    lines = [f"u{number},i{number}" for number in range(200)]
    lines[20], lines[150] = 'u20,"i20', 'u150,i150"'
    found = table(tmp_path, "\n".join(["user,item", *lines]), on_bad_row="skip")
    assert len(cells(found)) == 199  # the second is no fault by itself: an item's name may end so
    assert found.bad.skipped == 1
    assert "line 22: a quote opened in this row is never closed" in found.bad.first


def test_a_stray_quote_is_named_where_it_is_opened(tmp_path: Path) -> None:
    lines = ["id,x", *(f"a{number},{number}" for number in range(50))]
    lines[10] = '"a9,9'
    with pytest.raises(DataError, match=r"t\.csv, line 11: a quote opened in this row is never closed\. Put a cell"):
        cells(table(tmp_path, "\n".join(lines)))


def test_all_stray_quotes_are_problems_of_a_preflight(tmp_path: Path) -> None:
    text = 'id,x\n"a,1\nb,2\nc,"3\nd,4\ne,"5, or 6"\n'
    with collect_errors() as problems:
        found = cells(table(tmp_path, text))
    assert found == [["b", "2"], ["d", "4"], ["e", "5, or 6"]]
    assert ["line 2" in str(problems[0]), "line 4" in str(problems[1]), len(problems)] == [True, True, 2]


def test_texts_of_several_lines_are_one_cell(tmp_path: Path) -> None:
    texts = [
        "one\ntwo, three\n\nfour",
        'he said "yes, if"\n"no", and went',
        "\n".join(["a line without any comma"] * 100),
        "\n".join(f"line {number}, with a comma{'' if number % 10 else ', and another'}" for number in range(100)),
        "\n".join(["flour, 200 g"] * 20),
    ]
    for columns in (2, 3):
        out = io.StringIO()
        csv.writer(out).writerows([["text", "a", "b"][:columns], *([text, "x", "y"][:columns] for text in texts)])
        found = table(tmp_path, out.getvalue(), on_bad_row="skip")
        assert [row[0] for row in cells(found)] == texts
        assert found.bad.skipped == 0


def test_a_text_that_lacks_its_other_cells_is_one_bad_row(tmp_path: Path) -> None:
    text = 'text,label,split\n"one\ntwo, three\nfour",\n"five\nsix",a,train\n'
    found = table(tmp_path, text, on_bad_row="skip")
    assert cells(found) == [["five\nsix", "a", "train"]]
    assert found.bad.skipped == 1
    assert "line 2: its quotes make one row of lines 2 to 4" in found.bad.first


def test_rows_without_their_outer_quotes_are_read_as_fast_as_others(tmp_path: Path) -> None:
    """Each line seems to open a cell that all following ones belong to."""
    found = table(tmp_path, "\n".join(["a,b", *['x","y'] * 20_000]), on_bad_row="skip")
    with pytest.raises(DataError, match="no row is usable"):
        cells(found)
    assert found.bad.skipped == 20_000


def test_a_cell_of_one_line_may_be_too_long(tmp_path: Path) -> None:
    found = table(tmp_path, f"id,x\na,{'y' * ((1 << 24) + 1)}\nb,2\n", on_bad_row="skip")
    assert cells(found) == [["b", "2"]]
    assert "line 2: a cell has more than" in found.bad.first


_text = st.text("ab,\"\t' é", max_size=6).map(lambda text: f"x{text}x")
_texts = st.lists(_text, min_size=2, max_size=4).map("\n".join)
_cell = st.one_of(_text, _text, _text, st.sampled_from(["", ",y", 'says "x"']), _texts)


def _quoted(cell: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


def _written(row: list[str], mark: str, *, all_quoted: bool) -> str:
    special = {mark, '"', "\n", "\r"}
    return mark.join(_quoted(cell) if all_quoted or set(cell) & special or not cell else cell for cell in row)


_FAULTS = {
    "stray": lambda row, at, mark: mark.join([*row[:at], f'"{row[at]}', *row[at + 1 :]]),
    "fewer": lambda row, _, mark: mark.join(row[:-1]) or f"a{mark}b",
    "more": lambda row, _, mark: mark.join([*row, "z"]),
    "behind": lambda row, at, mark: mark.join([*row[:at], f'"{row[at]}"z', *row[at + 1 :]]),
}


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_rows_that_are_read_and_rows_that_are_skipped_are_all(tmp_path: Path, data: st.DataObject) -> None:
    """Rows with faults stand among good ones, none next to another; all good ones are read as they are."""
    kind, mark = data.draw(st.sampled_from([("csv", ","), ("tsv", "\t")]))
    columns = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(_cell, min_size=columns, max_size=columns), min_size=2, max_size=12))
    bad = set(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=4)))
    bad = {place for place in bad if place - 1 not in bad}
    lines, good = [mark.join(f"c{number}" for number in range(columns))], []
    for place, row in enumerate(rows):
        if place in bad:
            fault = _FAULTS[data.draw(st.sampled_from(sorted(_FAULTS)))]
            lines.append(fault([f"w{place}"] * columns, data.draw(st.integers(0, columns - 1)), mark))
        else:
            lines.append(_written(row, mark, all_quoted=data.draw(st.booleans())))
            good.append(row)
    path = tmp_path / f"t.{kind}"
    path.write_bytes(("\n".join(lines) + data.draw(st.sampled_from(["", "\n"]))).encode())
    found = read_table(path, on_bad_row="skip")
    if not good:
        with pytest.raises(DataError, match="no row is usable"):
            cells(found)
    else:
        assert cells(found) == good
    assert found.bad.skipped == len(bad)
