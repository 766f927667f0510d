"""Collects labels of the user's examples that a trained model does not have, and reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from zoo.data.tables import Row


def read_label(row: Row, column: str, known: Collection[str] | None, unknown: UnknownLabels | None, id: str) -> str:
    """Returns the label of a row; "" if its cell is empty, or names a label that goes to `unknown`.

    Args:
        row: The row.
        column: Name of the column of labels.
        known: Labels of a trained model; None: all labels are.
        unknown: Where others go; None: they are errors.
        id: Name of the example.
    """
    label = row.text(column, empty=True)
    if not label or known is None or label in known:
        return label
    if unknown is None:
        return row.choice(column, known)
    unknown.add(id, label)
    return ""


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
