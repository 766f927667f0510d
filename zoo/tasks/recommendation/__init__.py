"""Recommendation: predicting the next item of a user's history, and the probability that a candidate is chosen."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "ctr": ["CTRTask"],
        "datamodule": ["HistoryData"],
        "datasets": ["interactions", "planted_baskets", "planted_sessions", "published"],
        "losses": ["BCE", "FullSoftmax", "GeneralisedBCE", "SampledSoftmax"],
        "models.din": ["DIN"],
        "models.sasrec": ["SASRec"],
        "next_item": ["NextItemTask"],
        "ranking.protocol": ["Protocol"],
    },
)
