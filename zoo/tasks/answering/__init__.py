"""Question answering: about pictures, about paragraphs, and whether one sentence follows from another."""

from zoo.lazy import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "nets.bidaf": ["BiDAF"],
        "nets.coattention": ["CoAttentionAnswerer"],
        "nets.esim": ["ESIM"],
    },
)
