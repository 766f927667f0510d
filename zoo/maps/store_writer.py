"""A folder of attention maps, written as a stream.

    index.json         model, layers, examples, and the labels along every axis; written last
    maps.safetensors   the weights of each example and layer, with their edges, masks and gold
    scores.json        the truth score, and every measure by layer and head
    ...                pictures and other files of the caller (`Writer.file`)

All files are first written to a folder `unfinished-...` inside it, and moved at the end. A folder with an index is
therefore complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from jaxtyping import Bool, Shaped
from torch import Tensor

from zoo.attention.recording.attention_map import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.errors import DataError, did_you_mean
from zoo.io import read_json, sync_folder
from zoo.maps import atomic_folder, metrics
from zoo.maps.build_labelled_map import Heads, label_map
from zoo.maps.index import FORMAT, KIND, IndexFile
from zoo.maps.labelled_map import LabelledMap
from zoo.maps.tensors import TensorFile, storable

INDEX, ARRAYS, SCORES = "index.json", "maps.safetensors", "scores.json"
UNFINISHED = "unfinished-"


class Writer:
    """Writes maps as a stream; memory does not grow with the number of examples, except for their ids.

    Weights in fp32, fp16 and bf16 keep their dtype, and fp64 is stored as fp32; means over heads are fp32.

    Args:
        folder: Folder to write. It must be new or empty, or hold maps if `overwrite` is True.
        model: Name of the model.
        checkpoint: Path of the model's checkpoint.
        layers: All sites of the model in order, `list(zoo.attention.sites(net))`, so that layers keep their numbers if
            only some are written. Default: sites are numbered as they are added.
        heads: Whether each head is written, or only their mean.
        about: Other facts about the maps, in plain types.
        overwrite: If True, replaces maps in the folder. Other files stay, and so do files that were changed since they
            were written. Writing over such a file or through a link is an error.

    Attributes:
        truth: Truth score by measure, for `scores.json`; set by the caller.
        faithfulness: Means of the measures of faithfulness, for `scores.json`; set by the caller. Default: none.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        model: str,
        checkpoint: str | None = None,
        layers: Sequence[str] | None = None,
        heads: Heads = "each",
        about: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.truth: dict[str, float | None] = {}
        self.faithfulness: list[dict[str, Any]] = []
        self._overwrite = overwrite
        self._heads: Heads = heads
        self._facts = {"model": model, "checkpoint": checkpoint, "heads": heads, "about": dict(about or {})}
        self._layers = list(layers or ())
        self._layers_are_known = layers is not None
        self._open = False

    def __enter__(self) -> Writer:
        _check_free(self.folder, self._overwrite)
        self._work = self.folder / f"{UNFINISHED}{secrets.token_hex(4)}"
        self._is_new = not self.folder.exists()
        self._own: set[str] = set()
        if (self.folder / INDEX).exists():
            self._own = {INDEX, ARRAYS, *atomic_folder.find_unchanged(self.folder / INDEX)}
            for name in (INDEX, ARRAYS, SCORES):
                atomic_folder.check_free(self.folder, name, self._own)
        with self._naming_errors():
            self._work.mkdir(parents=True)
            self._arrays = TensorFile(self._work / ARRAYS)
            self._index = IndexFile(self._work / INDEX)
        self._ids: set[str] = set()
        self._current: dict[str, Any] | None = None
        self._stored: dict[bytes, str] = {}
        self._tally = metrics.Tally()
        self._cut: dict[str, int] = {}
        self._silent: dict[str, str] = {}
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            if isinstance(error, OSError) and error.filename is None:  # such as a picture on a full disk
                with self._naming_errors():
                    raise error
            return
        try:
            files = self._finish()
        except BaseException:
            self._discard()
            raise
        with self._naming_errors():
            self._publish(files)

    def add(
        self,
        example_id: str,
        maps: AttentionMap | Mapping[str, AttentionMap],
        *,
        axis_labels: Mapping[str, Sequence[str]],
        gold: Bool[Tensor, "..."] | None = None,
        index_in_batch: int = 0,
        nouns: Mapping[str, str] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> dict[str, LabelledMap]:
        """Writes maps of one example: the map of a site, or a recording.

        If sites have different axes (encoder, decoder), add each group of sites by a call of its own, in succession.
        For the other arguments see `label_map`.

        Args:
            about: Facts about the example, such as its label and the prediction, in plain types.

        Returns:
            The maps that were written, by site.

        Raises:
            ValueError: A site was written already, or labels or gold do not fit. The example is then incomplete.
        """
        if not self._open:
            raise RuntimeError("a Writer is used in a with statement: with Writer(...) as writer")
        if isinstance(maps, Recording):
            self.note(maps)
        found = {maps.site: maps} if isinstance(maps, AttentionMap) else maps
        options: dict[str, Any] = {"gold": gold, "index_in_batch": index_in_batch, "nouns": nouns}
        made = {
            site: label_map(each, axis_labels, heads=self._heads, layer=self._layer(site), **options)
            for site, each in found.items()
        }
        with self._naming_errors():
            current = self._begin(example_id)
            current["about"] |= dict(about or {})
            for site, each in made.items():
                if any(other["layer"] == each.layer for other in current["maps"]):
                    raise ValueError(f"example {example_id!r} has a map of {site} already")
                current["maps"].append(self._write(each))
                self._tally.add(each)
        return made

    def note(self, found: Recording) -> None:
        """Notes the reasons why sites of a recording have no map; needed if its maps are added one by one."""
        self._silent |= found.silent
        for site, size in found.cut.items():
            self._cut[site] = max(size, self._cut.get(site, 0))

    def file(self, name: str) -> Path:
        """Returns the path at which to write another file of the folder, such as a picture; it is moved at the end."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or name in (INDEX, ARRAYS, SCORES) or name.endswith(".part"):
            raise ValueError(f"{name!r} cannot be the name of another file inside the folder")
        atomic_folder.check_free(self.folder, path.as_posix(), self._own)
        unfinished = self._work / path
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        return unfinished

    def _finish(self) -> list[str]:
        """Completes all files in the unfinished folder, the index last; returns their names."""
        with self._naming_errors():
            self._end()
            self._arrays.close()
            scores = {"format": FORMAT, "truth": self.truth, "maps": self._tally.rows(self._layers)}
            if self.faithfulness:
                scores["faithfulness"] = self.faithfulness
            _write_json(self._work / SCORES, scores)
            paths = [path for path in self._work.rglob("*") if path.is_file() and not path.name.endswith(".part")]
            files = [*sorted(path.relative_to(self._work).as_posix() for path in paths), INDEX]
            facts = {"layers": self._layers, "cut": self._cut, "silent": self._silent, "files": files}
            digests = {name: atomic_folder.digest(self._work / name) for name in files if name not in (INDEX, ARRAYS)}
            self._index.close(self._facts | facts | {"digests": digests})
        self._open = False
        return files

    def _publish(self, files: Sequence[str]) -> None:
        for name in files:
            atomic_folder.check_free(self.folder, name, self._own)
        if self._own:
            _remove_maps(self.folder, self._own)
        for name in files:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._work / name, self.folder / name)
        shutil.rmtree(self._work)
        sync_folder(self.folder)

    def _discard(self) -> None:
        """Removes all files that were written; maps that they would have replaced stay."""
        self._open = False
        self._arrays.abandon()
        self._index.abandon()
        shutil.rmtree(self._work, ignore_errors=True)
        if self._is_new:
            with suppress(OSError):
                self.folder.rmdir()

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(f"{self.folder}: maps cannot be written there ({error.strerror or error})") from error

    def _layer(self, site: str) -> int:
        if site not in self._layers:
            if self._layers_are_known:
                raise ValueError(f"{site!r} is not among the model's layers. {did_you_mean(site, self._layers)}")
            self._layers.append(site)
        return self._layers.index(site)

    def _begin(self, example_id: str) -> dict[str, Any]:
        if self._current is not None and self._current["id"] == example_id:
            return self._current
        self._end()
        if example_id in self._ids:
            raise ValueError(f"example {example_id!r} was written before; add all maps of an example in succession")
        self._ids.add(example_id)
        self._current = {"id": example_id, "about": {}, "maps": []}
        return self._current

    def _end(self) -> None:
        if self._current is not None:
            self._index.add(self._current)
        self._current, self._stored = None, {}

    def _write(self, found: LabelledMap) -> dict[str, Any]:
        name = f"{len(self._ids) - 1}/{found.site}"
        self._arrays.add(name, storable(found.weights))
        arrays = {"weights": name}
        for part in ("source", "target", "permitted", "gold"):
            tensor = getattr(found, part)
            if tensor is not None:
                arrays[part] = self._share(f"{name}:{part}", tensor)
        return {
            "layer": found.layer,
            "axes": list(found.axes),
            "heads": list(found.heads),
            "labels": {axis: self._index.number_of(labels) for axis, labels in found.labels.items()},
            "nouns": dict(found.nouns),
            "arrays": arrays,
        }

    def _share(self, name: str, tensor: Shaped[Tensor, "..."]) -> str:
        """Returns the name of an array with this content; layers of one example share edges, masks and gold."""
        digest = hashlib.blake2b(tensor.contiguous().numpy().data, digest_size=16)
        digest.update(repr((tensor.dtype, tensor.shape)).encode())
        if digest.digest() not in self._stored:
            self._arrays.add(name, tensor)
            self._stored[digest.digest()] = name
        return self._stored[digest.digest()]


def _check_free(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file. Maps are written to a folder; give another path.")
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if not names:
        return
    if INDEX in names and _is_ours(folder / INDEX):
        if not overwrite:
            raise DataError(f"{folder}: holds maps already. Give another folder, or replace them with --overwrite.")
    elif all(name.startswith(UNFINISHED) for name in names):
        raise DataError(
            f"{folder}: maps are being written there, or their writing was interrupted. Give another folder, or remove "
            f"{folder / names[0]} if nothing writes there any more."
        )
    else:
        raise DataError(f"{folder}: is not empty and does not hold maps. Give another folder.")


def _is_ours(index: Path) -> bool:
    try:
        content = read_json(index)
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == KIND


def _remove_maps(folder: Path, own: Collection[str]) -> None:
    """Removes the files of the maps. The index is first, so that after an interruption the rest is not read as maps."""
    for name in (INDEX, *(each for each in sorted(own) if each != INDEX)):
        path = folder / name
        path.unlink(missing_ok=True)
        with suppress(OSError):
            if path.parent != folder:
                path.parent.rmdir()


def _write_json(path: Path, content: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
