"""The scored map of documents, its agreement with gold, and the columns of predictions."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, EdgeSupport
from zoo.maps.metrics import pointing
from zoo.tasks.documents.batch import DocumentBatch, GoldMarks
from zoo.tasks.documents.word_importance import sentence_weights

SCORED = "words x sentences"
"""Name of the scored map."""


def scored_map(weights: Float[Tensor, " w"], batch: DocumentBatch[Any]) -> AttentionMap:
    """Returns the weights of words as a map whose queries are documents and whose keys are their words."""
    support = EdgeSupport.from_groups(batch.word_documents, len(batch))
    return AttentionMap(SCORED, weights[:, None], EdgeSupport.axes, support, (0,))


def points(
    weights: Float[Tensor, " w"], batch: DocumentBatch[Any], gold: GoldMarks
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"]]:
    """Scores where the weights point, as 0 or 1.

    Returns:
        For each document, whether its heaviest sentence is gold; for each gold sentence, whether its heaviest word is.
    """
    sentences = pointing(sentence_weights(weights, batch), gold.sentences, query=batch.documents)
    inside = gold.sentences[batch.sentences]
    return sentences, pointing(weights, gold.words, inside, query=batch.sentences)


def predict_columns(logits: Float[Tensor, "b classes"], batch: DocumentBatch[Any]) -> dict[str, list[Any]]:
    """Returns the columns of predictions: the predicted labels and their probability."""
    labels = batch.known_label_set
    if labels.targets == "multi":
        chances = logits.float().sigmoid()
        ranked = chances.topk(min(5, chances.shape[1]))
        return {
            "prediction": [
                "; ".join(name for name, p in zip(labels.names, row, strict=True) if p > 0.5)
                for row in chances.tolist()
            ],
            "probability": chances.maximum(1.0 - chances).prod(1).tolist(),
            "labels": [
                "; ".join(f"{labels.names[at]} {p:.4f}" for at, p in zip(places, values, strict=True))
                for places, values in zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True)
            ],
        }
    probability, best = logits.float().softmax(-1).max(-1)
    found: dict[str, list[Any]] = {
        "prediction": [labels.names[at] for at in best.tolist()],
        "probability": probability.tolist(),
    }
    if labels.targets == "ordinal":
        found["median"] = [labels.names[at] for at in median(logits).tolist()]
    return found


def has_label(batch: DocumentBatch[Any]) -> Tensor:
    """Returns a mask of the documents whose label is known."""
    if batch.known_label_set.targets == "multi":
        return torch.tensor([bool(split) for split in batch.splits])
    return batch.labels >= 0


def label_names(batch: DocumentBatch[Any], known: Tensor) -> list[str]:
    names = batch.known_label_set.names
    if batch.known_label_set.targets == "multi":
        rows = zip(batch.labels.tolist(), known.tolist(), strict=True)
        return ["; ".join(n for n, is_so in zip(names, row, strict=True) if is_so) if has else "" for row, has in rows]
    return [names[label] if label >= 0 else "" for label in batch.labels.tolist()]


def is_right(logits: Tensor, batch: DocumentBatch[Any]) -> Float[Tensor, " b"]:
    if batch.known_label_set.targets == "multi":
        return ((logits > 0) == batch.labels).all(1).float()
    return (logits.argmax(-1) == batch.labels).float()


def median(logits: Tensor) -> Tensor:
    """Returns the least label whose cumulative probability reaches one half."""
    reached = logits.float().softmax(-1).cumsum(-1) >= 0.5
    return torch.where(reached.any(-1), reached.int().argmax(-1), logits.shape[-1] - 1)


def distance(logits: Tensor, batch: DocumentBatch[Any]) -> Float[Tensor, " b"]:
    values = batch.known_label_set.values.to(logits.device)
    return (values[median(logits)] - values[batch.labels]).abs()
