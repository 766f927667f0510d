"""Benchmarks without the packages that they compare with: each says which is missing, and measures the rest."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = (
    *("dgl", "joeynmt", "linformer", "local_attention", "onmt", "performer_pytorch", "recbole", "speechbrain", "timm"),
    *("torch_geometric", "vit_pytorch"),
)


@pytest.fixture
def _no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in [each for each in sys.modules if each.partition(".")[0] in PEERS]:
        monkeypatch.delitem(sys.modules, name)
    for name in PEERS:
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an ImportError


def scripts() -> list[str]:
    """All of them but those that are a peer's own process."""
    found = (path.stem for path in BENCHMARKS.glob("*.py"))
    return sorted(name for name in found if name != "recbole_worker")


@pytest.mark.usefixtures("_no_peers")
@pytest.mark.parametrize("name", scripts())
def test_every_benchmark_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)


@pytest.mark.usefixtures("_no_peers")
@pytest.mark.parametrize(
    ("name", "options", "peers"),
    [
        ("translation", ["--quick"], ["JoeyNMT", "OpenNMT-py"]),
        ("speech", ["--quick", "--frames"], ["SpeechBrain"]),
    ],
)
def test_a_missing_peer_is_reported(
    name: str, options: list[str], peers: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    module = importlib.import_module(name)
    monkeypatch.setattr(module, "peak_of_process", lambda *_: 1.0)  # of processes, which take seconds to start
    monkeypatch.setattr(module, "file", lambda *_: None)
    if name == "translation":
        monkeypatch.setattr(module, "LENGTHS", (4, 8))
        options = [*options, "--groups", "bahdanau", "luong mlp"]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--threads", "1", *options])
    module.main()
    shown = capsys.readouterr()
    for peer in peers:
        assert f"{peer} is not measured, it cannot be imported" in shown.err
        assert f"\n{peer} " not in shown.out
    assert "\nours " in shown.out


@pytest.mark.usefixtures("_no_peers")
def test_the_others_are_built() -> None:
    measuring = importlib.import_module("measuring")

    def missing() -> None:
        import dgl  # noqa: F401

    assert measuring.build_available({"peer": missing, "ours": lambda: 3}) == {"ours": 3}
