"""The figures of translations: corpus scores, what is repeated or left out, and where attention points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo import distributed
from zoo.maps.metrics import alignment_counts, pointing
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.metrics import CorpusScore, LengthBuckets, Scored, TextMetrics
from zoo.tasks.seq2seq.score_metrics import RatioMetric, SumMetric, count_repetitions
from zoo.tasks.seq2seq.text_codec import WordSegmentation
from zoo.tasks.seq2seq.word_alignment import heaviest_links, links_by_word, merge_by_word
from zoo.tasks.translation.batch import ReadableTranslationBatch

COVERED = 0.2
"""A word of the source whose weights add up to less than this is not covered."""
LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50)
"""Numbers of source words at which the classes of the table of BLEU by length end."""


class TranslationMetrics(TextMetrics):
    """The figures of an evaluation of translations.

    Args:
        scores: The scores, among them BLEU.
    """

    def __init__(self, scores: Sequence[CorpusScore]) -> None:
        super().__init__(
            scores,
            {
                "test/length_ratio": RatioMetric(),
                "test/repetition": RatioMetric(),
                "test/omission": RatioMetric(),
                "test/uncovered": RatioMetric(),
                "test/reordered": RatioMetric(),
                "truth/pointing": distributed.GlobalMean(),
                "truth/one_off": distributed.GlobalMean(),
                "truth/alignment_error": SumMetric(2, lambda sums: 1.0 - sums[0] / sums[1] if sums[1] else math.nan),
            },
        )
        self.by_length = LengthBuckets(self.find_score("bleu"), LENGTHS)

    def reset(self) -> None:
        super().reset()
        self.by_length.reset()

    def add_example(self, scored: Scored) -> None:
        batch, number = scored.batch, scored.number
        sums = scored.sums["bleu"]
        self.update("test/length_ratio", sums[:2])
        source, reference = segment_source(batch, number), segment_target(batch, number)
        words = batch.language.segment(scored.hypothesis.tokens)
        self.by_length.add(len(source.words), sums)
        self.update("test/repetition", count_repetitions(words.words, reference.words))
        if scored.weights is not None:
            self._add_attention(merge_by_word(scored.weights, words.owners, source.owners), source.words)
        if batch.gold is not None:
            links = gold_links(batch.gold[number], reference, source)
            self.update("test/omission", count_omitted(links, reference.words, words.words))
            if scored.of_reference is not None:
                weights = merge_by_word(scored.of_reference, reference.owners, source.owners)
                self._add_alignment(weights, gold_of(links, weights))

    def finalize(self) -> None:
        """Makes the table of BLEU by the length of the source: source words, pairs, BLEU, length ratio."""
        rows = self.by_length.rows("source words", "pairs", self._describe_length, self.device)
        self.tables = {"bleu_by_length": rows} if rows else {}

    def _describe_length(self, sums: list[float]) -> dict[str, float]:
        return {
            "bleu": self.find_score("bleu").compute(sums)["bleu"],
            "length ratio": sums[0] / sums[1] if sums[1] else math.nan,
        }

    def _add_attention(self, weights: Float[Tensor, "words places"], source: Sequence[str]) -> None:
        """Of a translation: words of the source that it leaves out, and links that go back."""
        is_word = [any(map(str.isalnum, word)) for word in source]
        covered = weights.sum(0).tolist()
        missed = sum(is_real and total < COVERED for is_real, total in zip(is_word, covered, strict=True))
        self.update("test/uncovered", [missed, sum(is_word)])
        self.update("test/reordered", count_reordered(heaviest_links(weights)))

    def _add_alignment(self, weights: Float[Tensor, "words places"], gold: Bool[Tensor, "words places"]) -> None:
        """Of the words that have an origin: the weights of the others must lie somewhere too."""
        has_gold = gold.any(1)
        weights, gold = weights[has_gold], gold[has_gold]
        self.update("truth/pointing", pointing(weights, gold))
        self.update("truth/one_off", one_off(weights, gold))
        self.update("truth/alignment_error", alignment_counts(weights, gold))


def segment_source(batch: ReadableTranslationBatch, number: int) -> WordSegmentation:
    """Returns the words of a pair's source."""
    written = batch.written[number]
    return WordSegmentation.from_pieces(written.pieces, written.words)


def gold_links(gold: Bool[Tensor, "n k"], target: WordSegmentation, source: WordSegmentation) -> set[tuple[int, int]]:
    """Returns the gold links (target, source) of a pair's words."""
    links = [(to, of) for to, of in gold.nonzero().tolist()]
    return links_by_word(links, target.owners, source.owners)


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


def count_reordered(links: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Counts the links whose source is before that of the link before them, and all links but the first."""
    places = [of for _, of in sorted(links)]
    return sum(of < before for before, of in pairwise(places)), max(0, len(places) - 1)


def count_omitted(
    links: Iterable[tuple[int, int]], reference: Sequence[str], translation: Sequence[str]
) -> tuple[int, int]:
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
