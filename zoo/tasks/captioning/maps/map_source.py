"""The maps of captions: all pictures of a split as a table, and some of them drawn word by word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from zoo.maps.source import MapOptions, MappedExample, MapSource, Table
from zoo.tasks.batches import Examples
from zoo.tasks.captioning.batch import Pictures
from zoo.tasks.captioning.figures import Figures
from zoo.tasks.captioning.maps.example import OF_REFERENCE, WORDS, CaptionedPicture, site_of_word
from zoo.tasks.captioning.maps.occlusion import OccludableScene
from zoo.tasks.rows import in_order, in_pieces, spread

if TYPE_CHECKING:
    from zoo.tasks.captioning.captioner import Captioner
    from zoo.tasks.captioning.data.caption_data import CaptionData


class CaptionMaps(MapSource):
    """`captions` has a row for each picture of the test split, or of the user's own pictures; `words` one for each word
    of the captions that are drawn. The maps `word 1`, `word 2` ... are in the size of the picture."""

    noun = "picture"

    def __init__(self, module: Captioner, data: CaptionData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data = module, data
        self.split = data.mapped_split
        most = int(module.writing.longest(self._batch(0).source.lengths).max())
        self.scored = [WORDS, OF_REFERENCE, *map(site_of_word, range(1, most + 1))]
        self.figures = Figures(module.grid)

    def names(self) -> list[str]:
        return list(self.data.content.pictures.ids)

    def typical(self, count: int) -> list[int]:
        return spread(self.data.content.pictures.numbers(self.split), count)

    def tables(self) -> Iterator[Table]:
        yield Table("captions", in_pieces(in_order(self._columns, self.data.loader(self.split))))

    def examples(self) -> Iterator[MappedExample]:
        for which in self.chosen:
            batch = self._batch(which)
            best = [texts[0] for texts in self.module.write(batch)]
            with torch.inference_mode(), self.recording() as found:
                of_best = self.module.forced(batch, best)
            of_reference = None if batch.targets is None else self.module.forced_references(batch).weights
            yield CaptionedPicture(
                self.module.net,
                batch,
                found=found,
                best=best[0],
                of_best=of_best.weights,
                of_reference=of_reference,
            )

    def occludable(self, position: int) -> list[OccludableScene]:
        return [OccludableScene(self.module, self._batch(position))]

    def truth(self) -> dict[str, float | None]:
        found = {name: float(metric.compute()) for name, metric in self.figures.found().items()}
        return {name.removeprefix("truth/"): value for name, value in found.items() if name.startswith("truth/")}

    @property
    def truth_of(self) -> str:
        return f"{self.split} pictures, {OF_REFERENCE}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"pictures": len(self.data.examples(self.split).entries), "split": self.split}

    def summary(self, out: str) -> list[str]:
        of = "test pictures" if self.split == "test" else "pictures"
        return [
            f"{self.about['pictures']:,} {of} in captions.{self.options.table_format}, in {out}",
            *super().summary(out),
        ]

    def looks(self) -> list[str]:
        return [example.said for example in self.examples() if isinstance(example, CaptionedPicture)]

    @cached_property
    def _examples(self) -> Examples:
        return self.data.examples("all")

    def _batch(self, position: int) -> Pictures:
        """Returns a batch of one picture."""
        found: Pictures = self._examples.collate([self._examples.entries[position]])
        return found

    def _columns(self, batch: Pictures) -> dict[str, list[Any]]:
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
            references = self.module.forced_references(batch)
            self.figures.add(batch, best, self.module.forced(batch, best), references)
            columns["reference"] = [each[0] for each in batch.references]
            columns["loss"] = (-references.log_probability.double().sum(1) / batch.targets.lengths).tolist()
        return columns
