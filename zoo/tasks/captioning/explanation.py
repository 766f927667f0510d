"""The maps of captions: all pictures of a split as a table, and some of them drawn word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps.explainer import MapOptions
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.captioning.maps.example import OF_REFERENCE, WORDS, ExplainedCaption, site_of_word
from zoo.tasks.captioning.maps.perturbation import PerturbableImage
from zoo.tasks.captioning.metrics import CaptionMetrics
from zoo.tasks.seq2seq.explanation import Seq2SeqExplainer
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding

if TYPE_CHECKING:
    from zoo.tasks.captioning.datamodule import CaptionData
    from zoo.tasks.captioning.task import Captioner


class CaptionExplainer(Seq2SeqExplainer):
    """`captions` has a row for each picture of the test split, or of the user's own pictures; `words` one for each word
    of the captions that are drawn. The maps `word 1`, `word 2` ... are in the size of the picture."""

    noun, table, of_reference = "picture", "captions", OF_REFERENCE

    def __init__(self, module: Captioner, data: CaptionData, options: MapOptions) -> None:
        super().__init__(module, data, data.content.pictures, CaptionMetrics(module.grid), options)
        most = int(module.writing.longest(self.batch(0).source.lengths).max())
        self.scored = [WORDS, OF_REFERENCE, *map(site_of_word, range(1, most + 1))]

    def drawn(
        self, batch: CaptionBatch, found: Recording, best: Hypothesis, of_best: ForcedDecoding, of_reference: Any
    ) -> ExplainedCaption:
        return ExplainedCaption(
            self.module.net, batch, found=found, best=best, of_best=of_best.weights, of_reference=of_reference
        )

    def occludable(self, position: int) -> list[PerturbableImage]:
        return [PerturbableImage(self.module, self.batch(position))]

    def columns(self, batch: CaptionBatch) -> dict[str, list[Any]]:
        """Caption, its score and probability; of given captions the first one and its loss a token."""
        best = [texts[0] for texts in self.module.write(batch)]
        columns: dict[str, list[Any]] = {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "caption": [texts[0] for texts in self.module.texts(batch, [[each] for each in best])],
            "score": [each.score for each in best],
            "probability": [each.probability for each in best],
            "ended": [each.ended for each in best],
        }
        if batch.targets is not None:
            columns |= self.judged(batch, best, self.module.forced(batch, best))[1]
        return columns
