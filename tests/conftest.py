"""While tests run, the shapes written in the signatures of `zoo.attention` are checked; hypothesis is deterministic.

One thread serves all tests: for tensors as small as theirs a second one only waits, long where others work too.
`cli` runs the command line as a user does, in this process and in a directory of the test's own; `tiny_run` is a run
that many tests look at.
"""

import gc
import importlib.util
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import settings
from installing import install_for_the_session
from jaxtyping import install_import_hook

install_import_hook("zoo.attention", "beartype.beartype")

install_for_the_session()  # before tests are collected, which find configurations by glob

settings.register_profile("zoo", deadline=None, derandomize=True, database=None)
settings.load_profile("zoo")


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> None:
    """A shell that starts tests in the background has them ignore Ctrl-C, and all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Finished(NamedTuple):
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """`cli("train", "model=gat")` -> its exit code and what it printed."""
    from zoo.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # tables are not wrapped
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    for name in ("ZOO_DATA", "ZOO_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Finished:
        capsys.readouterr()
        code = main([str(each) for each in arguments])
        return Finished(code, *capsys.readouterr())

    return run


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """`write(content)` -> a file of a text or of bytes, named as the module's NAME says unless another is given."""

    def _write(content: str | bytes, name: str | None = None) -> Path:
        path: Path = tmp_path / (name or request.module.NAME)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write


DATA = ["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"]
TINY = ["model=gat", *DATA, "model.net.dim=4", "model.net.heads=2", "data.max_epochs=4", "logger=csv"]


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """The overrides of a run that takes a fraction of a second."""
    return list(TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a run. Tests read it and write nothing there."""
    folder = tmp_path_factory.mktemp("tiny")
    from zoo.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *TINY, "run_dir=run"]) == 0
    return folder / "run"


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`dense_cases`, as if it were a domain: `zoo.tasks.dense_cases`."""
    name = "zoo.tasks.dense_cases"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "dense_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def pytest_collection_finish() -> None:
    """Keeps what has been imported and collected out of garbage collections, each of which would look at all of it."""
    gc.collect()
    gc.freeze()
