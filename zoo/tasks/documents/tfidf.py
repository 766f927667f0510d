"""TF-IDF with logistic regression: the baseline that a model of documents has to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.tasks.baselines import HELD_OUT, Baseline, fit_logistic_regression, predict_majority

if TYPE_CHECKING:
    from zoo.tasks.documents.datamodule import DocumentData

_NAME = "TF-IDF with logistic regression"
_CHEAP = 3_000_000
"""The most tokens that a training run reads again for this baseline, of texts of the user's own: some seconds."""


def compare_documents(data: DocumentData) -> list[Baseline]:
    """Returns the baselines of a data set of documents."""
    content = data.content
    corpus = content.corpus
    splits = np.where(corpus.is_labelled, corpus.splits, NONE)
    is_cheap = bool(data.source.is_own and content.lengths.sum() <= _CHEAP)
    if corpus.targets == "multi":
        return [Baseline(_NAME, lambda: _measure_several(data, splits), is_cheap)]
    labels, classes = np.asarray(corpus.labels), len(corpus.label_names)
    return [
        predict_majority(labels, splits, classes),
        fit_logistic_regression(
            _NAME, lambda: _compute_tfidf(data, splits), labels, splits, classes, is_cheap=is_cheap
        ),
    ]


def _compute_tfidf(data: DocumentData, splits: np.ndarray) -> Any:
    """Returns the TF-IDF of the tokens of each text, with logarithmic counts; weights come from the training split."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second to import

    texts = data.content.corpus.texts
    vectorizer = TfidfVectorizer(analyzer=lambda number: list(data.tokens_of(number)), sublinear_tf=True)
    vectorizer.fit(np.flatnonzero(splits == TRAIN).tolist())
    return vectorizer.transform(range(len(texts)))


def _measure_several(data: DocumentData, splits: np.ndarray) -> dict[str, float]:
    """Measures a regression for each label; a text is right if all of its labels are."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    x, labels = _compute_tfidf(data, splits), np.asarray(data.content.corpus.labels)
    learns = splits == TRAIN
    predicted = np.zeros_like(labels)
    for column in range(labels.shape[1]):
        own = labels[learns, column]
        constant = own[0] if len(set(own.tolist())) == 1 else None
        if constant is None:
            model = LogisticRegression(C=10.0, max_iter=1000).fit(x[np.flatnonzero(learns)], own)
            predicted[:, column] = model.predict(x)
        else:
            predicted[:, column] = constant
    found = {}
    for name in HELD_OUT:
        chosen = splits == SPLITS.index(name)
        if chosen.any():
            given, wanted = predicted[chosen], labels[chosen]
            found[f"{name}/accuracy"] = float((given == wanted).all(1).mean())
            found[f"{name}/f1_macro"] = float(f1_score(wanted, given, average="macro", zero_division=0))
    return found
