"""Simple answers with which a model is compared: on the same splits, by the same metrics, in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torchmetrics.functional.classification import multiclass_f1_score

from zoo.data.splits import SPLITS, TRAIN

if TYPE_CHECKING:
    from zoo.text import Score

HELD_OUT = SPLITS[1:]


@dataclass(frozen=True)
class Baseline:
    """A simple answer.

    Args:
        name: What it answers, for a table: "TF-IDF with logistic regression".
        measure: Learns from the training split; returns the metrics of the splits that are held out, by the names that
            a run gives to them: "test/accuracy".
        is_cheap: Whether a training run measures it too, at its end.
    """

    name: str
    measure: Callable[[], Mapping[str, float]]
    is_cheap: bool = False


def predict_majority(labels: Int[np.ndarray, " n"], splits: Int[np.ndarray, " n"], classes: int) -> Baseline:
    """Returns the baseline that answers the most frequent label of the training split.

    Args:
        labels: Label of each example, negative if it is unknown.
        splits: Split of each example, a number of `zoo.data.splits`.
        classes: Number of labels.
    """

    def measure() -> dict[str, float]:
        known = labels[(splits == TRAIN) & (labels >= 0)]
        most = int(np.bincount(known, minlength=classes).argmax())
        return measure_labels(np.full(len(labels), most), labels, splits, classes)

    return Baseline("the most frequent label", measure, is_cheap=True)


def fit_logistic_regression(
    name: str,
    features: Callable[[], Any],
    labels: Int[np.ndarray, " n"],
    splits: Int[np.ndarray, " n"],
    classes: int,
    *,
    is_cheap: bool,
) -> Baseline:
    """Returns the baseline of logistic regression on features of each example.

    Args:
        name: Name of the baseline.
        features: Makes the features, an array or a sparse matrix with a row for each example.
        labels: Label of each example, negative if it is unknown.
        splits: Split of each example, a number of `zoo.data.splits`.
        classes: Number of labels.
        is_cheap: Whether a training run measures it too.
    """

    def measure() -> dict[str, float]:
        x, learns = features(), np.flatnonzero((splits == TRAIN) & (labels >= 0))
        return measure_labels(_fit(x[learns], labels[learns]).predict(x), labels, splits, classes)

    return Baseline(name, measure, is_cheap)


def measure_labels(
    predicted: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"], splits: Int[np.ndarray, " n"], classes: int
) -> dict[str, float]:
    """Returns accuracy and macro F1 of the splits that are held out; an unknown label counts as wrong in no split."""
    found = {}
    for name in HELD_OUT:
        chosen = (splits == SPLITS.index(name)) & (labels >= 0)
        if not chosen.any():
            continue
        given, wanted = torch.from_numpy(predicted[chosen]), torch.from_numpy(labels[chosen])
        found[f"{name}/accuracy"] = float((given == wanted).double().mean())
        found[f"{name}/f1_macro"] = float(multiclass_f1_score(given, wanted, max(2, classes), average="macro"))
    return found


def write_texts(
    name: str, write: Callable[[Texts], Sequence[str]], texts: Callable[[str], Texts], scores: Sequence[Any]
) -> Baseline:
    """Returns the baseline that writes a text for each example.

    Args:
        name: Name of the baseline.
        write: Makes a text for each example of a split.
        texts: Split -> its texts.
        scores: Scores of texts, each with the names of its figures.
    """

    def measure() -> dict[str, float]:
        found: dict[str, float] = {}
        for split in HELD_OUT:
            own = texts(split)
            if own.references:
                written = write(own)
                for score, names in scores:
                    figures = score.compute(score.statistics(written, own.references))
                    found |= {f"{split}/{each}": float(figures[each]) for each in names}
        return found

    return Baseline(name, measure)


@dataclass(frozen=True)
class Texts:
    """The texts of a split.

    Args:
        references: The given texts of each example.
        sources: The text that each example is written from. Default: it is no text.
    """

    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None = None


def compare_with_texts(texts: Callable[[str], Texts], scores: Sequence[tuple[Score, Sequence[str]]]) -> list[Baseline]:
    """Returns the baselines of a model that writes: the most frequent text of the training split, and a copy."""

    def repeat(own: Texts) -> list[str]:
        counts = Counter(text for each in texts("train").references for text in each)
        return [min(counts, key=lambda text: (-counts[text], text))] * len(own.references)

    found = [write_texts("the most frequent text", repeat, texts, scores)]
    if texts("val").sources is not None:
        found.append(write_texts("a copy of the source", lambda own: list(own.sources or ()), texts, scores))
    return found


def _fit(x: Any, labels: Int[np.ndarray, " k"]) -> Any:
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    return LogisticRegression(C=10.0, max_iter=1000).fit(x, labels)


def to_array(features: Any) -> Float[np.ndarray, "n f"] | Any:
    """Returns features of torch as an array, or a sparse matrix of scipy."""
    from scipy import sparse

    if features.layout == torch.sparse_csr:
        parts = features.values(), features.col_indices(), features.crow_indices()
        return sparse.csr_matrix(tuple(each.numpy() for each in parts), shape=tuple(features.shape))
    return features.numpy()
