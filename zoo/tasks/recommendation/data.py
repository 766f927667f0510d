"""The data sets that can be named in a configuration; their options are its schema."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

from zoo.data.tables import OnBadRow
from zoo.tasks.recommendation.files import Reading, read_interactions
from zoo.tasks.recommendation.history_data import HistoryData
from zoo.tasks.recommendation.log import Duplicates, Log, Rare, Unknown, make_log
from zoo.tasks.recommendation.planted import plant
from zoo.tasks.recommendation.published import (
    BEAUTY,
    ML_1M,
    ML_100K,
    SASREC_BEAUTY,
    SASREC_ML_1M,
    read_movielens,
    read_pairs,
    read_reviews,
)
from zoo.tasks.recommendation.splitting import Split


def planted_sessions(
    *,
    seed: int = 0,
    users: int = 8_000,
    items: int = 200,
    reach: int = 10,
    shortest: int = 20,
    longest: int = 30,
    noise: float = 0.1,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    length: int,
    bucketed: bool = False,
    unknown: Unknown = "error",
) -> HistoryData:
    """Generated sessions in which each item says how far back the one lies that decides the next: `planted.plant`."""
    return HistoryData(
        partial(
            plant,
            seed=seed,
            users=users,
            items=items,
            reach=reach,
            shortest=shortest,
            longest=longest,
            noise=noise,
        ),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        length=length,
        bucketed=bucketed,
        unknown=unknown,
    )


def ml_1m(
    *,
    root: str,
    cache: str | None = None,
    source: Literal["sasrec", "grouplens"] = "sasrec",
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    length: int,
    split: Split = "leave_one_out",
    val_share: float = 0.1,
    test_share: float = 0.1,
    eval_users: int | None = None,
    bucketed: bool = False,
    unknown: Unknown = "error",
) -> HistoryData:
    """MovieLens-1M, films with five ratings or more: the file of the SASRec authors, or GroupLens' own, with times."""
    folders = _folders(root, cache)
    return HistoryData(
        partial(read_pairs, SASREC_ML_1M, folders) if source == "sasrec" else partial(read_movielens, ML_1M, folders),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        length=length,
        split=split,
        val_share=val_share,
        test_share=test_share,
        eval_users=eval_users,
        bucketed=bucketed,
        unknown=unknown,
    )


def ml_100k(
    *,
    root: str,
    cache: str | None = None,
    min_user_items: int = 5,
    min_item_users: int = 5,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    length: int,
    split: Split = "leave_one_out",
    val_share: float = 0.1,
    test_share: float = 0.1,
    eval_users: int | None = None,
    bucketed: bool = False,
    unknown: Unknown = "error",
) -> HistoryData:
    """MovieLens-100K, from GroupLens."""
    return HistoryData(
        partial(
            read_movielens,
            ML_100K,
            _folders(root, cache),
            min_user_items=min_user_items,
            min_item_users=min_item_users,
        ),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        length=length,
        split=split,
        val_share=val_share,
        test_share=test_share,
        eval_users=eval_users,
        bucketed=bucketed,
        unknown=unknown,
    )


def amazon_beauty(
    *,
    root: str,
    cache: str | None = None,
    source: Literal["five_core", "sasrec"] = "five_core",
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    length: int,
    split: Split = "leave_one_out",
    val_share: float = 0.1,
    test_share: float = 0.1,
    eval_users: int | None = None,
    bucketed: bool = False,
    unknown: Unknown = "error",
) -> HistoryData:
    """Reviews of beauty products at Amazon: McAuley's 5-core set, or the larger one of the SASRec authors."""
    folders = _folders(root, cache)
    return HistoryData(
        partial(read_reviews, BEAUTY, folders)
        if source == "five_core"
        else partial(read_pairs, SASREC_BEAUTY, folders),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        length=length,
        split=split,
        val_share=val_share,
        test_share=test_share,
        eval_users=eval_users,
        bucketed=bucketed,
        unknown=unknown,
    )


def interactions(
    *,
    table: str,
    titles: str | None = None,
    user: str = "user",
    item: str = "item",
    timestamp: str | None = None,
    rating: str = "rating",
    min_rating: float | None = None,
    on_bad_row: OnBadRow = "error",
    duplicates: Duplicates = "keep",
    min_user_items: int = 1,
    min_item_users: int = 1,
    rare: Rare = "drop",
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    length: int,
    split: Split = "leave_one_out",
    val_share: float = 0.1,
    test_share: float = 0.1,
    eval_users: int | None = None,
    bucketed: bool = False,
    unknown: Unknown = "error",
) -> HistoryData:
    """The user's own interactions, a table with a row for each: see data/README.md."""
    reading = Reading(
        user=user, item=item, timestamp=timestamp, rating=rating, min_rating=min_rating, on_bad_row=on_bad_row
    )
    return HistoryData(
        partial(
            _read_own,
            Path(table),
            reading,
            None if titles is None else Path(titles),
            duplicates=duplicates,
            min_user_items=min_user_items,
            min_item_users=min_item_users,
            rare=rare,
        ),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        length=length,
        split=split,
        val_share=val_share,
        test_share=test_share,
        eval_users=eval_users,
        bucketed=bucketed,
        unknown=unknown,
        reading=reading,
    )


def _read_own(path: Path, reading: Reading, titles: Path | None, **making: Any) -> Log:
    return make_log(**vars(read_interactions(path, reading, titles=titles)), **making)


def _folders(root: str, cache: str | None) -> list[Path]:
    return [Path(root)] if cache is None else [Path(root), Path(cache)]
