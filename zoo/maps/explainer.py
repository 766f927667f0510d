"""The part of `zoo maps` and `zoo evaluate --worst` that a domain supplies; `zoo.maps.export` does the rest.

A `Explainer` names everything that can be drawn. It yields tables over all examples, and the few examples that are
written with their maps, pictures and words. A `Task` returns one from `Task.maps`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention import AttentionMap, DenseSupport, EdgeSupport, record
from zoo.attention.recording.recorder import Recording
from zoo.errors import ConfigError, DataError, count_noun, did_you_mean
from zoo.maps.build_labelled_map import Heads
from zoo.maps.dataframes import Format
from zoo.maps.labelled_map import LabelledMap
from zoo.maps.perturbation import Perturbable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SEARCHED = 10_000
"""Maximum number of names that are searched for one similar to an unknown name."""
_ESCAPED, _NUMBERED = 100, 60
"""Maximum number of characters of an example's name in the file name of its picture, without and with a number."""


@dataclass(frozen=True)
class MapOptions:
    """The options of `zoo maps`.

    Args:
        heads: Whether each head is written, or only their mean.
        layers: Numbers or name patterns of the sites to write. Default: all.
        budget: Maximum number of bytes of the maps of one example.
        ids: Ids of the examples to draw and describe. Default: typical examples.
        pictures: Number of typical examples.
        table_format: File format of tables.
        rows: Maximum number of rows of a table of edges. Default: 2,000,000, and all edges of the nodes in `ids`.
        overwrite: If True, maps in the folder are replaced.
        faithfulness: Number of examples whose faithfulness is measured; with `ids` it is measured for these. Default:
            it is not measured.
    """

    heads: Heads = "each"
    layers: Sequence[int | str] | None = None
    budget: int | None = None
    ids: Sequence[str] | None = None
    pictures: int = 4
    table_format: Format = "csv"
    rows: int | None = None
    overwrite: bool = False
    faithfulness: int | None = None


class Axis(NamedTuple):
    """What queries or keys are in an example.

    Args:
        noun: Noun for one of them: "source word", "cell: row, column", "item".
        labels: A label for each.
    """

    noun: str
    labels: Sequence[str]


class SiteAxes(NamedTuple):
    """The axes of some sites.

    Args:
        pattern: Pattern of the names of sites, as in `fnmatch`.
        query: Name of the axis of their queries in `ExplainedExample.axes`.
        key: Name of the axis of their keys.
    """

    pattern: str
    query: str
    key: str


@dataclass(frozen=True, eq=False)
class LabelledAttention:
    """The map of one site, with the arguments that `zoo.maps.labelled_map` takes for it."""

    found: AttentionMap
    axis_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nouns: Mapping[str, str] = field(default_factory=dict)
    gold: Bool[Tensor, "..."] | None = None

    @classmethod
    def from_weights(
        cls,
        name: str,
        weights: Float[Tensor, "n k"],
        axis_labels: Mapping[str, Sequence[str]],
        nouns: Mapping[str, str],
        gold: Bool[Tensor, "n k"] | None = None,
    ) -> LabelledAttention:
        """Names weights that were computed from those of a site, such as those of words: every pair has one."""
        support = DenseSupport(torch.ones(1, 1, *weights.shape, dtype=torch.bool))
        found = AttentionMap(name, weights[None, None], support.axes, support, heads=(-1,))
        return cls(found, axis_labels, nouns, gold)

    @classmethod
    def from_axes(
        cls, found: AttentionMap, query: Axis, key: Axis, gold: Bool[Tensor, "..."] | None = None
    ) -> LabelledAttention:
        """Labels the queries (or steps, or targets of edges) and the keys (or sources of edges) of a map."""
        if isinstance(found.support, EdgeSupport):
            axes = {"target": query, "source": key}
        else:
            axes = {"step" if "step" in found.axes else "query": query, "key": key}
        labels, nouns = ({name: axis[part] for name, axis in axes.items()} for part in (1, 0))
        return cls(found, labels, nouns, gold)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Table:
    """A table that is written to the folder.

    Args:
        name: Name of the file, without the suffix.
        frames: Rows of the table, in pieces.
        figure: Picture of the table, written to `pictures/NAME.png`.
    """

    name: str
    frames: Iterable[pd.DataFrame]
    figure: Figure | None = None


class ExplainedExample(ABC):
    """One example that is written with its maps, pictures and words.

    Attributes:
        found: Recording of the example.
        sites: The axes of the sites; the first pattern that matches the name of a site decides.
    """

    found: Recording
    sites: Sequence[SiteAxes] = ()

    @property
    @abstractmethod
    def id(self) -> str:
        """Id of the example."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts that are stored with the example, such as its label and the prediction, in plain types."""
        return {}

    @property
    @abstractmethod
    def words(self) -> Sequence[str]:
        """Lines of words.txt on this example."""

    @property
    def axes(self) -> Mapping[str, Axis]:
        """What queries and keys are in this example, by names that `sites` refers to."""
        return {}

    def find_gold(self, site: str) -> Bool[Tensor, "..."] | None:
        """Returns the gold of a site in `sites`, with the axes of its weights without heads; None: it is not known."""
        return None

    def find_axes(self, site: str) -> SiteAxes | None:
        """Returns what `sites` says of a site."""
        return next((each for each in self.sites if fnmatchcase(site, each.pattern)), None)

    def label_site(self, recorded: AttentionMap, axes: Mapping[str, Axis]) -> LabelledAttention:
        """Labels a map as `sites` and `axes` say; a map of a site that they do not name has numbers as labels."""
        of_site = self.find_axes(recorded.site)
        if of_site is None:
            return LabelledAttention(recorded)
        return LabelledAttention.from_axes(
            recorded, axes[of_site.query], axes[of_site.key], self.find_gold(recorded.site)
        )

    def derived_maps(self) -> Iterable[LabelledAttention]:
        """Yields maps that are computed from recorded ones, such as the scored map."""
        return ()

    def maps(self) -> Iterable[LabelledAttention]:
        """Yields the maps of `found` with their labels, and maps that are computed from them."""
        axes = self.axes
        for recorded in self.found.values():
            yield self.label_site(recorded, axes)
        yield from self.derived_maps()

    @abstractmethod
    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        """Yields pictures, each with its file name from `picture_name`.

        Args:
            made: Maps that were written, by site.
            number: Number of the example, from 1.
        """

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        """Yields tables to which this example adds rows."""
        return iter(())


class Explainer(ABC):
    """The maps of one model on one data set.

    `export` reads `tables`, then `examples`, then `truth`, so that one pass over the data can compute all of them. It
    reads none of them if nothing but faithfulness is asked for.

    Args:
        net: The net whose sites are recorded.
        options: The options of the command.

    Attributes:
        noun: Noun for an element of `names`: "picture", "user", "node".
        is_one_example: True if all `names` are in one example, as the nodes of a graph are.
        scored: Names of maps that are not sites of the net, such as the scored map.
    """

    noun: ClassVar[str]
    is_one_example: ClassVar[bool] = False
    scored: Sequence[str] = ()

    def __init__(self, net: nn.Module, options: MapOptions) -> None:
        self.net = net
        self.options = options

    @cached_property
    def positions(self) -> list[int]:
        """Positions in `names` of the requested ids, in their order, or of typical examples if no ids are given.

        Raises:
            DataError: There is no such id.
        """
        if self.options.ids is None:
            return self.sample(self.options.pictures)
        names, wanted = self.names(), set(self.options.ids)
        at = {name: position for position, name in enumerate(names) if name in wanted}
        for each in self.options.ids:
            if each not in at:
                near = did_you_mean(each, names) if len(names) < _SEARCHED else ""
                raise DataError(f"there is no {self.noun} {each!r}. {near}".rstrip())
        return [at[each] for each in self.options.ids]

    @contextmanager
    def record_sites(self, *, implied: bool = False) -> Iterator[Recording]:
        """Records the sites that are written, within the budget; the report lists the maps that the budget left out.

        The scored map and tables may need other sites of the same pass. They use a second recording, around or inside
        this one, which shares its arrays.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the budget of")
            with record(self.net, layers=self.options.layers, budget=self.options.budget, implied=implied) as found:
                yield found

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Returns the ids of everything that can be drawn."""

    def sample(self, count: int) -> list[int]:
        """Returns positions in `names` of at most `count` typical examples; by default the first ones."""
        return list(range(len(self.names())))[:count]

    def sample_for_faithfulness(self, count: int) -> list[int]:
        """Returns positions in `names` of at most `count` examples whose faithfulness is measured by default."""
        return self.sample(count)

    def make_perturbable(self, position: int) -> Sequence[Perturbable]:
        """Returns the example at a position in `names` as inputs that can be left out, for `--faithfulness`.

        If an example has inputs of several kinds, such as words and sentences, there is one element for each kind, in
        the same order for every example.
        """
        raise ConfigError(
            f"there is no --faithfulness for {self.noun}s: {type(self).__name__} does not say how probable an answer "
            "is without some of its inputs"
        )

    @abstractmethod
    def examples(self) -> Iterator[ExplainedExample]:
        """Yields the examples that are written, each with its recording."""

    def tables(self) -> Iterator[Table]:
        """Yields tables over all examples. Each table is read to its end before the next one is requested."""
        return iter(())

    def truth(self) -> Mapping[str, float | None]:
        """Returns the agreement of the scored map with gold attention, by measure; empty if no gold is known."""
        return {}

    @property
    def truth_label(self) -> str:
        """The examples and the map that `truth` is computed from: "test pictures, rollout"."""
        return f"{self.noun}s"

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts for index.json, in addition to the names of the model and the data."""
        return {}

    def summary(self, out: str) -> list[str]:
        """Returns the first lines of the report: the contents of the folder `out`."""
        return [f"maps and drawings of {count_noun(len(self.positions), self.noun)}"]

    @abstractmethod
    def describe_chosen(self) -> list[str]:
        """Describes the scored map of each element of `positions` in words."""


def check_layers(net: nn.Module, layers: Sequence[int | str] | None) -> None:
    """Refuses layers that a model does not have."""
    try:
        with record(net, layers=layers):
            pass
    except ValueError as error:
        raise ConfigError(f"layers: {error}") from error


def one_a_label(labels: Sequence[int], is_typical: Sequence[bool] | None = None) -> list[int]:
    """Returns positions of typical examples in order: the first one of each label, then the second ones, and so on."""
    seen: dict[int, int] = {}
    ranked = []
    for position, label in enumerate(labels):
        if is_typical is None or is_typical[position]:
            seen[label] = seen.get(label, 0) + 1
            ranked.append((seen[label], position))
    return [position for _, position in sorted(ranked)]


def picture_name(name: str, number: int | None = None) -> str:
    """Returns the file name of an example's picture, without the suffix.

    The number at the start distinguishes examples with similar names. Without a number, characters that do not belong
    in a file name are escaped.
    """
    if number is None:
        return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02x}" for c in name)[:_ESCAPED]
    return f"{number}_{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)[:_NUMBERED]}"
