"""The part of `zoo maps` and `zoo evaluate --worst` that a domain supplies; `zoo.maps.export` does the rest.

A `MapSource` names what can be drawn, and yields tables over all examples and the few examples that are written with
their maps, pictures and words. A `Task` returns one from `Task.maps`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Bool
from torch import Tensor, nn

from zoo.attention import AttentionMap, record
from zoo.attention.observing.record import Recording
from zoo.errors import ConfigError, DataError, nearest
from zoo.maps.frames import Format
from zoo.maps.labelled import LabelledMap
from zoo.maps.labelling import Heads

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SEARCHED = 10_000
"""Among so many names at most the one that was meant is searched for."""
_ESCAPED, _NUMBERED = 100, 60
"""Characters of an example's name in the name of its picture."""


@dataclass(frozen=True)
class MapOptions:
    """The options of `zoo maps`.

    Args:
        heads: Each head, or their average alone.
        layers: Sites to write, by number or pattern; None: all.
        budget: Bytes that the maps of one example may take.
        ids: What to draw and describe; None: typical examples.
        pictures: How many of these.
        table_format: Of tables: csv or parquet.
        overwrite: Replace the maps that are in the folder.
    """

    heads: Heads = "each"
    layers: Sequence[int | str] | None = None
    budget: int | None = None
    ids: Sequence[str] | None = None
    pictures: int = 4
    table_format: Format = "csv"
    overwrite: bool = False


@dataclass(frozen=True, eq=False)
class NamedMap:
    """The map of one site, with what `zoo.maps.labelled` must be told of it."""

    found: AttentionMap
    axis_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nouns: Mapping[str, str] = field(default_factory=dict)
    gold: Bool[Tensor, "..."] | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """A table of the folder.

    Args:
        name: Of its file, without the ending.
        frames: Its rows, piece by piece.
        figure: A picture of it, `pictures/NAME.png`.
    """

    name: str
    frames: Iterable[pd.DataFrame]
    figure: Figure | None = None


class MappedExample(ABC):
    """One example that is written: its maps, and what is drawn and said of it.

    Attributes:
        found: What was recorded of it.
    """

    found: Recording

    @property
    @abstractmethod
    def id(self) -> str:
        """Its name."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts to store with it (its label, the prediction), in plain types."""
        return {}

    @property
    @abstractmethod
    def words(self) -> Sequence[str]:
        """Lines of words.txt."""

    @abstractmethod
    def maps(self) -> Iterable[NamedMap]:
        """Those of `found` with their names, and others that were computed from it."""

    @abstractmethod
    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        """Pictures, each with the name of its file, which `picture_name` makes.

        Args:
            made: The maps as they were written, by site.
            number: Of the example, from 1.
        """

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        """Tables to which this example adds rows."""
        return iter(())


class MapSource(ABC):
    """The maps of one model on one data set.

    `export` reads `tables`, then `examples`, then `truth`, so that one pass over the data can serve all of them.

    Args:
        net: Whose sites are recorded.
        options: What is asked for.

    Attributes:
        noun: What is drawn: "picture", "user", "node".
        is_one_example: Whether all that can be drawn is in one example, as the nodes of a graph are.
        scored: Names of maps that are no site of the net, as of the scored one.
    """

    noun: ClassVar[str]
    is_one_example: ClassVar[bool] = False
    scored: Sequence[str] = ()

    def __init__(self, net: nn.Module, options: MapOptions) -> None:
        self.net = net
        self.options = options

    @cached_property
    def chosen(self) -> list[int]:
        """Positions in `names` of what is drawn: the ids that were asked for, in their order, else typical examples.

        Raises:
            DataError: An id is not there.
        """
        if self.options.ids is None:
            return self.typical(self.options.pictures)
        at = {name: position for position, name in enumerate(self.names())}
        for each in self.options.ids:
            if each not in at:
                near = nearest(each, at) if len(at) < _SEARCHED else ""
                raise DataError(f"there is no {self.noun} {each!r}. {near}".rstrip())
        return [at[each] for each in self.options.ids]

    @contextmanager
    def recording(self, *, implied: bool = False) -> Iterator[Recording]:
        """Records the sites that are written, within the budget; the report names what that leaves out.

        The scored map and tables may need other sites of the same pass: they have a recording of their own, around or
        within this one, and share its arrays.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the budget of")
            with record(self.net, layers=self.options.layers, budget=self.options.budget, implied=implied) as found:
                yield found

    @abstractmethod
    def names(self) -> Sequence[str]:
        """All that can be drawn."""

    def typical(self, count: int) -> list[int]:
        """Positions in `names` of what is drawn when no ids are given; by default the first ones."""
        return list(range(len(self.names())))[:count]

    @abstractmethod
    def examples(self) -> Iterator[MappedExample]:
        """The examples that are written, with one recording each."""

    def tables(self) -> Iterator[Table]:
        """Tables over all examples, each read to its end before the next is asked for."""
        return iter(())

    def truth(self) -> Mapping[str, float | None]:
        """The scored map against gold attention, by measure; empty where no gold is known."""
        return {}

    @property
    def truth_of(self) -> str:
        """Of which examples and of which map `truth` is: "test pictures, rollout"."""
        return f"{self.noun}s"

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts for index.json, besides the names of the model and the data."""
        return {}

    def summary(self, out: str) -> list[str]:
        """The first lines of the report: how much of what is in the folder `out`."""
        return [f"maps and drawings of {len(self.chosen)} {self.noun}{'s' * (len(self.chosen) != 1)}"]

    @abstractmethod
    def looks(self) -> list[str]:
        """In words, where the scored map looks in each of `chosen`."""


def check_layers(net: nn.Module, layers: Sequence[int | str] | None) -> None:
    """Refuses layers that a model does not have."""
    try:
        with record(net, layers=layers):
            pass
    except ValueError as error:
        raise ConfigError(f"layers: {error}") from error


def one_a_label(labels: Sequence[int], is_typical: Sequence[bool] | None = None) -> list[int]:
    """Positions in the order in which typical examples are taken: the first of each label, then the second."""
    seen: dict[int, int] = {}
    ranked = []
    for position, label in enumerate(labels):
        if is_typical is None or is_typical[position]:
            seen[label] = seen.get(label, 0) + 1
            ranked.append((seen[label], position))
    return [position for _, position in sorted(ranked)]


def picture_name(name: str, number: int | None = None) -> str:
    """The name of an example as that of its picture's file, without the ending.

    The number in front tells namesakes apart; without one, characters that a file's name should not have are escaped.
    """
    if number is None:
        return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02x}" for c in name)[:_ESCAPED]
    return f"{number}_{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)[:_NUMBERED]}"
