"""The features of the CPU, and the switch of the kernels that are faster on some kinds of CPU.

Kernels are chosen by shapes, dtype and features of the CPU, never by timing, so that a run can be repeated. All of them
can be switched off, with PyTorch's own operations in their place:

    with use_cpu_kernels():                     # none; use_cpu_kernels("tanh"): this one alone
        trainer.fit(module, data)

    ZOO_CPU_KERNELS=0 python train.py model=vit

`benchmarks/cpu_kernels.py` measures what each gains in a training step on the processor at hand, and
`benchmarks/kernels.py` every choice by size.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

KERNELS = {
    "tanh": "tanh as 2 sigmoid(2x) - 1, where MKL is slow",
    "causal": "causal attention in blocks up to the diagonal, with dropout, for long rows or in bfloat16",
    "softmax": "attention with stored weights, for short rows and in bfloat16",
    "recurrence": "GRU and LSTM with both directions in a step and a backward pass of their own",
}
"""Name -> what is computed otherwise than by PyTorch."""


class Processor(NamedTuple):
    """The processor features that the choice of kernels depends on.

    Args:
        name: Name of the model, for display only.
        vendor: `GenuineIntel`, `AuthenticAMD` or another; empty if the system does not report it.
        has_avx512: True if the kernels of PyTorch and oneDNN use 512-bit vectors.
        has_bf16: True if there are instructions for bfloat16 products (AVX512_BF16 or AMX).
        has_amx: True if there are tile units (AMX).
    """

    name: str
    vendor: str
    has_avx512: bool
    has_bf16: bool
    has_amx: bool

    @property
    def has_slow_mkl(self) -> bool:
        """True on processors with AVX-512 from other vendors than Intel: MKL is half as fast there.

        MKL uses 512-bit vectors on Intel processors only.
        """
        return self.has_avx512 and self.vendor not in ("", "GenuineIntel")

    @property
    def flags(self) -> list[str]:
        """Names of the features that are present."""
        features = {"avx512": self.has_avx512, "bf16": self.has_bf16, "amx": self.has_amx}
        return [flag for flag, is_there in features.items() if is_there]


def is_transformed() -> bool:
    """Returns True while a graph is compiled or inside of `torch.func`, which take PyTorch's own operations only."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _detect() -> Processor:
    # torch is asked, not the system, so that ATEN_CPU_CAPABILITY can switch features off.
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    has_amx = has_avx512 and torch.cpu._is_amx_tile_supported()
    cpuinfo = _cpuinfo()
    return Processor(
        name=cpuinfo.get("model name") or platform.processor() or platform.machine(),
        vendor=cpuinfo.get("vendor_id", ""),
        has_avx512=has_avx512,
        has_bf16=has_amx or (has_avx512 and torch.cpu._is_avx512_bf16_supported()),
        has_amx=has_amx,
    )


def _cpuinfo() -> dict[str, str]:
    """Reads what Linux reports on the first core; returns an empty dict on other systems."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


PROCESSOR = _detect()


def is_enabled(kernel: str) -> bool:
    """Returns True if one of `KERNELS` may be chosen."""
    return kernel in _enabled


@contextmanager
def use_cpu_kernels(*kernels: str) -> Iterator[None]:
    """Lets only these of `KERNELS` be chosen while the context is open; without a name, none."""
    global _enabled
    if unknown := set(kernels) - set(KERNELS):
        raise ValueError(f"there is no kernel {', '.join(sorted(unknown))}; there are {', '.join(KERNELS)}")
    before, _enabled = _enabled, frozenset(kernels)
    try:
        yield
    finally:
        _enabled = before


def _read_switch(value: str | None) -> frozenset[str]:
    """Returns the kernels that the environment variable ZOO_CPU_KERNELS leaves switched on."""
    if value not in (None, "", "0", "1"):
        raise ValueError(f"ZOO_CPU_KERNELS={value}: write 0, for PyTorch's own operations alone, or 1")
    return frozenset() if value == "0" else frozenset(KERNELS)


_enabled = _read_switch(os.environ.get("ZOO_CPU_KERNELS"))
