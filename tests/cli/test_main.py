"""The commands beside `train`, as a user gives them."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.cli import main as cli_module
from zoo.cli.main import main
from zoo.config import compose, plugins
from zoo.config.groups import GROUPS, LISTED
from zoo.errors import CheckpointError

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples" / "graph"


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(scope="module", params=["nodes.csv", "nodes_sparse.csv"])
def sample_run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the sample that stands in the repository, and a folder with that sample as `predict` takes it."""
    folder = tmp_path_factory.mktemp("sample")
    (folder / "nodes.csv").write_text((SAMPLES / request.param).read_text())
    (folder / "edges.csv").write_text((SAMPLES / "edges.csv").read_text())
    data = ["data=graph_files", f"data.nodes={folder}/nodes.csv", f"data.edges={folder}/edges.csv"]
    assert main(["train", "model=gat", *data, "data.max_epochs=15", "logger=csv", f"run_dir={folder}/run"]) == 0
    return folder


def test_list(cli: Any) -> None:
    done = cli("list")
    assert done.code == 0
    for group in LISTED:
        assert f"{group}=\n" in done.out
        for name, sentence in compose.describe_choices(group).items():
            assert re.search(rf"^  {name} +{re.escape(sentence)}$", done.out, re.MULTILINE)
    one = cli("list", "attention")
    assert one.code == 0
    assert one.out == done.out[done.out.index("attention=") : done.out.index("gate=")]


def test_every_folder_of_configurations_is_a_group_and_listed_but_for_paths_and_debug(cli: Any) -> None:
    assert {path.name for path in plugins.CONF.iterdir() if path.is_dir()} == set(GROUPS) == {*LISTED, "paths", "debug"}
    assert cli("list", "penalty").out.startswith("penalty=\n  default  Losses on attention weights")


def test_help_of_list_says_what_each_group_holds(cli: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli("list", "--help")
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +{re.escape(GROUPS[name].description)}$", out, re.MULTILINE) for name in LISTED)


def test_list_nonsense(cli: Any) -> None:
    done = cli("list", "modle")
    assert (done.code, done.out) == (2, "")
    assert done.err == "zoo: there is no group 'modle'. Did you mean 'model'?\n"


def test_list_is_instant() -> None:
    code = "import sys; from zoo.cli.main import main; main(['list']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "gatv2" in done.stdout
    assert not {"torch", "hydra", "omegaconf", "pytorch_lightning", "numpy"} & set(done.stderr.split())


def test_no_arguments(cli: Any) -> None:
    done = cli()
    assert done.code == 2
    assert "usage: zoo" in done.out
    assert all(command in done.out for command in ("train", "list", "evaluate", "predict", "maps"))


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["evaluate"], ["maps", "x.ckpt"], ["evaluate", "x", "--split", "all"]]
)
def test_arguments_that_do_not_fit(cli: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli(*arguments)
    assert caught.value.code == 2
    assert "usage: zoo" in capsys.readouterr().err


def test_train_help(cli: Any) -> None:
    done = cli("train", "--help")
    assert done.code == 0
    assert all(word in done.out for word in ("model=NAME", "init=CKPT", "resume=CKPT", "experiment=NAME"))


def test_the_configuration_can_be_shown(cli: Any, tmp_path: Path) -> None:
    done = cli("train", "--cfg", "job", "model=gat", "optimizer.lr=0.125")
    assert done.code == 0
    assert "lr: 0.125" in done.out
    assert not any(tmp_path.iterdir())


def test_debug_shows_the_traceback(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("evaluate", "no.ckpt").code == 2
    monkeypatch.setenv("ZOO_DEBUG", "1")
    with pytest.raises(CheckpointError, match=r"no\.ckpt"):
        cli("evaluate", "no.ckpt")


def test_evaluate_prints_and_writes(cli: Any, tiny_run: Path) -> None:
    done = cli("evaluate", tiny_run / "checkpoints" / "best.ckpt", "--out", "new/folder/found.json")
    assert done.code == 0
    found = json.loads(Path("new/folder/found.json").read_text())
    assert {"test/accuracy", "test/f1_macro", "test/loss", "truth/edge_auc"} == set(found)
    for name, value in found.items():
        assert re.search(rf"{name} +│ +{value:.4f}", done.out)
    assert "gat, test" in done.out
    assert "val/accuracy" in cli("evaluate", tiny_run / "checkpoints" / "best.ckpt", "--split", "val").out


def test_the_worst_examples_with_what_was_looked_at(cli: Any, tiny_run: Path) -> None:
    best = tiny_run / "checkpoints" / "best.ckpt"
    done = cli("evaluate", best, "--worst", "3", "--split", "val")
    assert cli("predict", best, "--out", "all.csv").code == 0
    known = [row for row in table(Path("all.csv").read_text()) if row["split"] == "val"]
    worst = sorted(known, key=lambda row: -float(row["loss"]))[:3]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines() if "│" in line]
    shown = [row for row in rows if len(row) == 6 and row[0].isdigit()]
    assert "the 3 worst of val" in done.out
    assert [row[:3] for row in shown] == [[row["id"], row["label"], row["prediction"]] for row in worst]
    assert [float(row[4]) for row in shown] == pytest.approx([float(row["loss"]) for row in worst], abs=1e-4)
    assert all(re.search(r"\.\d\d|nothing in particular", row[5]) for row in shown)


def test_the_worst_examples_are_whole_in_a_pipe_and_in_files(
    cli: Any, sample_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    done = cli("evaluate", sample_run / "run/checkpoints/best.ckpt", "--worst", 5, "--out", "found.json")
    assert done.code == 0, done.err
    worst = table(Path("found_worst.csv").read_text())
    assert list(worst[0]) == ["id", "label", "prediction", "probability", "loss", "where it looks"]
    assert len(worst) == 5
    for row in worst:
        (line,) = [line for line in done.out.splitlines() if line.startswith(f"│ {row['id']} ")]
        assert row["where it looks"] in line
    assert "found_worst.csv written" in done.out


def test_bad_rows_of_a_graph_are_left_out_as_the_message_says(cli: Any, sample_run: Path, tmp_path: Path) -> None:
    nodes = (sample_run / "nodes.csv").read_text().splitlines()
    (tmp_path / "nodes.csv").write_text("\n".join([*nodes, "new-one"]))
    (tmp_path / "edges.csv").write_text((sample_run / "edges.csv").read_text())
    best = sample_run / "run/checkpoints/best.ckpt"
    done = cli("predict", best, tmp_path)
    assert done.code == 2
    assert "--on-bad-row=skip leaves such rows out and counts them." in done.err
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        done = cli("predict", best, tmp_path, "--on-bad-row", "skip")
    assert len(table(done.out)) == len(nodes) - 1


def test_predict_writes_a_row_for_every_node_in_order(cli: Any, sample_run: Path) -> None:
    done = cli("predict", sample_run / "run/checkpoints/best.ckpt", sample_run, "--out", "found.csv")
    assert done.code == 0
    assert done.out == "38 predictions in found.csv\n"
    nodes, found = (table(path.read_text()) for path in (sample_run / "nodes.csv", Path("found.csv")))
    assert list(found[0]) == ["id", "split", "label", "prediction", "probability", "loss"]
    for name in ("id", "split", "label"):
        assert [row[name] for row in found] == [row[name] for row in nodes]
    assert {row["prediction"] for row in found} <= {"graphs", "language", "vision"}
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in found)
    unknown = [row for row in found if not row["label"]]
    assert len(unknown) == 2
    assert all(row["prediction"] and not row["loss"] and not row["split"] for row in unknown)
    assert all(float(row["loss"]) > 0 for row in found if row["label"])
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["found.csv"]


def test_predict_on_the_terminal_and_without_input(cli: Any, sample_run: Path) -> None:
    best = sample_run / "run/checkpoints/best.ckpt"
    done = cli("predict", best)
    assert (done.code, done.err) == (0, "")
    assert done.out == cli("predict", best, sample_run).out
    assert len(table(done.out)) == 38


def test_predict_matches_columns_by_name_and_rows_in_any_order(cli: Any, sample_run: Path, tmp_path: Path) -> None:
    """Nodes that are only to be predicted: no label, no split, other columns first, rows upside down."""
    best, mine = sample_run / "run/checkpoints/best.ckpt", tmp_path / "mine"
    mine.mkdir()
    rows = table((sample_run / "nodes.csv").read_text())
    columns = [name for name in reversed(rows[0]) if name not in ("label", "split")]
    lines = [",".join(columns)] + [",".join(row[name] for name in columns) for row in reversed(rows)]
    (mine / "nodes.csv").write_text("\n".join(lines))
    (mine / "edges.csv").write_text((sample_run / "edges.csv").read_text())
    before = {row["id"]: row for row in table(cli("predict", best, sample_run).out)}
    found = table(cli("predict", best, mine).out)
    assert [row["id"] for row in found] == [row["id"] for row in reversed(rows)]
    for row in found:
        assert row["prediction"] == before[row["id"]]["prediction"]
        assert float(row["probability"]) == pytest.approx(float(before[row["id"]]["probability"]), abs=1e-4)
        assert row["label"] == row["loss"] == ""


def test_evaluate_on_own_data(cli: Any, sample_run: Path) -> None:
    best = sample_run / "run/checkpoints/best.ckpt"
    assert cli("evaluate", best, "--out", "a.json").code == 0
    assert cli("evaluate", best, "--data", sample_run, "--out", "b.json").code == 0
    assert json.loads(Path("a.json").read_text()) == json.loads(Path("b.json").read_text())
    assert "truth/edge_auc" not in json.loads(Path("a.json").read_text())


def test_evaluate_where_nothing_can_be_counted(cli: Any, sample_run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    text = (sample_run / "nodes.csv").read_text()
    (mine / "nodes.csv").write_text(re.sub(r",test,", ",,", text))
    (mine / "edges.csv").write_text((sample_run / "edges.csv").read_text())
    done = cli("evaluate", sample_run / "run/checkpoints/best.ckpt", "--data", mine)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"zoo: {mine} has no examples in the split 'test'\n"


@pytest.mark.parametrize("command", ["evaluate", "predict", "maps"])
@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ("no.ckpt", "there is no checkpoint"),
        (".", "is a folder"),
        ("text.ckpt", "is not a checkpoint, or was cut short: it is 5 bytes"),
    ],
)
def test_checkpoints_that_are_none(cli: Any, tmp_path: Path, command: str, checkpoint: str, said: str) -> None:
    (tmp_path / "text.ckpt").write_text("hello")
    done = cli(command, checkpoint, "--out", "out")
    assert done.code == 2
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err)
    assert said in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["text.ckpt"]


@pytest.mark.parametrize("command", [["predict"], ["evaluate", "--data"], ["maps", "--out", "out", "--data"]])
def test_own_data_that_does_not_fit(cli: Any, tiny_run: Path, command: list[str], tmp_path: Path) -> None:
    best = tiny_run / "checkpoints" / "best.ckpt"
    name, *rest = command
    done = cli(name, best, *rest, SAMPLES)
    assert done.code == 2
    assert "column 'feature 0': the header does not name it (and 11 more)" in done.err
    done = cli(name, best, *rest, SAMPLES / "nodes.csv")
    assert done.code == 2
    assert "give the folder that holds nodes.csv and edges.csv" in done.err
    assert not any(tmp_path.iterdir())


def test_what_is_not_used_of_own_data_is_said_without_lines_of_code(cli: Any, sample_run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "nodes.csv").write_text((sample_run / "nodes.csv").read_text())
    (mine / "edges.csv").write_text("source,target,year\nthe-last-word,who-said-what,1999\n")
    with pytest.warns(UserWarning, match="'year' is not used"):
        cli("predict", sample_run / "run/checkpoints/best.ckpt", mine)


def test_how_warnings_look(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, found = warnings.formatwarning, []

    def run(_: list[str]) -> int:
        for path in (cli_module.__file__, "/elsewhere/theirs.py"):
            found.append(warnings.formatwarning("one row was skipped", UserWarning, path, 3))
        return 0

    monkeypatch.setattr(cli_module, "_main", run)
    assert main([]) == 0
    assert found == ["zoo: one row was skipped\n", "/elsewhere/theirs.py:3: UserWarning: one row was skipped\n"]
    assert warnings.formatwarning is usual


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"zoo {zoo.__version__}\n"


def test_data_are_given_alike_to_every_command(cli: Any, sample_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the checkpoint or with --data; a path may begin with the home folder."""
    best = sample_run / "run" / "checkpoints" / "best.ckpt"
    monkeypatch.setenv("HOME", str(sample_run.parent))
    there = f"~/{sample_run.name}"
    for command in (["predict"], ["evaluate"], ["maps", "--out"]):
        said = []
        for number, given in enumerate(([there], ["--data", sample_run])):
            out = [f"{command[0]}{number}"] if command[1:] else []
            done = cli(command[0], best, *given, *command[1:], *out)
            assert done.code == 0, done.err
            said.append(done.out.replace(str(out), ""))
        assert command[1:] or said[0] == said[1]
    assert "not both" in cli("predict", best, there, "--data", sample_run).err
    with pytest.raises(SystemExit):
        cli("predict", best, "--out", "")


def test_a_file_that_cannot_be_read(cli: Any, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it happens, the message names the file and not the line of code."""

    def fails(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", "secret.csv")

    monkeypatch.setattr(compose, "describe_choices", fails)
    assert cli("list") == (2, "", "zoo: secret.csv: Permission denied\n")


def test_check_has_a_help_of_its_own(cli: Any) -> None:
    done = cli("check", "--help")
    assert done.code == 0
    assert done.out.startswith("usage: zoo check model=NAME")
    assert "computes one batch, and trains\nnothing" in done.out
    assert "  data=NAME " in done.out
    of_model = cli("check", "model=gat", "--help").out
    assert of_model.startswith("usage: zoo check model=NAME")
    assert "data.batch_size=" in of_model


@pytest.mark.parametrize(("model", "foreign"), [("sasrec", ("decoder", "gate")), ("gat", ("loss", "decoder", "gate"))])
def test_the_options_of_a_model_are_without_those_of_others(cli: Any, model: str, foreign: Sequence[str]) -> None:
    lines = cli("train", f"model={model}", "--help").out.splitlines()
    said = [line for line in lines if line.strip().startswith(tuple(f"{each}." for each in foreign))]
    assert said == []
    (choices,) = (line for line in lines if line.startswith(f"model={model} "))
    assert not {word.partition("=")[0] for word in choices.split()} & set(foreign)
    assert any(line.startswith("  attention.dropout=") for line in lines)
