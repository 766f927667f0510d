"""Several processes for one run: the same figures as one, one directory, and an end when one of them dies."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from zoo import distributed, processes
from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.errors import ConfigError
from zoo.training import launch
from zoo.training.callbacks.guards import UnusedParameterCheck
from zoo.training.run_config import RunConfig

TRAIN_PY = Path(__file__).resolve().parents[2] / "train.py"
TWO = ["trainer=ddp_cpu", "trainer.devices=2"]
LONG = ["data.max_epochs=1000000", "callbacks.checkpoint.patience=null", "callbacks.checkpoint.save_every_seconds=1"]


@pytest.fixture(autouse=True)
def no_ranks_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TORCHELASTIC_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program as a user does; what is still there at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, by: tuple[str, ...] = (), **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *by, str(TRAIN_PY), *arguments],
            cwd=tmp_path,
            env=processes.make_environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()


def ended(process: subprocess.Popen[str], timeout: float = 240) -> tuple[int, str]:
    said, _ = process.communicate(timeout=timeout)
    return process.returncode, said


def metrics(run_dir: Path) -> dict[str, Any]:
    found = json.loads((run_dir / "metrics.json").read_text())
    return {key: value for key, value in found.items() if "/" in key}


def rank_of(process: subprocess.Popen[str], number: int) -> int:
    """The process id of a rank that a launcher has started."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    for pid in children.split():
        with open(f"/proc/{pid}/environ", "rb") as file:
            if f"\0RANK={number}\0".encode() in b"\0" + file.read() + b"\0":
                return int(pid)
    raise AssertionError(f"no rank {number} among {children}")


def wait_for(path: Path, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.05)


def test_two_processes_give_the_figures_of_one(cli: Any, begun: Any, tiny: list[str]) -> None:
    options = [*tiny, "data.max_epochs=4"]
    two_of_them = begun(*options, *TWO, "run_dir=two")
    assert cli("train", *options, "run_dir=one").code == 0
    code, said = ended(two_of_them)
    assert code == 0, said
    assert said.count("gat on planted_graph, attention=gat") == 1  # the first process alone speaks
    assert said.count("4/4") == 1
    for name in ("best", "last"):
        one, two = (checkpoint.read(f"{run}/checkpoints/{name}.ckpt") for run in ("one", "two"))
        assert one["global_step"] == two["global_step"]
        for key, value in one["state_dict"].items():
            torch.testing.assert_close(two["state_dict"][key], value, rtol=0, atol=1e-5)
    ours, theirs = metrics(Path("one")), metrics(Path("two"))
    assert theirs == pytest.approx(ours, abs=1e-5)
    files = {path.relative_to("one") for path in Path("one").rglob("*")}
    assert {path.relative_to("two") for path in Path("two").rglob("*")} == files
    with open("two/metrics.csv", newline="") as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file) if row["val/loss"]] == list(range(4))
    # a checkpoint's figures do not depend on the number of processes that found them
    best = Path("two/checkpoints/best.ckpt")
    for split in ("train", "val", "test"):
        assert cli("evaluate", best, "--split", split, "--out", f"{split}.json").code == 0
        found = json.loads(Path(f"{split}.json").read_text())
        assert found == {key: value for key, value in theirs.items() if key in found}


@pytest.mark.slow
def test_batches_that_do_not_come_out_even(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    """144 nodes in batches of 47 by three processes: each target weighs the same, whoever has it."""
    options = [*tiny, "data.batch_size=47", "data.max_epochs=3"]
    assert ended(begun(*options, "run_dir=one"))[0] == 0
    code, said = ended(begun(*options, "trainer=ddp_cpu", "trainer.devices=3", "run_dir=three"))
    assert code == 0, said
    one, three = (checkpoint.read(tmp_path / run / "checkpoints/last.ckpt") for run in ("one", "three"))
    assert one["global_step"] == three["global_step"] == 12
    for key, value in one["state_dict"].items():
        torch.testing.assert_close(three["state_dict"][key], value, rtol=0, atol=1e-5)
    assert metrics(tmp_path / "three") == pytest.approx(metrics(tmp_path / "one"), abs=1e-5)


@pytest.mark.slow
def test_more_processes_than_nodes(begun: Any, tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,label,split,x\na,r,train,1\nb,s,train,2\nc,r,val,1\nd,s,test,2\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\nc,d\nd,a\n")
    data = ["data=graph_files", "data.nodes=n.csv", "data.edges=e.csv", "data.max_epochs=3", "logger=csv"]
    assert ended(begun("model=gat", *data, "run_dir=one"))[0] == 0
    code, said = ended(begun("model=gat", *data, "trainer=ddp_cpu", "trainer.devices=3", "run_dir=three"))
    assert code == 0, said
    assert metrics(tmp_path / "three") == pytest.approx(metrics(tmp_path / "one"), abs=1e-5)


@pytest.mark.slow
def test_what_is_wrong_is_said_once_and_nothing_is_left(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    before = dict(os.environ)
    done = cli("train", *tiny, *TWO, "data.nodes=10")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert dict(os.environ) == before
    assert done.code == 2
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["trainer.devices=0"], "trainer.devices=0: write a whole number"),
        (["trainer.num_nodes=0"], "trainer.num_nodes=0 does not fit: it is to be a whole number"),
        (["trainer.num_nodes=2"], "torchrun --nnodes=2"),
        (["trainer.max_restarts=-1"], "trainer.max_restarts=-1"),
        (["optimization.freeze=[net.layers.0]", "optimization.unfreeze={2: [net.layers.0]}"], "optimization.unfreeze"),
    ],
)
def test_what_several_processes_cannot_do(cli: Any, tiny: list[str], tmp_path: Path, given: Any, said: str) -> None:
    done = cli("train", *tiny, *TWO, *given)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


# slow tier: starts two processes and kills one, as others here; the test before it starts two in the fast tier
@pytest.mark.slow
def test_a_killed_process_ends_the_run(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    process = begun(*tiny, *LONG, *TWO, "run_dir=run")
    wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    os.kill(rank_of(process, 1), signal.SIGKILL)
    code, said = ended(process, timeout=90)
    assert code == 2
    assert "zoo: process 1 of this run was ended by SIGKILL, and the run with it" in said
    assert f"resume={tmp_path}/run/checkpoints/last.ckpt" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_an_error_is_that_of_the_process_that_made_it(
    begun: Any, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The other one reports a lost connection, and may do so earlier."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        f"""if True:
        import os
        if os.environ.get("RANK") == "{number}":
            import torch
            def fail(self, *_, **__):
                raise ValueError("the reason")
            torch.optim.Adam.step = torch.optim.AdamW.step = fail
        """
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    code, said = ended(begun(*tiny, *TWO, "run_dir=run"), timeout=90)
    assert code == 2
    assert "ValueError: the reason" in said
    assert "Connection closed" not in said
    assert f"zoo: process {number} of this run ended with exit code 1, and the run with it" in said


@pytest.mark.slow
def test_a_killed_process_restarts_the_run(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    options = [
        "data.max_epochs=150",
        "callbacks.checkpoint.patience=null",
        "callbacks.checkpoint.save_every_seconds=0.1",
    ]
    options += ["attention.dropout=0.2"]
    assert ended(begun(*tiny, *options, *TWO, "run_dir=whole"))[0] == 0
    process = begun(*tiny, *options, *TWO, "trainer.max_restarts=2", "run_dir=run")
    wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    os.kill(rank_of(process, 1), signal.SIGKILL)
    code, said = ended(process)
    assert code == 0, said
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_continued(begun: Any, tiny: list[str], tmp_path: Path, number: signal.Signals) -> None:
    options = [
        "data.max_epochs=100",
        "callbacks.checkpoint.patience=null",
        "callbacks.checkpoint.save_every_seconds=0.1",
    ]
    process = begun(*tiny, *options, *TWO, "run_dir=run")
    wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    process.send_signal(number)
    code, said = ended(process)
    assert code == 130
    assert f"stopped by {number.name} after step" in said
    assert ended(begun("resume=run/checkpoints/last.ckpt"))[0] == 0
    assert ended(begun(*tiny, *options, *TWO, "run_dir=whole"))[0] == 0
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_launcher_that_is_killed_takes_its_ranks_along(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    process = begun(*tiny, *LONG, *TWO, "run_dir=run")
    wait_for(tmp_path / "run" / "checkpoints" / "last.ckpt")
    ranks_of_it = [rank_of(process, number) for number in (0, 1)]
    process.kill()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in ranks_of_it):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert checkpoint.read(tmp_path / "run/checkpoints/last.ckpt")["global_step"] > 0


@pytest.mark.slow
def test_torchrun_from_outside(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    """The first rank chooses the run directory and tells the other."""
    by = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d")
    code, said = ended(begun(*tiny, by=(*by, "--rdzv-endpoint", "localhost:0")))
    assert code == 0, said
    (run_dir,) = (tmp_path / "runs" / "gat-planted_graph").iterdir()
    assert ended(begun(*tiny, *TWO, "run_dir=ours"))[0] == 0
    assert metrics(run_dir) == metrics(tmp_path / "ours")


@pytest.mark.slow
def test_two_nodes_give_the_figures_of_one(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    """Two of torchrun's agents on this machine, each with one process."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    by = ("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d")
    by += ("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test", "--local-addr", "127.0.0.1")
    nodes = [begun(*tiny, by=by) for _ in range(2)]
    for node in nodes:
        code, said = ended(node)
        assert code == 0, said
    (run_dir,) = (tmp_path / "runs" / "gat-planted_graph").iterdir()
    assert ended(begun(*tiny, *TWO, "run_dir=two"))[0] == 0
    assert ended(begun(*tiny, "run_dir=one"))[0] == 0
    assert metrics(run_dir) == metrics(tmp_path / "two") == pytest.approx(metrics(tmp_path / "one"), abs=1e-5)


@pytest.mark.slow
def test_tasks_of_srun(begun: Any, tiny: list[str], tmp_path: Path) -> None:
    """SLURM's variables, as srun sets them for two tasks on one node."""
    common = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_JOB_ID": "7"}
    common |= {"SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NODEID": "0", "SLURM_NTASKS": "2"}
    tasks = [begun(*tiny, **common, SLURM_PROCID=n, SLURM_LOCALID=n) for n in ("0", "1")]
    for task in tasks:
        code, said = ended(task)
        assert code == 0, said
    (run_dir,) = (tmp_path / "runs" / "gat-planted_graph").iterdir()
    assert (run_dir / "metrics.json").exists()


def test_parameters_that_the_loss_does_not_need_are_named() -> None:
    class Trainer:
        world_size = 2

    module = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1), "frozen": nn.Linear(2, 1)})
    module["frozen"].requires_grad_(False)
    module["used"](torch.ones(1, 2)).sum().backward()
    with pytest.raises(ConfigError, match=r"does not depend on idle\.weight, idle\.bias"):
        UnusedParameterCheck().on_after_backward(Trainer(), module)  # type: ignore[arg-type]
    module["idle"].requires_grad_(False)
    UnusedParameterCheck().on_after_backward(Trainer(), module)  # type: ignore[arg-type]


def test_devices() -> None:
    counts = {1: 1, 4: 4, "0,2": 2, "3,": 1, "auto": 1, -1: 1}
    assert {given: launch.count_devices({"devices": given, "accelerator": "cpu"}) for given in counts} == counts
    assert launch.count_devices({"devices": [0, 1, 3]}) == 3
    for given in (0, -2, "many", None, 1.5):
        with pytest.raises(ConfigError):
            launch.count_devices({"devices": given})


def test_a_batch_script_of_slurm_is_no_rank(monkeypatch: pytest.MonkeyPatch, tiny: list[str]) -> None:
    for name, value in {"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    assert not distributed.is_worker()
    assert launch.should_launch(RunConfig(compose.compose([*tiny, *TWO])))
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    assert distributed.is_worker()
    assert not launch.should_launch(RunConfig(compose.compose([*tiny, *TWO])))


def test_alone() -> None:
    """Without others, every agreement is one's own opinion."""
    x = torch.arange(5.0, requires_grad=True)
    assert (distributed.rank(), distributed.world_size(), distributed.is_rank_zero()) == (0, 1, True)
    assert distributed.shard(x) is x
    assert distributed.mean_loss(x.sum(), 5).item() == 2.0
    assert distributed.mean_loss(x[:0].sum(), 0).item() == 0.0
    assert distributed.all_reduce_any(True)
    assert not distributed.all_reduce_any(False)
    assert distributed.broadcast_object("this") == "this"
    assert distributed.run_on_rank_zero(lambda: 3) == 3


def test_a_mean_of_targets_does_not_depend_on_how_they_are_shared_out() -> None:
    values = torch.rand(1001, generator=torch.Generator().manual_seed(0))
    whole = distributed.GlobalMean()
    whole.update(values)
    parts = [distributed.GlobalMean() for _ in range(3)]
    for number, part in enumerate(parts):
        part.update(values[number::3])
    together = distributed.GlobalMean()
    together.total, together.count = sum(p.total for p in parts), sum(p.count for p in parts)
    together._update_count = 1
    assert together.compute() == whole.compute()
    assert whole.compute().item() == pytest.approx(values.double().mean().item(), abs=1e-7)


def test_more_processes_than_cores(cli: Any, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    done = cli("train", *tiny, "trainer=ddp_cpu", "trainer.devices=50")
    assert done.code == 2
    assert "trainer.devices=50: this machine has 2 cores for 50 processes, and 8 are the most" in done.err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(launch, "run_workers", lambda *_: {})
    with pytest.warns(UserWarning, match="trainer.devices=3: this machine has 2 cores for 3 processes: more than 2"):
        cli("train", *tiny, "trainer=ddp_cpu", "trainer.devices=3", "run_dir=run")
