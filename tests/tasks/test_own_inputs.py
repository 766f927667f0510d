"""Inputs of one's own for a trained model, in every domain that has them: paths, folders, labels, pipes, messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image
from run_cases import predicted

WITH_FILES = {
    "vision": "path,label",
    "captioning": "image,caption",
    "answering": "image,question",
    "speech": "path,text",
}
SAID = {"vision": "", "captioning": "a red ring", "answering": "what colour ?", "speech": "ab"}


def make_file(name: str, path: Path) -> None:
    """Makes a picture or a sound."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == "speech":
        soundfile.write(path, np.random.default_rng(0).normal(scale=0.1, size=8000), 8000, format="WAV")
    else:
        Image.new("RGB", (28, 28), (200, 30, 30)).save(path, format="PNG")


def write_table(name: str, path: Path, *files: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([WITH_FILES[name], *(f"{file},{SAID[name]}" for file in files)]) + "\n")
    return path


@pytest.mark.parametrize("name", WITH_FILES)
def test_paths_of_ones_own_may_lead_anywhere(cli: Any, best: Any, tmp_path: Path, name: str) -> None:
    """Absolute, upwards, and by links out of the folder of the table."""
    ending = "wav" if name == "speech" else "png"
    for number in range(3):
        make_file(name, tmp_path / "far" / f"{number}.{ending}")
    own = tmp_path / "own"
    own.mkdir()
    (own / f"link.{ending}").symlink_to(tmp_path / "far" / f"2.{ending}")
    table = write_table(name, own / "t.csv", tmp_path / "far" / f"0.{ending}", f"../far/1.{ending}", f"link.{ending}")
    assert len(predicted(cli, best(name), table)) == 3


@pytest.mark.parametrize("name", WITH_FILES)
def test_a_folder_is_where_paths_begin(cli: Any, best: Any, tmp_path: Path, name: str) -> None:
    make_file(name, tmp_path / "far" / "0.x")
    table = write_table(name, tmp_path / "own" / "t.csv", "0.x")
    done = cli("predict", best(name), table)
    assert done.code == 2
    assert len(predicted(cli, best(name), table, "--folder", tmp_path / "far")) == 1
    for wrong, said in ((tmp_path / "none", "there is no such folder"), (tmp_path, "0.x")):
        done = cli("predict", best(name), table, "--folder", wrong)
        assert (done.code, said in done.err) == (2, True)
    done = cli("predict", best(name), tmp_path / "far" / "0.x", "--folder", tmp_path)
    assert (done.code, "no table is given" in done.err) == (2, True)


UNKNOWN = {
    "graph": "label",
    "vision": "label",
    "documents": "label",
    "speech": "reference",
}


def with_unknown_label(name: str, folder: Path) -> Path:
    """Writes two examples, the second with a label that the tiny model does not have."""
    if name == "graph":
        features = [f"feature {number}" for number in range(12)]
        rows = [["n0", "", *"1" * 12], ["n1", "class 9", *"1" * 12]]
        lines = [",".join(each) for each in (["id", "label", *features], *rows)]
        (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
        (folder / "edges.csv").write_text("source,target\nn0,n1\n")
        return folder
    if name == "documents":
        (folder / "t.csv").write_text("text,label\nit was good,\nit was bad,splendid\n")
        return folder / "t.csv"
    labels = ("", "ß and") if name == "speech" else ("", "unheard")
    for number in range(2):
        make_file(name, folder / f"{number}.x")
    rows = "".join(f"{number}.x,{label}\n" for number, label in enumerate(labels))
    (folder / "t.csv").write_text(f"{WITH_FILES[name]}\n{rows}")
    return folder / "t.csv"


@pytest.mark.parametrize(("name", "column"), UNKNOWN.items())
def test_labels_that_the_model_does_not_know_are_kept(
    cli: Any, best: Any, tmp_path: Path, name: str, column: str, trained_on: Trained
) -> None:
    if name == "graph":
        pytest.importorskip("torch_geometric")
    given = with_unknown_label(name, tmp_path)
    with pytest.warns(UserWarning, match="is no label that the model knows"):
        rows = predicted(cli, best(name), given)
    assert [bool(row[column]) for row in rows] == [False, True]
    assert rows[1][column] in ("class 9", "unheard", "splendid", "ß and")
    done = cli("evaluate", best(name), given)  # a figure would be wrong
    assert done.code == 2
    assert "is not one of the" in done.err


@contextmanager
def piped(content: bytes) -> Iterator[str]:
    """A pipe with this content, as `<(cat file)` gives one."""
    reader, writer = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(writer, content), os.close(writer)))
    thread.start()
    yield f"/dev/fd/{reader}"
    thread.join()
    os.close(reader)


@pytest.mark.parametrize("name", ["vision", "speech", "captioning"])
def test_an_input_from_a_pipe_is_named_after_it(cli: Any, best: Any, tmp_path: Path, name: str) -> None:
    make_file(name, tmp_path / "0.x")
    with piped((tmp_path / "0.x").read_bytes()) as pipe:
        assert [row["id"] for row in predicted(cli, best(name), pipe)] == [pipe]


def test_the_ids_of_tables_from_pipes(cli: Any, best: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\nit was good\n")
    with piped(b"text\nit was bad\n") as pipe:
        rows = predicted(cli, best("documents"), "t.csv", pipe)
    assert [row["id"] for row in rows] == ["t.csv:2", f"{Path(pipe).name}:2"]


@pytest.mark.parametrize(
    ("name", "content", "option", "value"),
    [
        ("documents", "text\n{}\n", "--most-characters", 2_000_000),
        ("translation", "source\n{}\n", "--most-characters", 2_000_000),
    ],
)
def test_a_message_names_an_option_of_the_command_and_it_helps(
    cli: Any, best: Any, name: str, content: str, option: str, value: int
) -> None:
    Path("t.csv").write_text(content.format(f"x{'y' * 1_100_000}"))
    done = cli("predict", best(name), "t.csv")
    assert done.code == 2
    assert f"or raise {option}." in done.err
    assert "data." not in done.err
    assert len(predicted(cli, best(name), "t.csv", option, value)) == 1


@pytest.mark.parametrize("name", ["vision", "captioning"])
def test_a_limit_of_pixels_is_named_and_can_be_chosen(cli: Any, best: Any, tmp_path: Path, name: str) -> None:
    make_file(name, tmp_path / "0.png")
    done = cli("predict", best(name), tmp_path / "0.png", "--most-pixels", 100)
    assert done.code == 2
    assert "28 x 28 are 784 pixels, and at most 100 are read. Make it smaller, or raise --most-pixels." in done.err
    assert len(predicted(cli, best(name), tmp_path / "0.png", "--most-pixels", 784)) == 1


def test_a_history_of_unknown_items_is_advised_by_the_option(cli: Any, best: Any) -> None:
    done = cli("predict", best("recommendation"), "--history", "item 1,caviar")
    assert done.code == 2
    assert "--unknown=skip leaves such items out; --unknown=row maps them" in done.err


def test_an_mp3_is_read_without_the_noise_of_its_decoder(cli: Any, best: Any, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "good.mp3", 0.3 * np.sin(np.arange(48_000) / 10), 16_000, format="MP3")
    content = bytearray((tmp_path / "good.mp3").read_bytes())
    spoilt = len(content[600::97])
    content[600::97] = np.random.default_rng(0).integers(0, 256, spoilt, dtype=np.uint8).tobytes()
    (tmp_path / "bad.mp3").write_bytes(content)
    with open(tmp_path / "error", "w+b") as noise:
        before = os.dup(2)
        os.dup2(noise.fileno(), 2)  # where the library writes, past Python
        done = cli("predict", best("speech"), tmp_path / "bad.mp3")
        os.dup2(before, 2)
        os.close(before)
    assert (done.code, "bad.mp3: it is damaged (" in done.err) == (2, True)
    assert (tmp_path / "error").read_bytes() == b""
    with pytest.warns(UserWarning, match="bad.mp3: it is damaged"):
        rows = predicted(cli, best("speech"), tmp_path / "good.mp3", tmp_path / "bad.mp3", "--on-bad-row", "skip")
    assert [row["id"] for row in rows] == ["good.mp3"]
