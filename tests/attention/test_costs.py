"""Memory costs in docstrings hold: the exponent of peak memory over length is counted, forward and backward."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from memory_cases import growth
from torch import nn

from zoo.attention import AttentionFree, AttentionFreeSimple, DenseSupport, FourierMixer

MIXERS: dict[str, Callable[[int], nn.Module]] = {
    "FourierMixer": lambda n: FourierMixer(length=n),
    "AttentionFree": lambda n: AttentionFree(dim=4, length=n, rank=2),
    "AttentionFreeSimple": lambda n: AttentionFreeSimple(dim=4),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MIXERS)
def test_memory_of_mixers(name: str, causal: bool) -> None:
    def of(length: int) -> Callable[[], Any]:
        mixer, x = MIXERS[name](length), torch.randn(1, length, 4, requires_grad=True)
        return lambda: mixer(x, support=DenseSupport(causal=causal))[0]

    said = re.search(r"Cost: (.*?)(?:Weights:|Args:)", MIXERS[name](8).__doc__ or "", re.DOTALL)
    assert said is not None
    memory = [part for part in re.split("[;,.]", said[1]) if "memory" in part]
    of_causal = [part for part in memory if "causal" in part]
    is_square = "n^2" in (of_causal or memory)[0] if causal or not of_causal else "n^2" in memory[0]
    found = growth(of, 512, 1024)
    assert (1.4 < found < 2.1) if is_square else found < 1.2, f"{found:.2f}"
