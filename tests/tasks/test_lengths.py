"""The limit of the length of texts: `data.max_length` in training, `--longest-text` for a trained model."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.config import compose, instantiate
from zoo.data.tables import collect_errors
from zoo.errors import DataError
from zoo.tasks.length_limit import LengthLimit

Row = Callable[[int, int], Mapping[str, str]]


def text(count: int) -> str:
    return " ".join("abcdefgh"[number % 8] for number in range(count))


TEXTS: Mapping[str, tuple[str, str, Row]] = {
    "text_pairs": ("nmt", "source", lambda at, count: {"source": text(count), "target": text(5)}),
    "text_table": ("han", "text", lambda at, count: {"text": text(count), "label": "ab"[at % 2]}),
    "passage_questions": (
        "bidaf",
        "context",
        lambda at, count: {"context": f"z {text(count - 1)}", "question": text(5), "answer": "z"},
    ),
    "hypotheses": (
        "esim",
        "premise",
        lambda at, count: {"premise": text(count), "hypothesis": text(5), "label": "ab"[at % 2]},
    ),
}


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def opened(folder: Path, name: str, *options: str) -> Any:
    """The data of a table whose line 10 has a text of 30 tokens; all others have 5."""
    model, _, row = TEXTS[name]
    splits = ["train"] * 10 + ["val"] * 4 + ["test"] * 4
    rows = [{**row(at, 30 if at == 8 else 5), "split": split} for at, split in enumerate(splits)]
    table = write(folder / "table.csv", rows)
    given = [f"model={model}", f"data={name}", f"data.table={table}", f"paths.cache={folder}", *options]
    return instantiate.build(compose.compose_unchecked(given)["data"], "data")


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_too_long_is_a_bad_row_of_every_domain(name: str, tmp_path: Path) -> None:
    data = opened(tmp_path, name, "data.max_length=20")
    side = TEXTS[name][1]
    with pytest.raises(DataError) as error:
        data.setup()
    said = str(error.value)
    assert str(tmp_path / "table.csv") in said
    assert f"'10': the {side} has 30 tokens, and 20 are the most" in said
    assert "raise data.max_length" in said
    assert "on_bad_row=skip leaves such" in said


def test_a_question_about_a_picture_obeys_the_limit(tmp_path: Path) -> None:
    folder, splits = Path("data/samples/captioning").absolute(), ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    rows = [
        {
            "image": "pictures/01.png",
            "question": text(30 if at == 1 else 5),
            "answer": "ab"[at % 2],
            "split": split,
        }
        for at, split in enumerate(splits)
    ]
    table = write(tmp_path / "table.csv", rows)
    given = ["model=coattention", "data=picture_questions", f"data.table={table}", f"data.folder={folder}"]

    def opened(*options: str) -> Any:
        return instantiate.build(compose.compose_unchecked([*given, "data.max_length=20", *options])["data"], "data")

    with pytest.raises(DataError, match=r"question '3': the question has 30 tokens, and 20 are the most"):
        opened().setup()
    data = opened("data.on_bad_row=skip")
    with pytest.warns(UserWarning, match="skipped 1 question"):
        data.setup()
    assert [each.id for each in data.examples("train").entries] == ["2", "4", "5", "6", "7"]


@pytest.mark.parametrize("name", TEXTS)
def test_skip_leaves_it_out_and_counts_it(name: str, tmp_path: Path) -> None:
    data = opened(tmp_path, name, "data.max_length=20", "data.on_bad_row=skip")
    with pytest.warns(
        UserWarning, match=r"skipped 1 \w+ with more than data.max_length=20 tokens. The longest: '10', with 30"
    ):
        data.setup()
    assert data.train_size() == 9
    assert max(data.examples("train").lengths) <= 6
    assert len(data.examples("all").entries) == 17
    assert [each.id for each in data.examples("all").entries][8:] == [str(line) for line in range(11, 20)]
    assert sum(len(batch) for batch in data.train_dataloader()) == 9


@pytest.mark.parametrize("name", TEXTS)
def test_a_trained_model_obeys_the_same_limit_and_has_an_option(name: str, tmp_path: Path) -> None:
    data = opened(tmp_path, name, "data.max_length=40")
    data.setup()
    row = TEXTS[name][2]
    long = write(tmp_path / "long.csv", [row(0, 5), row(1, 50)])
    with pytest.raises(
        DataError, match=r"'3': the \w+ has 50 tokens, and 40 are the most. Part it, or raise --longest-text"
    ):
        data.from_files([long], data.state()).setup()
    data.on_bad_row = "skip"
    with pytest.warns(UserWarning, match="skipped 1 .* with more than --longest-text=40 tokens"):
        assert len(data.from_files([long], data.state()).examples("all").entries) == 1
    data.longest_text = 50
    assert len(data.from_files([long], data.state()).examples("all").entries) == 2


@pytest.mark.parametrize("name", ["text_pairs", "text_table"])
def test_texts_of_the_command_line_obey_the_limits_of_files(name: str, tmp_path: Path) -> None:
    data = opened(tmp_path, name, "data.max_length=40", "data.most_characters=200")
    data.setup()
    with pytest.raises(DataError, match=r"text 'text 2': the .* has 41 tokens, and 40 are the most"):
        data.from_texts([text(40), text(41)], data.state()).setup()
    with pytest.raises(DataError, match="text 2: the text has 219 characters"):
        data.from_texts([text(5), text(110)], data.state()).setup()


@pytest.mark.parametrize("name", TEXTS)
def test_long_texts_have_batches_of_fewer(name: str, tmp_path: Path) -> None:
    data = opened(tmp_path, name, "data.max_tokens=60", "data.batch_size=8")
    sizes = [len(batch) for batch in data.train_dataloader()]
    assert min(sizes) <= 2  # the text of 30 tokens, and one beside it at most
    assert max(sizes) <= 8
    assert sum(sizes) == 10


def limit(**options: Any) -> LengthLimit:
    return LengthLimit(**{"most": 4, "option": "data.max_length", "on_bad_row": "error", "noun": "pair", **options})


def test_a_preflight_lists_all_texts_that_are_too_long() -> None:
    lengths = {"source": np.array([1, 5, 4, 2]), "target": np.array([1, 6, 2, 7])}
    with collect_errors() as found:
        assert limit().select_short("abcd", lengths).tolist() == [True, False, True, False]
    assert [str(each).partition(":")[0] for each in found] == ["pair 'b'", "pair 'd'"]
    assert "the target has 6 tokens" in str(found[0])


def test_a_limit_that_leaves_nothing_is_an_error() -> None:
    with pytest.warns(UserWarning, match="skipped 2"), pytest.raises(DataError, match="no row is usable"):
        limit(on_bad_row="skip").select_short("ab", {"text": np.array([5, 6])})


def test_no_limit_keeps_everything() -> None:
    assert limit(most=None).select_short("ab", {"text": np.array([5, 10**9])}).all()
