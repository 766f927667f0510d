"""The figures of translations: corpus scores, what is repeated or left out, and where attention points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torchmetrics import Metric

from zoo.decoding.hypothesis import Hypothesis
from zoo.maps.score import alignment_counts, pointing
from zoo.tasks.generation.alignment import Forced, by_word, heaviest_links, links_by_word
from zoo.tasks.generation.language import Spelled
from zoo.tasks.generation.scores import Sums, corpus_score, ratio, repeated
from zoo.tasks.translation.batch import Pairs
from zoo.text import BLEU, CHRF, ROUGE, Perplexity
from zoo.training import ranks

COVERED = 0.2
"""A word of the source whose weights add up to less than this is not covered."""
_ROUGE = ("rouge_1", "rouge_2", "rouge_l")
LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50)
"""Numbers of source words at which the classes of the table of BLEU by length end."""


class Figures(nn.Module):
    """The figures of an evaluation, as sums over batches and processes.

    Args:
        bleu, chrf: The scores.
        rouge: Another one, of summaries. Default: it is not computed.
    """

    def __init__(self, bleu: BLEU, chrf: CHRF, rouge: ROUGE | None = None) -> None:
        super().__init__()
        self.bleu, self.chrf_score, self.rouge = bleu, chrf, rouge
        perplexity = Perplexity()
        self.of = nn.ModuleDict(
            {
                "test/loss": ranks.MeanOfTargets(),
                "test/perplexity": Sums(2, lambda sums: perplexity.figures(sums)["perplexity"]),
                "test/bleu": corpus_score(bleu, "bleu"),
                "test/chrf": corpus_score(chrf, "chrf"),
                **({} if rouge is None else {f"test/{name}": corpus_score(rouge, name) for name in _ROUGE}),
                "test/length_ratio": ratio(),
                "test/repetition": ratio(),
                "test/omission": ratio(),
                "test/uncovered": ratio(),
                "test/reordered": ratio(),
                "truth/pointing": ranks.MeanOfTargets(),
                "truth/one_off": ranks.MeanOfTargets(),
                "truth/alignment_error": Sums(2, lambda sums: 1.0 - sums[0] / sums[1] if sums[1] else math.nan),
            }
        )
        self._by_length = torch.zeros(len(LENGTHS) + 1, 1 + bleu.size, dtype=torch.float64)

    def reset(self) -> None:
        for metric in self.of.values():
            metric.reset()  # type: ignore[operator]
        self._by_length.zero_()

    def add(self, batch: Pairs, written: Sequence[Hypothesis], of_written: Forced, of_references: Forced) -> None:
        """Adds a batch.

        Args:
            batch: The pairs, with their references.
            written: The translation of each.
            of_written, of_references: Forced passes over the translations and over the references.
        """
        assert batch.targets is not None
        assert batch.languages is not None
        assert batch.written is not None
        losses = -of_references.log_probability[batch.targets.is_real].double()
        self._update("test/loss", losses)
        self._update("test/perplexity", [float(losses.sum()), len(losses)])
        texts = [batch.languages.target.text(each.tokens) for each in written]
        references = [each.references for each in batch.written]
        self._update("test/chrf", self.chrf_score.sums(texts, references))
        if self.rouge is not None:
            for name in _ROUGE:
                self._update(f"test/{name}", self.rouge.sums(texts, references))
        for number, hypothesis in enumerate(written):
            sums = self.bleu.sums(texts[number : number + 1], references[number : number + 1])
            self._update("test/bleu", sums)
            self._update("test/length_ratio", sums[:2])
            source, reference = spelled_source(batch, number), spelled_target(batch, number)
            words = batch.languages.target.spelled(hypothesis.tokens)
            self._by_length[_length_class(len(source.words))] += torch.tensor([1.0, *sums], dtype=torch.float64)
            self._update("test/repetition", repeated(words.words, reference.words))
            if of_written.weights is not None:
                self._attended(by_word(of_written.weights[number], words.owners, source.owners), source.words)
            if batch.gold is not None:
                links = gold_links(batch, number, reference, source)
                self._update("test/omission", omitted(links, reference.words, words.words))
                if of_references.weights is not None:
                    weights = by_word(of_references.weights[number], reference.owners, source.owners)
                    self._aligned(weights, gold_of(links, weights))

    def found(self) -> dict[str, Metric]:
        """Returns the metrics that something was counted for, in any process."""
        metrics: dict[str, Any] = dict(self.of.items())
        return {name: metric for name, metric in metrics.items() if ranks.any_of(_has_counted(metric))}

    def by_length(self) -> list[dict[str, Any]]:
        """Returns a row for each class of lengths, of all processes: source words, pairs, BLEU, length ratio."""
        rows, first = [], 1
        for last, (count, *sums) in zip(
            (*LENGTHS, None), ranks.sum_of(self._by_length.to(self.device)).tolist(), strict=True
        ):
            if count:
                rows.append(
                    {
                        "source words": f"{first}-{last}" if last else f"{first} or more",
                        "pairs": int(count),
                        "bleu": self.bleu.figures(sums)["bleu"],
                        "length ratio": sums[0] / sums[1] if sums[1] else math.nan,
                    }
                )
            first = last + 1 if last else first
        return rows

    @property
    def device(self) -> torch.device:
        metric: Any = self.of["test/loss"]
        return metric.total.device  # type: ignore[no-any-return]

    def _update(self, name: str, values: Any) -> None:
        metric: Any = self.of[name]
        metric.update(values)

    def _attended(self, weights: Float[Tensor, "words places"], source: Sequence[str]) -> None:
        """Of a translation: words of the source that it leaves out, and links that go back."""
        is_word = [any(map(str.isalnum, word)) for word in source]
        covered = weights.sum(0).tolist()
        missed = sum(is_real and total < COVERED for is_real, total in zip(is_word, covered, strict=True))
        self._update("test/uncovered", [missed, sum(is_word)])
        self._update("test/reordered", reordered(heaviest_links(weights)))

    def _aligned(self, weights: Float[Tensor, "words places"], gold: Bool[Tensor, "words places"]) -> None:
        """Of the words that have an origin: the weights of the others must lie somewhere too."""
        has_gold = gold.any(1)
        weights, gold = weights[has_gold], gold[has_gold]
        self._update("truth/pointing", pointing(weights, gold))
        self._update("truth/one_off", one_off(weights, gold))
        self._update("truth/alignment_error", alignment_counts(weights, gold))


def spelled_source(batch: Pairs, number: int) -> Spelled:
    """Returns the words of a pair's source."""
    assert batch.written is not None
    written = batch.written[number]
    return Spelled.of_pieces(written.pieces, written.words)


def spelled_target(batch: Pairs, number: int) -> Spelled:
    """Returns the words of a pair's reference, as the model knows them."""
    assert batch.targets is not None
    assert batch.languages is not None
    return batch.languages.target.spelled(batch.targets.texts()[number])


def gold_links(batch: Pairs, number: int, target: Spelled, source: Spelled) -> set[tuple[int, int]]:
    """Returns the gold links (target, source) of a pair's words."""
    assert batch.gold is not None
    found = [(to, of) for to, of in batch.gold[number].nonzero().tolist()]
    return links_by_word(found, target.owners, source.owners)


def gold_of(links: Iterable[tuple[int, int]], weights: Float[Tensor, "words places"]) -> Bool[Tensor, "words places"]:
    """Returns links as a mask."""
    gold = torch.zeros(weights.shape, dtype=torch.bool, device=weights.device)
    for to, of in links:
        gold[to, of] = True
    return gold


def one_off(weights: Float[Tensor, "words places"], gold: Bool[Tensor, "words places"]) -> Float[Tensor, " n"]:
    """Returns for each target word 1 if its heaviest source word is not gold and one beside it is, else 0."""
    beside = torch.zeros_like(gold)
    beside[:, 1:] |= gold[:, :-1]
    beside[:, :-1] |= gold[:, 1:]
    return (beside & ~gold).gather(1, weights.argmax(1, keepdim=True)).squeeze(1).double()


def reordered(links: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Counts the links whose source is before that of the link before them, and all links but the first."""
    places = [of for _, of in sorted(links)]
    return sum(of < before for before, of in pairwise(places)), max(0, len(places) - 1)


def omitted(links: Iterable[tuple[int, int]], reference: Sequence[str], translation: Sequence[str]) -> tuple[int, int]:
    """Counts the source words none of whose gold translations is in a translation, and all that have any."""
    links = sorted(links)
    there, found = Counter(translation), set[int]()
    for place in dict.fromkeys(to for to, _ in links):
        if there[reference[place]] > 0:
            there[reference[place]] -= 1
            found.add(place)
    translated = {of for to, of in links if to in found}
    every = {of for _, of in links}
    return len(every - translated), len(every)


def _has_counted(metric: Metric) -> bool:
    return any(bool(state.any()) for state in cast("dict[str, Tensor]", metric.metric_state).values())


def _length_class(words: int) -> int:
    return next((at for at, last in enumerate(LENGTHS) if words <= last), len(LENGTHS))
