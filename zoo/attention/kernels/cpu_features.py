"""The features of the CPU, read once. Kernels are chosen by shapes, dtype and these features, never by timing.

The faster of two kernels may differ between processors: `benchmarks/kernels.py` measures every choice on the processor
at hand.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple

import torch


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
        found = {"avx512": self.has_avx512, "bf16": self.has_bf16, "amx": self.has_amx}
        return [flag for flag, is_there in found.items() if is_there]


def is_transformed() -> bool:
    """Returns True while a graph is compiled or inside of `torch.func`, which take PyTorch's own operations only."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _detect() -> Processor:
    # torch is asked, not the system, so that ATEN_CPU_CAPABILITY can switch features off.
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    has_amx = has_avx512 and torch.cpu._is_amx_tile_supported()
    said = _cpuinfo()
    return Processor(
        name=said.get("model name") or platform.processor() or platform.machine(),
        vendor=said.get("vendor_id", ""),
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
