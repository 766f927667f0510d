"""Tokenizers, vocabularies, sentences, word vectors and corpus scores, for all domains with text. No torch."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "metrics.cider": ["CIDEr", "Frequencies"],
        "cooccurrence": ["corpus_vectors"],
        "metrics.error_rates": ["CER", "WER"],
        "tokenizer_factory": ["TOKENISER", "new_tokenizer", "tokenizer_from_state"],
        "html": ["PlainText", "remove_markup"],
        "metrics.bleu_chrf": ["BLEU", "CHRF"],
        "metrics.rouge": ["CaptionROUGE", "ROUGE"],
        "metrics.score": ["Perplexity", "Score", "add_sums"],
        "sentences": ["sentence_spans"],
        "metrics.squad": ["SQuAD"],
        "bpe": ["Subwords"],
        "tokens": ["Tokenizer", "Tokens"],
        "vectors": ["WordVectors", "read_vectors"],
        "vocabulary": ["VOCABULARY", "Vocabulary"],
        "words": ["Characters", "Words"],
    },
)
