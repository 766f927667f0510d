"""The table of `zoo maps --faithfulness`: whether answers depend on the inputs that the scored map ranks first."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.errors import DataError, count_noun
from zoo.maps.describe import number
from zoo.maps.faithfulness import SHARES, comprehensiveness, first_inputs, kendall_tau, rank, sufficiency
from zoo.maps.perturbation import Perturbable, freeze_weights, has_weights, make_uniform, permute_weights

if TYPE_CHECKING:
    import pandas as pd

    from zoo.maps.explainer import Explainer

MAP, GRADIENT, RANDOM = "map", "gradient", "random"
_FROZEN = "kendall_tau_frozen_gradient"
_WHOLE, _UNIFORM, _PERMUTED = "probability", "fall_with_uniform_weights", "change_with_permuted_weights"
_TAUS = {
    "kendall_tau_gradient": "the gradient",
    _FROZEN: "the gradient at constant weights",
    "kendall_tau_leave_one_out": "leaving out one input",
}
"""Measures of agreement, with the ranking to which each compares the map."""
_DRAWS = 5
"""Number of random rankings of an example, over which measures are averaged."""
_PERMUTATIONS = 20
"""Number of permutations of the weights; the median of their changes is reported."""
_MANY, _LONG = 20_000, 10**7
"""Numbers of variants, and of their inputs together, from which on the cost is announced."""
_READ = 5 * 10**6
"""Number of inputs that the net reads of variants of one kind; what is drawn is fewer of examples that have more."""
_FEWEST_SINGLES, _FEWEST_DRAWS, _FEWEST_PERMUTATIONS = 20, 1, 5
"""What is drawn of the longest example."""
_FLAGS = 2**24
"""Number of flags in one block of variants: one for each input of each variant."""
_AT_ONCE = 256
"""Number of rows in one piece of the table."""


_Value = tuple[str, str, float | None]
"""Ranking, measure and value."""


class Measured(NamedTuple):
    """A measure of one example; the fields are the columns of the table.

    Args:
        id: Id of the example.
        left_out: Kind of input that is left out, such as `word`; "" if none is.
        inputs: Number of inputs of this kind.
        ranking: Ranking of the inputs: by the scored map (`map`), by the `gradient`, or `random`; "" for measures
            without a ranking.
        measure: `comprehensiveness` or `sufficiency` of the ranking; its agreement with another ranking
            (`kendall_tau_gradient`, `kendall_tau_frozen_gradient` or `kendall_tau_leave_one_out`). Measures without a
            ranking are the `probability` of the answer, and its decrease and change with other attention weights
            (`fall_with_uniform_weights` and `change_with_permuted_weights`).
        value: Value of the measure, or None if it is not defined, such as the agreement if all weights are equal.
    """

    id: str
    left_out: str
    inputs: int
    ranking: str
    measure: str
    value: float | None


class Faithfulness:
    """Measures for some examples whether the answer depends on the inputs that the scored map ranks first.

    Args:
        source: Source of the examples.
        count: Number of examples. It has no effect if the options name the ids of examples.

    Raises:
        ConfigError: The source cannot score an example without some of its inputs.
        DataError: No example has at least two inputs.
    """

    def __init__(self, source: Explainer, count: int) -> None:
        self.source = source
        self.positions = source.positions if source.options.ids is not None else source.sample_for_faithfulness(count)
        self.rows: list[Measured] = []
        first = next(self._examples(), None)
        if first is None:
            raise DataError(f"--faithfulness: no {source.noun} has two inputs or more, of which one could be left out")
        self.size = _size(first[1])
        self.variants = _permutations(self.size) + sum(_variants(len(each.attention), self.size) for each in first[1])

    @property
    def announcement(self) -> str | None:
        """A sentence on the number of variants that will be passed through the net; None if they are few."""
        variants = self.variants * len(self.positions)
        if variants < _MANY and variants * self.size < _LONG:
            return None
        said = f"about {self.variants:,} variants of each of {count_noun(len(self.positions), self.source.noun)}"
        if len(self.positions) > 1:
            return f"faithfulness passes {said} through the net; --faithfulness=N takes fewer"
        said = f"about {self.variants:,} variants of a {self.source.noun} of {self.size:,} inputs"
        return f"faithfulness passes {said} through the net; --ids names a shorter one"

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yields the table in pieces and collects it in `rows`."""
        import pandas as pd

        found = self._measure()
        while piece := list(islice(found, _AT_ONCE)):
            self.rows += piece
            yield pd.DataFrame(piece, columns=list(Measured._fields)).astype({"value": float})

    def means(self) -> list[dict[str, Any]]:
        """Returns mean, standard error and number of examples for each kind of input, ranking and measure."""
        values: dict[tuple[str, str, str], list[float]] = {}
        for row in self.rows:
            of = values.setdefault((row.left_out, row.ranking, row.measure), [])
            of += [] if row.value is None else [row.value]
        return [
            {"left_out": kind, "ranking": ranking, "measure": measure, **_mean(of), "examples": len(of)}
            for (kind, ranking, measure), of in values.items()
        ]

    def lines(self) -> list[str]:
        """Returns the lines of the report: the means, and for each kind of input a sentence that interprets them."""
        found = {(each["left_out"], each["ranking"], each["measure"]): each for each in self.means()}
        kinds = list(dict.fromkeys(row.left_out for row in self.rows if row.left_out))
        sizes = {row.id: row.inputs for row in sorted(self.rows, key=lambda row: row.inputs)}
        of_kind = [(row.left_out, row.inputs, _singles(row.inputs, sizes[row.id])) for row in self.rows]
        drawn = {kind: (singles, inputs) for kind, inputs, singles in of_kind if kind and singles < inputs}

        def format_value(kind: str, ranking: str, measure: str) -> str:
            each = found[kind, ranking, measure]
            if each["mean"] is None:
                return "not measured"
            error = "" if each["standard_error"] is None else f" ± {each['standard_error']:.3f}"
            return f"{each['mean']:z.3f}{error}"

        def compare(kind: str, measure: str) -> str:
            return ", ".join(f"{ranking} {format_value(kind, ranking, measure)}" for ranking in (MAP, GRADIENT, RANDOM))

        def agreement(kind: str) -> str:
            taus = [name for name in _TAUS if (kind, MAP, name) in found]
            if all(found[kind, MAP, name]["mean"] is None for name in taus):
                return "not defined, since the map's values are equal"
            return ", ".join(f"{format_value(kind, MAP, name)} with {_TAUS[name]}" for name in taus)

        count = len({row.id for row in self.rows})
        lines = [f"faithfulness over {count_noun(count, self.source.noun)} (mean ± standard error)"]
        lines.append(f"  probability of the answer: {format_value('', '', _WHOLE)}")
        for kind in kinds:
            lines += [f" leaving out {kind}s:"] if len(kinds) > 1 else []
            lines += [
                f"  comprehensiveness (more is better): {compare(kind, 'comprehensiveness')}",
                f"  sufficiency (less is better): {compare(kind, 'sufficiency')}",
                f"  Kendall's tau of the map: {agreement(kind)}",
            ]
            if kind in drawn:
                said_of = "{:,} of {:,}".format(*drawn[kind]) + f" {kind}s, drawn at random"
                lines.append(f"  one at a time were left out {said_of}: all would take too long")
        if ("", "", _UNIFORM) in found:
            lines.append(
                f"  with uniform attention weights the answer's probability falls by {format_value('', '', _UNIFORM)}"
            )
            lines.append(f"  with permuted attention weights it changes by {format_value('', '', _PERMUTED)}")
        return [*lines, *(self._verdict(kind) for kind in kinds)]

    def _verdict(self, kind: str) -> str:
        """Returns a sentence that compares the map with random rankings.

        The answer depends on the map's first inputs if the mean of the paired differences exceeds two standard errors.
        """
        values: dict[str, dict[str, float]] = {}
        for row in self.rows:
            if row.left_out == kind and row.measure == "comprehensiveness" and row.value is not None:
                values.setdefault(row.id, {})[row.ranking] = row.value
        difference = _mean([each[MAP] - each[RANDOM] for each in values.values()])
        mean, error = difference["mean"], difference["standard_error"]
        left_out = f"{kind}s that the map ranks first"
        if mean is None or error is None:
            return f"whether leaving out the {left_out} costs more than chance cannot be said of one example"
        if mean > 2 * error:
            fall = f"without them its probability falls by {number(mean)} more than without random ones"
            return f"the answer depends on the {left_out}: {fall}"
        return f"the map does not say what the answer depends on: the {left_out} matter no more than random ones"

    def _examples(self) -> Iterator[tuple[str, list[Perturbable]]]:
        """Yields id and kinds of inputs of the examples that have at least two inputs."""
        names = self.source.names()
        for position in self.positions:
            kinds = [each for each in self.source.make_perturbable(position) if len(each.attention) > 1]
            if kinds:
                yield names[position], kinds

    def _measure(self) -> Iterator[Measured]:
        has_attention = has_weights(self.source.net)
        for name, kinds in self._examples():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            for example in kinds:
                found = list(_measures(example, generator, _size(kinds)))
                if has_attention:
                    with freeze_weights(self.source.net):
                        found.append((MAP, _FROZEN, kendall_tau(example.attention, example.gradient())))
                for row in found:
                    yield Measured(name, example.noun, len(example.attention), *row)
                if example is kinds[0]:
                    for row in _whole(self.source.net, example, generator, _size(kinds)):
                        yield Measured(name, "", len(example.attention), *row)


def _measures(example: Perturbable, generator: torch.Generator, size: int) -> Iterator[_Value]:
    """Yields (ranking, measure, value) of one example. Every distinct variant of a block goes through the net once.

    Args:
        example: The example.
        generator: Draws rankings and inputs.
        size: Number of inputs of the smallest kind that the example has, such as words.
    """
    attention, gradient = example.attention.detach().cpu(), example.gradient().cpu()
    inputs = len(attention)
    orders = [(MAP, rank(attention, generator)), (GRADIENT, rank(gradient, generator))]
    orders += [(RANDOM, torch.randperm(inputs, generator=generator)) for _ in range(_draws(size))]
    tops = [first_inputs(order) for _, order in orders]
    singles = torch.arange(inputs)
    if _singles(inputs, size) < inputs:
        singles = torch.randperm(inputs, generator=generator)[: _singles(inputs, size)]
    scores = _scores(example, singles, torch.cat([*(~top for top in tops), *tops]))
    shares = len(tops[0])
    whole, one_left_out, others = scores[0], scores[1 : 1 + len(singles)], scores[1 + len(singles) :]
    rest = others.view(2, len(tops), shares)

    for measure, of, found in (
        ("comprehensiveness", comprehensiveness, rest[0]),
        ("sufficiency", sufficiency, rest[1]),
    ):
        for ranking in (MAP, GRADIENT, RANDOM):
            values = [of(whole, each) for (name, _), each in zip(orders, found, strict=True) if name == ranking]
            yield ranking, measure, sum(values) / len(values)
    change = (whole - one_left_out).abs()
    yield MAP, "kendall_tau_gradient", kendall_tau(attention, gradient)
    yield MAP, "kendall_tau_leave_one_out", kendall_tau(attention[singles], change)
    yield GRADIENT, "kendall_tau_leave_one_out", kendall_tau(gradient[singles], change)


def _scores(example: Perturbable, singles: Int[Tensor, " s"], others: Bool[Tensor, "o n"]) -> Float[Tensor, " v"]:
    """Returns m of the whole example, of it without each single input, and of other variants, in blocks of variants."""
    inputs = len(example.attention)
    ends = 1 + len(singles)
    found = []
    for block in torch.split(torch.arange(ends + len(others)), max(1, _FLAGS // inputs)):
        keep = torch.ones(len(block), inputs, dtype=torch.bool)
        single, other = ((block > 0) & (block < ends)).nonzero().squeeze(1), block >= ends
        keep[single, singles[block[single] - 1]] = False
        keep[other] = others[block[other] - ends]
        distinct, which = torch.unique(keep, dim=0, return_inverse=True)
        found.append(example.score(distinct).detach().cpu()[which])
    return torch.cat(found)


def _size(kinds: Sequence[Perturbable]) -> int:
    """Returns the number of inputs that the net reads of an example: those of the kind that has most."""
    return max(len(each.attention) for each in kinds)


def _singles(inputs: int, size: int) -> int:
    """Returns the number of inputs of a kind that are left out one at a time, of an example of some size."""
    return min(inputs, max(_FEWEST_SINGLES, _READ // size))


def _draws(size: int) -> int:
    """Returns the number of random rankings of an example of some size."""
    return min(_DRAWS, max(_FEWEST_DRAWS, _READ // (2 * len(SHARES) * size)))


def _permutations(size: int) -> int:
    """Returns the number of permutations of the weights of an example of some size."""
    return min(_PERMUTATIONS, max(_FEWEST_PERMUTATIONS, _READ // size))


def _whole(net: nn.Module, example: Perturbable, generator: torch.Generator, size: int) -> Iterator[_Value]:
    """Yields m of one whole example, and its decrease and change with other attention weights."""
    whole = torch.ones(_permutations(size), len(example.attention), dtype=torch.bool)
    before = example.score(whole[:1])
    yield "", _WHOLE, float(before)
    if not has_weights(net):
        return
    with make_uniform(net):
        yield "", _UNIFORM, float(before - example.score(whole[:1]))
    with permute_weights(net, generator):
        yield "", _PERMUTED, float((before - example.score(whole)).abs().quantile(0.5))


def _variants(inputs: int, size: int) -> int:
    """Returns the maximum number of variants of an example without some of its inputs."""
    return 1 + _singles(inputs, size) + 2 * (2 + _draws(size)) * len(SHARES)


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "standard_error": None}
    found: Tensor = torch.tensor(values, dtype=torch.float64)
    error = float(found.std()) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": float(found.mean()), "standard_error": error}
