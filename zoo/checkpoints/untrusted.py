"""Checks a checkpoint, which may come from a stranger: its file, its content, and what it asks of the machine.

`torch.load(weights_only=True)` runs nothing, but it trusts sizes. Torch takes as much memory as the directory of the
archive, the pickle and the configuration declare, reads a storage beyond its end, and calls some functions that reserve
memory. So the file is looked through first, by Python's `zipfile` and `pickletools`; it is mapped rather than read,
which leaves no storage outside of it; and the content is checked before anything is made of it.

Who starts a command decides what it uses of the machine. From a checkpoint's configuration at most as many processes,
threads and workers are taken as there are processors, or eight; and data is read from files, never from a device.
"""

from __future__ import annotations

import io
import os
import pickletools
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from zoo.config.legacy_names import DEEPEST
from zoo.errors import ConfigError
from zoo.validation import ANY, COUNT, Predicate, ValidationError, abbreviate, validate

_LARGEST_DIRECTORY = 1 << 23
_LONGEST_PICKLE = 1 << 28
_MOST_CODES = 1 << 25
_MOST_PARTS = 1_000_000
_LEAST_LIMIT = 1 << 20
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_PARTS = {"MARK", "EMPTY_LIST", "EMPTY_DICT", "REDUCE", "BINPERSID", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
"""Codes of a pickle that make something which takes far more memory than its byte or two in the file."""
_VALUES = re.compile(
    "PROTO|STOP|GLOBAL|BUILD|(LONG_)?BIN(PUT|GET)|APPENDS?|SETITEMS?|NONE|NEWTRUE|NEWFALSE|BININT[12]?|LONG1|BINFLOAT"
    "|BINUNICODE|EMPTY_TUPLE"
)
"""The other codes that torch writes."""
_NAMES = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_tensor_v2|torch ((b?float|u?int|complex)\d+|bool|Size|device"
    r"|(Byte|Char|Bool|Short|Half|BFloat16|Int|Float|Long|Double|ComplexFloat|ComplexDouble)Storage)"
)
"""What a pickle may name, as `pickletools` shows it."""
_MEMBER = re.compile(r"([^/]+)/\.?\w+(\.\w+)*(/\w+)?", re.ASCII)
_LEAVES = {str, int, float, bool, type(None), Tensor}
_CONTAINERS = {dict, list, tuple, OrderedDict}


def load(file: BinaryIO) -> Any:
    """Returns the content of a file that `torch.save` has written, if it is of plain values and tensors.

    Raises:
        ValidationError: The file holds other things; errors of torch or `zipfile` if it is damaged.
    """
    available = _check_archive(file)
    # torch opens the file more than once, and its name may mean another by then
    content = torch.load(f"/dev/fd/{file.fileno()}", map_location="cpu", weights_only=True, mmap=True)
    _own_storages(_check_plain(content), available)
    return content


def _check_archive(file: BinaryIO) -> int:
    """Checks the members of a zip archive and its pickle; returns the bytes that there are for storages."""
    length = file.seek(0, os.SEEK_END)
    _check_directory(file, length)
    with zipfile.ZipFile(file) as archive:
        members = {info.orig_filename.lower(): info for info in archive.infolist()}  # torch ignores their case
        roots = {match[1] for name in members if (match := _MEMBER.fullmatch(name))}
        if len(members) < len(archive.infolist()) or len(roots) != 1 or not all(map(_MEMBER.fullmatch, members)):
            raise ValidationError("a member of the archive is there twice, or has another name than torch's")
        for name, info in members.items():
            if info.compress_type or info.file_size != info.compress_size or (info.extra and length < 1 << 32):
                raise ValidationError(f"{name[:80]!r} is compressed, or of an unclear size; torch never writes that")
        if sum(info.file_size for info in members.values()) > length:
            raise ValidationError("the members of the archive overlap")
        (root,) = roots
        if f"{root}/constants.pkl" in members:
            raise ValidationError("it is a TorchScript archive, which is a program")
        code = members.get(f"{root}/data.pkl")
        if code is None or code.file_size > _LONGEST_PICKLE:
            raise ValidationError(f"the archive has no data.pkl, or one of more than {_LONGEST_PICKLE:,} bytes")
        _check_pickle(archive.read(code))
    return sum(info.file_size for name, info in members.items() if name.startswith(f"{root}/data/"))


def _check_directory(file: BinaryIO, length: int) -> None:
    """Checks that an archive has one directory, right before its end; otherwise Python finds one and torch another."""
    file.seek(max(0, length - _END.size - _LOCATOR_64.size - _END_64.size))
    tail = file.read()
    mark, *_, size, start, comment = _END.unpack(tail[-_END.size :])
    stop = length - _END.size
    locator = tail[: -_END.size][-_LOCATOR_64.size :]
    is_sound = mark == b"PK\5\6" and not comment
    if locator.startswith(b"PK\6\7"):
        stop -= _LOCATOR_64.size + _END_64.size
        is_sound &= stop >= 0 and tail.startswith(b"PK\6\6") and _LOCATOR_64.unpack(locator)[2] == stop
        size, start = _END_64.unpack(tail[: _END_64.size])[-2:] if is_sound else (size, start)
    if not is_sound or start + size != stop:
        raise ValidationError("the archive has no directory at its end, or more than one; it may have been cut short")
    if size > _LARGEST_DIRECTORY:
        raise ValidationError(f"the directory of the archive is longer than {_LARGEST_DIRECTORY:,} bytes")


def _check_pickle(code: bytes) -> None:
    """Checks that a pickle names nothing but parts of tensors, and is of limited size once it is read."""
    parts = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(code))):
        if opcode.name in _PARTS:
            parts += 1
        elif not _VALUES.fullmatch(opcode.name):
            raise ValidationError(f"its pickle has a code {opcode.name}, which torch does not write")
        elif opcode.name == "GLOBAL" and not _NAMES.fullmatch(named := str(argument)):
            raise ValidationError(f"it asks for {named.replace(' ', '.')}"[:200])
        if parts > _MOST_PARTS or number > _MOST_CODES:
            raise ValidationError(f"its pickle has more than {_MOST_PARTS:,} parts, or {_MOST_CODES:,} values")


def _check_plain(content: Any) -> list[Tensor]:
    """Checks that values are plain, keys texts or whole numbers, and the nesting is limited; returns the tensors."""
    waiting: list[tuple[int, Any]] = [(0, [content])]
    count, tensors = 0, {}
    while waiting:
        depth, part = waiting.pop()
        count += 1
        if depth > DEEPEST or count > _MOST_PARTS:
            raise ValidationError(
                f"it is nested more than {DEEPEST} levels deep, or has more than {_MOST_PARTS:,} parts"
            )
        if isinstance(part, Mapping):
            for key in part:
                if type(key) not in (str, int) or not str(key).isprintable():
                    raise ValidationError(f"it has a key {abbreviate(key)}, which is neither a name nor a whole number")
        values = part.values() if isinstance(part, Mapping) else part
        kinds = set(map(type, values))
        for kind in kinds - _LEAVES - _CONTAINERS:
            raise ValidationError(f"it holds a {kind.__name__}")
        if kinds - _LEAVES:
            waiting += [(depth + 1, value) for value in values if type(value) in _CONTAINERS]
        if Tensor in kinds:
            tensors.update({id(value): value for value in values if type(value) is Tensor})
    return list(tensors.values())


def _own_storages(tensors: Sequence[Tensor], available: int) -> None:
    """Copies mapped tensors into memory, where no change of the file reaches them; what is shared stays shared."""
    mapped = {(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()): tensor for tensor in tensors}
    if (declared := sum(size for _, size in mapped)) > available:
        raise ValidationError(f"its tensors are declared to have {declared:,} bytes, and {available:,} are there")
    own = {place: tensor.untyped_storage().clone() for place, tensor in mapped.items()}  # type: ignore[no-untyped-call]
    for tensor in tensors:
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValidationError(f"a tensor is declared {tuple(tensor.shape)}, and is repeated from fewer numbers")
        storage = own[tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()]
        tensor.requires_grad_(False).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


_ABOUT = {
    "version": str,
    "model": str,
    "config": {"model": dict, "data": dict, "names": {str: (str, None)}, "overrides": [str]},
    "data": {str: ANY},
    "sizes": {str: Predicate("a number of things", COUNT.holds)},
    "metrics": {str: float},
    "unread?": [str],
}

_DONE = {"ready": COUNT, "completed": COUNT}
_PROGRESS = {"total": _DONE, "current": _DONE}
_BATCHES = {f"{when}": {**_DONE, "started": COUNT, "processed": COUNT} for when in ("total", "current")}
_OPTIMIZER = {"step": _PROGRESS, "zero_grad": _PROGRESS}
_RELEASE = Predicate(
    "a release of Lightning 2", lambda each: type(each) is str and bool(re.fullmatch(r"2\.[\w.+]+", each))
)
_PLACE = {"epoch": COUNT, "position": COUNT}
_RESUMABLE = {
    "epoch": COUNT,
    "global_step": COUNT,
    "pytorch-lightning_version": _RELEASE,
    "zoo": {"config": {"init": (str, None), "penalty?": dict}},
    "loops": {
        "fit_loop": {
            "state_dict": {"combined_loader?": [_PLACE]},
            "epoch_loop.state_dict": {"_batches_that_stepped": COUNT},
            "epoch_loop.batch_progress": {**_BATCHES, "is_last_batch": bool},
            "epoch_loop.scheduler_progress": _PROGRESS,
            "epoch_loop.automatic_optimization.state_dict": dict,
            "epoch_loop.automatic_optimization.optim_progress": {"optimizer": _OPTIMIZER},
            "epoch_loop.manual_optimization.state_dict": dict,
            "epoch_loop.manual_optimization.optim_step_progress": _PROGRESS,
            "epoch_loop.val_loop.state_dict": dict,
            "epoch_loop.val_loop.batch_progress": {**_BATCHES, "is_last_batch": bool},
            "epoch_progress": _BATCHES,
        }
    },
    "callbacks": {
        "CheckpointAndStop": {
            "best_scores": {str: float},
            "epochs_without_improvement": COUNT,
            "seconds": float,
            "best_step": (COUNT, None),
        },
        "EMA?": {"updates": COUNT},
        "DataWaitTimer?": {"seconds": float},
    },
    "trained?": {str: Tensor},
    "optimizer_states": [{"state": {int: {str: ANY}}, "param_groups": [{"params": [COUNT]}]}],
    "lr_schedulers": [{str: ANY}],
    "exactly": {
        "generators": [{"torch": Tensor, "cuda": [Tensor], "python": [ANY], "numpy": {"keys": Tensor}}],
        "epoch_metrics": [
            {
                "sums": {str: {"value": Tensor, "count": (Tensor, None)}},
                "metrics": {str: {"updates": COUNT, "state": {str: ([Tensor], Tensor)}}},
            }
        ],
        "place": _PLACE,
    },
}
"""The content of a last.ckpt beside its weights. `resume_state.check` checks the parts that depend on the run."""


def check(content: Mapping[str, Any]) -> None:
    """Checks the types of all parts of a content."""
    about = content["zoo"]
    validate(about, _ABOUT, "zoo")
    validate(content, {"epoch?": COUNT, "global_step?": COUNT}, "content")
    validate(content["state_dict"], {str: Tensor}, "state_dict")


def check_resumable(content: Mapping[str, Any]) -> None:
    """Checks that a content, which `check` has passed, can be continued."""
    validate(content, _RESUMABLE, "content")
    exactly, weights = content["exactly"], content["state_dict"]
    if not 0 < len(exactly["generators"]) == len(exactly["epoch_metrics"]):
        raise ValidationError("content.exactly has not one state of the generators and of the metrics for each process")
    for name, weight in content.get("trained", {}).items():
        if name not in weights or weight.shape != weights[name].shape:
            raise ValidationError(f"content.trained.{name} is not of the shape of that weight")


def check_sizes(about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuses numbers in a configuration that as sizes would make a model far larger than its weights."""
    most = max(_LEAST_LIMIT, sum(weight.numel() for weight in weights.values()))
    waiting: list[tuple[str, Any]] = [("sizes", about["sizes"]), ("config.model", about["config"]["model"])]
    while waiting:
        where, node = waiting.pop()
        if type(node) is int and abs(node) > most:
            raise ValidationError(f"{where} is {node:,}, and the weights are {most:,} numbers at most")
        if isinstance(node, Mapping):
            waiting += [(f"{where}.{key}", value) for key, value in node.items()]
        elif isinstance(node, list | tuple):
            waiting += [(f"{where}.{number}", value) for number, value in enumerate(node)]


_LEAST_CAP = 8
_OF_THE_MACHINE = ("trainer.devices", "trainer.num_nodes", "trainer.max_restarts", "threads", "data.num_workers")
_MOST_PIXELS = 1 << 21
"""Pixels of a batch of pictures, whose first layers have 64 numbers for each and more."""
_MOST_HYPOTHESES = 1 << 11
"""Hypotheses of all texts of a batch."""
_FREE = re.compile(r"null|auto|-1|''|\"\"")


def get_resource_cap() -> int:
    """Returns the most processes, threads or workers that a checkpoint may ask for."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(_LEAST_CAP, processors)


def check_overrides(stored: Sequence[str], typed: Collection[str]) -> None:
    """Refuses overrides of a checkpoint that ask for more, unless the command itself gives these options.

    Args:
        stored: The overrides of the checkpoint.
        typed: The keys that the command gives.
    """
    for key, _, value in (override.partition("=") for override in stored):
        if key not in _OF_THE_MACHINE or key in typed or _FREE.fullmatch(value):
            continue
        most = get_resource_cap()
        if not value.isascii() or not value.isdecimal() or len(value) > 9 or int(value) > most:
            raise ConfigError(
                f"the checkpoint was trained with {key}={value}, and {most} are taken from a file at most; "
                f"say yourself how many it may be: {key}=NUMBER"
            )


def cap_data_config(about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint's options of data, with a limited number of workers, and of examples in a batch.

    A device or pipe to read is refused.

    Args:
        about: The section `zoo` of the checkpoint.
    """
    config, state = about["config"], about["data"]
    options = dict(config["data"])
    search = config["model"].get("search")
    pixels = _size(state.get("height")) * _size(state.get("width"))
    hypotheses = _size(search.get("width")) if isinstance(search, Mapping) else 1
    if pixels > 1 or hypotheses > 1:
        sizes = [options[name] for name in ("eval_batch_size", "batch_size") if type(options.get(name)) is int]
        most = min(_MOST_PIXELS // pixels, _MOST_HYPOTHESES // hypotheses)
        options["eval_batch_size"] = min([max(1, most), *sizes[:1]])
    workers = options.get("num_workers")
    if type(workers) is int:
        options["num_workers"] = min(workers, get_resource_cap())
    for key, value in options.items():
        path = Path(value) if isinstance(value, str) and "\0" not in value and len(value) < 4096 else None
        if path is not None and os.path.exists(path) and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"the checkpoint reads its data from data.{key}={value}, which is no file; give a file")
    return options


def _size(value: Any) -> int:
    return value if type(value) is int and value > 0 else 1
