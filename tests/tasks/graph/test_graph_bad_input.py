"""Errors of users of graphs on the command line give one message and exit code 2, and change no file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.cli.main import main
from zoo.tasks.graph import planetoid_files

NODES = """\
id,label,split,x,y
a,red,train,1,0.5
b,blue,train,2,-1
c,red,val,3,2e3
d,blue,test,4,7
e,red,test,5,1
f,,,6,8
"""
EDGES = "source,target\na,b\nb,c\nc,d\nd,e\ne,f\n"
TRAIN = ["model=gat", "data=graph_files", "data.nodes=nodes.csv", "data.edges=edges.csv", "data.max_epochs=2"]
SMALL = ["model.net.dim=4", "model.net.heads=2", "logger=csv"]


@pytest.fixture
def files(cli: Any) -> Callable[[str | None, str | None], None]:
    """Writes the two files into the test's directory; None leaves one out."""

    def write(nodes: str | None = NODES, edges: str | None = EDGES) -> None:
        for name, text in (("nodes.csv", nodes), ("edges.csv", edges)):
            if text is not None:
                Path(name).write_text(text)

    return write


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a model of these files."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "nodes.csv").write_text(NODES)
        (folder / "edges.csv").write_text(EDGES)
        assert main(["train", *TRAIN, *SMALL, "run_dir=run"]) == 0
    return folder / "run" / "checkpoints"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check(cli: Any, arguments: list[object], *said: str) -> None:
    """Checks for one message with all these words, exit code 2, and unchanged files."""
    before = content(Path.cwd())
    done = cli(*arguments)
    assert done.code == 2
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err), done.err
    assert [part for part in said if part not in done.err] == []
    assert done.out == ""
    assert content(Path.cwd()) == before
    assert not any(path.is_dir() for path in Path.cwd().iterdir())


BAD_FILES = [
    ("a missing file", None, EDGES, ["nodes.csv: the file does not exist"]),
    ("missing edges", NODES, None, ["edges.csv: the file does not exist"]),
    ("an empty file", "", EDGES, ["nodes.csv: the file is empty"]),
    ("empty edges", NODES, "", ["edges.csv: the file is empty"]),
    ("a header alone", "id,label,x\n", EDGES, ["nodes.csv", "no rows"]),
    (
        "no label",
        NODES.replace("label", "lable"),
        EDGES,
        ["nodes.csv, line 1, column 'label'", "Did you mean 'lable'?"],
    ),
    ("no id", NODES.replace("id", "name", 1), EDGES, ["nodes.csv, line 1, column 'id'"]),
    ("no source", NODES, EDGES.replace("source", "from"), ["edges.csv, line 1, column 'source'"]),
    ("no target", NODES, EDGES.replace("target", "to"), ["edges.csv, line 1, column 'target'"]),
    ("no features", "id,label,split\na,red,train\n", EDGES, ["there are no features"]),
    ("one id twice", NODES + "b,red,train,1,1\n", EDGES, ["line 8, column 'id'", "'b' is already the id of line 3"]),
    (
        "an unknown target",
        NODES,
        EDGES + "a,z\n",
        ["edges.csv, line 7, column 'target'", "'z' is not the id of a node"],
    ),
    (
        "an unknown source",
        NODES,
        EDGES + "z,a\n",
        ["edges.csv, line 7, column 'source'", "'z' is not the id of a node"],
    ),
    ("no number", NODES.replace("4,7", "4,many"), EDGES, ["line 5, column 'y'", "'many' is not a number"]),
    ("an infinite number", NODES.replace("4,7", "4,inf"), EDGES, ["line 5, column 'y'", "'inf' is not finite"]),
    ("a number that is none", NODES.replace("4,7", "nan,7"), EDGES, ["line 5, column 'x'", "'nan' is not finite"]),
    ("a huge number", NODES.replace("4,7", "4,1e39"), EDGES, ["line 5, column 'y'", "too large for 32 bits"]),
    ("no value", NODES.replace("4,7", ",7"), EDGES, ["line 5, column 'x'", "empty"]),
    ("a short row", NODES.replace("4,7", "4"), EDGES, ["line 5", "4 fields where the header has 5"]),
    (
        "a label in test",
        NODES.replace("e,red", "e,green"),
        EDGES,
        ["the label 'green' is seen in test, and never in train"],
    ),
    ("no val", NODES.replace("val", "test"), EDGES, ["no node is in 'val'"]),
    ("no test", NODES.replace("test", "val"), EDGES, ["no node is in 'test'"]),
    ("a misspelt split", NODES.replace("val", "vall"), EDGES, ["line 4, column 'split'", "Did you mean 'val'?"]),
    ("a split without label", NODES.replace("f,,,", "f,,train,"), EDGES, ["line 7, column 'label'", "has no label"]),
]


@pytest.mark.parametrize(
    ("nodes", "edges", "said"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES]
)
def test_bad_files(cli: Any, files: Any, nodes: str | None, edges: str | None, said: list[str]) -> None:
    files(nodes, edges)
    check(cli, ["train", *TRAIN], *said)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=gta", *TRAIN[1:]], "there is no model 'gta'. Did you mean 'gat'?"),
        (["model=gat", "data=graph_fils", *TRAIN[2:]], "there is no data 'graph_fils'. Did you mean 'graph_files'?"),
        (["model=gat", "data=coral"], "there is no data 'coral'. Did you mean 'cora'?"),
        (["model=gat", "data=graph_files", "data.nodes=nodes.csv"], "data.edges must be given: data.edges=VALUE"),
        ([*TRAIN, "data.node=x"], "there is no option 'data.node'. Did you mean"),
        ([*TRAIN, "data.nodes=nodes.xlsx"], "nodes.xlsx: the name ends in '.xlsx'"),
        ([*TRAIN, "data.on_bad_row=ignore"], "on_bad_row"),
        ([*TRAIN, "data.directed=perhaps"], "data.directed='perhaps' does not fit: it is to be true or false"),
        ([*TRAIN, "model.net.heads=two"], "model.net.heads='two' does not fit: it is to be a whole number"),
    ],
)
def test_bad_options(cli: Any, files: Any, overrides: list[str], said: str) -> None:
    files()
    check(cli, ["train", *overrides], said)


def test_bad_rows_can_be_left_out_and_are_counted(cli: Any, files: Any) -> None:
    files(NODES + "g,red,train,many,1\n", EDGES + "a,g\n")
    with pytest.warns(UserWarning, match=r"skipped 1 bad row\.") as caught:
        done = cli("train", *TRAIN, *SMALL, "data.on_bad_row=skip", "run_dir=run")
    assert done.code == 0
    assert [str(each.message).partition(":")[0] for each in caught] == ["nodes.csv", "edges.csv"]


def test_a_user_file_is_never_taken_for_a_place_to_write(cli: Any, files: Any) -> None:
    files()
    check(cli, ["train", *TRAIN, "run_dir=nodes.csv"], "nodes.csv: a run cannot be written there (File exists)")


@pytest.mark.parametrize(
    "command", [["train", "init={}"], ["train", "resume={}"], ["evaluate", "{}"], ["predict", "{}"]]
)
@pytest.mark.parametrize("kind", ["truncated", "foreign", "text", "missing", "folder"])
def test_files_that_are_no_checkpoints(cli: Any, files: Any, trained: Path, command: list[str], kind: str) -> None:
    files()
    path = Path("bad.ckpt")
    whole = (trained / "last.ckpt").read_bytes()
    if kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "foreign":
        torch.save({"state_dict": {"weight": torch.zeros(2)}, "epoch": 3}, path)
    elif kind == "text":
        path.write_text("not this")
    elif kind == "folder":
        path = trained
    said = {
        "truncated": "is not a checkpoint, or was cut short",
        "foreign": "is not a checkpoint of this project",
        "text": "is not a checkpoint, or was cut short",
        "missing": "there is no checkpoint",
        "folder": "is a folder",
    }
    arguments = [word.format(path) for word in command]
    check(cli, arguments + (TRAIN[1:] if command[0] == "train" else []), str(path), said[kind])


@pytest.mark.parametrize(
    "arguments", [["train", "model=gatv2", "init={}/best.ckpt"], ["train", "model=gatv2", "resume={}/last.ckpt"]]
)
def test_a_checkpoint_of_another_model(cli: Any, files: Any, trained: Path, arguments: list[str]) -> None:
    files()
    before = content(trained)
    check(cli, [word.format(trained) for word in arguments] + TRAIN[1:] + SMALL, "of another model")
    assert content(trained) == before


def test_own_data_with_a_label_that_the_model_does_not_know(cli: Any, files: Any, trained: Path) -> None:
    Path("nodes.csv").write_text(NODES.replace("e,red", "e,green"))
    Path("edges.csv").write_text(EDGES)
    check(
        cli,
        ["evaluate", trained / "best.ckpt", "."],
        "nodes.csv, line 6, column 'label'",
        "'green' is not one of the 2",
    )


def test_a_loss_that_is_not_finite(cli: Any, files: Any, trained: Path) -> None:
    files()
    done = cli("train", *TRAIN, *SMALL, "data.max_epochs=20", "optimizer.lr=1e30", "run_dir=run")
    assert done.code == 2
    assert re.search(
        r"zoo: the loss is (nan|inf) at epoch \d+, step \d+, batch 0 \(ids 'a', 'b', 'c', 'd', 'e' and 1 m", done.err
    )
    weights = torch.load("run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(bool(weight.isfinite().all()) for weight in weights.values())


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_no_network_for_published_data(cli: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planetoid_files, "_SOURCE", "http://127.0.0.1:9")
    done = cli("train", "model=gat", f"data={name}", "paths.data=sets")
    assert done.code == 2
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err)
    for part in (
        f"ind.{name}.x is needed and cannot be downloaded",
        "place it there",
        "$ZOO_DATA",
        f"ind.{name}.graph",
    ):
        assert part in done.err
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_written(cli: Any, files: Any) -> None:
    files()
    Path("runs").write_text("a file where the folder of runs belongs")
    done = cli("train", *TRAIN)
    assert done.code == 2
    assert "runs/gat-graph_files: a run cannot be written there (Not a directory)" in done.err
    assert Path("runs").read_text().startswith("a file")
