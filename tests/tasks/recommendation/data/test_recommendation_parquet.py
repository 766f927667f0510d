"""Interactions in Parquet: equal to those in CSV, read by columns and by rows, and every kind of bad input."""

import builtins
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data.tables import collect_errors
from zoo.errors import DataError, ZooError
from zoo.tasks.recommendation.data import parquet
from zoo.tasks.recommendation.data.interactions import Interactions, IrregularError
from zoo.tasks.recommendation.data.readers import ReaderOptions, read_interactions

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def read(path: Path, columns: dict, **options) -> Interactions:
    pq.write_table(pa.table(columns), path / "a.parquet", row_group_size=2)
    return read_interactions(path / "a.parquet", ReaderOptions(**options))


def rows(found: Interactions) -> list[tuple]:
    times = [None] * len(found.items) if found.times is None else found.times.tolist()
    users, items = found.users.tolist(), found.items.tolist()
    return [(found.user_names[u], found.item_names[i], t) for u, i, t in zip(users, items, times, strict=True)]


@pytest.mark.parametrize(
    ("values", "times"),
    [
        (pa.array([3, 1, 2], pa.int32()), [3, 1, 2]),
        (pa.array([3, 1, 2], pa.uint64()), [3, 1, 2]),
        (pa.array([0.5, 1, 2]), [0.5, 1.0, 2.0]),
        (pa.array(["3", "1", "2"]), [3, 1, 2]),
        (pa.array([Decimal("1.5"), Decimal("3.0"), Decimal("-2")], pa.decimal128(9, 2)), [1.5, 3.0, -2.0]),
        (pa.array([date(1970, 1, 2), date(1970, 1, 1), date(2003, 1, 2)]), [86400, 0, 1041465600]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1)] * 3, pa.timestamp("ns")), [1, 1, 1]),
        (pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * 3, pa.timestamp("ms", "Europe/Paris")), [1, 1, 1]),
    ],
)
def test_times_of_all_types(tmp_path: Path, values, times: list[float]) -> None:
    found = read(tmp_path, {"user": [7, 8, 7], "item": ["x", "y ", "y"], "timestamp": values})
    assert rows(found) == [("7", "x", times[0]), ("8", "y", times[1]), ("7", "y", times[2])]
    assert found.times is not None
    assert found.times.dtype == (np.int64 if all(isinstance(time, int) for time in times) else np.float64)


def test_ids_of_categories(tmp_path: Path) -> None:
    found = read(tmp_path, {"user": ["a", "b", "a"], "item": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert rows(found) == [("a", "x", None), ("b", "y", None), ("a", "x", None)]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": ["a", None, "c"]}, "row 2, column 'user': the cell is empty"),
        ({"item": ["a", "b", " "]}, "row 3, column 'item': the cell is empty"),
        ({"item": pa.array([1, None, 2])}, "row 2, column 'item': the cell is empty"),
        ({"timestamp": pa.array([1, None, 2])}, "row 2, column 'timestamp': the cell is empty"),
        ({"timestamp": ["1", "2", "soon"]}, "row 3, column 'timestamp': 'soon' is neither a number nor a date"),
        ({"timestamp": [1.0, float("nan"), 2.0]}, "row 2, column 'timestamp': 'nan' is not finite"),
        ({"rating": [5.0, None, 2.0]}, "row 2, column 'rating': the cell is empty where a number belongs"),
    ],
)
def test_a_bad_row_is_named_or_skipped_and_counted(tmp_path: Path, columns: dict, said: str) -> None:
    table = {"user": ["a", "b", "c"], "item": ["x", "y", "z"]} | columns
    least = 1.0 if "rating" in columns else None
    with pytest.raises(DataError, match=f"a.parquet, {said}.*on_bad_row=skip leaves such rows out"):
        read(tmp_path, table, min_rating=least)
    with pytest.warns(UserWarning, match=f"skipped 1 bad row. The first: .*{said}"):
        assert len(read(tmp_path, table, min_rating=least, on_bad_row="skip").items) == 2
    with collect_errors() as problems:
        read(tmp_path, table, min_rating=least)
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": ["a"], "thing": ["x"]}, "column 'item': the table does not have it"),
        ({"user": [1.5], "item": ["x"]}, "column 'user': its type is double, but it must have texts or whole numbers"),
        ({"user": ["a"], "item": ["x"], "timestamp": [True]}, "type is bool, but it must have numbers, .* or dates"),
        ({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}, "the table has no rows"),
    ],
)
def test_bad_tables(tmp_path: Path, columns: dict, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, columns)


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("user,item\na,x\n")
    with pytest.raises(DataError, match="the file is not Parquet, damaged or cut short"):
        read_interactions(path, ReaderOptions())
    with pytest.raises(DataError, match="there is no such file"):
        read_interactions(tmp_path / "b.parquet", ReaderOptions())


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    (tmp_path / "a.parquet").touch()
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ZooError, match=r"attention-zoo\[parquet\]"):
        read_interactions(tmp_path / "a.parquet", ReaderOptions())


def outcome(path: Path, reading: ReaderOptions) -> tuple:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = read_interactions(path, reading)
        except DataError as error:
            return (str(error),)
    times = None if found.times is None else (found.times.dtype, found.times.tolist())
    return rows(found), found.users.tolist(), found.items.tolist(), times, [str(each.message) for each in said]


IDS = [(pa.string(), st.sampled_from(["a", "b", " c", ""])), (pa.int16(), st.integers(-9, 9))]
TIMES = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes()),
    (pa.date32(), st.dates()),
    (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3)),
]
RATINGS = [(pa.float32(), st.floats(width=32)), (pa.int8(), st.integers(-9, 9)), (pa.string(), st.just("4.25"))]


@st.composite
def tables(draw: st.DrawFn) -> "pa.Table":
    count, gaps = draw(st.integers(1, 6)), draw(st.booleans())
    columns = {}
    for name, kinds in (("user", IDS), ("item", IDS), ("timestamp", TIMES), ("rating", RATINGS)):
        kind, value = draw(st.sampled_from(kinds))
        value = st.one_of(value, st.none()) if gaps else value
        columns[name] = pa.array(draw(st.lists(value, min_size=count, max_size=count)), kind)
    return pa.table(columns)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), rated=st.booleans(), skip=st.booleans())
def test_by_the_column_is_what_by_the_row_is(tmp_path: Path, table: "pa.Table", rated: bool, skip: bool) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    reading = ReaderOptions(min_rating=4.2 if rated else None, on_bad_row="skip" if skip else "error")

    def refuse(*_: object) -> None:
        raise IrregularError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_ROWS", 4)
        fast = outcome(path, reading)
        patch.setattr(parquet.ParquetTable, "add_columns", refuse)
        assert outcome(path, reading) == fast


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 10**12]).cast(pa.timestamp("s")),
        pa.array([0, 3 * 10**17]).cast(pa.timestamp("us")),
        pa.array([0, 2**62]).cast(pa.timestamp("ms")),
        pa.array([0, -(2**62)]).cast(pa.timestamp("us", tz="UTC")),
        pa.array([0, 10**8], pa.int32()).cast(pa.date32()),
    ],
)
def test_a_year_that_is_none(tmp_path: Path, values) -> None:
    columns = {"user": ["a", "b"], "item": ["x", "y"], "timestamp": values}
    with pytest.raises(DataError, match=r"row 2, column 'timestamp': the year of .* is not one from 1 to 9999"):
        read(tmp_path, columns)
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        assert rows(read(tmp_path, columns, on_bad_row="skip")) == [("a", "x", 0)]


@pytest.mark.parametrize("zone", ["Nowhere/Land", "+05:30", "Europe/Paris"])
def test_instants_need_no_time_zone(tmp_path: Path, zone: str) -> None:
    """Parquet stores them in UTC, whatever their zone; reading by rows gives the same."""
    times = pa.array([0, None, 10**9]).cast(pa.timestamp("s", tz=zone))
    columns = {"user": ["a", "b", "c"], "item": ["x", "y", "z"], "timestamp": times}
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        assert rows(read(tmp_path, columns, on_bad_row="skip")) == [("a", "x", 0), ("c", "z", 10**9)]
    whole = {name: [values[0], values[2]] for name, values in columns.items() if name != "timestamp"}
    assert rows(read(tmp_path, {**whole, "timestamp": times.take(pa.array([0, 2]))}))[1][2] == 10**9


def test_a_time_beyond_64_bits(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 2, column 'timestamp': '1e\+30' is too large for 64 bits"):
        read(tmp_path, {"user": ["a", "b"], "item": ["x", "y"], "timestamp": [0.0, 1e30]})


def test_a_text_that_is_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"x", b"\xff", None]).view(pa.string())
    columns = {"user": ["a", "b", "c"], "item": texts}
    with pytest.raises(DataError, match=r"row 2, column 'item': the text is not UTF-8\. Write the table anew"):
        read(tmp_path, columns)
    with pytest.warns(UserWarning, match="skipped 2 bad rows"):
        assert rows(read(tmp_path, columns, on_bad_row="skip")) == [("a", "x", None)]
