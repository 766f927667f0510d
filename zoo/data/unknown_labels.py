"""Collects labels of the user's examples that a trained model does not have, and reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


class UnknownLabels:
    """Labels that a model cannot give, by the examples that have them.

    A prediction does not need them, so that they are no reason to stop; a figure of a split would be wrong.
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}

    def add(self, id: str, label: str) -> None:
        """Adds the label of an example, or what is written in its place."""
        self._labels[id] = label

    def report(self) -> str:
        """Returns a sentence that counts them; empty if there are none."""
        count = len(self._labels)
        if not count:
            return ""
        (common, _), *_ = Counter(self._labels.values()).most_common(1)
        if count == 1:
            return f"{common!r} is no label that the model knows; it stands beside the prediction as written."
        return (
            f"{count:,} examples have labels that the model does not know, such as {common!r}; they stand beside the "
            "predictions as written."
        )

    def restore(self, rows: Iterable[Mapping[str, Any]], column: str) -> list[dict[str, Any]]:
        """Returns rows with these labels in a column."""
        if not self._labels:
            return [dict(row) for row in rows]
        return [
            {**row, column: self._labels.get(row["id"], row[column])} if column in row else dict(row) for row in rows
        ]
