"""The answers of `zoo predict`: recommendations, and the past items that contributed most to each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.errors import ConfigError, count_noun, warn
from zoo.maps.describe import number
from zoo.tasks.base import EXAMPLE
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.maps.attributions import occlusion
from zoo.tasks.recommendation.ranking.ranks import Ranked

if TYPE_CHECKING:
    from zoo.tasks.recommendation.task import Recommender

Why = Literal["occlusion", "attention"]
TOP = 10
_NAMED = 3
"""Maximum number of past items that are named for a recommendation."""


def answers(
    module: Recommender, batch: SequenceBatch, *, top: int = TOP, why: Why | None = None, seen: bool = False
) -> dict[str, list[Any]]:
    """Returns user, split, held_out, rank, item, title, score and because, with one entry for each recommendation.

    The column `EXAMPLE` has the index of the user in the batch.

    Args:
        module: The model that recommends.
        batch: The users.
        top: Number of items that are recommended to each user; fewer if the catalogue has no more.
        why: Method of the column because: occlusion, or attention, which is the same for all items of a user unless
            the model attends to the history for each candidate. None: there is no such column.
        seen: If True, items that a user has chosen before may be recommended.
    """
    found = recommend(module, batch, top, seen=seen)
    real = found.top >= 0
    items, users = found.top[real].tolist(), real.nonzero()[:, 0].tolist()
    held_out = [batch.catalogue.names[item] if item >= 0 else "" for item in batch.held_out.tolist()]
    without = [batch.ids[user] for user in (~real.any(1)).nonzero()[:, 0].tolist()]
    if without and not seen:
        whose, known = count_noun(len(without), "user has", "users have"), len(batch.catalogue.names)
        warn(
            f"{whose} no recommendation, such as {without[0]}: of {count_noun(known, 'item')} that the model knows "
            "none is left that was not chosen. --seen recommends those that were chosen, too."
        )
    columns: dict[str, list[Any]] = {
        EXAMPLE: users,
        "user": [batch.ids[user] for user in users],
        "split": [batch.splits[user] for user in users],
        "held_out": [held_out[user] for user in users],
        "rank": (real.nonzero()[:, 1] + 1).tolist(),
        "item": [batch.catalogue.names[item] for item in items],
        "title": ["" if batch.catalogue.titles is None else batch.catalogue.titles[item] for item in items],
        "score": found.scores[real].tolist(),
    }
    if why is not None:
        reasons = because(batch, contributions(module, batch, found.top.clamp(min=0), why), is_share=why == "attention")
        columns["because"] = [reasons[user][rank] for user, rank in real.nonzero().tolist()]
    return columns


def recommend(module: Recommender, batch: SequenceBatch, top: int, *, seen: bool = False, user: Any = None) -> Ranked:
    """Ranks all items for each user; no item counts as held out.

    Args:
        user: Result of `module.encode`, if it has been computed.
    """
    user = module.encode(batch) if user is None else user
    protocol = replace(module.ranking, negatives=None, seen="rank" if seen else "leave_out")
    after_all = replace(batch, held_out=torch.full_like(batch.held_out, -1))
    return protocol.recommend(lambda items: module.score(user, items), after_all, top)


def contributions(
    module: Recommender, batch: SequenceBatch, items: Int[Tensor, "b k"], why: Why
) -> Float[Tensor, "n k"]:
    """Computes the contribution of each position to the score of each of its user's items."""
    if why == "attention":
        return module.weights(batch, items)
    return occlusion(module.score_own, batch, items)


def because(batch: SequenceBatch, values: Float[Tensor, "n k"], *, is_share: bool) -> list[list[str]]:
    """Names the past items that contributed most to each user's items: "Toy Story (1995) .41; Jumanji .22".

    At most three items are named, each with at least a quarter of the greatest value; a share must also be at least
    .05. The values of an item that was chosen several times are added.

    Args:
        batch: The users.
        values: Contribution of each position to each of its user's items, such as `contributions` computes.
        is_share: Whether the values are shares of 1.
    """
    reasons = []
    for start, stop in zip(batch.starts.tolist(), batch.ends.tolist(), strict=True):
        items, index = torch.unique(batch.items[start:stop], return_inverse=True)
        sums = values.new_zeros(len(items), values.shape[1]).index_add(0, index, values[start:stop])
        reasons.append(
            [_name_items(batch.catalogue, items.tolist(), each.tolist(), is_share=is_share) for each in sums.T]
        )
    return reasons


def check_explain(why: str | None, *, has_attention: bool) -> Why | None:
    """Returns the method that `--explain` asks for; an empty text means occlusion.

    Raises:
        ConfigError: There is no such method, or it needs attention weights that the model does not have.
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


def _name_items(catalogue: Catalogue, items: list[int], values: list[float], *, is_share: bool) -> str:
    order = sorted(range(len(items)), key=lambda at: -values[at])
    least = max(values[order[0]] / 4, 0.05 if is_share else 0.0)
    named = [at for at in order[:_NAMED] if values[at] >= least and values[at] > 0]
    if not named:
        return "nothing in particular"
    return "; ".join(
        f"{catalogue.title_of(items[at])} {number(values[at]) if is_share else f'{values[at]:+.2f}'}" for at in named
    )
