"""`zoo maps` and the maps of `zoo evaluate --worst` for recommenders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import AttentionMap, DenseSupport, record, sites
from zoo.attention.observing.record import Recording
from zoo.errors import ConfigError, DataError, nearest, visible
from zoo.maps import Writer, labelled, words
from zoo.maps import frames as tables
from zoo.maps.labelling import Heads
from zoo.tasks.recommendation.answers import because, recommended
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.data.history_data import HistoryData
from zoo.tasks.recommendation.maps.figures import Bars, Panel, distance_figure, session
from zoo.tasks.recommendation.maps.influence import by_user, chosen, gold_places, named, occlusion
from zoo.tasks.recommendation.maps.survey import Survey
from zoo.tasks.recommendation.nets.din import DIN, whole
from zoo.tasks.recommendation.recommender import Recommender

_RECOMMENDED = 3
"""So many recommendations are explained in a picture."""
_OCCLUSION = "recommendations"


def export(
    module: Recommender,
    data: HistoryData,
    out: Path,
    *,
    heads: Heads = "each",
    layers: Sequence[int | str] | None = None,
    budget: int | None = None,
    ids: Sequence[str] | None = None,
    pictures: int = 4,
    table_format: tables.Format = "csv",
    overwrite: bool = False,
) -> None:
    """Writes what weighed on the recommendations to every user, and for some of them arrays, drawings and words.

    Every user: of the test split, or of the user's own data all. `users` has a row for each, `by_distance` how far back
    each layer and head looks on average, scores.json the truth. Some: those of `ids`, or `pictures` of them.
    """
    split = "all" if data.is_input else "test"
    site_names = list(sites(module.net))
    _check_layers(module, layers)
    every = Survey(module, data, split)
    drawn = [_Example.of(module, each, layers, budget) for each in _users(data, split, ids, pictures)]
    about = {"split": split, "data": module.about["config"]["names"]["data"]}
    scored = [] if module.how is None else [named(module.how, module.net)]
    with Writer(
        out,
        model=module.about["model"],
        checkpoint=module.about["path"],
        layers=[*site_names, *scored, _OCCLUSION],
        heads=heads,
        about=about,
        overwrite=overwrite,
    ) as writer:
        for at, one in enumerate(drawn, start=1):
            one.write(writer)
            one.figure(site_names).savefig(writer.file(f"pictures/{_file_name(at, one.id)}"), dpi=110)
        if drawn:
            lines = "".join(f"{line}\n" for one in drawn for line in one.said)
            writer.file("words.txt").write_text(lines, encoding="utf-8")
        tables.write(every.frames(), writer.file(f"users.{table_format}"), format=table_format)
        distances = every.distances.frame(site_names)
        if len(distances):
            tables.write([distances], writer.file(f"by_distance.{table_format}"), format=table_format)
            distance_figure(distances).savefig(writer.file("pictures/by_distance.png"), dpi=110)
        writer.truth = every.truth()
    _report(module, out, every, drawn, writer.truth, table_format, budget, has_distances=bool(len(distances)))


def describe(module: Recommender, data: HistoryData, ids: Sequence[str]) -> list[str]:
    """For each user, in words, what weighs on what is recommended."""
    split = "all" if data.is_input else "test"
    return [_Example.of(module, each, [], None).looks for each in _users(data, split, ids, 0)]


@dataclass(frozen=True, eq=False)
class _Example:
    """One user, what is recommended, what was recorded meanwhile, and what weighed.

    Args:
        items: The best ones, best first.
        lifts: What each past item adds to the score of each of them.
        shares: The scored map.
        weights: Of a model that looks at the history for each candidate: attention of each recommendation.
    """

    batch: Histories
    found: Recording
    items: Int[Tensor, " k"]
    lifts: Float[Tensor, "n k"]
    shares: Float[Tensor, " n"] | None
    weights: Float[Tensor, "n k"] | None
    by: str

    @classmethod
    def of(
        cls, module: Recommender, batch: Histories, layers: Sequence[int | str] | None, budget: int | None
    ) -> _Example:
        net = module.net
        with torch.inference_mode():
            best = recommended(module, batch, _RECOMMENDED).top
            best = best[:, best[0] >= 0]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the budget of")  # what it left out is said at the end
                with record(net, layers=layers, budget=budget, implied=True) as found:
                    net(batch, whole(batch, best)) if isinstance(net, DIN) else net(batch)
            lifts = occlusion(module.among, batch, best).cpu()
            shares = None if module.how is None else module.shares(batch).cpu()
            is_of_candidates = isinstance(net, DIN) and module.how not in (None, "occlusion")
            weights = module.weights(batch, best).cpu() if is_of_candidates else None
        by = "" if module.how is None else named(module.how, net)
        return cls(batch.to("cpu"), found, best[0].cpu(), lifts, shares, weights, by)

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def titles(self) -> list[str]:
        return [self.batch.catalogue.shown(item) for item in self.batch.items.tolist()]

    @property
    def recommended(self) -> list[str]:
        return [self.batch.catalogue.shown(item) for item in self.items.tolist()]

    @property
    def chosen(self) -> str:
        """What the user chose next, where that is known."""
        held_out = int(self.batch.held_out[0])
        return self.batch.catalogue.shown(held_out) if held_out >= 0 else ""

    @property
    def looks(self) -> str:
        """The scored map in words; where there is none, what raised the best item's score."""
        if self.shares is None:
            return f"raised by {because(self.batch, self.lifts, is_share=False)[0][0]}"
        titles = [f"{title} (item {at})" for at, title in enumerate(self.titles, start=1)]
        return words.sentence("", titles, self.shares.tolist(), noun="item").partition(" attends to ")[2]

    @property
    def said(self) -> list[str]:
        """A line of the user and a line for each recommendation."""
        looks = f"; {self.by} looks at {self.looks}" if self.shares is not None else ""
        lines = [f"{self.id}{f' chose {self.chosen}' if self.chosen else ''}{looks}"]
        added = because(self.batch, self.lifts, is_share=False)[0]
        for rank, (title, why) in enumerate(zip(self.recommended, added, strict=True), start=1):
            lines.append(f"  {rank}. {title}: raised by {why}")
        return lines

    def write(self, writer: Writer) -> None:
        titles, gold = self.titles, gold_places(self.batch)
        about = {"recommended": self.recommended, "chosen": self.chosen}
        writer.note(self.found)
        for each in self.found.values():
            labels = (
                {"source": titles, "target": self.recommended} if each.has_edges else {"query": titles, "key": titles}
            )
            writer.add(self.id, each, axis_labels=labels, nouns=dict.fromkeys(labels, "item"), about=about)
        nouns = {"query": "recommendation", "key": "item"}
        if self.shares is not None:
            labels = {"query": ["next item"], "key": titles}
            marks = None if gold is None else gold[None]
            writer.add(self.id, by_user(self.shares, self.batch, self.by), axis_labels=labels, gold=marks, nouns=nouns)
        own = AttentionMap(_OCCLUSION, self.lifts.T[None, None], DenseSupport.axes, DenseSupport(), (0,))
        writer.add(self.id, own, axis_labels={"query": self.recommended, "key": titles}, nouns=nouns)

    def figure(self, site_names: Sequence[str]) -> Any:
        chosen_next = f"; chose {self.chosen}" if self.chosen else ""
        gold = gold_places(self.batch)
        has_gold = gold is not None and bool(gold.any())
        return session(
            self.titles,
            title=f"{self.id}: recommended {self.recommended[0] if self.recommended else 'nothing'}{chosen_next}",
            said="orange: what decides the next item (gold)" if has_gold else "",
            bars=self._bars(),
            panels=self._panels(site_names),
            gold=gold,
        )

    def _bars(self) -> list[Bars]:
        ranked = [f"{rank}. {title}" for rank, title in enumerate(self.recommended, start=1)]
        added = [Bars(title, self.lifts[:, at], "what it adds to the score") for at, title in enumerate(ranked)]
        if self.weights is not None:
            looked = [Bars(title, self.weights[:, at], "attention") for at, title in enumerate(ranked)]
            return [each for pair in zip(looked, added, strict=True) for each in pair]
        if self.shares is None or self.by == "occlusion":
            return added
        return [Bars(f"whatever comes next: {self.by}", self.shares, "share of attention"), *added]

    def _panels(self, site_names: Sequence[str]) -> list[Panel]:
        """Each layer, head by head."""
        panels = []
        for site, each in self.found.items():
            if each.has_edges:
                continue
            one = labelled(each, {})
            for head in one.heads:
                which = f", head {head}" if len(one.heads) > 1 else ""
                panels.append(Panel(f"layer {site_names.index(site)}{which}", one.head(head)))
        return panels


def _users(data: HistoryData, split: str, ids: Sequence[str] | None, count: int) -> Iterator[Histories]:
    """Batches of one user each: of these ids in their order, or the first ones with three items or more."""
    if ids is None:
        yield from _first(data, split, count)
        return
    found: dict[str, Histories] = {}
    names: list[str] = []
    for batch in data.loader(split):
        names += batch.ids
        for at, name in enumerate(batch.ids):
            if name in ids:
                found.setdefault(name, _one(batch, at))
        if len(found) == len(set(ids)):
            break
    for each in ids:
        if each not in found:
            near = nearest(each, names) if len(names) < 10_000 else ""
            raise DataError(f"there is no user {each!r}. {near}".rstrip())
        yield found[each]


def _first(data: HistoryData, split: str, count: int) -> Iterator[Histories]:
    left = count
    for batch in data.loader(split):
        for at in (batch.lengths >= 3).nonzero().flatten().tolist():
            if not left:
                return
            left -= 1
            yield _one(batch, at)


def _one(batch: Histories, at: int) -> Histories:
    return chosen(batch, torch.tensor([at], device=batch.items.device))


def _report(
    module: Recommender,
    out: Path,
    every: Survey,
    drawn: Sequence[_Example],
    truth: dict[str, float | None],
    table_format: str,
    budget: int | None,
    *,
    has_distances: bool,
) -> None:
    how_far = f", how far back attention looks in by_distance.{table_format}" if has_distances else ""
    print(f"{every.users:,} users in users.{table_format}{how_far}, in {out}")
    print(f"maps and drawings of {len(drawn)} user{'s' * (len(drawn) != 1)}")
    cut = {site: size for one in drawn for site, size in one.found.cut.items()}
    if cut:
        sized = ", ".join(f"{site} {size:,}" for site, size in cut.items())
        print(f"the budget of {budget:,} bytes a user left out {sized}")
    for site, reason in (drawn[0].found.silent if drawn else {}).items():
        if site not in drawn[0].found:
            print(f"{site} has no map: {reason}")
    by = "" if module.how is None else f", {named(module.how, module.net)}"
    for measure, value in truth.items():
        print(f"truth/{measure} {value:.4f} ({every.split} users{by})")
    for one in drawn:
        print(visible("\n".join(one.said)))


def _check_layers(module: Recommender, layers: Sequence[int | str] | None) -> None:
    try:
        with record(module.net, layers=layers):
            pass
    except ValueError as error:  # a layer that the model does not have
        raise ConfigError(f"layers: {error}") from error


def _file_name(at: int, name: str) -> str:
    """A user's id as the name of a file; the number in front tells namesakes apart."""
    return f"{at}_{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)[:60]}.png"
