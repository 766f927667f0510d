"""Two common PyTorch implementations of HAN, the peers of benchmarks/documents.py.

They follow the paper (Yang et al. 2016, section 2) and the padded batches of tutorials and repositories:
(documents, sentences, words), where 0 is padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

Form = Literal["loop", "flattened"]


class PaddedHAN(nn.Module):
    """Two forms of HAN on padded batches.

    Args:
        form: "loop": a call for the first sentences of all documents, one for the second ones, and so on, each for
            the documents that have such a sentence, its words packed. "flattened": the sentences of all documents are
            packed into one batch, its words are packed, and weights and states are padded again for the softmax, as in
            sgrvinod's tutorial on text classification.
        by_index: Pads by one assignment, in place of `pad_packed_sequence`, whose backward pass copies the whole
            padded tensor once for each step of the longest sequence.
    """

    def __init__(
        self, *, words: int, classes: int, dim: int, hidden: int, context: int, form: Form, by_index: bool
    ) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words + 1, dim, padding_idx=0)
        self.words = _Level(dim, hidden, context, by_index)
        self.sentences = _Level(2 * hidden, hidden, context, by_index)
        self.head = nn.Linear(2 * hidden, classes)
        self.form = form

    def forward(self, words: Tensor, sentence_counts: Tensor, word_counts: Tensor) -> Tensor:
        """Logits.

        Args:
            words: (documents, sentences, words).
            sentence_counts: Sentences of each document.
            word_counts: (documents, sentences), words of each sentence.
        """
        if self.form == "flattened":
            vectors = self._flattened(words, sentence_counts, word_counts)
        else:
            vectors = self._looped(words, sentence_counts, word_counts)
        return self.head(self.sentences(vectors))

    def _flattened(self, words: Tensor, sentence_counts: Tensor, word_counts: Tensor) -> PackedSequence:
        documents = pack_padded_sequence(words, sentence_counts, batch_first=True, enforce_sorted=False)
        lengths = pack_padded_sequence(word_counts, sentence_counts, batch_first=True, enforce_sorted=False)
        packed = pack_padded_sequence(documents.data, lengths.data, batch_first=True, enforce_sorted=False)
        return _same(documents, self.words(_same(packed, self.vectors(packed.data))))

    def _looped(self, words: Tensor, sentence_counts: Tensor, word_counts: Tensor) -> PackedSequence:
        vectors = words.new_zeros(*words.shape[:2], self.head.in_features, dtype=self.head.weight.dtype)
        for number in range(words.shape[1]):
            has = sentence_counts > number
            lengths = word_counts[has, number]
            rows = words[has, number, : int(lengths.max())]
            packed = pack_padded_sequence(self.vectors(rows), lengths, batch_first=True, enforce_sorted=False)
            vectors = vectors.index_put((has.nonzero().squeeze(1), torch.tensor(number)), self.words(packed))
        return pack_padded_sequence(vectors, sentence_counts, batch_first=True, enforce_sorted=False)


class _Level(nn.Module):
    """A bidirectional GRU and attention over its states, padded for the softmax."""

    def __init__(self, dim: int, hidden: int, context: int, by_index: bool) -> None:
        super().__init__()
        self.pad = _padded_by_index if by_index else _padded
        self.gru = nn.GRU(dim, hidden, bidirectional=True, batch_first=True)
        self.project = nn.Linear(2 * hidden, context)
        self.context = nn.Linear(context, 1, bias=False)

    def forward(self, packed: PackedSequence) -> Tensor:
        packed, _ = self.gru(packed)
        scores = self.context(torch.tanh(self.project(packed.data))).squeeze(1)
        numerators = torch.exp(scores - scores.max())
        weights, states = self.pad(_same(packed, numerators)), self.pad(packed)
        return (states * (weights / weights.sum(1, keepdim=True)).unsqueeze(2)).sum(1)


def _padded(packed: PackedSequence) -> Tensor:
    return pad_packed_sequence(packed, batch_first=True)[0]


def _padded_by_index(packed: PackedSequence) -> Tensor:
    sizes = packed.batch_sizes
    steps = torch.arange(len(sizes)).repeat_interleave(sizes)
    ranks = torch.arange(len(steps)) - (sizes.cumsum(0) - sizes)[steps]
    assert packed.sorted_indices is not None
    shape = int(sizes[0]), len(sizes), *packed.data.shape[1:]
    return packed.data.new_zeros(shape).index_put((packed.sorted_indices[ranks], steps), packed.data)


def take_weights(net: PaddedHAN, ours: Mapping[str, Tensor]) -> None:
    """Copies the weights of `zoo.tasks.documents.HAN` into a network."""
    weights = net.state_dict()
    weights["vectors.weight"][1:] = ours["vectors.table.weight"]
    for level in ("words", "sentences"):
        for name in weights:
            if name.startswith(f"{level}.gru."):
                weights[name] = ours[name.replace("gru.", "encoder.layers.0.")]
        for part in ("weight", "bias"):
            weights[f"{level}.project.{part}"] = ours[f"{level}.pool.project.{part}"]
        weights[f"{level}.context.weight"] = ours[f"{level}.pool.query"]
    for part in ("weight", "bias"):
        weights[f"head.{part}"] = ours[f"head.{part}"]
    net.load_state_dict(weights)


def _same(packed: PackedSequence, rows: Tensor) -> PackedSequence:
    """Returns a packed sequence with the same lengths and other rows."""
    return PackedSequence(rows, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
