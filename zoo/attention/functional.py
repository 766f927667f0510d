"""Functions for the networks around attention, each computed by the kernel that is fastest on the CPU at hand.

Which that is depends on shapes, dtype and processor; see `zoo.attention.cpu`. Elsewhere they are those of PyTorch.
"""

from zoo.attention.kernels.cpu.tanh import tanh, tanh_

__all__ = ["tanh", "tanh_"]
