"""While tests run, the shapes written in the signatures of `zoo.attention` are checked; hypothesis is deterministic.

One thread serves all tests: for tensors as small as theirs a second one only waits, long where others work too.
`cli` runs the command line as a user does, in this process and in a directory of the test's own.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("zoo.attention", "beartype.beartype")

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
    from zoo.cli import main

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
