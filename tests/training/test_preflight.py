"""The preflight: everything that is wrong at once, one batch, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import AttentionMap
from zoo.config import compose
from zoo.data.loader import Loader
from zoo.data.tables import collect_errors, read_table
from zoo.errors import DataError, ProblemsError
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance, Task, TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.training import preflight

NODES = """id,label,split,a,b
1,x,train,1,2
2,,train,1,2
3,y,tset,foo,
4,x,val,1,2
5,y,train,nan,1
6,y,train,1,1
6,y,test,1,1
7,x,test,1
8,x,test,1,1
"""
EDGES = "source,target\n1,2\n1,9\n3,4\n6,4\n,4\n"


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return ["model=gat", "data=graph_files", "data.nodes=nodes.csv", "data.edges=edges.csv"]


def test_a_sound_run(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    for arguments in (["train", *tiny, "check=true"], ["check", *tiny]):
        done = cli(*arguments)
        assert done.code == 0, done
        said = ("parameters", "loss ", "B at the largest batch", "do not depend on nodes more than 2 edges away")
        assert all(word in done.out for word in (*said, "nothing was trained"))
        assert done.err == ""
        assert "splits     " in done.out
    assert not any(tmp_path.iterdir())


def test_everything_that_is_wrong_is_said_at_once(cli: Any, own: list[str], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = cli("check", *own, "optimizer.lr=fast", "modl.x=3", "optimizer.lrr=2", "+new=1", "seed=-1", "threads=0")
    assert done.code == 2
    assert done.out == ""
    expected = [
        "there is no option 'modl.x'",
        "Did you mean 'optimizer.lr'?",
        "'+new=1': options can be changed",
        "seed=-1",
        "threads=0",
        "optimizer.lr='fast' does not fit: it is to be a number",
        "nodes.csv, line 3, column 'label': the node is in split 'train' and has no label",
        "nodes.csv, line 4, column 'split': 'tset'",
        "nodes.csv, line 4, column 'a': 'foo' is not a number",
        "nodes.csv, line 4, column 'b': the cell is empty",
        "nodes.csv, line 6, column 'a': 'nan' is not finite",
        "nodes.csv, line 8, column 'id': '6' is already the id of line 7",
        "nodes.csv, line 9: the row has 4 fields where the header has 5 fields",
        "edges.csv, line 3, column 'target': '9' is not the id of a node",
        "edges.csv, line 6, column 'source': the cell is empty",
    ]
    assert [part for part in expected if part not in done.err] == []
    assert done.err.startswith(f"zoo: {len(expected)} problems\n")
    assert "on_bad_row" not in done.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=gta"], "Did you mean 'gat'?"),
        ([], "say which model"),
        (["model=gat", "data=graph_files"], "data.nodes must be given"),
        (["model=gat", "data=graph_files", "data.nodes=no.csv", "data.edges=e.csv"], "no.csv: the file does not exist"),
        (["model=gat", "data.width=2"], "width=2 is too small"),
        (["model=gat", "trainer.precision=7"], "trainer.precision=7 does not fit"),
        (["model=gat", "trainer.accelerator=abacus"], "trainer: "),
        (["model=gat", "attention=softmax"], "model: "),
        (["model=gat", "optimization.freeze=[nothing]"], "optimization.freeze: no parameter is called 'nothing'"),
        (["model=gat", "init=no.ckpt"], "there is no checkpoint no.ckpt"),
        (["model=gat", "run_dir=/dev/null/here"], "cannot be written"),
    ],
)
def test_one_problem(cli: Any, overrides: list[str], said: str, tmp_path: Path) -> None:
    if said == "model: ":  # where a mechanism serves the model there is nothing to refuse
        overrides = [*overrides, "model.explain_layer=9"]
    done = cli("check", *overrides)
    assert done.code == 2, done
    assert said in done.err
    assert not any(tmp_path.iterdir())


def test_rows_that_may_be_left_out_are_no_problem(cli: Any, own: list[str]) -> None:
    done = cli("check", *own, "data.on_bad_row=skip")
    assert done.code == 0
    assert "nodes.csv: skipped 5 bad rows. The first: nodes.csv, line 3" in done.err
    assert "line 6" not in done.err


def test_many_problems_are_counted() -> None:
    error = ProblemsError([f"problem {number}" for number in range(1000)], max_shown=10)
    assert str(error).startswith("1,000 problems\n")
    assert str(error).endswith("and 990 more")
    assert len(error.problems) == 1000


def test_problems_of_one_kind_are_counted() -> None:
    rows = [
        f"t.csv, line {n}, column 'label': 'x{n}' is not one of the 3 labels. Did you mean 'x'?" for n in range(2, 200)
    ]
    cells = [f"t.csv, line {n}, column 'text': the cell is empty. Fill it in." for n in (4, 9)]
    files = [f"pictures/{n}.png: the file of {n:,} bytes is cut short. Copy it again." for n in range(5)]
    pairs = [f"t.csv, pair '{n}': the source has {n:,} tokens, and 3 are the most." for n in range(5, 9)]
    options = [f"there is no option 'data.x{n}'" for n in range(4)]
    error = ProblemsError([rows[0], *cells, *rows[1:], *files, *pairs, *options])
    assert len(error.problems) == 198 + 2 + 5 + 4 + 4
    header, *lines = str(error).splitlines()
    assert header == "213 problems"
    assert [line.partition(". ")[2].partition(":")[0] for line in lines] == [
        *(f"t.csv, line {n}, column 'label'" for n in (2, 3, 4)),
        *(f"t.csv, line {n}, column 'text'" for n in (4, 9)),
        *(f"pictures/{n}.png" for n in range(3)),
        *(f"t.csv, pair '{n}'" for n in range(5, 8)),
        *options,
    ]
    assert "(and 195 more of this kind, at 5, 6, 7, " in lines[2]
    assert lines[7].endswith("Copy it again. (and 2 more of this kind)")


@pytest.mark.filterwarnings("ignore:.* training pairs are left out by")
@pytest.mark.parametrize("command", ["check", "train"])
def test_an_option_that_leaves_no_pair_to_train_on(cli: Any, command: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("source,target,split\na,b c d,train\na,b c,val\na,b c,test\n")
    done = cli(command, "model=nmt", "data=text_pairs", "data.table=t.csv", "data.max_ratio=1")
    assert done.code == 2, done
    assert "no example is left to train on" in done.err
    assert "All training pairs are left out by data.max_ratio=1: raise it, or write null" in done.err
    assert not (tmp_path / "runs").exists()


def test_an_option_that_leaves_no_caption_to_train_on(cli: Any) -> None:
    table = Path(__file__).resolve().parents[2] / "data" / "samples" / "captioning" / "captions.csv"
    done = cli("check", "model=captioner", "data=captions", f"data.table={table}", "data.max_length=2")
    assert done.code == 2, done
    assert "All training captions are left out by data.max_length=2: raise it, or write null" in done.err
    assert done.err.count("12 of 12 captions are left out") == 1


def test_collecting(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\nx,y\n3\n4,z\n5,6\n")
    with collect_errors() as problems:
        table = read_table(tmp_path / "t.csv", required=["a"])
        rows = list(table.parse(lambda row: (row.number("a"), row.number("b"))))
    assert rows == [(1.0, 2.0), (5.0, 6.0)]
    assert [str(each).split(":")[0].rpartition("t.csv, ")[2] for each in problems] == [
        "line 3, column 'a'",
        "line 3, column 'b'",
        "line 4",
        "line 5, column 'b'",
    ]
    with pytest.raises(DataError, match="line 3"):
        list(table.parse(lambda row: row.number("a")))


def test_a_path_may_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "t.csv").write_text("file\na/b.png\n../x\n/etc/passwd\nout/passwd\n")
    table = read_table(tmp_path / "t.csv", required=["file"])
    first, *others = list(table)
    assert first.path("file", tmp_path) == tmp_path / "a" / "b.png"
    assert [str(row.path("file", tmp_path)) for row in others] == [
        f"{tmp_path}/../x",
        "/etc/passwd",
        f"{tmp_path}/out/passwd",
    ]


@dataclass(frozen=True)
class Batch:
    """Padded sequences of numbers."""

    values: Tensor
    mask: Tensor

    def to(self, device: torch.device, **_: Any) -> Batch:
        return Batch(self.values.to(device), self.mask.to(device))


class Dense(Task):
    """Running means over sequences: causal, and blind to padding, unless it is told to be otherwise."""

    primary = "val/loss"
    primary_mode = "min"
    headline = ("loss",)

    def __init__(self, *, leak: str = "", unused: bool = False, scale: float = 1.0) -> None:
        super().__init__(optimization=OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.1)))
        self.embed, self.out = nn.Linear(1, 4), nn.Linear(4, 1)
        self.spare = nn.Linear(2, 2) if unused else None
        self.leak, self.scale = leak, scale

    def forward(self, batch: Batch) -> Tensor:
        mask = torch.ones_like(batch.mask) if self.leak == "padding" else batch.mask
        hidden = self.embed(batch.values[..., None]) * mask[..., None]
        mean = hidden.cumsum(1) / mask.cumsum(1).clamp(min=1)[..., None]
        if self.leak == "padding":
            mean = mean + hidden.sum(1, keepdim=True)
        if self.leak == "later":
            mean = mean + (hidden * mask[..., None]).sum(1, keepdim=True)
        return self.out(mean).squeeze(-1)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = (self(batch)[batch.mask] - 1.0).pow(2).mean() * self.scale
        self.log("train/loss", loss)
        self.log_dict({"train/other": loss / self.trainer.world_size})
        return loss

    def invariants(self, batch: Batch) -> Sequence[Invariance]:
        padding = replace(batch, values=torch.where(batch.mask, batch.values, 1e3))
        later = batch.values.clone()
        later[:, -1] += 10.0
        return (
            Invariance("padding", padding, lambda out: out[batch.mask]),
            Invariance("later positions", replace(batch, values=later), lambda out: out[:, :-1]),
        )

    def explain(self, batch: Batch) -> AttentionMap:
        raise NotImplementedError

    def predict_step(self, batch: Batch, batch_idx: int = 0) -> dict[str, list[Any]]:
        raise NotImplementedError

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {}


class Sequences(TaskData):
    """Two batches, the second the larger one."""

    def read(self) -> list[int]:
        return [2, 3, 2, 9, 5, 9]

    def sizes(self) -> dict[str, int]:
        return {}

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> Any:
        raise NotImplementedError

    def examples(self, split: str, *, training: bool = False) -> Examples:
        def collate(examples: list[int]) -> Batch:
            length = max(examples)
            mask = torch.arange(length) < torch.tensor(examples)[:, None]
            return Batch(torch.randn(len(examples), length), mask)

        return Examples(entries=self.content, collate=collate)

    def train_dataloader(self) -> Loader:
        return self.loader("train")


def tried(module: Task) -> tuple[list[str], list[str]]:
    composed = {**compose.compose(["model=gat", "trainer=cpu"]), "names": {"model": "dense", "data": "sequences"}}
    report: list[str] = []
    return preflight.try_batch(
        composed, module, Sequences(None, BatchOptions(max_epochs=1, batch_size=3)), report
    ), report


def test_a_dense_model() -> None:
    module = Dense()
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    problems, report = tried(module)
    assert problems == []
    assert any("6 examples in 2 batches" in line for line in report)
    assert [line for line in report if "do not depend" in line] == [
        "outputs    do not depend on padding",
        "outputs    do not depend on later positions",
    ]
    assert all(torch.equal(weight, before[name]) for name, weight in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Dense(leak="padding"), "with padding, on which they must not depend"),
        (lambda: Dense(leak="later"), "with later positions, on which they must not depend"),
        (lambda: Dense(unused=True), "the loss does not depend on spare.weight, spare.bias: use them, or freeze them"),
        (lambda: Dense(scale=float("inf")), "the loss of the first batch is inf"),
    ],
)
def test_a_dense_model_with_a_fault(make: Callable[[], Task], said: str) -> None:
    problems, _ = tried(make())
    assert any(said in problem for problem in problems), problems


def test_the_largest_batch_is_the_one_that_is_tried() -> None:
    batch, count = preflight.largest_batch(Sequences(None, BatchOptions(max_epochs=1, batch_size=3)).loader("train"))
    assert (batch.values.shape, count) == ((3, 9), 2)
