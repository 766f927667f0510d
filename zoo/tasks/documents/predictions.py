"""The columns of `zoo predict`: the predicted label of each text, with its heaviest sentences and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from zoo.errors import ConfigError
from zoo.maps.describe import number
from zoo.tasks.documents.batch import ReadableDocumentBatch
from zoo.tasks.documents.word_importance import forward_with_weights, sentence_weights

if TYPE_CHECKING:
    from zoo.tasks.documents.task import DocumentClassifier

_SENTENCES, _WORDS = 2, 5
"""Maximum number of sentences and of words that are named."""
_LONGEST = 120
"""Maximum number of characters of a sentence that is named; longer ones are cut."""


def answers(module: DocumentClassifier, batch: ReadableDocumentBatch, *, explain: bool = False) -> dict[str, list[Any]]:
    """Returns the columns id, split, label, prediction and probability, with the columns of the task's kind of label.

    Args:
        module: Classifier.
        batch: Texts to classify.
        explain: If True, the columns `sentences` and `words` name the heaviest ones.
    """
    logits, weights = forward_with_weights(module.net, batch) if explain else (module(batch), None)
    columns = module.columns(batch, logits)
    del columns["loss"]
    if explain:
        if weights is None:
            raise ConfigError("--explain: this model has no map of its words: its attention has no weights")
        columns |= weight_columns(weights, batch)
    return columns


def weight_columns(weights: Float[Tensor, " w"], batch: ReadableDocumentBatch) -> dict[str, list[str]]:
    """The columns `sentences` and `words` of a batch: what weighed most in each document."""
    said = [name_heaviest(weights, batch, document) for document in range(len(batch))]
    return {"sentences": [sentences for sentences, _ in said], "words": [words for _, words in said]}


def name_heaviest(weights: Float[Tensor, " w"], batch: ReadableDocumentBatch, document: int) -> tuple[str, str]:
    """Names a document's heaviest sentences and words: 'The food was not superb. .82; ...' and 'food .31; ...'.

    Those below a quarter of the greatest weight are left out. A word that occurs twice has the sum of both weights.
    """
    of_sentences = sentence_weights(weights, batch)
    texts: dict[int, list[str]] = {}
    words: dict[str, float] = {}
    mine = (batch.word_documents == document).nonzero().flatten()
    for word, owner, value in zip(mine.tolist(), batch.sentences[mine].tolist(), weights[mine].tolist(), strict=True):
        texts.setdefault(owner, []).append(batch.spelled[word])
        name = batch.spelled[word].strip()
        words[name] = words.get(name, 0.0) + value
    sentences = {sentence: float(of_sentences[sentence]) for sentence in texts}
    named = [f"{_shorten(''.join(texts[each]))} {number(value)}" for each, value in _most(sentences, _SENTENCES)]
    return "; ".join(named), "; ".join(f"{word} {number(value)}" for word, value in _most(words, _WORDS))


def _most(weights: dict[Any, float], count: int) -> list[tuple[Any, float]]:
    ranked = sorted(weights.items(), key=lambda each: -each[1])[:count]
    return [(what, value) for what, value in ranked if value >= ranked[0][1] / 4]


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
