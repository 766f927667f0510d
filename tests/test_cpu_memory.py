"""Kernels of shapes that do not return take no memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from zoo.config import compose
from zoo.config.instantiate import build
from zoo.tasks.documents import planted_reviews

CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"

TWICE_THE_SAME = """
import torch
from zoo.memory import disable_onednn_cache

KEEP
layer = torch.nn.Conv2d(64, 64, 3)
for _ in range(2):
    layer(torch.zeros(8, 64, 32, 32))
"""


def test_batches_by_length_disable_onednn_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAPACITY, raising=False)
    planted_reviews(max_epochs=1, reviews=60, batch_size=8).train_dataloader()
    assert os.environ[CAPACITY] == "0"


def test_batches_of_one_shape_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAPACITY, raising=False)
    build(compose.compose(["model=vit"])["data"], "data").train_dataloader()
    assert CAPACITY not in os.environ


def test_a_value_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPACITY, "64")
    planted_reviews(max_epochs=1, reviews=60, batch_size=8).train_dataloader()
    assert os.environ[CAPACITY] == "64"


def test_it_is_in_time_after_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CAPACITY, raising=False)
    monkeypatch.setenv("ONEDNN_VERBOSE", "profile_create")
    assert "cache_hit" in _said("")
    assert "cache_hit" not in _said("disable_onednn_cache()")


def _said(keep: str) -> str:
    """Returns the words of oneDNN on the kernels that it makes, and finds, for two equal batches."""
    program = TWICE_THE_SAME.replace("KEEP", keep)
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "cache_miss" in said
    return said
