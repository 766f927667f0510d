"""The figures of captions: corpus scores against all references, captions without a mistake, and where words look."""

from __future__ import annotations

from torchmetrics import Metric

from zoo import distributed
from zoo.maps.metrics import pointing
from zoo.tasks.captioning.batch import ReadableCaptionBatch
from zoo.tasks.seq2seq.batch import segment_target
from zoo.tasks.seq2seq.metrics import CorpusScore, Scored, TextMetrics
from zoo.tasks.seq2seq.score_metrics import RatioMetric, SumMetric, count_repetitions
from zoo.text import BLEU, CHRF, CaptionROUGE, CIDEr


class CaptionMetrics(TextMetrics):
    """The figures of an evaluation of captions.

    Args:
        grid: Rows and columns of the cells that a net attends to.
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        more: dict[str, Metric] = {
            "test/cider": SumMetric(CIDEr.size, lambda sums: CIDEr.compute(sums)["cider"]),
            "test/exact_match": RatioMetric(),
            "test/length_ratio": RatioMetric(),
            "test/repetition": RatioMetric(),
            "truth/pointing": distributed.GlobalMean(),
        }
        scores = [
            CorpusScore(BLEU(tokenize="none"), ["bleu", "bleu_1", "bleu_2", "bleu_3"]),
            CorpusScore(CHRF(), ["chrf"]),
            CorpusScore(CaptionROUGE(), ["rouge_l"]),
        ]
        super().__init__(scores, more)
        self.grid = grid

    def add_example(self, scored: Scored) -> None:
        batch, number = scored.batch, scored.number
        language, references = batch.language, scored.references
        text = language.text(scored.hypothesis.tokens)
        if batch.frequencies is not None:
            self.update("test/cider", CIDEr(batch.frequencies).statistics([text], [references]))
        self.update("test/exact_match", [text in references, 1])
        self.update("test/length_ratio", scored.sums["bleu"][:2])
        written, given = language.segment(scored.hypothesis.tokens), segment_target(batch, number)
        self.update("test/repetition", count_repetitions(written.words, given.words))
        self._add_pointing(scored, batch)

    def _add_pointing(self, scored: Scored, batch: ReadableCaptionBatch) -> None:
        """Of the words that speak of a place: whether the heaviest cell is in it, while the given caption is read."""
        gold = batch.gold_cells(self.grid)
        if gold is not None and scored.of_reference is not None:
            speaks = gold[scored.number].any(1)
            weights = scored.of_reference[: len(speaks)]
            self.update("truth/pointing", pointing(weights[speaks[: len(weights)]], gold[scored.number][speaks]))
