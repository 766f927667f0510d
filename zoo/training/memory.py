"""Memory of a training step, estimated from steps on shortened examples before the step itself allocates it."""

from __future__ import annotations

import resource
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.errors import ZooError
from zoo.tasks.contract import TaskData

_GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells a process of its control group."""
_FIRST = 32
"""Tokens of the shortest examples that are tried; they double from step to step."""
_POINTS = 3
_ENOUGH = 2**26
"""Bytes of a step from which those of longer examples are extrapolated."""


@dataclass(frozen=True)
class StepEstimate:
    """The memory of the training step with the most tokens.

    Args:
        bytes: Memory that it would take.
        example: Name of the longest example of its batch, and its file.
        tokens: Tokens of that example.
        examples: Number of examples of the batch.
    """

    bytes: int
    example: str
    tokens: int
    examples: int


def find_excess(data: TaskData, step: Callable[[Any], Tensor], device: torch.device) -> str | None:
    """Returns a sentence if the training step with the most tokens would take more memory than there is.

    A step that cannot be computed at all is left to the caller, who tries it.
    """
    try:
        found = estimate_step(data, step)
    except (ZooError, RuntimeError, ValueError, IndexError, TypeError):
        return None
    available = find_available(device)
    if found is None or found.bytes <= available:
        return None
    of = "alone" if found.examples == 1 else f"in a batch of {found.examples}"
    return (
        f"a training step with {found.example} ({found.tokens:,} tokens), {of}, would take about "
        f"{found.bytes / 2**30:,.1f} GB of memory, and {available / 2**30:,.1f} GB are available; lower "
        "data.max_length, data.max_tokens or data.batch_size"
    )


def estimate_step(data: TaskData, step: Callable[[Any], Tensor]) -> StepEstimate | None:
    """Estimates the memory of the training step with the most tokens, when padded.

    The examples of its batch are cut to 32 tokens, to 64, and so on, until a step takes 64 MiB. Memory is a polynomial
    of the second degree in the length, as long as no kernel changes: it is drawn through the last three lengths.
    Tensors count; an allocator that leaves gaps between them takes more.

    Args:
        data: The data set.
        step: Computes the loss of a batch.

    Returns:
        The estimate, or None if no step takes that much, or the examples cannot be cut (`Examples.shorten`).
    """
    examples = data.examples("train", training=True)
    if examples.shorten is None or examples.lengths is None or not len(examples.entries):
        return None
    numbers = data.train_dataloader().largest()
    longest = max(numbers, key=examples.lengths.__getitem__)
    tokens = int(examples.lengths[longest])
    points: list[tuple[int, int]] = []
    length = _FIRST
    while length < tokens:
        batch = examples.collate([examples.shorten(examples.entries[number], length) for number in numbers])
        points.append((length, measure_step(lambda batch=batch: step(batch))))  # type: ignore[misc]
        if len(points) >= _POINTS and points[-1][1] > _ENOUGH:
            of, place = examples.entries[longest], getattr(data.source, "place", None)
            name = f"{of.id!r}" if place is None else f"{of.id!r} of {place}"
            return StepEstimate(extrapolate(points[-_POINTS:], tokens), name, tokens, len(numbers))
        length *= 2
    return None


def find_available(device: torch.device) -> int:
    """Returns the bytes of memory that this process may still take: of the machine, its container and its limits."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [find_group_limit(), *map(_find_process_limit, (resource.RLIMIT_AS, resource.RLIMIT_DATA))]
    with suppress(OSError, StopIteration):
        found.append(_read_field(Path("/proc/meminfo"), "MemAvailable:") * 1024)
    return min((each for each in found if each is not None), default=2**63 - 1)


def measure_step(step: Callable[[], Tensor]) -> int:
    """Returns the most bytes of tensors that a step and its gradients hold at once."""
    with HeldBytes() as held:
        torch.autograd.backward(step())
    return int(held.most)


def _storages(tree: Any) -> list[Any]:
    """Returns the storages of all tensors that have one; packed weights of oneDNN have none."""
    tensors = [each for each in tree_leaves(tree) if isinstance(each, Tensor) and each.layout == torch.strided]
    return [each.untyped_storage() for each in tensors]


class HeldBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations have made and that are still there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        own = {id(each) for each in _storages((args, kwargs))}
        for each in _storages(found):
            self._note(each, own)
        return found

    def _note(self, storage: Any, own: set[int]) -> None:
        key = id(storage)
        if key in self._known or key in own:
            return
        size = storage.nbytes()
        self._known[key] = weakref.finalize(storage, self._release, key, size)
        self.now += size
        self.most = max(self.most, self.now)

    def _release(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self.now -= size


def extrapolate(points: list[tuple[int, int]], length: int) -> int:
    """Returns p(length) of the parabola p through three points; if it opens down, of the line through the last two."""
    (a, at_a), (b, at_b), (c, at_c) = points
    first, last = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    curvature = max(0.0, (last - first) / (c - a))
    return round(at_c + (length - c) * (last + curvature * (length - b)))


def find_group_limit() -> int | None:
    """Returns what the control group of this process has left; files that it can drop do not count. None: no limit."""
    for limit, used, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError, StopIteration):
            most, now = (int((_GROUP / name).read_text()) for name in (limit, used))
            return most - now + _read_field((_GROUP / limit).with_name("memory.stat"), droppable)
    return None


def _find_process_limit(kind: int) -> int | None:
    """Returns what is left of a limit of this process (`ulimit -v`, `ulimit -d`); None if it is not set."""
    most, _ = resource.getrlimit(kind)
    if most == resource.RLIM_INFINITY:
        return None
    field = "VmSize:" if kind == resource.RLIMIT_AS else "VmData:"
    with suppress(OSError, StopIteration):
        return max(0, most - _read_field(Path("/proc/self/status"), field) * 1024)
    return None


def _read_field(path: Path, name: str) -> int:
    """Returns the number behind a name, on a line of its own."""
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[:1] == [name])
