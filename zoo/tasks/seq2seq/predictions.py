"""The answers of `zoo predict`: texts in rows, with their score and probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.decoding.hypothesis import Hypothesis
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.base import EXAMPLE
from zoo.tasks.seq2seq.batch import ReadableBatch
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import force_decode_texts


class PredictionTable:
    """The texts of a batch, a row each.

    Args:
        batch: The examples.
        found: The texts of each, best first.
        writing: How they were written.

    Attributes:
        examples: Number of each row's example.
        written: The text of each row.
    """

    def __init__(self, batch: ReadableBatch, found: Sequence[Sequence[Hypothesis]], writing: DecodingConfig) -> None:
        self.batch, self.is_ranked = batch, writing.count > 1
        self.examples = [number for number, texts in enumerate(found) for _ in texts]
        self.ranks = [rank for texts in found for rank, _ in enumerate(texts, start=1)]
        self.written = [each for texts in found for each in texts]

    def columns(
        self, name: str, *, texts: Sequence[str] | None = None, about: Mapping[str, Sequence[Any]] | None = None
    ) -> dict[str, list[Any]]:
        """Returns id, split, reference, rank among several, text, score and probability.

        The reference is the first of the given texts; it is empty where there is none.

        Args:
            name: Name of the column of texts.
            texts: The text of each row. Default: as the language writes it.
            about: Columns about the examples, which follow their splits: an entry for each example.
        """
        of_example: dict[str, Sequence[Any]] = {"id": self.batch.ids, "split": self.batch.splits, **(about or {})}
        of_example["reference"] = [texts[0] if texts else "" for texts in self.batch.references]
        columns: dict[str, list[Any]] = {EXAMPLE: self.examples}
        columns |= {key: [values[number] for number in self.examples] for key, values in of_example.items()}
        if self.is_ranked:
            columns["rank"] = self.ranks
        language = self.batch.language
        columns[name] = [language.text(each.tokens) for each in self.written] if texts is None else list(texts)
        columns["score"] = [each.score for each in self.written]
        columns["probability"] = [each.probability for each in self.written]
        return columns

    def weights(self, net: Seq2SeqModel) -> Float[Tensor, "r n k"] | None:
        """Returns the weights with which texts attended to their sources, from a forced pass; None if none."""
        source = self.batch.source
        rows = source.select(torch.tensor(self.examples, device=source.lengths.device))
        return force_decode_texts(net, rows, [each.target(END) for each in self.written]).weights
