"""Reads a folder of maps; arrays are read when they are requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from zoo.errors import DataError, did_you_mean
from zoo.io import read_json
from zoo.maps import validation
from zoo.maps.index import FORMAT, KIND
from zoo.maps.labelled_map import LabelledMap
from zoo.maps.store_writer import ARRAYS, INDEX, SCORES, UNFINISHED
from zoo.validation import ValidationError, validate

if TYPE_CHECKING:
    import pandas as pd


def load(folder: Path | str) -> Maps:
    """Opens a folder of maps. Its index is read at once, and arrays when they are requested.

    Raises:
        DataError: The folder has no maps, or they are damaged or of a newer version.
    """
    return Maps(Path(folder))


class Example(Mapping[str, LabelledMap]):
    """The maps of one example by site, in the order of the model. A layer's number can be used instead of its site.

    Attributes:
        id: Id of the example.
        about: Facts that were stored with the example.
    """

    def __init__(self, maps: Maps, entry: Mapping[str, Any]) -> None:
        validate(entry, validation.EXAMPLE, "it")
        self.id: str = entry["id"]
        self.about: dict[str, Any] = entry["about"]
        self._maps = maps
        by_layer = sorted(entry["maps"], key=lambda each: each["layer"])
        numbers = [each["layer"] for each in by_layer]
        if len(set(numbers)) != len(numbers) or not all(number < len(maps.layers) for number in numbers):
            raise ValidationError(f"its maps are of the layers {numbers}, and there are {len(maps.layers)}")
        self._entries = {maps.layers[each["layer"]]: each for each in by_layer}

    def __getitem__(self, site: str | int) -> LabelledMap:
        name = self._maps.layers[site] if isinstance(site, int) and 0 <= site < len(self._maps.layers) else site
        if name not in self._entries:
            raise KeyError(f"example {self.id!r} has no map of {site!r}; it has {', '.join(self._entries)}")
        return self._maps._read(str(name), self._entries[str(name)])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Maps(Mapping[str, Example]):
    """Examples by id, in the order in which they were written.

    Attributes:
        folder: Path of the folder.
        model, checkpoint: Name of the model, and path of its checkpoint.
        about: Other facts about the maps.
        layers: Sites of the model, by number.
        heads: "each", or "mean" if heads were averaged.
        cut: Sites that the budget left out, with the size in bytes of the largest map of each.
        silent: Sites without a map, with the reason for each.
        scores: The truth score, and every measure by layer and head.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = _read_json(folder / INDEX)
        if not isinstance(index, dict) or index.get("kind") != KIND:
            raise DataError(f"{folder}: its {INDEX} does not describe a folder of maps")
        if not isinstance(index.get("format"), int) or index["format"] > FORMAT:
            raise DataError(
                f"{folder}: the maps have format {index.get('format')}, and this version reads up to {FORMAT}. "
                "Update attention-zoo, or write the maps again."
            )
        with self._damage(f"its {INDEX}"):
            validate(index, validation.INDEX, "it")
        self.model: str = index["model"]
        self.checkpoint: str | None = index["checkpoint"]
        self.about: dict[str, Any] = index["about"]
        self.layers: tuple[str, ...] = tuple(index["layers"])
        self.heads: str = index["heads"]
        self.cut: dict[str, int] = index["cut"]
        self.silent: dict[str, str] = index["silent"]
        self._labels: list[Sequence[str]] = index["labels"]
        self._examples = {entry["id"]: entry for entry in index["examples"]}
        self.scores: dict[str, Any] = _read_json(folder / SCORES)
        with self._damage(f"its {INDEX}"):
            if len(self._examples) != len(index["examples"]):
                raise ValidationError("two examples have the same id")
            validate(self.scores, dict, SCORES)
        self._arrays = _open_arrays(folder / ARRAYS)

    def __getitem__(self, example_id: str) -> Example:
        if example_id not in self._examples:
            raise KeyError(f"there is no example {example_id!r}. {did_you_mean(str(example_id), self._examples)}")
        with self._damage(f"example {example_id!r}"):
            return Example(self, self._examples[example_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._examples)

    def __len__(self) -> int:
        return len(self._examples)

    def to_pandas(self, examples: Sequence[str] | None = None, layers: Sequence[int] | None = None) -> pd.DataFrame:
        """Returns a table with one row for each example, layer, head and pair.

        The columns are example and those of `zoo.maps.dataframes.frames`. The whole table is in memory: select
        `examples` and `layers`, or write pieces with `zoo.maps.dataframes.write`.
        """
        import pandas as pd

        from zoo.maps.dataframes import concat, frames

        chosen = list(self) if examples is None else list(examples)
        parts = []
        for example_id in chosen:
            for found in self[example_id].values():
                if layers is not None and found.layer not in layers:
                    continue
                for piece in frames(found):
                    name = pd.Categorical.from_codes([0] * len(piece), pd.Index([example_id]))
                    piece.insert(0, "example", pd.Series(name, index=piece.index))
                    parts.append(piece)
        if not parts:
            raise DataError(f"{self.folder}: there are no such maps")
        return concat(parts)

    def _read(self, site: str, entry: Mapping[str, Any]) -> LabelledMap:
        with self._damage(f"the map of {site}"):
            if not all(number < len(self._labels) for number in entry["labels"].values()):
                raise ValidationError(
                    f"it has the labels {list(entry['labels'].values())}, and there are {len(self._labels)}"
                )
            arrays = {part: self._array(name) for part, name in entry["arrays"].items() if part in validation.PARTS}
            validate(arrays, {"weights": Tensor}, "it")
            found = LabelledMap(
                site=site,
                layer=entry["layer"],
                axes=tuple(entry["axes"]),
                heads=tuple(entry["heads"]),
                labels={axis: self._labels[number] for axis, number in entry["labels"].items()},
                nouns=entry["nouns"],
                **arrays,
            )
            validation.check(found)
            return found

    @contextmanager
    def _damage(self, what: str) -> Iterator[None]:
        """Turns a ValidationError into a DataError that names this part of the folder."""
        try:
            yield
        except ValidationError as error:
            raise DataError(f"{self.folder}: {what} is damaged: {error}") from error

    def _array(self, name: str) -> Tensor:
        from safetensors import SafetensorError

        try:
            tensor: Tensor = self._arrays.get_tensor(name)
        except SafetensorError as error:
            raise DataError(f"{self.folder / ARRAYS}: array {name!r} cannot be read ({error})") from error
        return tensor


def _read_json(path: Path) -> Any:
    try:
        return read_json(path)
    except FileNotFoundError:
        unfinished = any(path.parent.glob(f"{UNFINISHED}*")) if path.parent.is_dir() else False
        what = "the maps were not finished" if unfinished else "there are no maps"
        raise DataError(f"{path.parent}: {what}, {path.name} is missing. `zoo maps` writes them.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise DataError(f"{path}: is damaged: {error}") from error


def _open_arrays(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataError(f"{path.parent}: the maps are incomplete, {path.name} is missing")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: is truncated or not a safetensors file ({error})") from error
