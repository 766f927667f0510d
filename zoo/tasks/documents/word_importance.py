"""Weights of words and sentences, computed from the recorded maps of packed batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attention, AttentionMap, EdgeSupport, Rows, record
from zoo.attention.recording.reductions import Reduction
from zoo.nn.packing import Packing
from zoo.tasks.documents.batch import DocumentBatch

Found = Mapping[str, AttentionMap]


def weights_of(found: AttentionMap) -> Float[Tensor, " n"]:
    """Returns the weight of each row (word or sentence) of a packed batch within its sequence."""
    support = _edges(found)
    weights = found.weights.new_zeros(support.pattern.shape[1])
    return weights.index_copy(0, support.source.long(), found.weights.squeeze(1))


def effective_weights(words: AttentionMap, sentences: AttentionMap) -> Float[Tensor, " w"]:
    """Returns the weight of each word in its document: its weight in the sentence times the weight of the sentence.

    Args:
        words: Map of words within sentences.
        sentences: Map of sentences within documents, of the same batch.
    """
    support = _edges(words)
    of_sentence = weights_of(sentences)
    found = words.weights.squeeze(1) * of_sentence.index_select(0, support.target)
    return found.new_zeros(support.pattern.shape[1]).index_copy(0, support.source.long(), found)


def sites_of(net: nn.Module) -> list[str]:
    """Returns the sites whose maps determine the weights of words."""
    sites: Mapping[str, str] | None = getattr(net, "SITES", None)
    return [str(net.class_site)] if sites is None else list(sites.values())


def word_weights(net: Any, found: Found, batch: DocumentBatch[Any]) -> Float[Tensor, " w"] | None:
    """Returns the weight of each word in its document, from the maps of a batch; None if attention has no weights.

    Args:
        net: Net whose maps were recorded.
        found: Maps of a pass over the batch. If `net` is a `LongDocument`, the batch is one group of `group_documents`.
        batch: Batch of that pass.
    """
    maps = [found[site] for site in sites_of(net) if site in found]
    if len(maps) < len(sites_of(net)):
        return None
    if len(maps) == 2:
        return effective_weights(*maps)
    if maps[0].has_edges:
        return weights_of(maps[0])
    (group,) = Packing(batch.text_lengths + 1, causal=False).groups
    rows = maps[0].row(0).mean(1)[:, 1:]
    lengths = batch.text_lengths.tolist()
    by_document = {number: row[: lengths[number]] for number, row in zip(group.sequences, rows, strict=True)}
    return torch.cat([by_document[number] for number in range(len(batch))])


def group_documents(net: nn.Module, batch: DocumentBatch[Any]) -> list[list[int]]:
    """Divides the documents of a batch into groups for which `word_weights` can be computed at once."""
    if hasattr(net, "SITES"):
        return [list(range(len(batch)))]
    return [list(group.sequences) for group in Packing(batch.text_lengths + 1, causal=False).groups]


@torch.no_grad()
def forward_with_weights(
    net: Any, batch: DocumentBatch[Any]
) -> tuple[Float[Tensor, "b classes"], Float[Tensor, " w"] | None]:
    """Returns the logits of a batch, and the weight of each word in its document (None if attention has no weights)."""
    groups = group_documents(net, batch)
    logits: dict[int, Tensor] = {}
    weights: dict[int, Tensor] = {}
    for numbers in groups:
        part = batch if len(groups) == 1 else batch.select(numbers)
        order = range(len(batch)) if len(groups) == 1 else numbers
        with record(net, layers=sites_of(net), view=_view(net)) as found:
            logits |= dict(zip(order, net(part), strict=True))
        of_words = word_weights(net, found, part)
        if of_words is not None:
            weights |= dict(zip(order, torch.split(of_words, part.text_lengths.tolist()), strict=True))
    of_all = torch.stack([logits[number] for number in range(len(batch))])
    if len(weights) < len(batch):
        return of_all, None
    return of_all, torch.cat([weights[number] for number in range(len(batch))])


def sentence_weights(weights: Float[Tensor, " w"], batch: DocumentBatch[Any]) -> Float[Tensor, " s"]:
    """Returns the weight of each sentence in its document: the sum over its words."""
    return weights.new_zeros(len(batch.documents)).index_add(0, batch.sentences, weights)


def _view(net: nn.Module) -> Reduction | None:
    """Returns the view of the row of the class token, if its attention has n x n weights; None: maps are small."""
    if hasattr(net, "SITES"):
        return None
    site = net.get_submodule(str(net.class_site))
    return Rows(0, 1) if isinstance(site, Attention) and site.restrict is None else None


def _edges(found: AttentionMap) -> EdgeSupport:
    if not isinstance(found.support, EdgeSupport) or found.weights.shape[1] != 1:
        raise ValueError(f"{found.site} is not a map of words to sentences, or of sentences to documents")
    return found.support
