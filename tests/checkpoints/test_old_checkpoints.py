"""Checkpoints of earlier formats, kept as files: they load, and measure what they measured when they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FILES = sorted((Path(__file__).parent / "files").glob("format*/*.json"))


@pytest.mark.parametrize("measured", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_checkpoint_evaluates_to_the_same_metrics(measured: Path, cli: Any, tmp_path: Path) -> None:
    done = cli("evaluate", measured.with_suffix(".ckpt"), "--out", "metrics.json")
    assert done.code == 0, done.err
    found, then = (json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "metrics.json", measured))
    assert found["protocol"] == then["protocol"] if "protocol" in then else "protocol" not in found
    for name in set(then) - {"protocol"}:
        assert found[name] == pytest.approx(then[name], rel=1e-5, abs=1e-6), name
