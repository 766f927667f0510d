"""Sends batches from worker processes as bytes, with all but large tensors among them.

Torch moves a tensor to shared memory and sends its file descriptor over a connection of its own, of several messages.
The process that sends answers each of them beside its work on the next batch, while the receiver waits.
"""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 17
"""Maximum number of bytes of a tensor that is sent as bytes, which copies it."""
_ALIGNMENT = 64


def pack(batch: Any) -> bytes:
    """Returns a batch as bytes, for another process. Tensors larger than `SMALL` are sent in shared memory."""
    content = io.BytesIO()
    _Pickler(content, pickle.HIGHEST_PROTOCOL).dump(batch)
    return content.getvalue()


def unpack(content: bytes) -> Any:
    """Returns the batch that another process of this run has packed. It can be unpacked once."""
    return pickle.loads(content)


class _Pickler(ForkingPickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and _is_plain(value) and value.nbytes <= SMALL:
            array = value.numpy()
            return _make_tensor, (array.tobytes(), array.dtype, array.shape)
        return NotImplemented


def _is_plain(value: Tensor) -> bool:
    """Returns whether NumPy knows the tensor, and its values in memory are in order."""
    if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
        return False
    is_known = not (value.is_quantized or value.is_conj() or value.is_neg() or value.dtype is torch.bfloat16)
    return is_known and value.is_contiguous()


def _make_tensor(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
    """Makes a tensor with memory of its own, aligned like torch's, on which the rounding of kernels may depend.

    NumPy does this without releasing the interpreter to the thread that sends the worker process its next job.
    """
    memory = np.empty(len(content) + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    values = memory[start : start + len(content)]
    values[:] = np.frombuffer(content, np.uint8)
    return torch.from_numpy(values.view(dtype).reshape(shape))
