"""Answers of `zoo predict`: a row for each recommendation, and the past items that weighed most in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.errors import ConfigError
from zoo.maps.words import number
from zoo.tasks.contract import EXAMPLE
from zoo.tasks.recommendation.batch import Catalogue, Histories
from zoo.tasks.recommendation.maps.scored import occlusion
from zoo.tasks.recommendation.ranking.ranks import Ranked

if TYPE_CHECKING:
    from zoo.tasks.recommendation.recommender import Recommender

Why = Literal["occlusion", "attention"]
TOP = 10
_NAMED = 3
"""At most so many past items are named."""


def answers(
    module: Recommender, batch: Histories, *, top: int = TOP, why: Why | None = None, seen: bool = False
) -> dict[str, list[Any]]:
    """user, rank, item, title, score, and because: one column a key, an entry a recommendation, users in their order.

    `EXAMPLE` says which user of the batch each is for.

    Args:
        module: What recommends.
        batch: The users.
        top: How many items each user is recommended; fewer where the catalogue has no more.
        why: Why each was recommended: by occlusion, or by attention, which is the same for all of a user's unless the
            model looks at the history for each candidate; None: the column is left out.
        seen: Whether what a user has chosen before may be recommended.
    """
    found = recommended(module, batch, top, seen=seen)
    real = found.top >= 0
    items = found.top[real].tolist()
    columns: dict[str, list[Any]] = {
        EXAMPLE: real.nonzero()[:, 0].tolist(),
        "user": [batch.ids[user] for user in real.nonzero()[:, 0].tolist()],
        "rank": (real.nonzero()[:, 1] + 1).tolist(),
        "item": [batch.catalogue.names[item] for item in items],
        "title": ["" if batch.catalogue.titles is None else batch.catalogue.titles[item] for item in items],
        "score": found.scores[real].tolist(),
    }
    if why is not None:
        said = because(batch, weighed(module, batch, found.top.clamp(min=0), why), is_share=why == "attention")
        columns["because"] = [said[user][rank] for user, rank in real.nonzero().tolist()]
    return columns


def recommended(module: Recommender, batch: Histories, top: int, *, seen: bool = False, user: Any = None) -> Ranked:
    """The best items of each user, whichever was held out.

    Args:
        user: What scores are computed from, where that is known already.
    """
    user = module.user(batch) if user is None else user
    protocol = replace(module.ranking, negatives=None, seen="rank" if seen else "leave_out")
    after_all = replace(batch, held_out=torch.full_like(batch.held_out, -1))
    return protocol.recommend(lambda items: module.score(user, items), after_all, top)


def weighed(module: Recommender, batch: Histories, items: Int[Tensor, "b k"], why: Why) -> Float[Tensor, "n k"]:
    """Of each position, how much it weighs in each of its user's items."""
    if why == "attention":
        return module.weights(batch, items)
    return occlusion(module.among, batch, items)


def because(batch: Histories, values: Float[Tensor, "n k"], *, is_share: bool) -> list[list[str]]:
    """For each user and each of its items, the past items that weighed most: "Toy Story (1995) .41; Jumanji .22".

    What was chosen several times is named once, with the sum. Named are those with a quarter of the greatest or more,
    and .05 or more of the whole where they are shares; three at most.
    """
    said = []
    for start, stop in zip(batch.starts.tolist(), batch.ends.tolist(), strict=True):
        items, place = torch.unique(batch.items[start:stop], return_inverse=True)
        sums = values.new_zeros(len(items), values.shape[1]).index_add(0, place, values[start:stop])
        said.append([_named(batch.catalogue, items.tolist(), each.tolist(), is_share=is_share) for each in sums.T])
    return said


def checked(why: str | None, *, has_attention: bool) -> Why | None:
    """The explanation that `--explain` asks for; an empty text is the usual one.

    Raises:
        ConfigError: There is no such explanation, or the model has no attention with weights.
    """
    if why is None:
        return None
    if why == "":
        return "occlusion"
    if why not in get_args(Why):
        raise ConfigError(f"--explain={why}: write --explain={' or --explain='.join(get_args(Why))}")
    if why == "attention" and not has_attention:
        raise ConfigError("--explain=attention: this model has no attention with weights; write --explain=occlusion")
    return "attention" if why == "attention" else "occlusion"


def _named(catalogue: Catalogue, items: list[int], values: list[float], *, is_share: bool) -> str:
    order = sorted(range(len(items)), key=lambda at: -values[at])
    least = max(values[order[0]] / 4, 0.05 if is_share else 0.0)
    named = [at for at in order[:_NAMED] if values[at] >= least and values[at] > 0]
    if not named:
        return "nothing in particular"
    return "; ".join(
        f"{catalogue.shown(items[at])} {number(values[at]) if is_share else f'{values[at]:+.2f}'}" for at in named
    )
