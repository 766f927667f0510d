"""`torch.export` with a batch and a length that may change, or with a fixed length, or a sentence.

The checks run in a process of their own: the wrappers with which the other tests check shapes cannot be exported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from test_mechanism_laws import LAYERS
from tiers import all_slow_but
from torch import Tensor, nn
from torch.export import Dim, export

import zoo
from zoo.attention import DenseSupport

DYNAMIC = ("softmax", "sparsemax", "entmax", "additive", "local-m", "rotary")
FIXED = ("window", "bigbird", "xl")
"""Blocks, or tables of distances, are cut by the length."""
REFUSED = ("monotonic",)
CASES = [f"{name}, causal={causal}" for name in (*DYNAMIC, *FIXED, *REFUSED) for causal in (False, True)]
FAST = ("softmax, causal=True", "window, causal=False", "monotonic, causal=False")
"""One of each kind; the others are slow, as each is traced for seconds."""
BATCH, LENGTH = Dim("batch", min=2, max=64), Dim("length", min=128, max=4096)


class SelfAttention(nn.Module):
    def __init__(self, name: str, causal: bool) -> None:
        super().__init__()
        torch.default_generator.manual_seed(3)
        self.layer, self.causal = LAYERS[name](dim=8, heads=2), causal
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x, None, DenseSupport(causal=self.causal))[0]
        return found


def exported(net: nn.Module, dims: dict[int, Any]) -> Any:
    return export(net, (torch.randn(4, 130, 8),), dynamic_shapes=(dims,)).module()


@torch.no_grad()
def check(name: str, causal: bool) -> None:
    net = SelfAttention(name, causal)
    if name in REFUSED:
        with pytest.raises(NotImplementedError, match=r"which torch\.func and torch\.export cannot take"):
            exported(net, {0: BATCH})
        return
    if name in FIXED:
        with pytest.raises(Exception, match="Constraints violated"):
            exported(net, {0: BATCH, 1: LENGTH})
    program = exported(net, {0: BATCH} if name in FIXED else {0: BATCH, 1: LENGTH})
    for batch, length in ((2, 128), (3, 301), (9, 200)):
        x = torch.randn(batch, 130 if name in FIXED else length, 8)
        torch.testing.assert_close(program(x), net(x), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, str]:
    """What each check that is asked for raised; "" if nothing."""
    items = [each for each in request.session.items if each.path == request.path]
    cases = [each.callspec.params["case"] for each in items]  # type: ignore[attr-defined]
    paths = [str(Path(zoo.__file__).parents[1]), str(Path(__file__).parent), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, __file__, *cases], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", all_slow_but(FAST, CASES))
def test_exported(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == "", outcomes[case]


def outcome(case: str) -> str:
    name, _, causal = case.partition(", causal=")
    try:
        check(name, causal == "True")
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({case: outcome(case) for case in sys.argv[1:]}))
