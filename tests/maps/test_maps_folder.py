"""The folder: maps are read as they were written, incomplete folders are refused, and memory stays bounded."""

import ast
import json
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from map_cases import dense_map, edge_map, random_edges
from safetensors import safe_open
from safetensors.torch import load_file

import zoo.maps
from zoo.attention import Attention, DenseSupport, Dot, EdgeSupport, Recording, Softmax, record
from zoo.errors import DataError
from zoo.maps import LabelledMap, Writer, load
from zoo.maps.tensors import TensorFile

IDS = ["ann", "bob", "cy", "dee", "eve"]


def write_graph(folder: Path, **options) -> dict[str, LabelledMap]:
    found = edge_map(random_edges(5, 12), 5)
    with Writer(folder, model="gat", **options) as writer:
        return writer.add("graph", found, axis_labels={"source": IDS, "target": IDS})


def assert_same(read: LabelledMap, made: LabelledMap) -> None:
    for name in ("weights", "permitted", "source", "target", "gold"):
        one, other = getattr(read, name), getattr(made, name)
        assert (one is None) == (other is None), name
        if other is not None:
            other = other.float() if other.dtype == torch.float64 else other
            assert one.dtype == other.dtype, name
            assert torch.equal(one, other), name
    for name in ("site", "layer", "axes", "heads", "nouns"):
        assert getattr(read, name) == getattr(made, name), name
    assert {axis: list(labels) for axis, labels in read.labels.items()} == {
        axis: list(labels) for axis, labels in made.labels.items()
    }


@st.composite
def dense_cases(draw: st.DrawFn) -> dict[str, Any]:
    batch, heads, queries, keys = (draw(st.integers(1, size)) for size in (3, 3, 4, 6))
    return {
        "lengths": draw(st.lists(st.integers(0, keys), min_size=batch, max_size=batch)),
        "shape": {"batch": batch, "heads": heads, "queries": queries, "keys": keys},
        "causal": draw(st.booleans()),
        "dtype": draw(st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])),
        "seed": draw(st.integers(0, 99)),
        "index": draw(st.integers(0, batch - 1)),
        "labels": draw(st.none() | st.lists(st.text(), min_size=queries, max_size=queries)),
        "has_gold": draw(st.booleans()),
    }


def add_dense(writer: Writer, name: str, case: dict[str, Any]) -> dict[str, LabelledMap]:
    shape = case["shape"]
    mask = torch.arange(shape["keys"]) < torch.tensor(case["lengths"])[:, None]
    options = {option: case[option] for option in ("causal", "dtype", "seed")}
    found = dense_map(**shape, key_mask=mask, **options)
    labels = {} if case["labels"] is None else {"query": case["labels"]}
    gold = found.weights.mean((0, 1)) > 0.3 if case["has_gold"] else None
    about = {"n": case["index"]}
    return writer.add(name, found, axis_labels=labels, gold=gold, index_in_batch=case["index"], about=about)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cases=st.lists(dense_cases(), min_size=1, max_size=4),
    ids=st.lists(st.text(), min_size=4, max_size=4, unique=True),
    heads=st.sampled_from(["each", "mean"]),
)
def test_dense_maps_are_read_back(tmp_path_factory: pytest.TempPathFactory, cases, ids, heads) -> None:
    folder = tmp_path_factory.mktemp("maps")
    with Writer(folder, model="m", heads=heads) as writer:
        made = {name: add_dense(writer, name, case) for name, case in zip(ids, cases, strict=False)}
    maps = load(folder)
    assert list(maps) == ids[: len(cases)]
    for name in maps:
        assert list(maps[name]) == list(made[name])
        for site in maps[name]:
            assert_same(maps[name][site], made[name][site])
    assert maps[ids[0]].about == {"n": cases[0]["index"]}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.integers(1, 6),
    count=st.integers(0, 12),
    seed=st.integers(0, 99),
    self_loops=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    has_gold=st.booleans(),
)
def test_edge_maps_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, nodes, count, seed, self_loops, dtype, has_gold
) -> None:
    folder = tmp_path_factory.mktemp("maps")
    found = edge_map(random_edges(nodes, count, seed), nodes, self_loops=self_loops, dtype=dtype, seed=seed)
    gold = torch.rand(len(found.weights)) < 0.5 if has_gold else None
    with Writer(folder, model="gat") as writer:
        made = writer.add("g", found, axis_labels={}, gold=gold)
    assert_same(load(folder)["g"][0], made["layers.0.attend"])


def test_several_sites_of_one_example(tmp_path: Path) -> None:
    net = torch.nn.ModuleList([Attention(Dot(), Softmax()) for _ in range(3)])
    x = torch.randn(2, 2, 4, 6)
    with record(net) as recorded:
        for layer in net:
            layer(x, x, x, DenseSupport(causal=True))
    words = ["a", "b", "c", "d"]
    with Writer(tmp_path / "maps", model="lm", layers=["0", "1", "2"]) as writer:
        for index in range(2):
            some = {"0": recorded["0"], "2": recorded["2"]}
            labels = {"query": words, "key": words}
            nouns = {"query": "word", "key": "word"}
            writer.add(f"text {index}", some, axis_labels=labels, index_in_batch=index, nouns=nouns)
            writer.add(f"text {index}", recorded["1"], axis_labels={"query": words}, index_in_batch=index)
    maps = load(tmp_path / "maps")
    assert maps.layers == ("0", "1", "2")
    assert list(maps["text 1"]) == ["0", "1", "2"]
    assert torch.equal(maps["text 1"]["2"].weights, recorded["2"].weights[1])
    assert torch.equal(maps["text 1"][1].weights, recorded["1"].weights[1])
    assert maps["text 0"][0].nouns == {"query": "word", "key": "word"}
    assert maps["text 0"][0].attends_to_itself
    index = json.loads((tmp_path / "maps" / "index.json").read_text())
    assert index["labels"] == [words, ["0", "1", "2", "3"]]  # equal arrays are stored once
    masks = {each["arrays"]["permitted"] for example in index["examples"] for each in example["maps"]}
    assert masks == {"0/0:permitted", "1/0:permitted"}


def test_the_budget_s_cut_is_said(tmp_path: Path) -> None:
    net = torch.nn.ModuleList([Attention(Dot(), Softmax()) for _ in range(2)])
    x = torch.randn(1, 2, 4, 6)
    with pytest.warns(UserWarning, match="left out"):
        recorded = _recorded(net, x)
    with Writer(tmp_path / "maps", model="m", layers=["0", "1"]) as writer:
        writer.add("a", recorded, axis_labels={})
    maps = load(tmp_path / "maps")
    assert (list(maps["a"]), maps.cut) == (["0"], {"1": 128})


def _recorded(net: torch.nn.ModuleList, x: torch.Tensor) -> Recording:
    with record(net, budget=2 * 4 * 4 * 4) as recorded:
        for layer in net:
            layer(x, x, x, DenseSupport())
    return recorded


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    halves = dense_map(batch=1, heads=1, queries=3, keys=3, dtype=torch.float16, causal=True)
    with Writer(folder, model="m") as writer:
        for number in range(3):  # 9 halves and 9 masks between floats: each must stay at a multiple of its size
            writer.add(f"{number}", halves, axis_labels={}, gold=torch.eye(3).bool() if number == 2 else None)
            writer.add(f"{number} wide", dense_map(site="b", batch=1, seed=number), axis_labels={})
    arrays = load_file(folder / "maps.safetensors")
    assert torch.equal(arrays["0/layers.0.attend"], halves.weights[0])
    assert torch.equal(arrays["5/b"], dense_map(batch=1, seed=2).weights[0])
    assert torch.equal(arrays["4/layers.0.attend:gold"], torch.eye(3).bool())
    header_length = int.from_bytes((folder / "maps.safetensors").read_bytes()[:8], "little")
    header = json.loads((folder / "maps.safetensors").read_bytes()[8 : 8 + header_length])
    sizes = {"F32": 4, "F16": 2, "BOOL": 1}
    assert header_length % 8 == 0
    assert all(each["data_offsets"][0] % sizes[each["dtype"]] == 0 for each in header.values())


def test_arrays_of_no_size_and_no_arrays(tmp_path: Path) -> None:
    file = TensorFile(tmp_path / "some.safetensors")
    file.add("none", torch.empty(0, 3))
    file.add("one", torch.tensor(2.5))
    file.add("empty", torch.empty(4, 0))
    file.close()
    arrays = load_file(tmp_path / "some.safetensors")
    assert {name: tuple(array.shape) for name, array in arrays.items()} == {"none": (0, 3), "one": (), "empty": (4, 0)}
    assert arrays["one"] == 2.5
    TensorFile(tmp_path / "empty.safetensors").close()
    with safe_open(tmp_path / "empty.safetensors", "pt") as opened:
        assert list(opened.keys()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"some.safetensors", "empty.safetensors"}


def test_memory_does_not_grow_with_the_examples(tmp_path: Path) -> None:
    found = dense_map(batch=1, heads=4, queries=20, keys=20, causal=True)

    def peak(examples: int) -> int:
        with Writer(tmp_path / f"{examples}", model="m") as writer:
            tracemalloc.start()
            for number in range(examples):
                words = [f"{number} {i}" for i in range(20)]
                made = writer.add(f"{number}", found, axis_labels={"query": words, "key": words})
                if number == 0:
                    first = weakref.ref(made["layers.0.attend"])
            highest = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert first() is None  # tracemalloc does not see what tensors hold
        return highest

    peak(2)  # imports and caches are made before measuring
    few, many = peak(100), peak(250)
    assert (tmp_path / "250" / "maps.safetensors").stat().st_size > 250 * found.nbytes
    assert many - few < 150 * 300, (few, many)  # an id each; 20 labels alone would be 150 * 1,200


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with Writer(tmp_path / "maps", model="m") as writer:
            writer.add("a", dense_map(), axis_labels={})
            assert [path.name[:11] for path in (tmp_path / "maps").iterdir()] == ["unfinished-"]
            with pytest.raises(DataError, match="not finished"):
                load(tmp_path / "maps")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_half()
    assert not (tmp_path / "maps").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(RuntimeError, match="boom"), Writer(tmp_path / "mine", model="m"):
        raise RuntimeError("boom")
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_failure_at_the_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: TensorFile) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorFile, "close", full)
    with pytest.raises(DataError, match="No space left"):
        write_graph(tmp_path / "maps")
    assert not (tmp_path / "maps").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="does not hold maps"):
            write_graph(tmp_path / "other", overwrite=overwrite)
    with pytest.raises(DataError, match="is a file"):
        write_graph(tmp_path / "other" / "thesis.txt")
    write_graph(tmp_path / "maps")
    with pytest.raises(DataError, match="holds maps already"):
        write_graph(tmp_path / "maps")
    with Writer(tmp_path / "live", model="m"), pytest.raises(DataError, match="being written"):
        write_graph(tmp_path / "live")


def test_overwriting_removes_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    with Writer(folder, model="old") as writer:
        writer.add("a", dense_map(), axis_labels={})
        writer.file("pictures/a.png").write_bytes(b"old")
    assert (folder / "pictures" / "a.png").read_bytes() == b"old"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RuntimeError), Writer(folder, model="new", overwrite=True):
        raise RuntimeError
    assert load(folder).model == "old"
    write_graph(folder, overwrite=True)
    assert load(folder).model == "gat"
    assert {path.name for path in folder.iterdir()} == {"index.json", "maps.safetensors", "scores.json", "notes.txt"}


def test_a_stranger_s_index_removes_nothing_outside(tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    write_graph(folder)
    (tmp_path / "precious").write_text("mine")
    index = json.loads((folder / "index.json").read_text())
    index["files"] += ["../precious", str(tmp_path / "precious")]
    (folder / "index.json").write_text(json.dumps(index))
    write_graph(folder, overwrite=True)
    assert (tmp_path / "precious").exists()


def test_a_stranger_s_index_removes_nothing_inside_either(tmp_path: Path) -> None:
    """A file belongs to the maps only if it is as it was written; another file in the way is an error at once."""
    folder = tmp_path / "maps"
    with Writer(folder, model="theirs") as writer:
        writer.add("a", dense_map(), axis_labels={})
        for name in ("pictures/a.png", "words.txt"):
            writer.file(name).write_bytes(b"theirs")
    for name in ("thesis.txt", "pictures/holiday.png"):
        (folder / name).write_text("mine")
    (folder / "words.txt").write_text("what I noted")
    index = json.loads((folder / "index.json").read_text())
    index["files"] += ["thesis.txt", "pictures/holiday.png"]
    index["digests"] |= {"thesis.txt": "0" * 32, "pictures/holiday.png": index["digests"]["words.txt"]}
    (folder / "index.json").write_text(json.dumps(index))
    write_graph(folder, overwrite=True)
    assert load(folder).model == "gat"
    for name in ("thesis.txt", "pictures/holiday.png"):
        assert (folder / name).read_text() == "mine"
    assert (folder / "words.txt").read_text() == "what I noted"
    assert not (folder / "pictures" / "a.png").exists()
    for name in ("thesis.txt", "words.txt", "pictures/holiday.png"):
        with (
            pytest.raises(
                DataError, match=f"{name}: does not belong to the maps, or was changed since they were written"
            ),
            Writer(folder, model="new", overwrite=True) as writer,
        ):
            writer.file(name)
    assert load(folder).model == "gat"


@pytest.mark.parametrize("linked", ["pictures", "words.txt", "maps.safetensors", "scores.json"])
def test_maps_are_not_written_through_links(tmp_path: Path, linked: str) -> None:
    folder, other = tmp_path / "maps", tmp_path / "other"
    (other / "pictures").mkdir(parents=True)
    (other / "pictures" / "a.png").write_text("mine")
    with Writer(folder, model="old") as writer:
        writer.add("a", dense_map(), axis_labels={})
        for name in ("pictures/a.png", "words.txt"):
            writer.file(name).write_bytes(b"old")
    (folder / linked).rename(tmp_path / "moved")
    if linked != "pictures":
        (tmp_path / "moved").rename(other / linked)
    (folder / linked).symlink_to(other / linked)
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}

    def overwritten() -> None:
        with Writer(folder, model="new", overwrite=True) as writer:
            writer.add("a", dense_map(), axis_labels={})
            for name in ("pictures/a.png", "words.txt"):
                writer.file(name).write_bytes(b"new")

    with pytest.raises(DataError, match=f"{linked}: is a link, and maps are not written through links"):
        overwritten()
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == before
    assert (folder / linked).is_symlink()


def test_no_room_for_a_picture(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"maps cannot be written there .*No space left"),
        Writer(tmp_path / "maps", model="m"),
    ):
        raise OSError(28, "No space left on device")
    assert not (tmp_path / "maps").exists()


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "index.json", "x.part"])
def test_other_files_stay_inside(tmp_path: Path, name: str) -> None:
    with Writer(tmp_path / "maps", model="m") as writer, pytest.raises(ValueError, match="inside"):
        writer.file(name)


def test_an_example_is_written_once(tmp_path: Path) -> None:
    with Writer(tmp_path / "maps", model="m") as writer:
        writer.add("a", dense_map(), axis_labels={})
        with pytest.raises(ValueError, match="a map of layers"):
            writer.add("a", dense_map(), axis_labels={})
        writer.add("b", dense_map(), axis_labels={})
        with pytest.raises(ValueError, match="written before"):
            writer.add("a", dense_map(site="other"), axis_labels={})
    with pytest.raises(RuntimeError, match="with statement"):
        Writer(tmp_path / "more", model="m").add("a", dense_map(), axis_labels={})
    with (
        Writer(tmp_path / "known", model="m", layers=["layers.0.attend"]) as writer,
        pytest.raises(ValueError, match="Did you mean 'layers"),
    ):
        writer.add("a", dense_map(site="layers.1.attend"), axis_labels={})


def test_scores_are_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "maps", model="m") as writer:
        for seed in range(2):
            found = dense_map(batch=1, heads=2, queries=3, keys=3, seed=seed)
            gold = torch.nn.functional.one_hot(found.weights[0, 1].argmax(-1), 3).bool()  # where head 1 points
            writer.add(f"{seed}", found, axis_labels={}, gold=gold)
        writer.add("no gold", dense_map(), axis_labels={})
        writer.truth["pointing_accuracy"] = 0.75
    scores = load(tmp_path / "maps").scores
    assert scores["truth"] == {"pointing_accuracy": 0.75}
    rows = {row["head"]: row for row in scores["maps"]}
    assert set(rows) == {"mean", 0, 1}
    assert rows[1]["pointing_accuracy"] == 1.0
    assert rows[1]["alignment_error"] == 0.0
    assert 0 < rows["mean"]["mass_on_gold"] < 1
    assert all(row["examples"] == 2 and row["site"] == "layers.0.attend" and row["layer"] == 0 for row in rows.values())


def damaged(tmp_path: Path, name: str, content: bytes | None) -> Path:
    write_graph(tmp_path / "maps")
    path = tmp_path / "maps" / name
    path.unlink() if content is None else path.write_bytes(content)
    return tmp_path / "maps"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("index.json", None, "there are no maps, index.json is missing"),
        ("index.json", b'{"kind": "attention ', "is damaged"),
        ("index.json", b"\xff\xfe", "is damaged"),
        ("index.json", b'{"weight_map": {}}', "does not describe a folder of maps"),
        ("index.json", b'{"kind": "attention maps", "format": 2}', "format 2, and this version reads up to 1"),
        ("index.json", b'{"kind": "attention maps", "format": 1}', "is damaged: it lacks model"),
        ("maps.safetensors", None, "maps.safetensors is missing"),
        ("maps.safetensors", b"", "truncated or not a safetensors file"),
        ("maps.safetensors", b"not arrays at all", "truncated or not a safetensors file"),
        ("scores.json", None, "scores.json is missing"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(damaged(tmp_path, name, content))


def test_a_truncated_file_and_a_missing_array(tmp_path: Path) -> None:
    write_graph(tmp_path / "maps")
    path = tmp_path / "maps" / "maps.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(DataError, match="truncated"):
        load(tmp_path / "maps")
    path.write_bytes(whole)
    index = tmp_path / "maps" / "index.json"
    index.write_text(index.read_text().replace('"0/layers.0.attend"', '"9/layers.0.attend"'))
    maps = load(tmp_path / "maps")
    with pytest.raises(DataError, match="9/layers"):
        maps["graph"]["layers.0.attend"]
    with pytest.raises(DataError, match="no maps"):
        load(tmp_path / "nowhere")


def test_what_is_not_there_gets_an_offer(tmp_path: Path) -> None:
    write_graph(tmp_path / "maps")
    maps = load(tmp_path / "maps")
    with pytest.raises(KeyError, match="Did you mean 'graph'"):
        maps["graphs"]
    with pytest.raises(KeyError, match="it has layers"):
        maps["graph"]["layers.7.attend"]
    with pytest.raises(KeyError):
        maps["graph"][3]


def test_the_edges_of_all_layers_are_there_once(tmp_path: Path) -> None:
    support = EdgeSupport.from_edges(random_edges(5, 12), 5, self_loops=True)
    recorded = {f"{i}": edge_map(torch.empty(0), 5, site=f"{i}", seed=i, support=support) for i in range(3)}
    with Writer(tmp_path / "maps", model="gat") as writer:
        writer.add("graph", recorded, axis_labels={"source": IDS, "target": IDS})
    names = set(load_file(tmp_path / "maps" / "maps.safetensors"))
    assert names == {"0/0", "0/1", "0/2", "0/0:source", "0/0:target"}


def test_the_import_is_light() -> None:
    """Heavy packages are imported where they are used, and at the top of a module for type checkers only."""
    heavy = {"pandas", "matplotlib", "pyarrow", "safetensors", "pytorch_lightning", "torch_geometric", "torchvision"}
    for path in Path(zoo.maps.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not heavy & {name.split(".")[0] for name in names}, path
