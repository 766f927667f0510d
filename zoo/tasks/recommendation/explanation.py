"""The maps of users: tables over all users of a split, and maps, pictures and words of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, DenseSupport, sites
from zoo.errors import count_noun
from zoo.maps import LabelledMap, describe, label_map
from zoo.maps.explainer import ExplainedExample, Explainer, LabelledAttention, MapOptions, Table, picture_name
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import gold_positions, group_by_user, map_name, occlusion, some_users
from zoo.tasks.recommendation.maps.perturbation import PerturbableHistory
from zoo.tasks.recommendation.maps.recorded_forward import RecordedPass
from zoo.tasks.recommendation.maps.user_table import Survey
from zoo.tasks.recommendation.plots import Bars, Panel, distance_figure, session
from zoo.tasks.recommendation.predictions import because

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zoo.tasks.recommendation.datamodule import HistoryData
    from zoo.tasks.recommendation.task import Recommender

_RECOMMENDED = 3
"""Number of recommendations that a picture explains."""
_FEWEST = 3
"""Minimum number of items of a typical user."""
_OCCLUSION = "recommendations"


class UserExplainer(Explainer):
    """The maps of the users in the test split or in the user's own files.

    The table `users` has one row for each user; `by_distance` has the mean weight of each layer and head by distance.
    One pass over the users makes both, and records each user that is drawn in a batch of its own.
    """

    noun = "user"

    def __init__(self, module: Recommender, data: HistoryData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module = module
        self.split = data.mapped_split
        self.scored = [*([] if module.how is None else [map_name(module.how, module.net)]), _OCCLUSION]
        self._loader = data.loader(self.split)
        self._names, self._lengths = data.users(self.split)
        self._survey = Survey(module)
        self._drawn: dict[int, _OneUser] = {}
        self._has_distances = False

    def names(self) -> Sequence[str]:
        return self._names

    def sample(self, count: int) -> list[int]:
        return np.flatnonzero(self._lengths >= _FEWEST)[:count].tolist()  # type: ignore[no-any-return]

    def tables(self) -> Iterator[Table]:
        yield Table("users", self._rows())
        distances = self._survey.distances.frame(list(sites(self.net)))
        self._has_distances = bool(len(distances))
        if self._has_distances:
            yield Table("by_distance", [distances], figure=distance_figure(distances))

    def examples(self) -> Iterator[ExplainedExample]:
        for number in self.positions:
            drawn = self._drawn.pop(number, None)
            yield self._record(self._loader.collate([number])) if drawn is None else drawn

    def truth(self) -> dict[str, float | None]:
        return self._survey.truth()

    @property
    def truth_label(self) -> str:
        how = self.module.how
        return f"{self.split} users{'' if how is None else f', {map_name(how, self.net)}'}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"split": self.split}

    def summary(self, out: str) -> list[str]:
        ending = self.options.table_format
        how_far = f", how far back attention looks in by_distance.{ending}" if self._has_distances else ""
        return [f"{count_noun(self._survey.users, 'user')} in users.{ending}{how_far}, in {out}", *super().summary(out)]

    def make_perturbable(self, position: int) -> list[PerturbableHistory]:
        return [PerturbableHistory(self.module, self._loader.collate([position]))]

    def describe_chosen(self) -> list[str]:
        return [self._record(self._loader.collate([number])).description for number in self.positions]

    def _rows(self) -> Iterator[pd.DataFrame]:
        """Yields the rows of each batch in the order of its users, which are passed in several groups."""
        import pandas as pd

        wanted = set(self.positions)
        for numbers, batch in self._loader.iter_with_indices():
            drawn = [at for at, number in enumerate(numbers) if number in wanted]
            rest = [at for at, number in enumerate(numbers) if number not in wanted]
            frames, order = [], [*drawn]
            for at in drawn:
                one = self._drawn[numbers[at]] = self._record(_some(batch, [at]))
                frames.append(self._survey.rows(one.recorded))
            others = _some(batch, rest)
            for users in self.module.groups(others) if rest else ():
                with torch.inference_mode():
                    recorded = self.module.record_pass(_some(others, users))
                frames.append(self._survey.rows(recorded))
                order += [rest[user] for user in users]
            yield pd.concat(frames, ignore_index=True).iloc[np.argsort(order)]

    def _record(self, batch: SequenceBatch) -> _OneUser:
        with torch.inference_mode():
            return _OneUser(self.module, self.module.record_pass(batch, _RECOMMENDED, self.record_sites(implied=True)))


class _OneUser(ExplainedExample):
    """One user: recommendations, recorded attention, and the contributions of past items.

    Attributes:
        lifts: Amount that each past item adds to the score of each recommended item.
        shares: The scored map.
        weights: Attention of each recommended item to the history; None for a model whose attention does not depend on
            the candidate.
    """

    def __init__(self, module: Recommender, recorded: RecordedPass) -> None:
        assert recorded.written is not None
        self.module, self.recorded, self.found, self.batch = module, recorded, recorded.written, recorded.batch
        self.items = recorded.top[0][recorded.top[0] >= 0]
        self.by = "" if module.how is None else map_name(module.how, module.net)

    @cached_property
    def lifts(self) -> Float[Tensor, "n k"]:
        with torch.inference_mode():
            return occlusion(self.module.score_own, self.batch, self.items[None]).cpu()

    @cached_property
    def shares(self) -> Float[Tensor, " n"] | None:
        with torch.inference_mode():
            found = self.module.compute_scored_map(self.recorded)
        return None if found is None else found.cpu()

    @cached_property
    def weights(self) -> Float[Tensor, "n k"] | None:
        found = self.recorded.weights()
        return None if found is None else found[:, : len(self.items)].cpu()

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def about(self) -> Mapping[str, Any]:
        return {"recommended": self.recorded.recommended_titles, "chosen": self.chosen_title}

    @property
    def chosen_title(self) -> str:
        """Title of the item that the user chose next; "" if it is unknown."""
        held_out = int(self.batch.held_out[0])
        return self.batch.catalogue.title_of(held_out) if held_out >= 0 else ""

    @property
    def description(self) -> str:
        """The scored map in words; without a scored map, the past items that raised the best item's score."""
        if self.shares is None:
            return f"raised by {because(self.batch, self.lifts, is_share=False)[0][0]}"
        titles = [f"{title} (item {at})" for at, title in enumerate(self.recorded.titles, start=1)]
        return describe.sentence("", titles, self.shares.tolist(), noun="item").partition(" attends to ")[2]

    @property
    def words(self) -> list[str]:
        """A line on the user and a line on each recommendation."""
        looks = f"; {self.by} looks at {self.description}" if self.shares is not None else ""
        lines = [f"{self.id}{f' chose {self.chosen_title}' if self.chosen_title else ''}{looks}"]
        added = because(self.batch, self.lifts, is_share=False)[0]
        for rank, (title, why) in enumerate(zip(self.recorded.recommended_titles, added, strict=True), start=1):
            lines.append(f"  {rank}. {title}: raised by {why}")
        return lines

    def maps(self) -> Iterator[LabelledAttention]:
        titles, gold = self.recorded.titles, gold_positions(self.batch)
        yield from self.recorded.maps()
        nouns = {"query": "recommendation", "key": "item"}
        if self.shares is not None:
            labels = {"query": ["next item"], "key": titles}
            marks = None if gold is None else gold[None]
            yield LabelledAttention(group_by_user(self.shares, self.batch, self.by), labels, nouns, marks)
        own = AttentionMap(_OCCLUSION, self.lifts.T[None, None], DenseSupport.axes, DenseSupport(), (0,))
        yield LabelledAttention(own, {"query": self.recorded.recommended_titles, "key": titles}, nouns)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        chosen_next = f"; chose {self.chosen_title}" if self.chosen_title else ""
        best = self.recorded.recommended_titles[0] if self.recorded.recommended_titles else "nothing"
        gold = gold_positions(self.batch)
        has_gold = gold is not None and bool(gold.any())
        figure = session(
            self.recorded.titles,
            title=f"{self.id}: recommended {best}{chosen_next}",
            caption="orange: the item that decides the next one (gold)" if has_gold else "",
            bars=self._bars(),
            panels=self._panels(),
            gold=gold,
        )
        yield picture_name(self.id, number), figure

    def _bars(self) -> list[Bars]:
        ranked = [f"{rank}. {title}" for rank, title in enumerate(self.recorded.recommended_titles, start=1)]
        added = [Bars(title, self.lifts[:, at], "what it adds to the score") for at, title in enumerate(ranked)]
        if self.weights is not None:
            looked = [Bars(title, self.weights[:, at], "attention") for at, title in enumerate(ranked)]
            return [each for pair in zip(looked, added, strict=True) for each in pair]
        if self.shares is None or self.by == "occlusion":
            return added
        return [Bars(f"whatever comes next: {self.by}", self.shares, "share of attention"), *added]

    def _panels(self) -> list[Panel]:
        """Returns the map of each layer and head; none if attention depends on the candidate, which bars show."""
        if self.weights is not None:
            return []
        panels, site_names = [], list(sites(self.module.net))
        for site, each in self.found.items():
            one = label_map(each, {})
            for head in one.heads:
                which = f", head {head}" if len(one.heads) > 1 else ""
                panels.append(Panel(f"layer {site_names.index(site)}{which}", one.head(head)))
        return panels


def _some(batch: SequenceBatch, users: Sequence[int]) -> SequenceBatch:
    return some_users(batch, torch.tensor(users, dtype=torch.int64, device=batch.items.device))
