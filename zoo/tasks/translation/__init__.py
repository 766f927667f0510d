"""Translation: texts in another language, or shorter, and the words that each word was made of."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "datamodule": ["PairData"],
        "datasets": ["iwslt14", "multi30k", "planted_summaries", "planted_translation", "text_pairs"],
        "models.recurrent_encoder": ["RecurrentEncoder"],
        "models.recurrent_translator": ["RecurrentTranslator"],
        "models.transformer_translator": ["TransformerTranslator"],
        "task": ["Translator"],
    },
)
