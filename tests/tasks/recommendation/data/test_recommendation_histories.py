"""Histories for a trained model: files of both formats, unknown items, and texts of the command line."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.tables import collect_errors
from zoo.errors import DataError
from zoo.tasks.batching import BatchOptions
from zoo.tasks.recommendation.data.history_reader import items_of, read_histories
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.data.readers import ReaderOptions
from zoo.tasks.recommendation.datamodule import HistoryData, HistorySource

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "recommendation"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Log]:
    def _read(*texts: str, known: set[str] | None = None, **options) -> Log:
        paths = [tmp_path / f"histories{number}.csv" for number, _ in enumerate(texts, 1)]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return read_histories(paths, ReaderOptions(**options), known=known)

    return _read


def histories(log: Log) -> dict[str, list[str]]:
    names = [log.item_names[item] for item in log.items]
    ends = log.offsets.tolist()
    return {user: names[ends[i] : ends[i + 1]] for i, user in enumerate(log.user_names)}


def test_a_row_for_each_item(read) -> None:
    log = read("user,item,timestamp\nbob,tea,3\nann,jam,1\nbob,jam,2\nbob,jam,3\n")
    assert list(histories(log).items()) == [("bob", ["jam", "tea", "jam"]), ("ann", ["jam"])]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (['"a|b b|c, d"', "a"], [["a", "b b", "c, d"], ["a"]]),
        (['"a, b b,c|d"', "a | c"], [["a, b b,c", "d"], ["a", "c"]]),
        (['"a, b b,c"', "a a"], [["a", "b b", "c"], ["a a"]]),
        (['"a,""b, c"",""d """" e"""', "f"], [["a", "b, c", 'd " e'], ["f"]]),
        (["a  b c ", "d"], [["a", "b", "c"], ["d"]]),
    ],
)
def test_a_row_for_each_user(read, cells: list[str], expected: list[list[str]]) -> None:
    log = read("user,history\n" + "".join(f"u{number},{cell}\n" for number, cell in enumerate(cells)))
    assert list(histories(log).values()) == expected


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,x|y\nb,\n", "line 3, column 'history': the history is empty. Write items, oldest first, with '|' between"),
        ('a,"x,y"\nb," "\n', "line 3, column 'history': the history is empty. Write items, oldest first, with commas"),
        ("a,x|y\nb,|\n", "line 3, column 'history': the history is empty"),
        ("a,x|y\nb,x||y\n", "line 3, column 'history': item 2 of 3 has no name"),
        ('a,"x,y"\nb,"""x"\n', "line 3, column 'history': a quote is opened and not closed, or not doubled"),
        ("a,x|y\n,x\n", "line 3, column 'user': the cell is empty"),
        (
            "a,x|y\na,x\n",
            "line 3, column 'user': 'a' is already the user of line 2. Write all items of a user into one",
        ),
        ("a,x|y\nb\n", "line 3: the row has 1 field where the header has 2"),
    ],
)
def test_a_bad_history_is_named_or_skipped_and_counted(read, rows: str, said: str) -> None:
    said = said.replace("|", r"\|")
    with pytest.raises(DataError, match=f"histories1.csv, {said}.*on_bad_row=skip leaves such rows out"):
        read(f"user,history\n{rows}")
    with pytest.warns(UserWarning, match=f"skipped 1 bad row. The first: .*{said}"):
        assert list(histories(read(f"user,history\n{rows}", on_bad_row="skip"))) == ["a"]
    with collect_errors() as problems:
        read(f"user,history\n{rows}")
    assert len(problems) == 1


def test_all_histories_are_bad(read) -> None:
    with pytest.raises(DataError, match="line 2, column 'history': the history is empty"):
        read("user,history\na,\nb,\n")
    with pytest.raises(DataError, match="no row is usable"):
        read("user,history\na,\nb,\n", on_bad_row="skip")


def test_several_files_are_one(read) -> None:
    log = read("user,history\nann,tea|jam\n", "user,item\nbob,jam\nann,ham\n")
    assert histories(log) == {"ann": ["tea", "jam", "ham"], "bob": ["jam"]}
    with pytest.raises(DataError, match=r"histories2.csv has timestamps and .*histories1.csv has none"):
        read("user,history\nann,tea|jam\n", "user,item,timestamp\nbob,jam,1\n")


def test_a_file_of_neither_form(read) -> None:
    with pytest.raises(DataError, match="column 'item': the header does not name it"):
        read("user,thing\na,b\n")
    with pytest.warns(UserWarning, match="'age' is not used; a row has a user and a history"):
        read("user,age,history\na,9,b\n")


def test_an_item_that_is_not_known_is_named_with_its_line_and_the_nearest(read) -> None:
    known = {"green tea", "jam", "ham"}
    said = r"histories1.csv, line 3, column 'item': 'gren tea' is not among the 3 items that the model knows. "
    with pytest.raises(DataError, match=said + "Did you mean 'green tea'.*data.unknown=skip"):
        read("user,item\na,jam\nb,gren tea\n", known=known)
    said = r"line 4, column 'history': 'toy' .* knows \(and 1 other\)"
    with pytest.raises(DataError, match=said):
        read('user,history\na,jam|ham\n\nb,"jam|toy"\nc,boy\n', known=known)
    assert histories(read("user,history\na,green tea|jam\n", known=known)) == {"a": ["green tea", "jam"]}


def test_ten_thousand_items_are_a_history(read) -> None:
    items = [f"i{number % 300}" for number in range(10_000)]
    source = HistorySource(partial(read, "user,history\nlong,{}\nshort,i1|i2\n".format("|".join(items))))
    data = HistoryData(source, BatchOptions(max_epochs=1, batch_size=2), length=50)
    (batch,) = data.loader("all")
    assert batch.lengths.tolist() == [50, 2]
    assert [batch.catalogue.names[item] for item in batch.items[:50]] == items[-50:]


def test_the_samples_are_read() -> None:
    log = read_histories([SAMPLES / "histories.csv"])
    assert len(log.user_names) == 4
    known = read_histories([SAMPLES / "interactions.csv"], ReaderOptions(min_rating=1))
    assert set(log.item_names) <= set(known.item_names)


NAMES = st.text(st.sampled_from('ab ,"|\té'), min_size=1, max_size=4).map(str.strip).filter(bool)


@settings(max_examples=40)
@given(st.lists(NAMES, min_size=1, max_size=4))
def test_names_in_quotes_come_back(names: list[str]) -> None:
    text = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    assert items_of(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("item a,item b", ["item a", "item b"]),
        (' item a , "Usual Suspects, The" ', ["item a", "Usual Suspects, The"]),
        ('"a, b","c"', ["a, b", "c"]),
        ('5" nail', ['5" nail']),
    ],
)
def test_names_of_the_command_line(text: str, names: list[str]) -> None:
    assert items_of(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), (" , ", "is empty"), ("a,,b", "item 2 of 3 has no name"), ('a,"b', "a quote is opened and not")],
)
def test_bad_texts_of_the_command_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        items_of(text)
