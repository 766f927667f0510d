"""A folder of maps with a changed part either can be read, or raises a DataError that names the part."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from map_cases import dense_map, edge_map, random_edges
from safetensors.torch import load_file, save_file

from zoo.errors import DataError
from zoo.maps import Writer, load

OTHERS = [None, True, -1, 3, 2**40, 1e300, "seven", [], ["a"], [-1], {}, {"a": 1}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    edges = random_edges(5, 12)
    ids = [f"n{number}" for number in range(5)]
    with Writer(tmp_path / "maps", model="m", layers=["graph", "dense"]) as writer:
        writer.add("a", edge_map(edges, 5, site="graph"), axis_labels={"source": ids, "target": ids})
        mask = torch.tensor([[True, True, False, True, True]] * 2)
        writer.add(
            "b", dense_map(site="dense", key_mask=mask), axis_labels={"query": list("wxyz"), "key": list("abcde")}
        )
    return tmp_path / "maps"


def read_all(folder: Path) -> None:
    maps = load(folder)
    for example in maps.values():
        for found in example.values():
            for head in (None, *found.heads):
                found.pairs(head)
    if len(maps):
        maps.to_pandas()


def changes(node: Any) -> Iterator[Any]:
    """Yields copies of a content, each with one part removed or replaced."""
    for number, (place, value) in enumerate(parts(node)):
        for other in (OTHERS[number % len(OTHERS)], (-1, 10**6)[number % 2]):
            if other != value or type(other) is not type(value):
                yield changed(node, place, other)
        yield changed(node, place)


def parts(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inside:
        yield (*above, key), value
        yield from parts(value, (*above, key))


def changed(node: Any, place: tuple[Any, ...], *other: Any) -> Any:
    new = copy.deepcopy(node)
    inner = new
    for key in place[:-1]:
        inner = inner[key]
    if other:
        inner[place[-1]] = other[0]
    else:
        del inner[place[-1]]
    return new


def test_another_index(folder: Path) -> None:
    read_all(folder)
    content = json.loads((folder / "index.json").read_text())
    refused = []
    for other in changes(content):
        (folder / "index.json").write_text(json.dumps(other))
        try:
            read_all(folder)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(str(folder) in said for said in refused)


def test_scores_are_a_mapping(folder: Path) -> None:
    (folder / "scores.json").write_text("[1]")
    with pytest.raises(DataError, match="is damaged"):
        load(folder)


def test_other_arrays(folder: Path) -> None:
    arrays = load_file(folder / "maps.safetensors")
    for name, array in arrays.items():
        for other in (
            *(torch.zeros(0), torch.zeros(3, dtype=torch.int64), torch.zeros(2, 2, 2, 2)),
            *([array + 1000, array - 1000] if array.dtype in (torch.int32, torch.int64) else []),
            torch.zeros(*array.shape, 2, dtype=array.dtype),
            array[:-1].contiguous(),
        ):
            save_file({**arrays, name: other}, folder / "maps.safetensors")
            with pytest.raises(DataError, match="is damaged"):
                read_all(folder)


def test_positions_below_zero_are_not_those_from_the_end(folder: Path) -> None:
    arrays = load_file(folder / "maps.safetensors")
    (name,) = (each for each in arrays if each.endswith("source"))
    arrays[name][0] = -1
    save_file(arrays, folder / "maps.safetensors")
    with pytest.raises(DataError, match="source has -1 to 4, and there are 5 labels"):
        read_all(folder)
    content = json.loads((folder / "index.json").read_text())
    content["examples"][1]["maps"][0]["labels"]["key"] = -1
    (folder / "index.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"labels\.key is -1"):
        load(folder)["b"]


@pytest.mark.parametrize("name", ["index.json", "scores.json", "maps.safetensors"])
def test_what_is_no_file_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(DataError):
        load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(DataError):
        load(folder)


def test_an_endless_or_deep_index(folder: Path) -> None:
    with (folder / "index.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="bytes"):
        load(folder)
    (folder / "index.json").write_bytes(bytes(1 << 16))
    with pytest.raises(DataError, match="is damaged"):
        load(folder)
    (folder / "index.json").write_text("[" * 10**6)
    with pytest.raises(DataError, match="nested too deeply"):
        load(folder)
