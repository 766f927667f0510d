"""The user's own questions: what is read of a table, and what is said of one that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo.data.splits import NONE, TEST, TRAIN, VAL
from zoo.errors import DataError
from zoo.tasks.answering.data.answer_set import AnswerSet, Hypotheses
from zoo.tasks.answering.data.answer_table import read_answer_table
from zoo.tasks.vision.data.image_list import ReaderOptions

PASSAGES = (
    "context,question,answer,start,split\n"
    "The mill is old.,What is old?,The mill,0,train\n"
    '"A coin, a lamp and a coin.",What is there twice?,a coin,19,val\n'
    "It rains in May.,When?,May,,test\n"
)


def read(folder: Path, text: str, about: str = "passage", name: str = "own.csv", **how: object) -> AnswerSet:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    on_bad_row = how.pop("on_bad_row", "error")
    return read_answer_table(path, about, ReaderOptions(on_bad_row=on_bad_row), **how)


def test_answers_are_found_in_their_passages(tmp_path: Path) -> None:
    found = read(tmp_path, PASSAGES)
    assert (found.about, found.ids, found.splits.tolist()) == ("passage", ["2", "3", "4"], [TRAIN, VAL, TEST])
    assert [text[slice(*span)] for text, span in zip(found.passages, found.spans, strict=True)] == found.answers
    assert found.spans[1] == (19, 25)
    assert found.kinds is None


def test_hypotheses_and_kinds_in_jsonl(tmp_path: Path) -> None:
    rows = [
        {
            "premise": f"The cup {number} is red.",
            "hypothesis": "It is red.",
            "label": "yes",
            "kind": "x",
            "id": f"n{number}",
        }
        for number in range(5)
    ]
    found = read(tmp_path, "".join(f"{json.dumps(each)}\n" for each in rows), "premise", "own.jsonl")
    assert found.passages[3] == "The cup 3 is red."
    assert found.questions[0] == "It is red."
    assert found.answers == ["yes"] * 5
    assert (found.kinds, found.ids) == (["x"] * 5, [f"n{number}" for number in range(5)])
    assert sorted(found.splits.tolist()) == [TRAIN] * 3 + [VAL, TEST]
    assert isinstance(found, Hypotheses)


def test_pictures_are_read_on_access(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        Image.fromarray(np.full((6, 8, 3), 40 * number, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    table = (
        "image,question,answer,split\na.png,What?,x,train\nb.png,What?,y,val\nc.png,Why?,x,test\na.png,Why?,y,train\n"
    )
    found = read(tmp_path, table, "picture")
    assert found.pixels[1].shape == (3, 6, 8)
    assert (np.asarray(found.pixels[3]) == 0).all()
    assert found.answers == ["x", "y", "x", "y"]
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"own\.csv.*line 3.*image.*b\.png"):
        read(tmp_path, table, "picture")
    with (
        pytest.warns(UserWarning, match="skipped 1 bad row"),
        pytest.raises(DataError, match="no question is in 'val'"),
    ):
        read(tmp_path, table, "picture", on_bad_row="skip")


def test_questions_for_a_trained_model_may_lack_answers(tmp_path: Path) -> None:
    found = read(tmp_path, "context,question,answer\nIt rains.,What?,\nIt rains.,What?,rains\n", split_seed=None)
    assert found.splits.tolist() == [NONE, TEST]
    assert found.answers == ["", "rains"]
    assert read(tmp_path, "context,question\nIt rains.,What?\n", split_seed=None).answers == [""]


def hypotheses(*labels: str, splits: str = "") -> str:
    """A table of hypotheses with these labels, in splits that t, v and s stand for."""
    names = {"t": "train", "v": "val", "s": "test"}
    rows = [f"It rains {number}.,It is wet.,{label}" for number, label in enumerate(labels)]
    if splits:
        rows = [f"{row},{names[split]}" for row, split in zip(rows, splits, strict=True)]
    return "\n".join([f"premise,hypothesis,label{',split' * bool(splits)}", *rows, ""])


def test_a_label_like_a_slip_is_named(tmp_path: Path) -> None:
    labels = ["entailment", "neutral"] * 3 + ["entailmnet"]
    with (
        pytest.warns(UserWarning, match="'entailmnet' stands once, in train, and is spelled almost like 'entailment'"),
        pytest.warns(UserWarning, match="'entailmnet' is not in every split"),
    ):
        read(tmp_path, hypotheses(*labels, splits="ttvvsst"), "premise")


def test_answers_about_pictures_that_train_lacks_are_counted(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((6, 8, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    rows = ["x,train", "y,train", "x,val", "z,val", "y,test"]
    table = "\n".join(["image,question,answer,split", *(f"a.png,What?,{row}" for row in rows), ""])
    with pytest.warns(UserWarning, match=r"1 question counts as wrong, because in train 'z' is no answer"):
        read(tmp_path, table, "picture")
    with pytest.raises(DataError, match="no question of 'val' has an answer that a question of train has"):
        read(tmp_path, table.replace("x,val", "w,val"), "picture")


def test_the_first_of_several_places_is_taken_and_counted(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"1 answers stand more than once.*'start'"):
        found = read(tmp_path, PASSAGES.replace(",19,", ",,").replace("A coin", "a coin"))
    assert found.spans[1] == (0, 6)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("May,,", "June,,", r"line 4, column 'answer': the answer does not stand in the context"),
        (",19,", ",20,", r"line 3, column 'start': the context has something else than the answer at character 20"),
        (",19,", ",-1,", r"line 3, column 'start': '-1' is no place in a text"),
        (",19,", ",1e3,", r"line 3, column 'start': '1e3' is no place"),
        ("When?", "", r"line 4, column 'question': the cell is empty"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, PASSAGES.replace(old, new, 1))


def test_one_name_is_of_one_question(tmp_path: Path) -> None:
    table = "id,context,question,answer\nq,It rains.,What?,rains\nq,It snows.,What?,snows\n"
    with pytest.raises(DataError, match=r"line 3, column 'id': 'q' is already the id of line 2"):
        read(tmp_path, table)
