"""Multi30k and IWSLT 2014, as they were published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.data.download import expect, find_published
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.files import Aligned, Reading, read_pair_files

_MULTI30K_AT = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K = {"train": "train", "val": "val", "test": "test_2016_flickr"}


def read_multi30k(folders: Sequence[Path], direction: str) -> Corpus:
    """multi30k/{train,val,test_2016_flickr}.{de,en,fr}, also with .gz: image captions, a line each."""
    sides = direction.split("-")
    names = [f"{stem}.{language}" for stem in _MULTI30K.values() for language in sides]
    places = [folder / "multi30k" for folder in folders]
    plain = {name: path for name in names for path in [place / name for place in reversed(places)] if path.is_file()}
    zipped, _ = find_published([f"{name}.gz" for name in names if name not in plain], places, source=_MULTI30K_AT)
    paths = {name: plain.get(name) or zipped[f"{name}.gz"] for name in names}
    files = {split: Aligned(*(paths[f"{stem}.{language}"] for language in sides)) for split, stem in _MULTI30K.items()}
    corpus = read_pair_files(files, Reading(), cache=None, split_seed=0)
    expect(len(corpus) > 0, next(iter(paths.values())), "it has no captions")
    return corpus
