"""Measures of the agreement of a map with gold attention, from 0 to 1.

Dense weights have the shape (..., k), with keys last, and gold has the same shape or broadcasts to it. Edges are given
as a list of pairs, weights (e,) and gold (e,), and `query` has the query of each pair. Pairs that are not `permitted`
are ignored. A measure that is undefined, for example because no permitted pair is gold, is None.

| measure              | question                                                             | best |
|----------------------|----------------------------------------------------------------------|------|
| edge_auc             | does a gold pair outweigh another, of any query?                     | 1    |
| edge_auc_per_target  | does a gold edge outweigh another of the same target?                | 1    |
| pointing_accuracy    | is the heaviest key of a query gold?                                 | 1    |
| mass_on_gold         | how much of a query's weight lies on gold?                           | 1    |
| alignment_error      | AER: which links differ from those of a human annotator?             | 0    |

The truth score of a graph is `edge_auc` over its edges without self-loops. It compares weights of different targets, so
that weights that shrink with the number of neighbours lower it. `edge_auc_per_target`, which is reported with it,
compares weights of the same target only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.attention.recording.attention_map import MEAN
from zoo.maps.labelled_map import LabelledMap


def edge_auc(
    weights: Float[Tensor, "..."], gold: Bool[Tensor, "..."], permitted: Bool[Tensor, "..."] | None = None
) -> float | None:
    """Computes the area under the ROC curve: the probability that a gold pair outweighs another; ties count half."""
    w, g, _ = _flatten(weights, gold, permitted, None)
    return _average(_auc(w, g, torch.zeros_like(w, dtype=torch.int64)))


def edge_auc_per_target(
    weights: Float[Tensor, " e"],
    gold: Bool[Tensor, " e"],
    target: Int[Tensor, " e"],
    permitted: Bool[Tensor, " e"] | None = None,
) -> float | None:
    """Computes the mean AUC over the targets that have both gold edges and others."""
    w, g, t = _flatten(weights, gold, permitted, target)
    return _average(_auc(w, g, t))


def pointing(
    weights: Float[Tensor, "..."],
    gold: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    query: Int[Tensor, " e"] | None = None,
) -> Float[Tensor, " n"]:
    """Returns for each query with gold 1 if its key of greatest weight is gold, else 0.

    If several keys have the greatest weight, the value is the share of them that is gold, so that equal weights score
    as chance does. The value of a query whose weights are all 0 is 0.
    """
    w, g, q = _flatten(weights, gold, permitted, query)
    return _sum_gold(_links(w, q), g, q)


def pointing_accuracy(
    weights: Float[Tensor, "..."],
    gold: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    query: Int[Tensor, " e"] | None = None,
) -> float | None:
    """Computes the mean of `pointing`."""
    return _average(pointing(weights, gold, permitted, query=query))


def gold_mass(
    weights: Float[Tensor, "..."],
    gold: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    query: Int[Tensor, " e"] | None = None,
) -> Float[Tensor, " n"]:
    """Returns for each query with gold the sum of its weights on gold, without normalisation."""
    w, g, q = _flatten(weights, gold, permitted, query)
    return _sum_gold(w, g, q)


def mass_on_gold(
    weights: Float[Tensor, "..."],
    gold: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    query: Int[Tensor, " e"] | None = None,
) -> float | None:
    """Computes the mean of `gold_mass`."""
    return _average(gold_mass(weights, gold, permitted, query=query))


def alignment_counts(
    weights: Float[Tensor, "..."],
    sure: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    possible: Bool[Tensor, "..."] | None = None,
    query: Int[Tensor, " e"] | None = None,
) -> tuple[float, float]:
    """Returns |A ∩ S| + |A ∩ P| and |A| + |S|. After summing both over a corpus, AER = 1 - first / second."""
    w, s, q = _flatten(weights, sure, permitted, query)
    p = s if possible is None else s | _flatten(weights, possible, permitted, query)[1]
    links = _links(w, q)
    return float(links[s].sum() + links[p].sum()), float(links.sum() + s.sum())


def alignment_error(
    weights: Float[Tensor, "..."],
    sure: Bool[Tensor, "..."],
    permitted: Bool[Tensor, "..."] | None = None,
    *,
    possible: Bool[Tensor, "..."] | None = None,
    query: Int[Tensor, " e"] | None = None,
) -> float | None:
    """Computes the alignment error rate (Och & Ney 2003, section 6.1); 0 is best.

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), where the alignment A links each query to its key of greatest weight (a
    tie is one link, shared), S are the sure links, and P the possible links, which include S.
    """
    agreed, total = alignment_counts(weights, sure, permitted, possible=possible, query=query)
    has_sure = bool(_flatten(weights, sure, permitted, query)[1].any())
    return 1.0 - agreed / total if has_sure else None


def truth(found: LabelledMap, head: int | None = None) -> dict[str, float | None]:
    """Computes the measures that fit a map, for one head or the mean of all; empty if the map has no gold."""
    pairs = found.pairs(head)
    if pairs.gold is None:
        return {}
    w, g, q = pairs.weights, pairs.gold, pairs.query
    if found.is_gate:  # a gate's values are not normalised, so there is no mass
        return {"pointing_accuracy": pointing_accuracy(w, g, query=q)}
    if not found.has_edges:
        return {
            "pointing_accuracy": pointing_accuracy(w, g, query=q),
            "mass_on_gold": mass_on_gold(w, g, query=q),
            "alignment_error": alignment_error(w, g, query=q),
        }
    others = ~found.is_self_loop.repeat(len(w) // max(len(found.is_self_loop), 1))
    return {
        "edge_auc": edge_auc(w, g, others),
        "edge_auc_per_target": edge_auc_per_target(w, g, q, others),
        "pointing_accuracy": pointing_accuracy(w, g, others, query=q),
        "mass_on_gold": mass_on_gold(w, g, query=q),
    }


class Pointing:
    """Pointing accuracy over many examples with one query each: a picture, a user."""

    def __init__(self) -> None:
        self._points: list[float] = []

    def add(self, weights: Float[Tensor, "b k"], gold: Bool[Tensor, "b k"]) -> list[float]:
        """Returns `pointing` of each example of a batch; NaN for an example without gold, which is not counted."""
        has_gold = gold.any(-1).tolist()
        found = iter(pointing(weights, gold).tolist())
        by_example = [next(found) if has else math.nan for has in has_gold]
        self._points += [each for each, has in zip(by_example, has_gold, strict=True) if has]
        return by_example

    def truth(self) -> dict[str, float | None]:
        """Returns the mean over the examples with gold; empty if there are none."""
        return {"pointing_accuracy": sum(self._points) / len(self._points)} if self._points else {}


class Tally:
    """The measures of many maps: means for each layer and head over the examples that have the measure."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], dict[str, tuple[float, int]]] = {}

    def add(self, found: LabelledMap) -> None:
        if found.gold is None:
            return
        for head in [MEAN] if len(found.heads) == 1 else [MEAN, *found.heads]:
            sums = self._sums.setdefault((found.layer, head), {})
            for measure, value in truth(found, None if head == MEAN else head).items():
                total, count = sums.get(measure, (0.0, 0))
                sums[measure] = (total, count) if value is None else (total + value, count + 1)

    def rows(self, layers: Sequence[str]) -> list[dict[str, Any]]:
        rows = []
        for (layer, head), sums in sorted(self._sums.items()):
            means = {measure: total / count if count else None for measure, (total, count) in sums.items()}
            examples = max(count for _, count in sums.values())
            source = {"layer": layer, "site": layers[layer], "head": "mean" if head == MEAN else head}
            rows.append({**source, "examples": examples, **means})
        return rows


def _flatten(
    weights: Tensor, gold: Tensor, permitted: Tensor | None, query: Tensor | None
) -> tuple[Float[Tensor, " p"], Bool[Tensor, " p"], Int[Tensor, " p"]]:
    """Returns the weights, gold and queries of the permitted pairs as flat tensors.

    They are on the CPU, which has double precision and sums in a fixed order.
    """
    gold = gold.to(weights.device).expand(weights.shape).bool()
    if query is None:
        queries, keys = weights.shape[:-1].numel(), weights.shape[-1]
        query = torch.arange(queries, device=weights.device).repeat_interleave(keys).view(weights.shape)
    query = query.to(weights.device)
    if permitted is not None:
        chosen = permitted.to(weights.device).expand(weights.shape)
        weights, gold, query = weights[chosen], gold[chosen], query[chosen]
    weights, gold, query = weights.detach().flatten().cpu(), gold.flatten().cpu(), query.flatten().long().cpu()
    weights = weights.float() if weights.dtype in (torch.float16, torch.bfloat16) else weights
    if not weights.isfinite().all():
        raise ValueError("weights that are NaN or infinite cannot be scored")
    return weights, gold, query


def _links(w: Float[Tensor, " p"], query: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
    """Links each query to its key of greatest weight. Equal keys share the link; if all weights are 0 there is none."""
    queries = _count(query)
    heaviest = w.new_zeros(queries).scatter_reduce(0, query, w, "amax")
    is_top = ((w == heaviest[query]) & (w > 0)).to(w.dtype)
    return is_top / w.new_zeros(queries).index_add(0, query, is_top)[query].clamp(min=1)


def _sum_gold(values: Float[Tensor, " p"], gold: Bool[Tensor, " p"], query: Int[Tensor, " p"]) -> Float[Tensor, " n"]:
    """Sums the values of the gold pairs of each query that has any."""
    queries = _count(query)
    total = values.new_zeros(queries).index_add(0, query[gold], values[gold])
    return total[torch.bincount(query[gold], minlength=queries) > 0]


def _auc(w: Float[Tensor, " p"], gold: Bool[Tensor, " p"], group: Int[Tensor, " p"]) -> Float[Tensor, " n"]:
    """Computes the AUC of each group with both gold pairs and others, by the Mann-Whitney U statistic."""
    order = w.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]  # by group, then by weight
    w, gold, group = w[order], gold[order], group[order]
    starts_tie = torch.ones_like(gold)
    starts_tie[1:] = (w[1:] != w[:-1]) | (group[1:] != group[:-1])
    tie = starts_tie.cumsum(0) - 1
    sizes = torch.bincount(tie)
    last = sizes.cumsum(0)
    rank = (last - (sizes - 1) / 2.0)[tie].double()

    groups = _count(group)
    count = torch.bincount(group, minlength=groups)
    positives = torch.bincount(group[gold], minlength=groups).double()
    negatives = count - positives
    before = (count.cumsum(0) - count).double()
    ranks = rank.new_zeros(groups).index_add(0, group[gold], rank[gold]) - positives * before
    wins = ranks - positives * (positives + 1) / 2
    both = (positives > 0) & (negatives > 0)
    return wins[both] / (positives * negatives)[both]


def _count(index: Int[Tensor, " p"]) -> int:
    return int(index.max()) + 1 if len(index) else 0


def _average(values: Float[Tensor, " n"]) -> float | None:
    return float(values.double().mean()) if len(values) else None
