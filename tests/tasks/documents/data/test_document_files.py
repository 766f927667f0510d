"""The user's own texts: what is read of them, and what is said of those that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.data.tables import collect_errors
from zoo.errors import DataError
from zoo.tasks.documents.data.corpus import Corpus
from zoo.tasks.documents.data.readers import (
    ReaderOptions,
    read_text_folder,
    read_text_table,
    read_texts_at,
    texts_as_written,
)

NAME = "texts.csv"
Write = Callable[..., Path]


def table(path: Path, cache: Path | None = None, **options: Any) -> Corpus:
    return read_text_table(path, ReaderOptions(**options, cache=cache), split_seed=0)


def rows(count: int = 20, more: str = "") -> str:
    return "text,label\n" + "".join(f"text {n},{'good' if n % 2 else 'bad'}\n" for n in range(count)) + more


def jsonl(count: int = 20, **more: Any) -> str:
    labels = ("bad", "good")
    lines = [{"text": f"text {n}", "label": labels[n % 2], **more} for n in range(count)]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def test_a_table_is_split_with_every_label_in_every_part(write: Write) -> None:
    found = table(write(rows(50)))
    assert found.label_names == ("bad", "good")
    assert list(found.texts[:2]) == ["text 0", "text 1"]
    assert found.ids[:2] == ["2", "3"]
    for part, count in ((TRAIN, 15), (VAL, 5), (TEST, 5)):
        assert np.bincount(found.labels[found.splits == part]).tolist() == [count] * 2


def test_columns_are_named_and_splits_kept(write: Write) -> None:
    text = "body\tstars\tname\tpart\n" + "".join(
        f"text {n}\t{n % 2 * 3 + 1}\tn{n}\t{('train', 'val', 'test')[n // 2 % 3]}\n" for n in range(12)
    )
    found = table(write(text, "own.tsv"), text="body", label="stars", id="name", split="part", targets="ordinal")
    assert found.label_names == ("1", "4")
    assert found.ids[:2] == ["n0", "n1"]
    assert found.splits.tolist() == [0, 0, 1, 1, 2, 2] * 2


def test_ratings_are_in_the_order_of_numbers(write: Write) -> None:
    text = "text,label\n" + "".join(f"text {n},{(10, 2, 9)[n % 3]}\n" for n in range(30))
    assert table(write(text), targets="ordinal").label_names == ("2", "9", "10")


def test_several_labels(write: Write) -> None:
    text = "text,label\n" + "".join(f"text {n},{('a; b', 'b', '')[n % 3]}\n" for n in range(30))
    found = table(write(text), targets="multi")
    assert found.label_names == ("a", "b")
    assert found.labels[:3].tolist() == [[True, True], [False, True], [False, False]]


@pytest.mark.parametrize("zipped", [False, True])
def test_texts_of_jsonl_stay_in_the_file(write: Write, tmp_path: Path, zipped: bool) -> None:
    import gzip

    content = jsonl().encode()
    path = write(gzip.compress(content) if zipped else content, "own.jsonl.gz" if zipped else "own.jsonl")
    found = table(path, tmp_path / "cache")
    assert not isinstance(found.texts, list)
    assert [found.texts[n] for n in (7, 0)] == ["text 7", "text 0"]
    assert list(found.texts) == list(table(path).texts)


BAD = [
    pytest.param(rows(more="text,\n"), "line 22, column 'label': the cell is empty. Fill it in.", id="missing label"),
    pytest.param(rows(more="text,\"['a', 'b']\"\n"), "line 22, column 'label': it is a list. Write several", id="list"),
    pytest.param(rows(more=",good\n"), "line 22, column 'text': the cell is empty. Fill it in.", id="missing text"),
    pytest.param(rows(more="<br /> ,good\n"), "line 22, column 'text': the text is empty", id="markup alone"),
    pytest.param(
        rows(more=f"{'x' * 5_000_000},good\n"), "line 22, column 'text': the text has 5,000,000 ch", id="5 MB"
    ),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_what_is_wrong_with_a_table_is_named(write: Write, content: Any, message: str) -> None:
    with pytest.raises(DataError) as raised:
        table(write(content))
    assert message in str(raised.value)
    assert "texts.csv" in str(raised.value)


@pytest.mark.parametrize("content", [each.values[0] for each in BAD], ids=[each.id for each in BAD])
def test_bad_rows_are_left_out_and_counted_if_asked(write: Write, content: Any) -> None:
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        found = table(write(content), on_bad_row="skip")
    assert len(found) == len(found.texts) == 20


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('{"text": "x"}\n', "line 21, column 'label': the cell is empty"),
        ('{"text": "x", "label": ["good", "bad"]}\n', "line 21, column 'label': it is a list"),
        ('{"text": "x", "label": "good"\n', "line 21: it is not JSON"),
        ('{"text": "x\\u0000", "label": "good"}\n', "line 21: it has NUL characters"),
        ('{"text": "%s", "label": "good"}\n' % ("x" * 5_000_000), "line 21, column 'text': the text has 5,000,000"),
    ],
)
def test_what_is_wrong_with_a_line_of_jsonl_is_named(write: Write, tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        table(write(jsonl() + more, "own.jsonl"), tmp_path / "cache")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("label", "targets", "message"),
    [("soon", "ordinal", "'soon' is not a number"), ("a;b;a", "multi", "'a' is named more than once")],
)
def test_labels_that_cannot_be(write: Write, label: str, targets: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"line 2, column 'label': {message}"):
        table(write(f"text,label\nx,{label}\n"), targets=targets)


def folder_of(root: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path = path.with_name(f"{path.name}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    root = folder_of(tmp_path, **{f"{kind}__t{n}": f"{kind} {n}" for kind in ("bad", "good") for n in range(10)})
    found = read_text_folder(root, ReaderOptions(), split_seed=0)
    assert found.label_names == ("bad", "good")
    assert found.ids[0] == "bad/t0.txt"
    assert found.texts[-1] == "good 9"
    assert [(found.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [12, 4, 4]


def test_folders_of_splits(tmp_path: Path) -> None:
    names = [f"{part}__{kind}__t" for part in ("train", "val", "test") for kind in ("bad", "good")]
    found = read_text_folder(folder_of(tmp_path, **dict.fromkeys(names, "text")), ReaderOptions(), split_seed=0)
    assert found.splits.tolist() == [2, 2, 0, 0, 1, 1]  # in the order of names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"two\nlines\xff", r"x.txt, line 2: byte 0xff is not UTF-8"),
        (b"one\n\0", r"x.txt, line 2: it has NUL"),
        (b" \n", r"x.txt: the text is empty"),
        (b"x" * 5_000_000, r"x.txt: the text has 5,000,000 characters, and 1,000,000 are the most"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    good = {f"{kind}__t{n}": "text" for kind in ("bad", "good") for n in range(10)}
    root = folder_of(tmp_path, bad__x=content, **good)
    with pytest.raises(DataError, match=message):
        read_text_folder(root, ReaderOptions(), split_seed=0)
    with pytest.warns(UserWarning, match="skipped 1 bad text"):
        assert len(read_text_folder(root, ReaderOptions(on_bad_row="skip"), split_seed=0)) == 20
    with collect_errors() as problems:
        read_text_folder(root, ReaderOptions(), split_seed=0)
    assert len(problems) == 1


def test_a_folder_that_training_never_sees_is_named(tmp_path: Path) -> None:
    names = [f"{part}__{kind}__t" for part in ("train", "val", "test") for kind in ("bad", "good")]
    root = folder_of(tmp_path, **dict.fromkeys([*names, "test__odd__t"], "text"))
    with pytest.raises(DataError, match=r"test/odd/t.txt: the label 'odd' is seen in test, and never in train"):
        read_text_folder(root, ReaderOptions(), split_seed=0)


def test_what_is_left_out_of_folders_for_a_trained_model(tmp_path: Path) -> None:
    root = folder_of(tmp_path, good__a="a text", bad__b=b"caf\xe9", c=" ")
    with pytest.raises(DataError, match=r"b\.txt, line 1: byte 0xe9 is not UTF-8 text.*on_bad_row=skip"):
        read_texts_at([root], ReaderOptions(), ["bad", "good"])
    (root / "notes.md").write_text("text")
    with (
        pytest.warns(UserWarning, match="skipped 2 bad texts. The first: .*b.txt, line 1: byte 0xe9"),
        pytest.warns(UserWarning, match=r"left out 1 file not named as texts \(1 \.md; the first: notes\.md\)"),
    ):
        found = read_texts_at([root], ReaderOptions(on_bad_row="skip"), ["bad", "good"])
    assert list(found.texts) == ["a text"]
    (root / "c.txt").unlink()
    (root / "notes.md").unlink()
    assert list(read_texts_at([root], ReaderOptions(encoding="latin-1"), []).texts) == ["caf\xe9", "a text"]


def test_files_outside_of_class_folders_are_counted_once(tmp_path: Path) -> None:
    root = folder_of(tmp_path, **{f"{kind}__t{n}": "text" for kind in ("bad", "good") for n in range(10)}, loose="text")
    (root / "good" / "more").mkdir()
    (root / "good" / "more" / "x.html").write_text("text")
    (root / "none").mkdir()
    (root / "good" / "more" / "round").symlink_to(root)
    said = (
        r"left out 1 file not named as texts \(1 \.html; the first: good/more/x\.html\), 1 text outside of the class "
        r"folders \(the first: loose\.txt\), 1 link to a folder above .*, 1 class folder without a text"
    )
    with pytest.warns(UserWarning, match=said):
        assert len(read_text_folder(root, ReaderOptions(), split_seed=0)) == 20


def test_texts_for_a_trained_model(write: Write, tmp_path: Path) -> None:
    """A table without labels, a file in a folder named like a label, and one that is not."""
    root = folder_of(tmp_path / "more", good__a="a text", b="another")
    paths = [write("text\nfirst\nsecond\n"), root]
    found = read_texts_at(paths, ReaderOptions(), ["bad", "good"])
    assert [found.texts[n] for n in range(4)] == ["first", "second", "another", "a text"]
    assert found.labels.tolist() == [-1, -1, -1, 1]
    assert found.splits.tolist() == [-1, -1, -1, TEST]
    assert len(set(found.ids)) == 4
    both = read_texts_at(
        [write("text\nx\n", "one.csv"), write("text\ny\n", "two.csv")], ReaderOptions(), ["bad", "good"]
    )
    assert both.ids == ["one.csv:2", "two.csv:2"]


def test_jsonl_for_a_trained_model_stays_in_the_file(write: Write, tmp_path: Path) -> None:
    path = write(jsonl(), "own.jsonl")
    found, held = (read_texts_at([path], ReaderOptions(cache=cache), ["bad", "good"]) for cache in (tmp_path, None))
    assert not isinstance(found.texts.parts[0], list)
    assert list(found.texts) == list(held.texts)


def test_a_label_that_the_model_does_not_know_is_named(write: Write) -> None:
    with pytest.raises(DataError, match=r"texts.csv, line 3, column 'label': 'goood' is not one of the 2 labels"):
        read_texts_at([write("text,label\na,good\nb,goood\n")], ReaderOptions(), ["bad", "good"])


def test_texts_of_the_command_line() -> None:
    assert texts_as_written(["a", "b"], 3, "single", ["x", "y"]).ids == ["text 3", "text 4"]
    with pytest.raises(DataError, match="text 2 is empty"):
        texts_as_written(["a", "  "], 1, "single", ["x", "y"])


def test_a_rare_label_of_several_is_a_warning(write: Write) -> None:
    """With several labels a text, some are always rare; of one label each, such a label is an error."""
    head = "text,label,split\n" + "".join(f"text {n},{'a; b' if n % 2 else 'b'},train\n" for n in range(4))
    path = write(f"{head}held,a; rare,val\nout,b,test\n")
    with pytest.warns(UserWarning, match="'rare' is never in train, where no model can learn it"):
        found = table(path, targets="multi")
    assert found.label_names == ("a", "b", "rare")
    assert found.counts() == (2, 4, 0)
    with pytest.raises(DataError, match="'rare' is seen in val, and never in train"):
        table(write(f"{head.replace('a; b', 'a')}held,rare,val\nout,b,test\n"))
