"""Translation: texts in another language, or shorter, and the words that each word was made of."""

from zoo.lazy import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "nets.transformer_translator": ["TransformerTranslator"],
        "translator": ["Translator"],
    },
)
