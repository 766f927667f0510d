"""Sweeps: which jobs there are, what becomes of them, what is left to do, and what they come to."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from zoo import locks, processes
from zoo.config import compose
from zoo.errors import ConfigError, InterruptedRunError
from zoo.io import make_timestamped_dir
from zoo.sweeps.grid import check_values, expand_grid, read_axes
from zoo.sweeps.jobs import Job, open_sweep

TRAIN_PY = Path(__file__).resolve().parents[2] / "train.py"


@pytest.fixture
def jobs_done(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Jobs that are over at once: each leaves a metrics.json made of its seed, and its arguments here."""
    done: list[list[str]] = []

    def run(arguments: list[str], **_: Any) -> int:
        given = dict(each.partition("=")[::2] for each in arguments if "=" in each)
        done.append(arguments[arguments.index("train") + 1 :])
        seed = int(given["seed"])
        if seed == 13:
            return 2
        if seed == 99:
            return 130
        run_dir = Path(given["run_dir"].strip("'"))
        run_dir.mkdir(parents=True, exist_ok=True)
        found = {"test/accuracy": 0.5 + seed / 10, "truth/edge_auc": 1.0, "val/accuracy": 0.1, "seconds": 1.0}
        (run_dir / "metrics.json").write_text(json.dumps(found))
        return 0

    monkeypatch.setattr(processes, "run", run)
    return done


def folder() -> Path:
    (found,) = Path("runs/sweeps").iterdir()
    return found


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def statuses(path: Path) -> list[str]:
    return [job["status"] for job in yaml.safe_load((path / "sweep.yaml").read_text())["jobs"]]


def test_every_combination() -> None:
    found = expand_grid(["model=gat,gatv2", "seed=range(2)", "data.nodes=240", "optimizer.lr=choice(0.1,0.2)"])
    assert [job.overrides for job in found] == [
        [f"model={model}", f"seed={seed}", "data.nodes=240", f"optimizer.lr={lr}"]
        for model in ("gat", "gatv2")
        for seed in (0, 1)
        for lr in (0.1, 0.2)
    ]
    assert found[-1].chosen == {"model": "gatv2", "seed": "1", "optimizer.lr": "0.2"}


def test_values_that_are_no_sweep_stay_as_they_are() -> None:
    given = ["model=gat", "optimization.freeze=[net.layers.0,net.layers.1]", "data.nodes='a,b c'", "x={a: 1}"]
    (job,) = expand_grid(given)
    assert job.overrides == given
    assert job.chosen == {}


@pytest.mark.parametrize("bad", ["run_dir=a,b", "resume=a,b", "init=a,b", "seed=[0,1"])
def test_what_cannot_be_swept_over(bad: str) -> None:
    with pytest.raises(ConfigError):
        expand_grid(["model=gat", bad])


def test_a_sweep_and_its_summary(cli: Any, jobs_done: list[list[str]]) -> None:
    done = cli("train", "-m", "model=gat,gatv2", "seed=0,1,2")
    assert done.code == 0
    assert len(jobs_done) == 6
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["runs"]
    rows = table(folder() / "summary.csv")
    assert [row["model"] for row in rows] == ["gat", "gatv2"]
    for row in rows:
        assert (row["n"], row["test/accuracy n"]) == ("3", "3")
        assert float(row["test/accuracy mean"]) == pytest.approx(0.6)
        assert float(row["test/accuracy sd"]) == pytest.approx(statistics.stdev([0.5, 0.6, 0.7]))
    assert set(rows[0]) == {"model", "n"} | {
        f"{m} {s}" for m in ("test/accuracy", "truth/edge_auc") for s in ("mean", "sd", "n")
    }
    assert statuses(folder()) == ["finished"] * 6
    assert len(list(Path("runs/gat-planted_graph").iterdir())) == 3
    assert "0.6000 ± 0.1000" in done.out


def test_one_seed_has_no_spread(cli: Any, jobs_done: list[list[str]]) -> None:
    assert cli("train", "-m", "model=gat", "seed=4").code == 0
    (row,) = table(folder() / "summary.csv")
    assert (row["n"], row["test/accuracy mean"]) == ("1", "0.9")
    assert "test/accuracy sd" not in row


def test_a_failed_job_is_said_and_the_others_go_on(cli: Any, jobs_done: list[list[str]]) -> None:
    command = ["train", "-m", "model=gat", "seed=0,13,2"]
    done = cli(*command)
    assert done.code == 1
    assert "1 of 3 jobs failed" in done.err
    assert "seed=13" in done.err
    assert statuses(folder()) == ["finished", "failed", "finished"]
    (row,) = table(folder() / "summary.csv")
    assert row["n"] == "2"
    jobs_done.clear()
    assert cli(*command).code == 1  # the same command tries that one again, and no other
    assert [job[1] for job in jobs_done] == ["seed=13"]


def test_a_stopped_sweep_goes_on_where_it_was(cli: Any, jobs_done: list[list[str]]) -> None:
    command = ["train", "-m", "model=gat", "seed=0,99,2"]
    done = cli(*command)
    assert done.code == 130
    assert "the sweep was stopped in job 2 of 3" in done.err
    assert "Continue with the same command: python train.py -m model=gat seed=0,99,2" in done.err
    assert statuses(folder()) == ["finished", "stopped", "waiting"]
    found = yaml.safe_load((folder() / "sweep.yaml").read_text())
    begun = Path(found["jobs"][1]["run_dir"])
    begun.mkdir()
    (begun / "config.yaml").touch()
    jobs_done.clear()
    assert cli(*command).code == 130
    ((*_, resumed, run_dir),) = jobs_done
    assert resumed == "resume=auto"
    assert run_dir == f"run_dir='{begun}'"


def test_a_finished_sweep_is_not_continued_nor_one_of_other_options(cli: Any, jobs_done: list[list[str]]) -> None:
    for command in (["seed=0,1"], ["seed=0,1"], ["seed=0,99"], ["seed=0,1,99"]):
        cli("train", "-m", "model=gat", *command)
    assert len(list(Path("runs/sweeps").iterdir())) == 4


def test_two_sweeps_of_one_second(cli: Any, jobs_done: list[list[str]]) -> None:
    """The lock is per open file: the second finds the first at work and takes a directory of its own."""
    jobs = expand_grid(["model=gat", "seed=0,1"])
    with open_sweep(["model=gat", "seed=0,1"], jobs, None) as one:
        one.run_job(0, jobs[0])
        done = cli("train", "-m", "model=gat", "seed=0,1")
        assert done.code == 0
        assert f"the same sweep is at work in {one.folder}" in done.err
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: make_timestamped_dir(Path("a/b").absolute()), range(32)))
    assert len(set(found)) == 32


def test_sweeps_of_one_second_in_folders_of_their_own_have_runs_of_their_own(
    cli: Any, jobs_done: list[list[str]]
) -> None:
    for folder in ("a/sweep", "b/sweep"):
        assert cli("train", "-m", "model=gat", "seed=0,1", f"hydra.sweep.dir={folder}").code == 0
    assert len(jobs_done) == 4
    assert len(list(Path("runs/gat-planted_graph").iterdir())) == 4


def test_a_killed_sweep_is_continued_and_waits_for_the_run_that_it_left(
    cli: Any, jobs_done: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is locked until it ends; what it finds counts."""
    overrides = ["model=gat", "seed=0,1"]
    jobs = expand_grid(overrides)
    with open_sweep(overrides, jobs, None):
        run_dir = Path(jobs[0].run_dir)
        run_dir.mkdir(parents=True)
    orphan = os.open(run_dir, os.O_RDONLY)
    locks.acquire(orphan)

    def end() -> None:
        (run_dir / "metrics.json").write_text(json.dumps({"test/accuracy": 0.5, "seconds": 1.0}))
        locks.release(orphan)

    def wait(job: Job) -> None:
        threading.Timer(0.3, end).start() if job.run_dir == str(run_dir) else None
        original(job)

    original = Job.wait
    monkeypatch.setattr(Job, "wait", wait)
    done = cli("train", "-m", *overrides)
    assert done.code == 0
    assert f"{run_dir}: waiting for this run, which is at work (process {os.getpid()}" in done.err
    assert [job[1] for job in jobs_done] == ["seed=1"]
    assert statuses(folder()) == ["finished", "finished"]
    assert table(folder() / "summary.csv")[0]["n"] == "2"


def test_a_run_that_was_left_and_locks_its_directory_late_counts(
    cli: Any, jobs_done: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep was killed just after it had started it: the new process is refused the directory, and waits."""
    overrides = ["model=gat", "seed=0"]
    jobs = expand_grid(overrides)

    def refuse(arguments: list[str], **_: Any) -> int:
        run_dir = Path(jobs[0].run_dir)
        run_dir.mkdir(parents=True)
        orphan = os.open(run_dir, os.O_RDONLY)
        locks.acquire(orphan)

        def end() -> None:
            (run_dir / "metrics.json").write_text(json.dumps({"test/accuracy": 0.5, "seconds": 1.0}))
            locks.release(orphan)

        threading.Timer(0.3, end).start()
        return 2

    monkeypatch.setattr(processes, "run", refuse)
    with open_sweep(overrides, jobs, None) as sweep:
        assert sweep.run_job(0, jobs[0]) == 0
        assert jobs[0].status == "finished"


@pytest.mark.parametrize(
    "damage", [b"", b"jobs: [", b"\xff\xfe", b"- 1", b"runs: a\njobs: [{mine: 1}]", b"overrides: [1]\njobs: []"]
)
def test_a_damaged_sweep_is_named_and_passed_over(cli: Any, jobs_done: list[list[str]], damage: bytes) -> None:
    other = Path("runs/sweeps/9999").absolute()
    other.mkdir(parents=True)
    (other / "sweep.yaml").write_bytes(damage)
    done = cli("train", "-m", "model=gat", "seed=0,1")
    assert done.code == 0
    assert len(jobs_done) == 2
    assert f"{other}/sweep.yaml is damaged, or not that of a sweep" in done.err
    assert "it is left out" in done.err
    assert (other / "sweep.yaml").read_bytes() == damage
    done = cli("train", "-m", "model=gat", "seed=0,1", f"hydra.sweep.dir={other}")
    assert (done.code, "remove it, or give another hydra.sweep.dir" in done.err) == (2, True)


def test_a_damaged_result_is_named(cli: Any, jobs_done: list[list[str]]) -> None:
    assert cli("train", "-m", "model=gat", "seed=0,99").code == 130
    (path,) = Path("runs").glob("*/*/metrics.json")
    path.write_text("{")
    done = cli("train", "-m", "model=gat", "seed=0,99")
    assert done.code == 2
    assert f"{path.absolute()} is damaged" in done.err
    assert cli("train", "-m", "model=gat", "seed=1").code == 0  # another sweep is not concerned


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/proc/none", "/proc/none: a sweep cannot be kept there"),
        ("/dev/null", "/dev/null: a sweep cannot be kept there"),
        ("file/inside", "a sweep cannot be kept there"),
        ("mine", "mine holds other things than a sweep"),
        ("", "hydra.sweep.dir is empty"),
    ],
)
def test_places_where_no_sweep_can_be(cli: Any, jobs_done: list[list[str]], place: str, said: str) -> None:
    Path("file").write_text("mine")
    Path("mine").mkdir()
    Path("mine/summary.csv").write_text("mine")
    done = cli("train", "-m", "model=gat", "seed=0,1", f"hydra.sweep.dir={place}")
    assert (done.code, jobs_done) == (2, [])
    assert said in done.err
    assert done.err.count("\n") == 1
    assert files_of(Path()) == {"file", "mine/summary.csv"}
    done = cli("train", "-m", "model=gat", "seed=0,1", "paths.runs=file")
    assert (done.code, "file/sweeps: a sweep cannot be kept there" in done.err) == (2, True)


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def lasting_sweep(folder: Path, tiny: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The command of two runs that take some seconds, and how it is started as a process."""
    lasting = [*tiny[:-2], "logger=csv", "data.max_epochs=400", "callbacks.checkpoint.patience=null", "seed=0,1"]
    options = {"cwd": folder, "env": processes.make_environment(), "text": True}
    return [sys.executable, str(TRAIN_PY), "-m", *lasting], options


def wait_for_training(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not list(folder.glob("runs/gat-planted_graph/*/metrics.csv")) and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.slow
def test_kill_nine_of_a_sweep(tmp_path: Path, tiny: list[str]) -> None:
    """The same command waits for the job that was left, and goes on with the others of the same sweep."""
    start, options = lasting_sweep(tmp_path, tiny)
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    wait_for_training(tmp_path)
    process.kill()
    process.wait()
    done = subprocess.run(start, capture_output=True, **options)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/gat-planted_graph/*/metrics.json"))) == 2
    (where,) = tmp_path.glob("runs/sweeps/*")
    assert statuses(where) == ["finished", "finished"]


def test_a_directory_for_it(cli: Any, jobs_done: list[list[str]]) -> None:
    command = ["train", "-m", "model=gat", "seed=0,99", "hydra.sweep.dir='my sweep'"]
    assert cli(*command).code == 130
    assert statuses(Path("my sweep")) == ["finished", "stopped"]
    assert cli(*command).code == 130
    assert len(jobs_done) == 3
    done = cli("train", "-m", "model=gat", "seed=0,1", "hydra.sweep.dir='my sweep'")
    assert done.code == 2
    assert "holds a sweep of other overrides" in done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["model=gat,gta"], "there is no model 'gta'. Did you mean 'gat'"),
        (["model=gat", "sede=0,1"], "Did you mean 'seed'?"),
        (["model=gat", "seed=0,1", "run_dir=here"], "choose paths.runs=PATH"),
        (["model=gat", "hydra/launcher=slurmy"], 'pip install "attention-zoo[sweep]"'),
        (["model=gat", "hydra.mode=RUN"], "a sweep takes hydra/launcher="),
    ],
)
def test_what_is_wrong_is_said_before_any_job(cli: Any, jobs_done: list[list[str]], given: Any, said: str) -> None:
    done = cli("train", "-m", *given)
    assert done.code == 2
    assert said in done.err
    assert jobs_done == []
    assert not any(Path.cwd().iterdir())


@pytest.mark.slow
def test_ctrl_c_stops_the_job_which_saves(tmp_path: Path, tiny: list[str]) -> None:
    """And the same command finishes both; only the sweep's own process is sent the signal."""
    start, options = lasting_sweep(tmp_path, tiny)
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    try:
        wait_for_training(tmp_path)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Continue with the same command" in said
    (run_dir,) = tmp_path.glob("runs/gat-planted_graph/*")
    assert (run_dir / "checkpoints" / "last.ckpt").exists()
    done = subprocess.run(start, capture_output=True, **options)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/gat-planted_graph/*/metrics.json"))) == 2
    assert (run_dir / "metrics.json").exists()
    with (run_dir / "metrics.csv").open(newline="") as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file) if row["val/loss"]] == list(range(400))
    assert len(list(tmp_path.glob("runs/sweeps/*"))) == 1
    assert os.listdir(tmp_path) == ["runs"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "package"),
    [
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], "hydra_plugins.hydra_joblib_launcher"),
        (["hydra/launcher=submitit_local"], "hydra_plugins.hydra_submitit_launcher"),
    ],
)
def test_launchers(tmp_path: Path, tiny: list[str], launcher: list[str], package: str) -> None:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip("needs the extra sweep")
    command = [sys.executable, str(TRAIN_PY), "-m", *launcher, *tiny, "model=gat,gatv2", "seed=0,1"]
    done = subprocess.run(command, cwd=tmp_path, env=processes.make_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (where,) = tmp_path.glob("runs/sweeps/*")
    assert [row["n"] for row in table(where / "summary.csv")] == ["2", "2"]
    assert os.listdir(tmp_path) == ["runs"]


@pytest.mark.slow
def test_a_sweep_of_several_processes_each(tmp_path: Path, tiny: list[str]) -> None:
    command = [sys.executable, str(TRAIN_PY), "-m", *tiny, "trainer=ddp_cpu", "seed=0,1"]
    done = subprocess.run(command, cwd=tmp_path, env=processes.make_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (where,) = tmp_path.glob("runs/sweeps/*")
    (row,) = table(where / "summary.csv")
    assert row["n"] == "2"


def test_a_signal_reaches_the_process_that_was_started() -> None:
    """Also one that comes while it starts."""
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(); time.sleep(20)"
    with processes.forward_signals() as asked:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        asked.attach(process)
        assert process.wait(10) == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interruption_is_told_from_a_failure(jobs_done: list[list[str]], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = expand_grid(["model=gat", "seed=99"])
    with open_sweep(["model=gat", "seed=99"], jobs, None) as found, pytest.raises(InterruptedRunError):
        found.run_job(0, found.jobs[0])


MANY = ["model=gat", "seed=range(100000000)"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            MANY,
            "the sweep has 100,000,000 jobs (100,000,000 of seed), and 10,000 are the most; give fewer",
        ),
        (["model=gat,gatv2", "seed=range(6000)"], "12,000 jobs (2 of model x 6,000 of seed), and 10,000 are the most"),
        (["model=gat", "seed=0,1,2", "hydra.sweep.max_jobs=2"], "give fewer values, or hydra.sweep.max_jobs=3"),
        (["model=gat", "optimizer.lr=range(0,1,1e-12)"], "1,000,000,000,000 jobs"),
        (["model=gat", "seed=shuffle(range(100000000))"], "100,000,000 jobs"),
        (["model=gat", "hydra.sweep.max_jobs=many"], "hydra.sweep.max_jobs='many': write a whole number from 1"),
        (["model=gat", "seed=range(5,0)"], "seed: this range has no value"),
        (["model=gat", "seed=range(0,5,0)"], "seed: a range needs a step other than 0"),
        (["model=gat", "seed=0,1,x,3"], "seed='x' does not fit: it is to be a whole number"),
        (["model=gat", "paths.runs=a,'',c"], "paths.runs: one of its values is empty"),
        (["model=gat", "seed=0,${nope},3"], "nope"),
        (["model=gat,gatv2", "attention=gat,gta", "seed=0,1"], "Did you mean 'gat'"),
    ],
)
def test_a_sweep_is_counted_and_checked_before_it_is_written_out(
    cli: Any, jobs_done: list[list[str]], given: list[str], said: str
) -> None:
    done = cli("train", "-m", *given)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert jobs_done == []
    assert not any(Path.cwd().iterdir())


def test_ten_thousand_jobs_are_composed_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each combination of choices, and one for the last value of each other option."""
    composed: list[tuple[str, ...]] = []
    monkeypatch.setattr(compose, "compose", lambda overrides: composed.append(tuple(overrides)))
    overrides = ["model=gat,gatv2", "optimizer.lr=0.1,${seed},0.3,0.4", "seed=range(1250)"]
    assert len(expand_grid(overrides)) == 10_000
    check_values(read_axes(overrides))
    rates = [("0.1", 0), ("$\\{seed\\}", 0), ("0.4", 0), ("0.1", 1249)]
    assert composed == [
        (f"model={model}", f"optimizer.lr={rate}", f"seed={seed}") for model in ("gat", "gatv2") for rate, seed in rates
    ]


def test_progress_of_the_check_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compose, "compose", lambda overrides: None)
    monkeypatch.setattr(time, "monotonic", itertools.count(step=3.0).__next__)
    check_values(read_axes(["model=gat,gatv2", "attention=gat,uniform", "seed=0,1"]))
    assert capsys.readouterr().err == "".join(
        f"sweep: {done} of 8 configurations are checked\n" for done in (2, 4, 6, 8)
    )


def test_a_kill_loses_nothing(cli: Any, jobs_done: list[list[str]]) -> None:
    """sweep.yaml names the runs when a sweep begins; what has become of them, their directories say."""
    overrides = ["model=gat", "seed=0,1,2"]
    jobs = expand_grid(overrides)
    with open_sweep(overrides, jobs, None) as sweep:
        begun = (sweep.folder / "sweep.yaml").read_bytes()
        for number in (0, 1):
            sweep.run_job(number, jobs[number])
        assert (sweep.folder / "sweep.yaml").read_bytes() == begun
    assert statuses(sweep.folder) == ["finished", "finished", "waiting"]
    (sweep.folder / "sweep.yaml").write_bytes(begun)
    jobs_done.clear()
    assert cli("train", "-m", *overrides).code == 0
    assert [job[1] for job in jobs_done] == ["seed=2"]
    assert statuses(folder()) == ["finished"] * 3


def test_a_sweep_whose_summary_is_missing_is_summarised(cli: Any, jobs_done: list[list[str]]) -> None:
    """It was killed in its last run, which has ended since."""
    for _ in range(2):
        assert cli("train", "-m", "model=gat", "seed=0,1").code == 0
        (folder() / "summary.csv").unlink(missing_ok=len(jobs_done) > 2)
    assert len(jobs_done) == 2


def test_ten_thousand_jobs_are_continued_within_seconds(cli: Any, jobs_done: list[list[str]]) -> None:
    """The states of jobs are not read from sweep.yaml, which takes a thousand times as long as to look for files."""
    overrides = ["model=gat", "seed=range(10000)"]
    with open_sweep(overrides, expand_grid(overrides), None) as sweep:
        sweep.run_job(0, sweep.jobs[0])
    jobs = expand_grid(overrides)
    started = time.process_time()
    with open_sweep(overrides, jobs, None) as again:
        assert time.process_time() - started < 3
        assert again.folder == sweep.folder
        assert len(again.list_pending()) == 9_999
