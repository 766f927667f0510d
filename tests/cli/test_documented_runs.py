"""The commands of the pages of domains do what they say, with files of data/samples and tiny options."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_documented_commands import commands

from zoo.config import compose

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "data" / "samples"
SHORT = ["data.max_epochs=1", "trainer=cpu", "logger=csv", "threads=1"]
CHECKPOINTS = ("runs/.../checkpoints/best.ckpt", "runs/.../best.ckpt", "en-de/checkpoints/best.ckpt")
"""What a page calls the checkpoint of an earlier run."""
TINY = {
    "planted_graph": ["data.nodes=400"],
    "planted_glimpse": ["data.train=32", "data.val=8", "data.test=8"],
    "planted_sessions": ["data.users=60"],
    "planted_baskets": ["data.users=60"],
    "planted_reviews": ["data.reviews=40"],
    "planted_translation": ["data.pairs=60", "data.held_out=20"],
    "planted_tones": ["data.utterances=20", "data.held_out=8"],
    "planted_scenes": ["data.pictures=40", "data.held_out=8"],
    "planted_questions": ["data.pictures=40", "data.held_out=8"],
    "planted_passages": ["data.passages=40", "data.held_out=8"],
    "planted_inference": ["data.pairs=40", "data.held_out=8"],
}
"""Generated data -> the options that make it small. Of a user's own data there are the samples."""
OWN = {
    *("graph_files", "image_folder", "image_table", "interactions", "text_table", "text_pairs", "audio_manifest"),
    *("captions", "picture_questions"),
}


class Story(NamedTuple):
    """What a reader of a page has.

    Attributes:
        train: The options of the run that made the checkpoint.
        files: Name on the page -> file or folder in data/samples.
    """

    train: list[str]
    files: dict[str, str]


STORIES = {
    "graphs": Story(
        ["model=gat", "data=graph_files", "data.nodes=nodes.csv", "data.edges=edges.csv"],
        {"nodes.csv": "graph/nodes.csv", "edges.csv": "graph/edges.csv", "folder": "graph"},
    ),
    "vision": Story(
        ["model=vit", "data=image_folder", "data.folder=folder", "data.height=48", "data.width=48"],
        {"folder": "vision/pictures", "photo.jpg": "vision/pictures/circle/circle_2.jpg"},
    ),
    "recommendation": Story(
        ["model=sasrec", "data=interactions", "data.table=own.csv"],
        dict.fromkeys(["own.csv", "new.csv", "table.csv"], "recommendation/interactions.csv"),
    ),
    "documents": Story(
        ["model=han", "data=text_table", "data.table=own.csv"],
        {**dict.fromkeys(["own.csv", "reviews.csv"], "documents/reviews.csv"), "lines.txt": "translation/phrases.en"},
    ),
    "translation": Story(
        ["model=nmt", "data=text_pairs", "data.table=own.tsv"],
        {
            **dict.fromkeys(["own.tsv", "pairs.tsv"], "translation/phrases.tsv"),
            **{"letters.txt": "translation/phrases.de", "english.txt": "translation/phrases.en"},
        },
    ),
    "speech": Story(
        [
            *("experiment=las_monotonic", "data=audio_manifest", "data.table=own.csv"),
            *("data.features.normalise=global", "data.tokeniser=characters"),
        ],
        {
            **{"own.csv": "speech/recordings.csv", "clips": "speech/clips"},
            **{"meetings": "speech/clips", "talk.wav": "speech/clips/03.wav"},
        },
    ),
    "captioning": Story(
        ["model=captioner", "data=captions", "data.table=own.csv"],
        {"own.csv": "captioning/captions.csv", "photos": "captioning/pictures", "pictures": "captioning/pictures"},
    ),
    "answering": Story(
        ["model=coattention", "data=picture_questions", "data.table=own.csv"],
        {
            **dict.fromkeys(["own.csv", "table.csv"], "answering/questions.csv"),
            **{f"{number:02}.png": f"captioning/pictures/{number:02}.png" for number in range(1, 11)},
        },
    ),
}


def prepare(words: Sequence[str], checkpoint: Path) -> list[str] | None:
    """Returns the arguments of `zoo` for a documented command; None if it needs published data or weights."""
    words = [part for word in words for part in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    for name in CHECKPOINTS:
        words = [word.replace(name, str(checkpoint)) for word in words]
    if words[:2] == ["python", "train.py"]:
        words = ["train", *words[2:]]
    elif words[0] == "zoo":
        words = words[1:]
    else:
        return None
    if words[0] not in ("train", "check"):
        return words
    named = dict(word.split("=", 1) for word in words[1:])
    if "experiment" in named or named.get("init", str(checkpoint)) != str(checkpoint):
        return None
    data = named.get("data") or compose.compose([f"model={named['model']}"])["names"]["data"]
    return [*words, *TINY.get(data, []), *SHORT] if data in TINY or data in OWN else None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # samples are small, and have columns that are not used
@pytest.mark.parametrize("page", STORIES)
def test_commands_of_a_page_run(
    page: str, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = STORIES[page]
    for name, sample in story.files.items():
        copy = shutil.copytree if (SAMPLES / sample).is_dir() else shutil.copy
        copy(SAMPLES / sample, tmp_path / name)
    trained = cli("train", *story.train, *SHORT, "run_dir=trained")
    assert trained.code == 0, trained.err
    ran = 0
    for words in commands(ROOT / "docs" / f"{page}.md"):
        arguments = prepare(words, tmp_path / "trained" / "checkpoints" / "best.ckpt")
        if arguments is None:
            continue
        if arguments[0] == "maps":
            shutil.rmtree("maps", ignore_errors=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one line\nanother line\n")))
        done = cli(*arguments)
        assert done.code == 0, f"{' '.join(words)}\n{done.err}"
        ran += 1
    assert ran >= 4
