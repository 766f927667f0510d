"""Maps of documents: a table of the heaviest sentences and words of a whole split, and some documents as pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, EdgeSupport
from zoo.attention.recording.recorder import Recording
from zoo.data.loader import Loader
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import ExplainedExample, LabelledAttention, MapOptions, Table, one_a_label, picture_name
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.documents.batch import ReadableDocumentBatch
from zoo.tasks.documents.maps.perturbation import PerturbableDocument
from zoo.tasks.documents.maps.scored_map import SCORED, points, predict_columns, scored_map
from zoo.tasks.documents.plots import Line, page
from zoo.tasks.documents.predictions import name_heaviest, weight_columns
from zoo.tasks.documents.word_importance import forward_with_weights, sentence_weights

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zoo.tasks.documents.datamodule import DocumentData
    from zoo.tasks.documents.task import DocumentClassifier


class DocumentExplainer(DatasetExplainer):
    """Writes the table `documents`, a row per document of the split, and `words`, a row per word of drawn documents."""

    noun, table = "document", "documents"
    module: DocumentClassifier

    def __init__(self, module: DocumentClassifier, data: DocumentData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.corpus, options)
        self.scored = [SCORED]
        self._points: dict[str, list[float]] = {"sentence_pointing": [], "word_pointing": []}

    def sample(self, count: int) -> list[int]:
        numbers = self.records.numbers(self.split)
        labels = self.records.labels[numbers]
        kinds = labels.argmax(1) if labels.ndim > 1 else labels
        return [int(numbers[at]) for at in one_a_label(kinds.tolist())[:count]]

    @property
    def loader(self) -> Loader:
        loader: Loader = self.data.loader(self.split, spelled=True)
        return loader

    def examples(self) -> Iterator[ExplainedExample]:
        for which in self.positions:
            batch = self.batch(which)
            with torch.inference_mode(), self.record_sites() as found:
                logits, weights = forward_with_weights(self.net, batch)
            yield _OneDocument(self.net, batch, found, logits, weights)

    def make_perturbable(self, position: int) -> list[PerturbableDocument]:
        batch = self.batch(position)
        return [PerturbableDocument(self.module, batch, noun) for noun in ("word", "sentence")]

    def truth(self) -> dict[str, float | None]:
        return {name: sum(found) / len(found) for name, found in self._points.items() if found}

    @property
    def truth_label(self) -> str:
        return f"{self.split} documents, {SCORED}"

    def columns(self, batch: ReadableDocumentBatch) -> dict[str, list[Any]]:
        """Returns id, split, label, prediction, probability and the heaviest sentences and words of each document."""
        logits, weights = forward_with_weights(self.net, batch)
        columns = self.module.columns(batch, logits)
        del columns["loss"]
        if weights is not None:
            columns |= weight_columns(weights, batch)
            if batch.gold is not None:
                for name, found in zip(self._points, points(weights, batch, batch.gold), strict=True):
                    self._points[name] += found.tolist()
        return columns


class _OneDocument(ExplainedExample):
    """A document with its prediction and the maps that were recorded for it."""

    def __init__(
        self,
        net: Any,
        batch: ReadableDocumentBatch,
        found: Recording,
        logits: Tensor,
        weights: Float[Tensor, " w"] | None,
    ) -> None:
        self.net, self.batch, self.found, self.weights = net, batch, found, weights
        self._predicted = predict_columns(logits, batch)

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def label(self) -> str:
        labels, names = self.batch.labels[0], self._names
        if labels.dim():
            return "; ".join(name for name, applies in zip(names, labels.tolist(), strict=True) if applies)
        return names[int(labels)] if int(labels) >= 0 else ""

    @property
    def title(self) -> str:
        said = f"predicted {self._predicted['prediction'][0]} ({number(self._predicted['probability'][0])})"
        return f"{said}, is {self.label}" if self.label else said

    @property
    def about(self) -> Mapping[str, Any]:
        return {"label": self.label, **{name: column[0] for name, column in self._predicted.items()}}

    @property
    def description(self) -> str:
        """The heaviest sentences and words, in one line."""
        if self.weights is None:
            return "no map: this attention has no weights"
        sentences, words = name_heaviest(self.weights, self.batch, 0)
        return f"{words}; in: {sentences}"

    @property
    def words(self) -> list[str]:
        return [f"{self.id}: {self.title}; {self.description}"]

    @cached_property
    def words_by_sentence(self) -> list[list[str]]:
        """The words of each sentence."""
        found: list[list[str]] = [[] for _ in self.batch.documents]
        for sentence, word in zip(self.batch.sentences.tolist(), self.batch.spelled, strict=True):
            found[sentence].append(word)
        return found

    def maps(self) -> Iterator[LabelledAttention]:
        words = [word.strip() or word for word in self.batch.spelled]
        for found in self.found.values():
            named = self._label(found, words)
            if named is not None:
                yield named
        if self.weights is not None:
            gold = None if self.batch.gold_words is None else self.batch.gold_words.cpu()
            labels = {"source": words, "target": [self.id]}
            yield LabelledAttention(scored_map(self.weights, self.batch), labels, _NOUNS["words"], gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        if self.weights is not None:
            yield picture_name(self.id, number), page(self._lines(self.weights), title=f"{self.id}: {self.title}")

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        if self.weights is not None:
            yield Table("words", [self._table(self.weights)])

    @property
    def _names(self) -> tuple[str, ...]:
        return self.batch.known_label_set.names

    def _label(self, found: AttentionMap, words: list[str]) -> LabelledAttention | None:
        """Returns a map with its labels, or None for maps of several sequences, such as self-attention in sentences."""
        batch, texts = self.batch, ["".join(sentence).strip() for sentence in self.words_by_sentence]
        if isinstance(found.support, EdgeSupport):
            of_words = found.support.pattern.shape[1] == len(words) and found.site.startswith("words.")
            sources = words if of_words else texts
            in_sentences = of_words and found.support.pattern.shape[0] == len(texts) and "sentences" in self._levels
            gold = batch.gold_words if of_words else batch.gold_sentences
            marks = None if gold is None else gold.cpu()[found.support.source.long().cpu()]
            labels = {"source": sources, "target": texts if in_sentences else [self.id]}
            kind = "sentences" if not of_words else "words in sentences" if in_sentences else "words"
            return LabelledAttention(found, labels, _NOUNS[kind], marks)
        if "step" in found.axes or found.axes[0] != "batch" or len(found.weights) != 1:
            return None
        is_long = "sentences" not in self._levels
        if not is_long and found.site.startswith("words.") and len(texts) > 1:
            return None
        names = [f"<{self.id}>", *words] if is_long else words if found.site.startswith("words.") else texts
        noun = "word" if is_long or names is words else "sentence"
        return LabelledAttention(found, {"query": names, "key": names}, {"query": noun, "key": noun})

    @property
    def _levels(self) -> Mapping[str, str]:
        return getattr(self.net, "SITES", {})

    def _parts(self, weights: Float[Tensor, " w"]) -> list[tuple[float, list[float], list[bool], bool]]:
        """Returns for each sentence: its weight, its words' weights in the document and gold flags, its gold flag."""
        batch, lengths = self.batch, self.batch.sentence_lengths.tolist()
        of_sentences = sentence_weights(weights, batch).tolist()
        gold = batch.gold_words if batch.gold_words is not None else torch.zeros(len(batch.words), dtype=torch.bool)
        marks = batch.gold_sentences.tolist() if batch.gold_sentences is not None else [False] * len(lengths)
        words, golds = torch.split(weights.cpu(), lengths), torch.split(gold.cpu(), lengths)
        each = zip(of_sentences, words, golds, marks, strict=True)
        return [(weight, words.tolist(), golden.tolist(), mark) for weight, words, golden, mark in each]

    def _lines(self, weights: Float[Tensor, " w"]) -> list[Line]:
        return [
            Line(words, weight, [_divide(value, weight) for value in values], golden, mark)
            for words, (weight, values, golden, mark) in zip(self.words_by_sentence, self._parts(weights), strict=True)
        ]

    def _table(self, weights: Float[Tensor, " w"]) -> pd.DataFrame:
        """Returns a table with a row per word; the column `gold` is there if gold words are known."""
        import pandas as pd

        rows = []
        for at, (words, (weight, values, golden, _)) in enumerate(
            zip(self.words_by_sentence, self._parts(weights), strict=True), 1
        ):
            for place, (word, value, is_gold) in enumerate(zip(words, values, golden, strict=True), start=1):
                row = {
                    "id": self.id,
                    "sentence": at,
                    "word": place,
                    "text": word.strip() or word,
                    "weight_in_sentence": _divide(value, weight),
                    "sentence_weight": weight,
                    "weight": value,
                }
                rows.append(row if self.batch.gold_words is None else {**row, "gold": is_gold})
        return pd.DataFrame(rows)


_NOUNS = {
    "words": {"source": "word", "target": "document"},
    "words in sentences": {"source": "word", "target": "sentence"},
    "sentences": {"source": "sentence", "target": "document"},
}


def _divide(weight: float, of_sentence: float) -> float:
    return weight / of_sentence if of_sentence else 0.0
