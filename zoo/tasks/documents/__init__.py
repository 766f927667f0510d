"""Classification of documents, with the sentences and words that explain it."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.augmentation": ["Augmentation"],
        "datamodule": ["DocumentData"],
        "datasets": ["imdb", "newsgroups20", "planted_reviews", "text_folder", "text_table", "yelp"],
        "task": ["DocumentClassifier"],
        "models.pooled_classifier": ["FlatAttention"],
        "models.han": ["HAN", "HANTransformer"],
        "models.long_document": ["LongDocument"],
    },
)
