"""Batches from worker processes: what arrives is what was sent, with memory of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.data.loader import Loader, explain_worker_death
from zoo.data.worker_transport import SMALL, pack, unpack
from zoo.errors import DataError, WorkerError

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)


@dataclass(frozen=True)
class Batch:
    words: Tensor
    marks: Tensor
    ids: tuple[str, ...]


def batch_of(numbers: list[int]) -> Batch:
    if 13 in numbers:
        raise DataError("texts.csv:14: the label is missing")
    words = torch.arange(sum(numbers) + 1).repeat(len(numbers))
    return Batch(words, words % 2 == 0, tuple(map(str, numbers)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5, 7), (SMALL,)])
def test_tensors_arrive_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sent = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = unpack(pack(sent))
    assert (found.dtype, found.shape, found.stride()) == (sent.dtype, sent.shape, sent.stride())
    assert torch.equal(found, sent)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(
    "sent",
    [
        torch.arange(12.0).view(3, 4).T,
        torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.arange(3).expand(4, 3),
        torch.arange(9)[1::3],
        torch.eye(3).to_sparse(),
        torch.nn.Parameter(torch.rand(3)),
    ],
)
def test_others_go_the_way_of_torch(sent: Tensor) -> None:
    found = unpack(pack(sent))
    assert type(found) is type(sent)
    assert (found.layout, found.requires_grad) == (sent.layout, sent.requires_grad)
    assert torch.equal(found.to_dense(), sent.to_dense())
    if sent.layout is torch.strided:
        assert found.stride() == sent.stride()


def test_each_has_memory_of_its_own_and_one_stays_one() -> None:
    """A metric may keep the labels of all batches, and not keep the batches by that."""
    shared = torch.arange(5)
    found = unpack(pack({"a": shared, "b": shared, "c": torch.rand(3)}))
    assert found["a"] is found["b"]
    assert found["a"].untyped_storage().data_ptr() != found["c"].untyped_storage().data_ptr()
    assert found["c"].untyped_storage().nbytes() == 12
    assert all(each.data_ptr() % 64 == 0 for each in found.values())
    found["c"].add_(1.0)  # it can be written to


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_and_errors_from_processes(num_workers: int) -> None:
    def made(count: int, **options: Any) -> Loader:
        return Loader(range(count), collate=batch_of, batch_size=3, **options)

    loader = made(12, shuffle=True, num_workers=num_workers)
    for found, own in zip(loader, made(12, shuffle=True), strict=True):
        assert found.ids == own.ids
        assert torch.equal(found.words, own.words)
        assert torch.equal(found.marks, own.marks)
    loader.close()
    failing = made(20, num_workers=num_workers)
    batches = iter(failing)
    assert [next(batches).ids[0] for _ in range(4)] == ["0", "3", "6", "9"]
    with pytest.raises(DataError, match=r"^texts\.csv:14: the label is missing$"):
        next(batches)
    failing.close()


def large(numbers: list[int]) -> list[Tensor]:
    return [torch.full((SMALL // 8,), number) for number in numbers]


def test_a_process_that_dies_while_it_sends() -> None:
    """Half of a batch is in the pipe, which holds less than one."""
    loader = Loader(range(40), collate=large, batch_size=4, num_workers=1)
    before = set(multiprocessing.active_children())
    batches = iter(loader)
    assert [int(each[0]) for each in next(batches)] == [0, 1, 2, 3]
    (worker,) = set(multiprocessing.active_children()) - before
    time.sleep(0.3)  # it sends the next batch, for which nobody asks yet
    assert worker.pid is not None
    with pytest.raises(WorkerError, match="ended from outside"), explain_worker_death():
        kill_and_read(worker.pid, batches)
    loader.close()


def kill_and_read(pid: int, batches: Iterator[Any]) -> None:
    os.kill(pid, signal.SIGKILL)
    for _ in batches:
        time.sleep(0.01)
