"""What the CPU can do, read once. Kernels are chosen by shapes, dtype and these facts, never by time.

A kernel that is the faster one on one kind of processor may be the slower one on another: `benchmarks/kernels.py`
measures every choice on the processor at hand.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple

import torch


class Processor(NamedTuple):
    """The facts that choices depend on.

    Args:
        name: As the manufacturer has it; for people alone, no choice reads it.
        vendor: `GenuineIntel`, `AuthenticAMD` or another; empty where the system does not say.
        has_avx512: PyTorch's own kernels and oneDNN's have vectors of 512 bits.
        has_bf16: There are instructions for products in bfloat16 (AVX512_BF16 or AMX).
        has_amx: There are units for products of tiles (AMX).
    """

    name: str
    vendor: str
    has_avx512: bool
    has_bf16: bool
    has_amx: bool

    @property
    def has_slow_mkl(self) -> bool:
        """MKL uses vectors of 512 bits on Intel's processors alone: on others that have them it is half as fast."""
        return self.has_avx512 and self.vendor not in ("", "GenuineIntel")

    @property
    def flags(self) -> list[str]:
        """The capabilities that it has."""
        found = {"avx512": self.has_avx512, "bf16": self.has_bf16, "amx": self.has_amx}
        return [flag for flag, is_there in found.items() if is_there]


def _found() -> Processor:
    # Asked of torch, so that a capability that it was told not to use (ATEN_CPU_CAPABILITY) does not count.
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
    """What Linux says of the first core; nothing elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


PROCESSOR = _found()
