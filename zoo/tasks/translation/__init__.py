"""Translation: texts in another language, or shorter, and the words that each word was made of."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.pair_data": ["PairData"],
        "data.sources": ["iwslt14", "multi30k", "planted_summaries", "planted_translation", "text_pairs"],
        "nets.recurrent_encoder": ["RecurrentEncoder"],
        "nets.recurrent_translator": ["RecurrentTranslator"],
        "nets.transformer_translator": ["TransformerTranslator"],
        "translator": ["Translator"],
    },
)
