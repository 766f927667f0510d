"""Classification of documents, with the sentences and words that explain it."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.augmentation": ["Augmentation"],
        "data.document_data": ["DocumentData"],
        "data.sources": ["imdb", "newsgroups20", "planted_reviews", "text_folder", "text_table", "yelp"],
        "module": ["DocumentClassifier"],
        "nets.flat": ["FlatAttention"],
        "nets.han": ["HAN", "HANTransformer"],
        "nets.long": ["LongDocument"],
    },
)
