"""The data sets of histories that a configuration can name; the arguments of these functions are its options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.recommendation.data.interaction_log import Duplicates, Log, Rare, make_log
from zoo.tasks.recommendation.data.readers import ReaderOptions, read_interactions
from zoo.tasks.recommendation.datamodule import HistoryData, HistorySource
from zoo.tasks.recommendation.synthetic import plant
from zoo.tasks.recommendation.synthetic_baskets import fill
from zoo.types import AnyFloat, PositiveInt, validate_ranges


@dataset(HistoryData, generator=plant)
def planted_sessions(generate: Callable[[], Log]) -> HistorySource:
    """Generated sessions in which one past item, at a distance set by the last item, decides the next: `plant`."""
    return HistorySource(generate)


@dataset(HistoryData, generator=fill)
def planted_baskets(generate: Callable[[], Log]) -> HistorySource:
    """Generated baskets in which one past item makes each item likely: `baskets.fill`."""
    return HistorySource(generate)


@dataset(HistoryData)
def published(
    *,
    name: Literal["ml_1m", "ml_1m_ratings", "ml_100k", "amazon_beauty", "amazon_beauty_sasrec"],
    root: str,
    cache: str | None = None,
) -> HistorySource:
    """A published data set, reduced to users and items with at least five interactions.

    `ml_1m` and `amazon_beauty_sasrec` are the files of the SASRec authors. `ml_1m_ratings` and `ml_100k` are ratings of
    GroupLens, and `amazon_beauty` are McAuley's reviews; these have times.
    """
    from zoo.data.download import search_folders
    from zoo.tasks.recommendation.data.published import READERS

    folders = search_folders(root, cache)
    return HistorySource(partial(READERS[name], folders))


@dataset(HistoryData)
@validate_ranges
def interactions(
    *,
    table: str,
    titles: str | None = None,
    user: str = "user",
    item: str = "item",
    timestamp: str | None = None,
    rating: str = "rating",
    min_rating: AnyFloat | None = None,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    duplicates: Duplicates = "keep",
    min_user_items: PositiveInt = 1,
    min_item_users: PositiveInt = 1,
    rare: Rare = "drop",
) -> HistorySource:
    """The user's own interactions: a table with one row for each interaction. See data/README.md."""
    reading = ReaderOptions(
        user=user,
        item=item,
        timestamp=timestamp,
        rating=rating,
        min_rating=min_rating,
        on_bad_row=on_bad_row,
        encoding=encoding,
    )
    making = {"duplicates": duplicates, "min_user_items": min_user_items, "min_item_users": min_item_users}
    read = partial(_read_own, Path(table), reading, None if titles is None else Path(titles), **making, rare=rare)
    return HistorySource(read, reading, duplicates, min_user_items)


def _read_own(path: Path, reading: ReaderOptions, titles: Path | None, **making: Any) -> Log:
    return make_log(**vars(read_interactions(path, reading, titles=titles)), **making)
