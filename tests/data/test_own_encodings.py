"""Every data set of the user's own files reads other encodings, and leaves out what is no text."""

from __future__ import annotations

import inspect
import shutil
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from zoo.config.compose import compose
from zoo.config.instantiate import build
from zoo.data.encodings import ENCODINGS
from zoo.errors import ZooError

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
LEAST = ["data.min_user_items=1", "data.min_item_users=1"]
OWN = {
    "graph_files": ["model=gat", "data.nodes=graph/nodes.csv", "data.edges=graph/edges.csv"],
    "image_table": ["model=resnet", "data.table=vision/pictures.csv", "data.height=8", "data.width=8"],
    "interactions": [
        "model=sasrec",
        "data.table=recommendation/interactions.csv",
        "data.titles=recommendation/titles.csv",
        *LEAST,
    ],
    "text_table": ["model=han", "data.table=documents/reviews.csv"],
    "text_folder": ["model=han", "data.folder=documents/letters"],
    "text_pairs": ["model=nmt", "data.source_file=translation/phrases.de", "data.target_file=translation/phrases.en"],
    "captions": ["model=captioner", "data.table=captioning/captions.csv", "data.height=8", "data.width=8"],
    "picture_questions": ["model=coattention", "data.table=answering/questions.csv", "data.folder=captioning/pictures"],
    "passage_questions": ["model=bidaf", "data.table=answering/passages.csv"],
    "hypotheses": ["model=esim", "data.table=answering/hypotheses.jsonl"],
    "audio_manifest": ["model=las", "data.folder=speech/words"],
}
TEXTS = {".csv", ".tsv", ".jsonl", ".txt", ".de", ".en"}


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Reads a data set of copies of the samples whose texts were changed."""

    def _read(name: str, change: Callable[[bytes], bytes], *options: str) -> Any:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(SAMPLES, folder)
        for path in folder.rglob("*"):
            if path.suffix in TEXTS:
                path.write_bytes(change(path.read_bytes()))
        monkeypatch.chdir(folder)
        composed = compose([f"data={name}", *OWN[name], f"paths.cache={folder}", *options])
        data = build(composed["data"], "data")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data.setup()
            examples = data.examples("all")
        return dict(data.names(data.content)), len(examples.entries)

    return _read


def test_every_data_set_with_bad_rows_has_an_encoding() -> None:
    found = set()
    for path in sorted((SAMPLES.parents[1] / "conf" / "data").glob("*.yaml")):
        target = next((line for line in path.read_text().splitlines() if line.startswith("_target_")), None)
        if target is not None:
            package, _, name = target.split()[1].rpartition(".")
            options = inspect.signature(getattr(import_module(package), name)).parameters
            assert ("encoding" in options) == ("on_bad_row" in options and path.stem != "image_folder"), path.stem
            found |= {path.stem} if "encoding" in options else set()
    assert found == set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_the_same_is_read_of_utf16(read: Callable[..., Any], name: str) -> None:
    expected = read(name, lambda raw: raw)
    assert read(name, lambda raw: raw.decode().encode("utf-16"), "data.encoding=utf-16") == expected
    with pytest.raises(ZooError, match=r"byte 0xff is not UTF-8 text\..*data\.encoding=utf-16"):
        read(name, lambda raw: raw.decode().encode("utf-16"))


def test_encodings_are_those_of_python() -> None:
    for name in ENCODINGS:
        assert "a".encode(name).decode(name) == "a"
