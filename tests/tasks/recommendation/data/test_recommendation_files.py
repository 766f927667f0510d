"""The user's own interactions: columns and options, every kind of bad input, and the fast reader against the slow."""

import csv
import gzip
import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.data.tables import collect_errors
from zoo.errors import ConfigError, DataError
from zoo.tasks.recommendation.data import csv_blocks, readers
from zoo.tasks.recommendation.data.interactions import Interactions, IrregularError
from zoo.tasks.recommendation.data.readers import ReaderOptions, read_interactions

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "recommendation"

TABLE = "user,item,timestamp\nann,tea,3\nbob,jam,1\nann,jam,2\n"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Interactions]:
    def _read(text: str, name: str = "interactions.csv", **options) -> Interactions:
        titles = options.pop("titles", None)
        (tmp_path / name).write_bytes(text.encode())
        if titles is not None:
            (tmp_path / "titles.csv").write_bytes(titles.encode())
            titles = tmp_path / "titles.csv"
        return read_interactions(tmp_path / name, ReaderOptions(**options), titles=titles)

    return _read


@pytest.fixture
def never_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("the rows were read one by one")

    monkeypatch.setattr(readers, "_row_reader", refuse)


def rows(found: Interactions) -> list[tuple]:
    times = [None] * len(found.items) if found.times is None else found.times.tolist()
    users, items = found.users.tolist(), found.items.tolist()
    return [(found.user_names[u], found.item_names[i], t) for u, i, t in zip(users, items, times, strict=True)]


def test_rows_in_the_order_of_the_file(read, never_by_rows: None) -> None:
    found = read(TABLE)
    assert rows(found) == [("ann", "tea", 3), ("bob", "jam", 1), ("ann", "jam", 2)]
    assert (list(found.user_names), list(found.item_names)) == (["ann", "bob"], ["tea", "jam"])
    assert found.users.dtype == found.items.dtype == np.int32
    assert found.times is not None
    assert found.times.dtype == np.int64


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "\ufeff" + TABLE),
        ("a.tsv", TABLE.replace(",", "\t")),
        ("a.csv", TABLE.replace("\n", "\r\n")),
        ("a.csv", TABLE.rstrip("\n")),
        ("a.csv", TABLE + "\n\r\n\n"),
        ("a.csv", TABLE.replace("ann", " ann\t").replace("jam", '"jam "').replace("1", " 1 ")),
        ("a.csv", "timestamp,item,user\n" + "".join(f"{t},{i},{u}\n" for u, i, t in csv.reader(TABLE.split()[1:]))),
    ],
    ids=[
        "byte order mark",
        "tabs",
        "carriage returns",
        "no last line break",
        "blank lines at the end",
        "white space",
        "order of columns",
    ],
)
def test_forms_that_are_read_fast(read, never_by_rows: None, name: str, text: str) -> None:
    assert rows(read(text, name)) == [("ann", "tea", 3), ("bob", "jam", 1), ("ann", "jam", 2)]


def test_gzip(tmp_path: Path, never_by_rows: None) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    assert rows(read_interactions(tmp_path / "a.csv.gz", ReaderOptions()))[0] == ("ann", "tea", 3)


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace("bob", "\nbob"),
        TABLE.replace("\n", "\r"),
        TABLE.replace("\nbob", "\rbob"),
        "\n" + TABLE,
        TABLE.replace("user", '"user"').replace("ann", '"ann"'),
    ],
    ids=["blank line", "old line breaks", "mixed line breaks", "blank first line", "quotes"],
)
def test_forms_that_are_unusual(read, text: str) -> None:
    assert rows(read(text)) == [("ann", "tea", 3), ("bob", "jam", 1), ("ann", "jam", 2)]


def test_names_are_any_texts(read, never_by_rows: None) -> None:
    found = read('user,item\n007,"a ""b"", c"\n7,7.0\nNA,nan\nnull,None\nÅsa 🎧,"1,5"\n')
    assert rows(found) == [
        ("007", 'a "b", c', None),
        ("7", "7.0", None),
        ("NA", "nan", None),
        ("null", "None", None),
        ("Åsa 🎧", "1,5", None),
    ]


def test_a_line_break_inside_of_quotes(read) -> None:
    assert rows(read('user,item\na,"two\nlines"\nb,"x"\n')) == [("a", "two\nlines", None), ("b", "x", None)]


def test_columns_of_other_names(read) -> None:
    text = "when,customer,product\n5,a,x\n"
    assert rows(read(text, user="customer", item="product", timestamp="when")) == [("a", "x", 5)]
    with pytest.raises(DataError, match=r"line 1, column 'user': .*such as data\.user=COLUMN"):
        read(text)
    with pytest.raises(DataError, match=r"column 'wann': .*Did you mean 'when'"):
        read(text, user="customer", item="product", timestamp="wann")
    with pytest.raises(ConfigError, match="a, a, timestamp, rating; name four columns"):
        ReaderOptions(user="a", item="a")


def test_columns_that_are_not_used_are_said(read) -> None:
    with pytest.warns(UserWarning, match="'rating', 'note' are not used; an interaction has"):
        read("user,item,rating,note\na,x,five,hello\n")


@pytest.mark.parametrize(
    ("cells", "times"),
    [
        (["3", "-2", "+1"], [3, -2, 1]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["3", "2.5", "1e3"], [3.0, 2.5, 1000.0]),
        (["2003-01-02", "1970-01-01T00:00:01"], [1041465600, 1]),
        (["2003-01-02T01:00:00+01:00", "2003-01-02 00:00:00Z"], [1041465600, 1041465600]),
        (["1970-01-01T00:00:00.250", "1970-01-01"], [0.25, 0.0]),
    ],
)
def test_timestamps(read, never_by_rows: None, cells: list[str], times: list[float]) -> None:
    found = read("user,item,timestamp\n" + "".join(f"a,x,{cell}\n" for cell in cells))
    assert found.times is not None
    assert found.times.tolist() == times
    assert found.times.dtype == (np.int64 if all(isinstance(time, int) for time in times) else np.float64)


def test_low_ratings_are_left_out_and_counted(read, never_by_rows: None) -> None:
    text = "user,item,rating\na,x,5\nb,y,1\na,z,3.5\n"
    with pytest.warns(UserWarning, match=r"1 of 3 interactions have a rating below data.min_rating=3.5, and are left"):
        found = read(text, min_rating=3.5)
    assert rows(found) == [("a", "x", None), ("a", "z", None)]
    assert list(found.user_names) == ["a"]
    with pytest.raises(DataError, match=r"all 3 interactions have a rating below data.min_rating=9. Lower it."):
        read(text, min_rating=9)
    with pytest.raises(DataError, match="column 'stars': the header does not name it"):
        read(text, min_rating=9, rating="stars")


def test_the_samples_are_read() -> None:
    path = SAMPLES / "interactions.csv"
    found = read_interactions(path, ReaderOptions(min_rating=1), titles=SAMPLES / "titles.csv")
    assert (len(found.items), len(found.user_names), len(found.item_names)) == (87, 12, 12)
    assert found.titles is not None
    assert all(found.titles)


def test_titles(read) -> None:
    titles = "item,title\njam,Jam\nham,Ham\n"
    with pytest.warns(UserWarning, match="1 of the 2 items have no title"):
        assert read(TABLE, titles=titles).titles == ["", "Jam"]
    with pytest.raises(DataError, match=r"line 4, column 'item': 'jam' is already the item of line 2. Rename"):
        read(TABLE, titles=titles + "jam,Other\n")


BAD = {
    "missing user": ("user,item,timestamp\na,x,1\n ,y,2\n", "line 3, column 'user': the cell is empty"),
    "missing item": ('user,item,timestamp\na,x,1\nb,"",2\n', "line 3, column 'item': the cell is empty"),
    "missing time": ("user,item,timestamp\na,x,1\nb,y,\n", "line 3, column 'timestamp': the cell is empty"),
    "no time": ("user,item,timestamp\na,x,1\nb,y,soon\n", "'timestamp': 'soon' is neither a number nor a date"),
    "infinite time": ("user,item,timestamp\na,x,1\nb,y,inf\n", "line 3, column 'timestamp': 'inf' is not finite"),
    "time with _": ("user,item,timestamp\na,x,1\nb,y,1_000\n", "line 3, column 'timestamp': '1_000' is neither"),
    "time too large": ("user,item,timestamp\na,x,1\nb,y,9223372036854775808\n", "is too large for 64 bits"),
    "date among numbers": (
        "user,item,timestamp\na,x,20030101\nb,y,2003-01-02\n",
        "line 3, column 'timestamp': it is a date, where the timestamps before it are numbers",
    ),
    "number among dates": ("user,item,timestamp\na,x,2003-01-02\nb,y,4\n", "line 3.* a number, .* before it are dates"),
    "too few fields": ("user,item,timestamp\na,x,1\nb,y\n", "line 3: the row has 2 fields where the header has 3"),
    "too many fields": ("user,item,timestamp\na,x,1\nb,y,2,3\n", "line 3: the row has 4 fields where the header has 3"),
    "one less, one more": (
        "user,item,timestamp\na,x\nb,y,2,3\nc,z,4\n",
        "line 2: the row has 2 fields where the header",
    ),
    "white space alone": ("user,item,timestamp\na,x,1\n  \nb,y,2\n", "line 3: the row has 1 field where the header"),
    "after a line break in quotes": ('user,item,timestamp\na,"x\ny",1\n,y,2\n', "line 4, column 'user'"),
    "an open quote": ('user,item,timestamp\na,x,1\nb,"y,2\nc,z,3\n', "line 3: a quote opened in this row is never"),
    "bad quotes": ('user,item,timestamp\na,x,1\nb,"y"z,2\n', "line 3: bad quotes"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_named_or_skipped_and_counted(read, case: str) -> None:
    text, said = BAD[case]
    with pytest.raises(DataError, match=f"interactions.csv.*{said}.*on_bad_row=skip leaves such rows out and counts"):
        read(text)
    with pytest.warns(UserWarning, match=f"skipped [12] bad rows?. The first: .*{said}"):
        found = read(text, on_bad_row="skip")
    assert len(found.items) >= 1
    with collect_errors() as problems, warnings.catch_warnings():
        read(text)
    assert problems
    assert said.split(":")[0].split(".*")[0] in str(problems[0])


def test_all_problems_are_collected(read) -> None:
    with collect_errors() as problems:
        found = read("user,item,timestamp\n,x,1\na,,2\na,b,soon\na,b\na,b,5\n")
    assert [str(problem).split(",")[1].split(":")[0] for problem in problems] == [
        " line 2",
        " line 3",
        " line 4",
        " line 5",
    ]
    assert rows(found) == [("a", "b", 5)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"user,item\n", "there is a header and no rows"),
        (b"user,thing\na,b\n", r"column 'item': the header does not name it\. "),
        (b"user,item,item\na,b,c\n", "column 'item': the header names it more than once"),
        (b"user;item\na;b\n", "separated by semicolons"),
        (b"user,item\na,b\nc,caf\xe9\n", r"line 3: byte 0xe9 is not UTF-8 text"),
        (b"user,item,note\na,b,caf\xe9\n", r"line 2: byte 0xe9 is not UTF-8 text"),
        (b"user,item\n,x\n,y\n", r"line 2, column 'user'"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_interactions(path, ReaderOptions())


def test_no_row_is_usable(read) -> None:
    with pytest.raises(DataError, match=r"no row is usable. .* skipped 2 bad rows"):
        read("user,item\n,x\n,y\n", on_bad_row="skip")


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_interactions(tmp_path / "a.csv", ReaderOptions())
    with pytest.raises(DataError, match=r"Tables are read from .csv"):
        read_interactions(tmp_path / "a.dat", ReaderOptions())


TEXT = st.text(st.sampled_from(list('ab10 .-,"\t\n\réé\u2028\xa0\x00')), max_size=4)
TIME = st.one_of(
    st.integers(-(2**63) - 1, 2**63).map(str),
    st.integers(0, 99).map(str),
    st.floats().map(repr),
    st.datetimes().map(str),
    st.sampled_from(
        ["", " 1", "+5", "1.", ".5", "1e400", "0x1", "1_0", "2003-01-02", "12:00", "nan", "٣", "1 2", "--1"]
    ),
)
KINDS = [st.integers(0, 99).map(str), st.floats(allow_nan=False, width=32).map(repr), st.datetimes().map(str), TIME]


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Generates tables of all kinds, most of them valid, some of them broken."""
    time = draw(st.sampled_from(KINDS))
    name = draw(st.sampled_from([st.sampled_from(["a", "b", "c 1", "é"]), TEXT]))
    found = draw(st.lists(st.tuples(name, name, time, st.sampled_from(["1", "4", "4.5", " 5"])), max_size=5))
    file = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    csv.writer(file, quoting=quoting, lineterminator=end).writerows(found)
    text = file.getvalue()
    if draw(st.booleans()) and text:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from([",", '"', "\n", "\r", " ", "\n\n", "x"])) + text[place:]
    return "user,item,timestamp,rating" + end + text


def outcome(path: Path, reading: ReaderOptions) -> tuple:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = read_interactions(path, reading)
        except DataError as error:
            return (str(error),)
    times = None if found.times is None else (found.times.dtype, found.times.tolist())
    names = list(found.user_names), list(found.item_names)
    return found.users.tolist(), found.items.tolist(), times, names, [str(each.message) for each in said]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=tables(), block=st.integers(30, 60), rated=st.booleans(), skip=st.booleans())
def test_the_fast_way_reads_what_the_slow_one_does(
    tmp_path: Path, text: str, block: int, rated: bool, skip: bool
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    reading = ReaderOptions(min_rating=4.2 if rated else None, on_bad_row="skip" if skip else "error")

    def refuse(*_: object) -> None:
        raise IrregularError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks, "_BLOCK", block)
        fast = outcome(path, reading)
        patch.setattr(readers, "add_columns", refuse)
        assert outcome(path, reading) == fast


@pytest.mark.parametrize("timestamp", ["2500", '"2,500"'])
def test_a_stray_quote_costs_one_interaction(read, timestamp: str) -> None:
    """The result is the same whether the table is read by blocks or by rows."""
    lines = [f"u{number},i{number},{number}" for number in range(5000)]
    lines[2498] = f'u2498,"i2498,{timestamp}'
    with pytest.warns(UserWarning, match="skipped 1 bad row. The first: .* line 2500: "):
        found = read("\n".join(["user,item,timestamp", *lines]), on_bad_row="skip")
    assert len(found.users) == 4999


@pytest.mark.parametrize("first", ["5", "0.5"])
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("123456789012345678901", "'123456789012345678901' is too large for 64 bits"),
        ("-123456789012345678901234567890", "is too large for 64 bits"),
        ("1e20", "'1e20' is too large for 64 bits"),
        ("-9.3e18", "'-9.3e18' is too large for 64 bits"),
    ],
)
def test_a_time_of_too_many_digits(read, first: str, cell: str, words: str) -> None:
    text = f"user,item,timestamp\nann,tea,{first}\nbob,jam,{cell}\n"
    with pytest.raises(DataError, match=rf"line 3, column 'timestamp': .*{words}\. Write a number"):
        read(text)
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        assert rows(read(text, on_bad_row="skip")) == [("ann", "tea", float(first))]


@pytest.mark.parametrize("cell", ["10000-01-01", "+20000-01-01T00:00:00", "0000-01-01", "-0001-01-01"])
def test_a_year_that_is_none(read, cell: str) -> None:
    with pytest.raises(DataError, match=r"line 2, column 'timestamp': the year of .* is not one from 1 to 9999"):
        read(f"user,item,timestamp\nann,tea,{cell}\n")


def test_dates_long_ago_and_far_ahead(read) -> None:
    cells = ["0001-01-01", "1677-01-01", "1969-12-31T23:59:59", "9999-12-31"]
    found = read("user,item,timestamp\n" + "".join(f"ann,tea,{cell}\n" for cell in cells))
    assert found.times.tolist() == [-62135596800, -9246096000, -1, 253402214400]
