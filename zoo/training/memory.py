"""Estimates the memory of a training step from steps on shortened examples, before the step itself allocates it."""

from __future__ import annotations

import resource
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.data.loader import Loader
from zoo.errors import ZooError, count_noun
from zoo.tasks.base import Task, TaskData

_CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells a process of its control group."""
_FIRST_LENGTH, _MIN_EXAMPLES = 32, 2
"""Tokens of the shortest examples that are tried, and the fewest examples; they double from step to step."""
_PARTS = 4096
"""Parts of a batch of which a task makes smaller ones."""
_POINTS = 3
_ENOUGH_BYTES = 2**26
"""Bytes of a step from which those of longer examples are extrapolated."""


@dataclass(frozen=True)
class StepEstimate:
    """The memory of the largest training step.

    Args:
        bytes: Memory that it would take, of tensors.
        example: Name of the longest example of its batch, with its file and size; "" if all are of one size.
        examples: Number of examples of the batch.
        remedy: What makes the step smaller.
    """

    bytes: int
    example: str
    examples: int
    remedy: str

    def __str__(self) -> str:
        if not self.example:
            return f"a batch of {count_noun(self.examples, 'example')}"
        return f"{self.example}, {'alone' if self.examples == 1 else f'in a batch of {self.examples}'}"


def find_excess(estimate: StepEstimate | None, device: torch.device) -> str | None:
    """Returns a sentence if a training step would take more memory than there is."""
    available = find_available(device)
    if estimate is None or estimate.bytes <= available:
        return None
    return (
        f"a training step with {estimate}, would take about {estimate.bytes / 2**30:,.1f} GB of memory, and "
        f"{available / 2**30:,.1f} GB are available; {estimate.remedy}"
    )


def try_estimate(task: Task, data: TaskData, step: Callable[[Any], Tensor]) -> StepEstimate | None:
    """Returns `estimate_step`, or None if a step cannot be computed at all: the caller, who tries it, will see why."""
    try:
        return estimate_step(task, data, step)
    except (ZooError, RuntimeError, ValueError, IndexError, TypeError, AssertionError):
        return None


def estimate_step(task: Task, data: TaskData, step: Callable[[Any], Tensor]) -> StepEstimate | None:
    """Estimates the memory of the training step with the most tokens, when padded.

    Smaller steps are computed until one takes 64 MiB (`_Reduction`). Memory is a polynomial of the second degree in a
    length, and of the first in a number of examples, as long as no kernel changes: it is drawn through the last sizes.
    Tensors count; an allocator that keeps what is freed, or leaves gaps between them, takes up to twice that.

    Args:
        task: The model.
        data: The data set.
        step: Computes the loss of a batch.

    Returns:
        The estimate, or None if no smaller step takes that much.
    """
    loader = data.train_dataloader()
    if not (numbers := loader.largest()):
        return None
    reduction = _reduce_examples(task, data, loader, numbers)
    step_bytes = _extrapolate_steps(lambda size: step(reduction.make_batch(size)), reduction)
    return None if step_bytes is None else StepEstimate(step_bytes, reduction.example, len(numbers), reduction.remedy)


class _Reduction(NamedTuple):
    """Smaller batches of the same kind as the largest one.

    Attributes:
        make_batch: Makes the batch of a size.
        first: The smallest size that is tried.
        total: The size of the whole batch.
        extrapolate: Draws the memory at `total` from that at smaller sizes.
        remedy: What makes the step smaller.
        example: Name of the longest example, with its file and size; "" if all are of one size.
    """

    make_batch: Callable[[int], Any]
    first: int
    total: int
    extrapolate: Callable[[list[tuple[int, int]], int], int]
    remedy: str = "lower data.batch_size"
    example: str = ""


def _reduce_examples(task: Task, data: TaskData, loader: Loader, numbers: list[int]) -> _Reduction:
    """Cuts texts and sounds to 32, 64, ... tokens, has the task shrink a graph, and takes 2, 4, ... of others."""
    examples = data.examples("train", training=True)
    if examples.lengths is not None:
        numbers = sorted(numbers, key=examples.lengths.__getitem__, reverse=True)
        name = _name_longest(data, loader, numbers[0], int(examples.lengths[numbers[0]]), examples.unit)
        if (shorten := examples.shorten) is not None:
            return _Reduction(
                lambda size: examples.collate([shorten(example, size) for example in loader.fetch(numbers)]),
                first=_FIRST_LENGTH,
                total=int(examples.lengths[numbers[0]]),
                extrapolate=extrapolate,
                remedy="lower data.max_length, data.max_tokens or data.batch_size",
                example=name,
            )
    else:
        name, full_batch = "", examples.collate(loader.fetch(numbers))
        if task.shrink_batch(full_batch, 1.0) is not None:
            if (longest := data.summary().longest) is not None:
                (longest_id, count), *_ = longest.examples
                name = f"{longest_id!r} ({count_noun(int(count), longest.unit)})"
            return _Reduction(
                lambda size: task.shrink_batch(full_batch, size / _PARTS), 1, _PARTS, extrapolate_line, example=name
            )
    return _Reduction(
        lambda size: examples.collate(loader.fetch(numbers[:size])),
        first=_MIN_EXAMPLES,
        total=len(numbers),
        extrapolate=extrapolate_line,
        example=name,
    )


def _name_longest(data: TaskData, loader: Loader, number: int, tokens: int, unit: str) -> str:
    """Returns the id of an example, with its file and size; "" if examples have no ids."""
    (longest,) = loader.fetch([number])
    if not hasattr(longest, "id"):
        return ""
    place = getattr(data.source, "place", None)
    return f"{longest.id!r}{'' if place is None else f' of {place}'} ({count_noun(tokens, unit)})"


def _extrapolate_steps(step: Callable[[int], Tensor], reduction: _Reduction) -> int | None:
    """Returns the bytes of the whole step, from those of smaller ones; None if they take little."""
    points: list[tuple[int, int]] = []
    size = reduction.first
    while size < reduction.total:
        points.append((size, measure_step(lambda: step(size))))  # noqa: B023
        if len(points) >= _POINTS and points[-1][1] > _ENOUGH_BYTES:
            return reduction.extrapolate(points[-_POINTS:], reduction.total)
        size *= 2
    return None


def find_available(device: torch.device) -> int:
    """Returns the bytes of memory that this process may still take: of the machine, its container and its limits."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [find_group_limit(), *map(_find_process_limit, (resource.RLIMIT_AS, resource.RLIMIT_DATA))]
    with suppress(OSError, StopIteration):
        limits.append(read_field(Path("/proc/meminfo"), "MemAvailable:") * 1024)
    return min((limit for limit in limits if limit is not None), default=2**63 - 1)


def measure_step(step: Callable[[], Tensor]) -> int:
    """Returns the most bytes of tensors that a step and its gradients hold at once."""
    with HeldBytes() as counter:
        torch.autograd.backward(step())
    return int(counter.most)


def _get_storages(tree: Any) -> list[Any]:
    """Returns the storages of all tensors that have one; packed weights of oneDNN have none."""
    tensors = [tensor for tensor in tree_leaves(tree) if isinstance(tensor, Tensor) and tensor.layout == torch.strided]
    return [tensor.untyped_storage() for tensor in tensors]


class HeldBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations have made and that are still there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        input_ids = {id(storage) for storage in _get_storages((args, kwargs))}
        for storage in _get_storages(result):
            self._note(storage, input_ids)
        return result

    def _note(self, storage: Any, input_ids: set[int]) -> None:
        key = id(storage)
        if key in self._known or key in input_ids:
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
    (a, bytes_a), (b, bytes_b), (c, bytes_c) = points
    first_slope, last_slope = (bytes_b - bytes_a) / (b - a), (bytes_c - bytes_b) / (c - b)
    curvature = max(0.0, (last_slope - first_slope) / (c - a))
    return round(bytes_c + (length - c) * (last_slope + curvature * (length - b)))


def extrapolate_line(points: list[tuple[int, int]], length: int) -> int:
    """Returns p(length) of the line p through the last two points."""
    (b, bytes_b), (c, bytes_c) = points[-2:]
    return round(bytes_c + (length - c) * (bytes_c - bytes_b) / (c - b))


def find_group_limit() -> int | None:
    """Returns what the control group of this process has left; files that it can drop do not count. None: no limit."""
    for limit, usage, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError, StopIteration):
            max_bytes, used_bytes = (int((_CONTROL_GROUP / name).read_text()) for name in (limit, usage))
            return max_bytes - used_bytes + read_field((_CONTROL_GROUP / limit).with_name("memory.stat"), droppable)
    return None


def _find_process_limit(kind: int) -> int | None:
    """Returns what is left of a limit of this process (`ulimit -v`, `ulimit -d`); None if it is not set."""
    max_bytes, _ = resource.getrlimit(kind)
    if max_bytes == resource.RLIM_INFINITY:
        return None
    field = "VmSize:" if kind == resource.RLIMIT_AS else "VmData:"
    with suppress(OSError, StopIteration):
        return max(0, max_bytes - read_field(Path("/proc/self/status"), field) * 1024)
    return None


def read_field(path: Path, name: str) -> int:
    """Returns the number behind a name, on a line of its own."""
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[:1] == [name])
