"""Tokenisers, vocabularies, sentences, word vectors and corpus scores, for all domains with text. No torch."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "consensus": ["CIDEr", "Frequencies"],
        "cooccurrence": ["corpus_vectors"],
        "error_rates": ["CER", "WER"],
        "kinds": ["TOKENISER", "new_tokeniser", "tokeniser_from_state"],
        "markup": ["PlainText", "without_markup"],
        "overlap": ["BLEU", "CHRF"],
        "rouge": ["CaptionROUGE", "ROUGE"],
        "scores": ["Perplexity", "Score", "added"],
        "sentences": ["sentence_spans"],
        "squad": ["SQuAD"],
        "subwords": ["Subwords"],
        "tokens": ["Tokeniser", "Tokens"],
        "vectors": ["WordVectors", "read_vectors"],
        "vocabulary": ["VOCABULARY", "Vocabulary"],
        "words": ["Characters", "Words"],
    },
)
