"""Documents: what a text is about, and which of its sentences and words say so."""

from zoo.lazy import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "nets.flat": ["FlatAttention"],
        "nets.han": ["HAN", "HANTransformer"],
        "nets.long": ["LongDocument"],
    },
)
