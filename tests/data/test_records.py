"""The rules that hold for the user's own tables in every domain: each is tested here for all of them."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from zoo.data.records import Column, Records, Schema, assign_splits, check_labels, find_length_fault, name_given_texts
from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL
from zoo.data.tables import TableOptions, collect_errors
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError
from zoo.tasks.answering.data.answer_table import read_answer_table
from zoo.tasks.captioning.data.readers import ReaderOptions as CaptionOptions
from zoo.tasks.captioning.data.readers import read_caption_table
from zoo.tasks.documents.data.readers import ReaderOptions as TextOptions
from zoo.tasks.documents.data.readers import read_text_table
from zoo.tasks.graph.readers import read_graph
from zoo.tasks.recommendation.data.readers import ReaderOptions as InteractionOptions
from zoo.tasks.recommendation.data.readers import read_interactions
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.readers import ReaderOptions as SoundOptions
from zoo.tasks.speech.data.readers import read_manifest
from zoo.tasks.translation.data.readers import ReaderOptions as PairOptions
from zoo.tasks.translation.data.readers import read_pair_table
from zoo.tasks.vision.data.image_list import ReaderOptions as ImageOptions
from zoo.tasks.vision.data.readers import read_image_table

Row = tuple[str, ...]
Read = tuple[Sequence[str], list[int]]
"""Names and splits of the examples."""


@dataclass(frozen=True)
class Case:
    """A domain's table.

    Args:
        columns: The columns that it must have.
        row: Makes a good row.
        read: Reads a table, given how.
        noun: Word for an example; "" where there are no splits.
        is_named: Whether options name the columns.
        splits_all: Whether a row without a split is a bad one.
        is_labelled: Whether the last column has labels.
        unique: A column of which no two rows may have the same.
    """

    columns: Row
    row: Callable[[int], Row]
    read: Callable[..., Read]
    noun: str = ""
    is_named: bool = False
    splits_all: bool = False
    is_labelled: bool = False
    unique: str = ""


def read_texts(path: Path, seed: int = 0, **how: Any) -> Read:
    corpus = read_text_table(path, TextOptions(**how), split_seed=seed)
    return corpus.ids, corpus.splits.tolist()


def read_pairs(path: Path, seed: int = 0, **how: Any) -> Read:
    corpus = read_pair_table(path, PairOptions(**how), cache=None, split_seed=seed)
    return corpus.ids, corpus.splits.tolist()


def read_sounds(path: Path, seed: int = 0, **how: Any) -> Read:
    corpus = read_manifest(path, None, SoundOptions(**how), Features(rate=8000), split_seed=seed)
    return corpus.ids, corpus.splits.tolist()


def read_captions(path: Path, seed: int = 0, **how: Any) -> Read:
    pictures = read_caption_table(path, CaptionOptions(**how), split_seed=seed)
    return pictures.ids, pictures.splits.tolist()


def read_pictures(path: Path, seed: int = 0, **how: Any) -> Read:
    pictures = read_image_table(path, ImageOptions(**how), split_seed=seed)
    return pictures.ids, [SPLITS.index(split) if split else NONE for split in pictures.splits.tolist()]


def reader_of_questions(about: Any) -> Callable[..., Read]:
    def read(path: Path, seed: int = 0, **how: Any) -> Read:
        asked = read_answer_table(path, about, ImageOptions(**how), split_seed=seed)
        return asked.ids, asked.splits.tolist()

    return read


def read_nodes(path: Path, seed: int = 0, **how: Any) -> Read:
    edges = path.with_name("edges.csv")
    edges.write_text("source,target\nn5,n6\n")
    graph = read_graph(path, edges, split_seed=seed, **how)
    return graph.ids, graph.split.tolist()


def read_choices(path: Path, seed: int = 0, **how: Any) -> Read:
    log = read_interactions(path, InteractionOptions(**how))
    return [log.item_names[item] for item in log.items], []


TEXTS = Case(
    ("text", "label"),
    lambda n: (f"text {n}", "ab"[n % 2]),
    read_texts,
    "text",
    is_named=True,
    splits_all=True,
    is_labelled=True,
)
CASES = {
    "documents": TEXTS,
    "translation": Case(
        ("source", "target"), lambda n: (f"a {n}", f"b {n}"), read_pairs, "pair", is_named=True, splits_all=True
    ),
    "speech": Case(
        ("path", "text"),
        lambda n: (f"{n}.wav", "word"),
        read_sounds,
        "recording",
        is_named=True,
        splits_all=True,
        unique="path",
    ),
    "captioning": Case(
        ("image", "caption"), lambda n: (f"{n}.png", f"a dog {n}"), read_captions, "picture", is_named=True
    ),
    "vision": Case(
        ("path", "label"),
        lambda n: (f"{n}.png", "ab"[n % 2]),
        read_pictures,
        "picture",
        is_labelled=True,
        unique="path",
    ),
    "passages": Case(
        ("context", "question", "answer"),
        lambda n: (f"It rains in {n}.", "Where?", str(n)),
        reader_of_questions("passage"),
        "question",
    ),
    "hypotheses": Case(
        ("premise", "hypothesis", "label"),
        lambda n: (f"It rains {n}.", "It is wet.", "ab"[n % 2]),
        reader_of_questions("premise"),
        "question",
        is_labelled=True,
    ),
    "graph": Case(
        ("id", "x", "label"),
        lambda n: (f"n{n}", str(n), "ab"[n % 2]),
        read_nodes,
        "node",
        is_labelled=True,
        unique="id",
    ),
    "recommendation": Case(("user", "item"), lambda n: (f"u{n % 3}", f"i{n}"), read_choices, is_named=True),
}
SPLIT = {name: case for name, case in CASES.items() if case.noun}
LABELLED = {name: case for name, case in CASES.items() if case.is_labelled}
COUNT = 20


def each(cases: dict[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", list(cases.values()), ids=list(cases))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and sounds that tables name."""
    tmp_path = tmp_path_factory.mktemp("own")
    tone = np.sin(np.arange(2400, dtype=np.float32))
    for number in range(COUNT + 1):
        Image.new("L", (3, 2), number).save(tmp_path / f"{number}.png")
        soundfile.write(tmp_path / f"{number}.wav", tone / 3, 8000)
    return tmp_path


def text_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return file.getvalue()


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "own.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(case: Case, splits: Sequence[str] | None = None, count: int = COUNT) -> list[Row]:
    rows = [case.row(number) for number in range(count)]
    return rows if splits is None else [(*row, split) for row, split in zip(rows, splits, strict=True)]


def refused(case: Case, path: Path, **how: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError) as raised:
            case.read(path, **how)
    assert "\n" not in str(raised.value)
    return str(raised.value)


KEPT = [SPLITS[number // 2 % 3] for number in range(COUNT)]
"""Splits in which both labels are."""


# splits


@each(SPLIT)
@pytest.mark.parametrize("has_column", [False, True])
def test_examples_without_splits_are_split_60_20_20_alike_for_one_seed(
    case: Case, folder: Path, has_column: bool
) -> None:
    header = (*case.columns, "split") if has_column else case.columns
    path = write(folder, text_of(header, rows_of(case, [""] * COUNT if has_column else None)))
    first, again, other = (case.read(path, seed=seed)[1] for seed in (0, 0, 1))
    assert Counter(first) == {TRAIN: 12, VAL: 4, TEST: 4}
    assert first == again
    assert first != other
    if case.is_labelled:
        assert Counter(first[::2]) == {TRAIN: 6, VAL: 2, TEST: 2}


@each(SPLIT)
def test_splits_are_kept(case: Case, folder: Path) -> None:
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, KEPT)))
    assert case.read(path)[1] == [SPLITS.index(split) for split in KEPT]


@each(SPLIT)
def test_a_row_without_a_split_is_bad_or_not_used(case: Case, folder: Path) -> None:
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, [*KEPT[:-1], ""])))
    if not case.splits_all:
        assert case.read(path)[1][-1] == NONE
        return
    assert "line 21, column 'split': the cell is empty" in refused(case, path)
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, ["", *KEPT[1:]])))
    assert "line 3, column 'split': 'train' stands here, and nothing in line 2" in refused(case, path)


@each(SPLIT)
def test_a_split_is_one_of_three(case: Case, folder: Path) -> None:
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, ["trian", "dev", *KEPT[2:]])))
    assert "own.csv, line 2, column 'split': 'trian' is not one of the 3 values" in refused(case, path)
    with collect_errors() as problems:
        case.read(path)
    assert [str(problem).partition(": ")[0].rpartition("own.csv, ")[2] for problem in problems] == [
        "line 2, column 'split'",
        "line 3, column 'split'",
    ]


@each(SPLIT)
@pytest.mark.parametrize("split", ["val", "test"])
def test_an_empty_split_is_an_error_unless_rows_are_missing_that_are_listed(
    case: Case, folder: Path, split: str
) -> None:
    splits = [{split: "train"}.get(each, each) for each in KEPT]
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, splits)))
    said = refused(case, path)
    assert f"own.csv: no {case.noun} is in {split!r}. Give more {case.noun}s" in said
    path = write(folder, text_of((*case.columns, "split"), rows_of(case, [*splits[:-1], "trian"])))
    with collect_errors() as problems:
        case.read(path)
    assert len(problems) == 1


@each(SPLIT)
def test_too_few_examples_for_three_splits(case: Case, folder: Path) -> None:
    assert f"no {case.noun} is in 'val'" in refused(case, write(folder, text_of(case.columns, rows_of(case, count=2))))


# columns


@each(CASES)
def test_a_column_that_is_missing_is_named(case: Case, folder: Path) -> None:
    other = f"{case.columns[-1]}s"
    said = refused(case, write(folder, text_of((*case.columns[:-1], other), rows_of(case))))
    assert f"own.csv, line 1, column {case.columns[-1]!r}: the header does not name it. " in said
    assert f"data.{case.columns[-1]}={other}" in said if case.is_named else "Add the column, or rename" in said


@each({name: case for name, case in CASES.items() if name != "graph"})
def test_columns_that_are_not_used_are_named(case: Case, folder: Path) -> None:
    path = write(folder, text_of((*case.columns, "author", "year"), [(*row, "me", "1") for row in rows_of(case)]))
    with pytest.warns(UserWarning, match=r"own\.csv: 'author', 'year' are not used; .*\.$"):
        case.read(path)


@each({name: case for name, case in CASES.items() if case.unique})
def test_no_two_rows_have_one_name(case: Case, folder: Path) -> None:
    path = write(folder, text_of(case.columns, [*rows_of(case), case.row(3)]))
    said = refused(case, path)
    assert f"own.csv, line 22, column {case.unique!r}: {case.row(3)[0]!r} is already the " in said
    assert "of line 5. " in said
    with pytest.warns(UserWarning, match="skipped 1 bad"):
        assert len(case.read(path, on_bad_row="skip")[0]) == COUNT


# bad rows, quotes and encodings


def bad_rows(case: Case) -> dict[str, tuple[bytes, str]]:
    cells = case.row(COUNT)
    line = ",".join(cells)
    return {
        "an empty cell": (",".join(["", *cells[1:]]).encode(), f"line 22, column {case.columns[0]!r}: the cell is emp"),
        "a cell too few": (",".join(cells[1:]).encode(), f"line 22: the row has {len(cells) - 1} field"),
        "an open quote": (f'"{line}'.encode(), "line 22: a quote opened in this row is never closed"),
        "NUL": (f"a\0{line}".encode(), "line 22: it has NUL characters"),
        "another encoding": (f"\xe9{line}".encode("cp1252"), "line 22: byte 0xe9 is not UTF-8 text"),
    }


@each(CASES)
@pytest.mark.parametrize("kind", list(bad_rows(TEXTS)))
def test_a_bad_row_is_named_or_left_out_and_counted_or_listed(case: Case, folder: Path, kind: str) -> None:
    row, said = bad_rows(case)[kind]
    path = write(folder, text_of(case.columns, rows_of(case)).encode() + row + b"\n")
    message = refused(case, path)
    assert f"own.csv, {said}" in message
    assert message.endswith("on_bad_row=skip leaves such rows out and counts them.")
    with pytest.warns(UserWarning, match=r"own\.csv: skipped 1 bad (row|recording)\. The first: .*own\.csv, line 22"):
        assert len(case.read(path, on_bad_row="skip")[0]) == COUNT
    with collect_errors() as problems:
        case.read(path)
    (problem,) = map(str, problems)
    assert said in problem
    assert "on_bad_row" not in problem


@each(CASES)
def test_tables_without_rows(case: Case, folder: Path) -> None:
    assert "own.csv: there is a header and no rows" in refused(case, write(folder, text_of(case.columns, [])))
    assert "own.csv: the file is empty" in refused(case, write(folder, ""))
    path = write(folder, text_of(case.columns, []).encode() + b"x\n")
    if case.noun:
        assert "own.csv: no row is usable" in refused(case, path, on_bad_row="skip")


@each({name: case for name, case in CASES.items() if case.unique != "path" and name != "captioning"})
def test_other_encodings(case: Case, folder: Path) -> None:
    rows = [(f"{row[0]} \u20ac\u00e9", *row[1:]) for row in rows_of(case)]
    if case.unique == "id":
        rows[5:7] = rows_of(case)[5:7]  # which edges name
    path = write(folder, text_of((*case.columns,), rows).encode("cp1252"))
    assert "is not UTF-8 text. Save the file as UTF-8, or read it as it is: data.encoding=cp1252" in refused(case, path)
    assert len(case.read(path, encoding="cp1252")[0]) == COUNT


# labels


@each(LABELLED)
def test_a_label_that_training_never_sees_is_named(case: Case, folder: Path) -> None:
    rows = [list(row) for row in rows_of(case, KEPT)]
    for number, label in ((-2, "odd"), (-1, "A")):
        rows[number][-2:] = [label, "test"]
    path = write(folder, text_of((*case.columns, "split"), rows))
    column = f"column {case.columns[-1]!r}"
    odd = f"line 20, {column}: the label 'odd' is seen in test, and never in train. Put a {case.noun} with it into"
    same = f"line 21, {column}: the label 'A' is seen in test, and never in train. Rename it to 'a'."
    assert str(refused(case, path)).startswith(f"{path}, line 2")
    with collect_errors() as problems, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.read(path)
    assert sorted(str(problem).partition("own.csv, ")[2][: len(odd)] for problem in problems) == [
        odd,
        same[: len(odd)],
    ]


@each({name: case for name, case in LABELLED.items() if name in ("documents", "vision")})
def test_one_label_is_too_few(case: Case, folder: Path) -> None:
    rows = [(*row[:-1], "y") for row in rows_of(case)]
    assert "'y' is the only label. Give two labels at least." in refused(
        case, write(folder, text_of(case.columns, rows))
    )


@each(LABELLED)
@pytest.mark.filterwarnings("ignore:.* is not in every split")
def test_labels_like_slips_are_named(case: Case, folder: Path) -> None:
    rows = [(*row[:-2], {"a": "complaint", "b": "Praise"}[row[-2]], row[-1]) for row in rows_of(case, KEPT)]
    rows[0] = (*rows[0][:-2], "complaimt", "train")
    path = write(folder, text_of((*case.columns, "split"), rows))
    slip = "'complaimt' stands once, in train, and is spelled almost like 'complaint'"
    with pytest.warns(UserWarning, match=slip):
        case.read(path)


# the parts of it


def columns(**kinds: Any) -> dict[str, Column]:
    return {name: Column(name, kind) for name, kind in kinds.items()}


def test_a_record_has_values_as_declared(write_named: Callable[..., Path]) -> None:
    schema = Schema(
        noun="thing",
        columns={
            "name": Column("id", "id"),
            "size": Column("size", "number"),
            "kind": Column("kind", "label"),
            "note": Column("note", required=True, empty=True),
            "part": Column("part", "split"),
            "other": Column(None),
            "weight": Column("weight", "number"),
        },
        id="name",
    )
    rows = [("a", "0.5", "x", "", "train"), ("b", "", "y", " two ", "")]
    for name in ("t.csv", "t.jsonl"):
        text = text_of(["id", "size", "kind", "note", "part"], rows)
        if name == "t.jsonl":
            text = "".join(
                json.dumps(dict(zip(["id", "size", "kind", "note", "part"], row, strict=True))) + "\n" for row in rows
            )
        records = Records(write_named(text, name), schema, TableOptions())
        assert ("note" in records, "other" in records) == (True, False)
        values = [
            (each.id, each.split, *(each[role] for role in ("size", "kind", "note", "other", "weight")))
            for each in records.parse(lambda record: record)
        ]
        assert values == [("a", TRAIN, 0.5, "x", "", "", None), ("b", NONE, None, "y", "two", "", None)]


@pytest.fixture
def write_named(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def test_every_bad_cell_of_a_row_is_listed(write_named: Callable[..., Path]) -> None:
    schema = Schema(noun="node", columns=columns(id="id", size="number", split="split"))
    records = Records(write_named("id,size,split,a,b\nn1,?,tset,foo,\nn2,1,,1,2\n"), schema, TableOptions())
    records.number_columns = ["a", "b"]
    with collect_errors() as problems:
        (numbers,) = records.parse(lambda record: record.numbers)
    assert numbers.tolist() == [1, 2]
    assert [str(problem).partition("line 2, ")[2].partition(":")[0] for problem in problems] == [
        f"column {name!r}" for name in ("size", "split", "a", "b")
    ]


def test_labels_of_a_trained_model(write_named: Callable[..., Path]) -> None:
    path = write_named("id,label\nn1,a\nn2,\nn3,aa\nn4,c\nn5,c\n")
    schema = Schema(noun="node", columns=columns(id="id", label="label"))
    unknown = UnknownLabels()
    records = Records(path, schema, TableOptions(), known={"a", "b"}, unknown=unknown)
    assert list(records.parse(lambda record: record["label"])) == ["a", "", "", "", ""]
    assert "3 examples have labels that the model does not know, such as 'c'" in unknown.report()
    assert unknown.restore([{"id": "n3", "label": ""}], "label") == [{"id": "n3", "label": "aa"}]
    with pytest.raises(DataError, match=r"line 4, column 'label': 'aa' is not one of the 2 values .* Did you mean 'a'"):
        list(Records(path, schema, TableOptions(), known={"a", "b"}).parse(lambda record: record["label"]))


def test_what_a_bad_row_has_is_free_for_another(write_named: Callable[..., Path]) -> None:
    path = write_named("id,size\nn1,?\nn1,2\nn1,3\n")
    records = Records(
        path, Schema(noun="node", columns=columns(id="id", size="number")), TableOptions(on_bad_row="skip")
    )
    with pytest.warns(UserWarning, match="skipped 2 bad rows. The first: .*line 2, column 'size'"):
        assert list(records.parse(lambda record: record["size"])) == [2.0]
    with pytest.raises(DataError, match="line 4, column 'id': 'n1' is already the id of line 3"):
        list(Records(write_named("id,size\nn0,1\nn1,2\nn1,3\n"), records.schema, TableOptions()).parse(str))


def test_a_split_needs_a_label_where_labels_are_learned(write_named: Callable[..., Path]) -> None:
    path = write_named("label,split\na,train\n,val\n")
    schema = Schema(noun="node", columns=columns(label="label", split="split"))
    with pytest.raises(DataError, match=r"line 3, column 'label': the node is in split 'val' and has no label. Fill"):
        list(Records(path, schema, TableOptions()).parse(str))
    assert len(list(Records(path, schema, TableOptions(), known={"a"}).parse(str))) == 2


def test_an_error_that_make_raises_is_one_of_its_row(write_named: Callable[..., Path]) -> None:
    def make(record: Any) -> str:
        if record["note"] == "b":
            raise record.error("note", "it is b", "Write another.")
        text: str = record["note"]
        return text

    schema = Schema(noun="note", columns=columns(note="text"))
    path = write_named("note\na\nb\nc\n")
    with pytest.warns(UserWarning, match="The first: .*line 3, column 'note': it is b. Write another.$"):
        assert list(Records(path, schema, TableOptions(on_bad_row="skip")).parse(make)) == ["a", "c"]
    records = Records(path, schema, TableOptions())
    with collect_errors() as problems:
        assert list(records.parse(make)) == ["a", "c"]
    assert (len(problems), records.is_complete) == (1, False)


def test_examples_for_a_trained_model_are_for_its_test_if_their_answers_are_known() -> None:
    splits = assign_splits(
        Path("t"), "text", [NONE, TRAIN, NONE], seed=None, known=np.array([True, True, False])
    ).tolist()
    assert splits == [TEST, TRAIN, NONE]


def test_texts_have_a_limit() -> None:
    assert find_length_fault("abc", 3) is None
    assert find_length_fault("abcd", 3) == ("the text has 4 characters, and 3 are the most", "Shorten it.")
    assert "raise data.most_characters" in find_length_fault("abcd", 3, "most_characters").remedy
    assert name_given_texts(["a", "b"], 3, 9) == ["text 3", "text 4"]
    for text, said in ((" ", "text 1 is empty"), ("abcd", "text 1: the text has 4 ch"), ("a\0", "text 1: it has NUL")):
        with pytest.raises(DataError, match=said):
            name_given_texts([text], 1, 3)


def test_rare_labels_of_several_are_a_warning() -> None:
    flags = np.array([[True, False], [True, False], [True, True]])
    with pytest.warns(UserWarning, match="'rare' is never in train, where no model can learn it. Put texts with it"):
        check_labels(
            Path("t"), "text", ["often", "rare"], flags, np.array([TRAIN, VAL, TEST]), locate=lambda _: (Path(), None)
        )
