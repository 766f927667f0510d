"""`zoo list attention`: every mechanism of the core, with what it costs and where it comes from."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
from torch import nn

import zoo.attention
from zoo.cli import catalog

BLOCKS = {"DecoderBlock", "EncoderBlock", "FeedForward", "PostNorm", "PreNorm"}
BASES = {"AttentionSite", "Mixer", "Normalizer", "Position", "Restriction", "Score"}
PLUMBING = {"Attention", "AttentionProbe", "MultiheadAttention", *BASES, *BLOCKS}
"""Classes that combine mechanisms and are none themselves."""
FOUND = {each.name: each for each in catalog.mechanisms()}


def modules() -> list[str]:
    named = ((name, getattr(zoo.attention, name)) for name in zoo.attention.__all__)
    return [name for name, each in named if inspect.isclass(each) and issubclass(each, nn.Module)]


@pytest.mark.parametrize("name", sorted(set(modules()) - PLUMBING))
def test_every_module_of_the_core_is_listed(name: str) -> None:
    """The docstring of every mechanism has a line `Cost: O(n k).`, without which it is not listed."""
    assert name in FOUND, f"the docstring of {name} has no line `Cost: ...`"


@pytest.mark.parametrize("name", FOUND)
def test_what_is_said(name: str) -> None:
    said = FOUND[name]
    assert said.does
    assert said.cost.startswith("O("), said.cost
    assert set(said.works_on) <= set(zoo.attention.__all__)


def test_papers() -> None:
    papers = {name: FOUND[name].paper for name in ("GAT", "Additive", "SqueezeExcitation", "Sparsemax", "Performer")}
    assert papers == {
        "GAT": "Velickovic et al. 2018",
        "Additive": "Bahdanau et al. 2015",
        "SqueezeExcitation": "Hu et al. 2018",
        "Sparsemax": "Martins & Astudillo 2016",
        "Performer": "Choromanski et al. 2021",
    }


def test_the_command(cli: Any) -> None:
    done = cli("list", "attention")
    assert done.code == 0
    for each in FOUND.values():
        (line,) = (line for line in done.out.splitlines() if line.startswith(f"  {each.name} "))
        assert each.cost in line
        assert each.does in line


def test_listing_does_not_wait_for_torch() -> None:
    code = "import sys; from zoo.cli import catalog as m; list(m.table()); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
