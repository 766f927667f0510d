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
import shutil
import struct
import subprocess
import types
import warnings
import zipfile
from collections.abc import Callable
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
        "target_reexport": {"_target_": "zoo.tasks.graph.planetoid.os.system", "command": shell},
        "target_reexported_function": {"_target_": "zoo.tasks.graph.planetoid.fetch", "url": "x", "destination": "y"},
        "target_download": {
            "_target_": "zoo.data.download.fetch",
            "url": "x",
            "destination": str(trap),
            "sha256": None,
        },
        "target_reader": {"_target_": "zoo.tasks.graph.planetoid.read_planetoid", "root": str(trap), "name": "cora"},
        "target_writer": {"_target_": "zoo.checkpoint.write", "path": str(trap), "content": {}},
        "target_train": {"_target_": "zoo.run.train", "config": {}},
        "target_cli": {"_target_": "zoo.cli.main", "arguments": ["list"]},
        "target_private": {"_target_": "zoo.tasks.graph.planetoid._unpickle", "path": str(best)},
        "target_dunder": {"_target_": "zoo.attention.AttendFactory.__init__.__globals__"},
        "target_data_as_model": {"_target_": "zoo.tasks.graph.data.planted_graph", "max_epochs": 1},
        "target_callback": {"_target_": "zoo.callbacks.Keeper", "run_dir": str(trap), "about": {}},
        "target_logger": {"_target_": "zoo.loggers.wandb", "run_dir": str(trap), "project": "theirs"},
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


def _repacked(
    source: Path,
    target: Path,
    change: Callable[[str, bytes], bytes | None],
    compression: int = zipfile.ZIP_STORED,
    more: dict[str, bytes] | None = None,
) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            changed = change(name, old.read(name))
            if changed is not None:
                new.writestr(name, changed)
        for name, written in (more or {}).items():
            new.writestr(name, written)


def _flipped(whole: bytes) -> bytes:
    """One byte of the pickle is another one."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        (member,) = [each for each in archive.infolist() if each.filename.endswith("data.pkl")]
        start = whole.index(b"\x80\x02", member.header_offset)
    changed = bytearray(whole)
    changed[start + 40] ^= 0xFF
    return bytes(changed)
