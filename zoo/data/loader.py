"""The loader of all domains. The examples of a batch depend on (seed, epoch, position, rank) alone."""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

from zoo import distributed
from zoo.data.option_hints import format_option
from zoo.data.worker_transport import pack, unpack
from zoo.errors import ConfigError, WorkerError, ZooError
from zoo.processes import end_with_parent
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges

POOL = 100
"""Batches whose examples are sorted by length together: enough for little padding, few enough to mix."""


@validate_ranges
class Loader:
    """Batches of `examples`, in an order that is drawn from (seed, epoch).

    After `load_state_dict` in the middle of an epoch, the next pass continues with the batch that follows. Every other
    pass is another epoch, which `set_epoch` chooses.

    Several processes (`rank`, `world_size`) share each batch, so that the batches do not depend on their number. No
    example is repeated or left out: in training, a last batch with fewer examples than processes is joined with the one
    before it; in evaluation some processes have a batch less.

    Args:
        examples: A sequence, indexed by number, in worker processes if there are any.
        collate: Makes a batch of a list of examples, without randomness.
        batch_size: Examples a batch, over all processes; the last batch may be smaller. With `max_tokens` it is the
            most examples of a batch, and None sets no such limit. If no batch of so many examples can have more than
            `max_tokens`, batches are as without it.
        shuffle: Draws a new order every epoch. Otherwise the order is that of the examples.
        seed: The seed of the order and of `augment`.
        lengths: The length of each example. A batch then has examples of similar length, which are taken from a part of
            the order, so that a reader who wants them in order keeps few batches waiting.
        max_tokens: The most tokens of a batch, over all processes, when its examples are padded to the longest. With
            `shuffle` all examples are sorted by length, with random order among equal lengths, and cut into such
            batches, whose order is random; their number is the same in every epoch. A longer example is a batch of its
            own, or where every process needs a part, in a batch of as many examples as there are processes.
        augment: Changes an example at random. The generators of torch, NumPy and Python are seeded by (seed, epoch,
            number of the example) before it, and restored after it. Any transform may be used, and its result depends
            neither on the process nor on interruptions.
        num_workers: Worker processes that make the batches; 0 makes them in this process.
        even: Gives every process the same number of batches, which training needs.
        shared: Gives every process its part of each batch. If false, each gets all, and the module shares the work.
    """

    def __init__(
        self,
        examples: Sequence[Any],
        *,
        collate: Callable[[list[Any]], Any],
        batch_size: PositiveInt | None = 1,
        shuffle: bool = False,
        seed: int = 0,
        lengths: Sequence[int] | None = None,
        max_tokens: PositiveInt | None = None,
        augment: Callable[[Any], Any] | None = None,
        num_workers: NonNegativeInt = 0,
        even: bool = False,
        shared: bool = True,
    ) -> None:
        if max_tokens is not None and lengths is None:
            raise ValueError("max_tokens goes with lengths")
        if batch_size is None and max_tokens is None:
            raise ValueError("batch_size may be None only with max_tokens")
        if lengths is not None and len(lengths) != len(examples):
            raise ValueError(f"{len(lengths)} lengths for {len(examples)} examples")
        self.examples = examples
        self.collate = collate
        self.batch_size = max(1, len(examples)) if batch_size is None else batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.lengths = lengths
        if max_tokens is not None and batch_size is not None and batch_size * max(lengths or [0]) <= max_tokens:
            max_tokens = None  # no batch of this size can have more
        self.max_tokens = max_tokens
        self.augment = augment
        self.num_workers = num_workers
        self.even = even
        self.rank = distributed.rank() if shared else 0
        self.world_size = distributed.world_size() if shared else 1
        self.epoch = 0
        self.position = 0
        """The number of batches of this epoch that have been yielded."""
        self._wait_seconds = 0.0
        self._resumes = False
        self._fixed_batches: list[list[int]] | None = None
        self._count: int | None = None
        self._workers: DataLoader[Any] | None = None

    def __len__(self) -> int:
        """Returns the number of batches an epoch, for this process."""
        if self.max_tokens is not None:
            if self._count is None:
                batches = self._cut(self._sort_by_length(list(range(len(self.examples)))))
                self._count = sum(self.even or len(batch) > self.rank for batch in batches)
            return self._count
        full, remainder = divmod(len(self.examples), self.batch_size)
        if self.even:
            return full + (remainder >= self.world_size or (remainder > 0 and full == 0))
        return full * (self.rank < self.batch_size) + (self.rank < remainder)

    def __iter__(self) -> Iterator[Any]:
        return (batch for _, batch in self.iter_with_indices())

    def iter_with_indices(self) -> Iterator[tuple[list[int], Any]]:
        """Iterates over (numbers of the examples, batch)."""
        # in a generator this runs when the first batch is requested and the epoch is known
        if not self._resumes and self.position:
            self.epoch, self.position = self.epoch + 1, 0
        self._resumes = False
        epoch, start = self.epoch, self.position
        shares = self._shards(epoch)[start:]
        batches = zip(shares, self._time(self._iter_batches(epoch, shares)), strict=True)
        for position, (numbers, batch) in enumerate(batches, start=start + 1):
            self.epoch, self.position = epoch, position
            yield numbers, batch

    def close(self) -> None:
        """Ends the worker processes; another pass would start new ones.

        The garbage collector would end them too, but closes their queues first, and then waits 5 s for each.
        """
        self._workers = None

    def pop_wait_time(self) -> float:
        """Returns for how many seconds batches have been waited for since the last call."""
        seconds, self._wait_seconds = self._wait_seconds, 0.0
        return seconds

    def sample(self, count: int) -> Loader:
        """Returns a loader of `count` of the examples in their order, drawn by the two numbers alone."""
        generator = torch.Generator().manual_seed(hash_seed("sample", count, len(self.examples)))
        numbers = sorted(torch.randperm(len(self.examples), generator=generator)[:count].tolist())
        loader = copy.copy(self)
        loader.examples = Subset(self.examples, numbers)  # type: ignore[arg-type, assignment]
        loader.lengths = None if self.lengths is None else [self.lengths[number] for number in numbers]
        loader._fixed_batches = loader._count = loader._workers = None
        return loader

    def set_epoch(self, epoch: int) -> None:
        """Makes the next pass this epoch, from its beginning, unless it continues in the middle of it."""
        if not (self._resumes and epoch == self.epoch):
            self.epoch, self.position, self._resumes = epoch, 0, True

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position, self._resumes = state["epoch"], state["position"], True

    def largest(self) -> list[int]:
        """Returns the numbers of the examples of the batch of this epoch with the most tokens, when padded."""

        def count_padded(batch: list[int]) -> int:
            return len(batch) * (1 if self.lengths is None else max(map(self._tokens, batch)))

        return max(self._batches(self.epoch), key=count_padded, default=[])

    def fetch(self, numbers: list[int]) -> list[Any]:
        """Returns the examples with these numbers as this epoch has them, augmented, before they become a batch."""
        return _Maker(self.examples, self.collate, self.augment, self.seed).fetch(self.epoch, numbers)

    def order(self, epoch: int) -> list[int]:
        """Returns the numbers of the examples in the order of this epoch, over all processes."""
        return [number for batch in self._batches(epoch) for number in batch]

    def _shards(self, epoch: int) -> list[list[int]]:
        """Returns the part of each batch that this process has."""
        if self.even and len(self.examples) and min(self.batch_size, len(self.examples)) < self.world_size:
            raise ConfigError(
                f"{len(self.examples)} examples in batches of {self.batch_size} cannot be shared out among "
                f"{self.world_size} processes; raise data.batch_size or lower trainer.devices"
            )
        shares = [batch[self.rank :: self.world_size] for batch in self._batches(epoch)]
        return [share for share in shares if share]

    def _batches(self, epoch: int) -> list[list[int]]:
        if not self.shuffle:
            if self._fixed_batches is None:
                self._fixed_batches = self._cut(self._sort_by_length(list(range(len(self.examples)))))
            return self._fixed_batches
        generator = torch.Generator().manual_seed(hash_seed(self.seed, "order", epoch))
        order = torch.randperm(len(self.examples), generator=generator).tolist()
        batches = self._cut(self._sort_by_length(order))
        if self.lengths is None:
            return batches
        return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]

    def _sort_by_length(self, order: list[int]) -> list[int]:
        """Returns the order with each pool sorted by length, if lengths are known."""
        if self.lengths is None:
            return order
        if self.max_tokens is not None:
            # the longest first: what is left over at the end costs little
            pools = [order] if self.shuffle else list(self._pools(order, POOL * self.max_tokens))
            return [
                number for members in pools for number in sorted(members, key=self.lengths.__getitem__, reverse=True)
            ]
        pool = POOL * self.batch_size
        pools = [order[start : start + pool] for start in range(0, len(order), pool)]
        return [number for members in pools for number in sorted(members, key=self.lengths.__getitem__)]

    def _pools(self, order: list[int], max_tokens: int) -> Iterator[list[int]]:
        """Yields examples one after another that have so many tokens, without padding."""
        start, tokens = 0, 0
        for place, number in enumerate(order):
            tokens += self._tokens(number)
            if tokens > max_tokens:
                yield order[start : place + 1]
                start, tokens = place + 1, 0
        yield order[start:]

    def _cut(self, order: list[int]) -> list[list[int]]:
        if self.max_tokens is None:
            batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        else:
            batches = list(self._batch_by_tokens(order, self.max_tokens))
        if self.even and len(batches) > 1 and len(batches[-1]) < self.world_size:
            remainder = batches.pop()
            batches[-1] = batches[-1] + remainder
        return batches

    def _batch_by_tokens(self, order: list[int], max_tokens: int) -> Iterator[list[int]]:
        """Yields batches as large as `max_tokens` allows, each with an example for every process that needs one."""
        min_size = self.world_size if self.even else 1
        start, longest = 0, 0
        for place, number in enumerate(order):
            count, longest = place - start + 1, max(longest, self._tokens(number))
            if count > min_size and (count > self.batch_size or count * longest > max_tokens):
                yield order[start:place]
                start, longest = place, self._tokens(number)
        if order:
            yield order[start:]

    def _tokens(self, number: int) -> int:
        assert self.lengths is not None
        return max(1, int(self.lengths[number]))  # nothing at all is padded too

    def _time(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            start = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self._wait_seconds += time.monotonic() - start
            yield batch

    def _iter_batches(self, epoch: int, shares: list[list[int]]) -> Iterator[Any]:
        maker = _Maker(self.examples, self.collate, self.augment, self.seed)
        if not self.num_workers:
            return (maker[epoch, share] for share in shares)
        if self._workers is None:
            self._jobs = _Jobs()
            self._workers = DataLoader(
                maker,
                batch_size=None,  # a job is a batch already
                sampler=self._jobs,
                num_workers=self.num_workers,
                persistent_workers=True,
                collate_fn=_identity,
                worker_init_fn=_begin_worker,
                generator=torch.Generator().manual_seed(0),  # else the global generator would be drawn from
            )
        self._jobs.jobs = [(epoch, share) for share in shares]
        return map(_receive, self._workers)


class _Maker(Dataset[Any]):
    """Makes the batch of (epoch, numbers), in this process or a worker."""

    def __init__(
        self,
        examples: Sequence[Any],
        collate: Callable[[list[Any]], Any],
        augment: Callable[[Any], Any] | None,
        seed: int,
    ) -> None:
        self.examples = examples
        self.collate = collate
        self.augment = augment
        self.seed = seed

    def __getitem__(self, job: tuple[int, list[int]]) -> Any:
        if get_worker_info() is None:
            return self._batch(*job)
        try:
            return pack(self._batch(*job))
        except ZooError as error:
            return error  # raised in a worker it would return wrapped in a traceback

    def _batch(self, epoch: int, numbers: list[int]) -> Any:
        return self.collate(self.fetch(epoch, numbers))

    def fetch(self, epoch: int, numbers: list[int]) -> list[Any]:
        if self.augment is None:
            return [self.examples[number] for number in numbers]
        examples = []
        with preserve_rng():
            for number in numbers:
                seed_all(hash_seed(self.seed, "example", epoch, number))
                examples.append(self.augment(self.examples[number]))
        return examples


class _Jobs:
    """The jobs of this pass for the worker processes, which outlive a pass."""

    jobs: Sequence[tuple[int, list[int]]] = ()

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@contextmanager
def explain_worker_death() -> Iterator[None]:
    """Explains in one sentence that a worker process was killed; torch raises this error anywhere in the context."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        remedy = f"Lower {format_option('num_workers')}, or {format_option('batch_size')}"
        match = re.search(r"killed by signal: (\w[\w ]*)", str(error))
        raise WorkerError(
            f"a process that makes batches was ended from outside ({match[1] if match else 'unknown why'}): most often "
            f"the memory of the machine has run out, or of its /dev/shm. {remedy}"
        ) from error


def hash_seed(*parts: object) -> int:
    """Returns a seed of 63 bits from several numbers and words; similar ones give unrelated seeds."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_all(seed: int) -> None:
    """Seeds torch's CPU generator, NumPy's and Python's."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def preserve_rng() -> Iterator[None]:
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _identity(batch: Any) -> Any:
    return batch


def _receive(result: bytes | ZooError) -> Any:
    if isinstance(result, ZooError):
        raise result
    return unpack(result)


def _begin_worker(_: int) -> None:
    """Makes a worker end with the run, and ignore Ctrl-C, which a terminal sends to it too."""
    run = multiprocessing.parent_process()
    assert run is not None
    end_with_parent(run.join, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
