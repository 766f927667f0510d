"""Tables of the heat maps and channel gates of all pictures of a split, computed batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from zoo.attention import ChannelGate, EfficientChannel, SqueezeExcitation, record, sites
from zoo.maps.metrics import Pointing
from zoo.tasks.vision.batch import ImageBatch
from zoo.tasks.vision.maps.gate_table import GateTable
from zoo.tasks.vision.maps.heatmaps import Explanation, gold_cells, pictures_at_once
from zoo.tasks.vision.maps.regions import Region, region

if TYPE_CHECKING:
    import pandas as pd

    from zoo.tasks.vision.datamodule import ImageData
    from zoo.tasks.vision.task import ImageClassifier

_CHANNEL_GATES = (SqueezeExcitation, EfficientChannel, ChannelGate)


class Survey:
    """One pass over a split, which needs memory for one batch and one number for each picture.

    Args:
        module: The model.
        data: The data set.
        split: Name of the split.

    Attributes:
        gates: Channel gates by label, or by prediction if the label is unknown. Reading `frames` fills it.
    """

    def __init__(self, module: ImageClassifier, data: ImageData, split: str) -> None:
        self.module, self.data, self.split = module, data, split
        self.gates = GateTable(data.pictures.label_names)
        self._count = len(data.pictures.numbers(split))
        self._pointing = Pointing()

    def __len__(self) -> int:
        return self._count

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yields the table `places`, with a row for each picture.

        Its columns are id, split, label, prediction, probability, and the region with the most heat: top, left, bottom,
        right, share, where and, if gold is known, points_at_gold.
        """
        import pandas as pd

        module = self.module
        for batch in self.data.loader(self.split):
            with torch.inference_mode():
                explanation = self._explanation(batch)
                predictions = module.predict_columns(batch, explanation.logits)
            heat = explanation.heat.cpu()
            boxes = [region(each) for each in heat]
            columns: dict[str, Any] = {
                key: predictions[key] for key in ("id", "split", "label", "prediction", "probability")
            }
            for name in ("top", "left", "bottom", "right"):
                columns[name] = pd.array([None if box is None else getattr(box, name) for box in boxes], dtype="Int64")
            columns["share"] = [0.0 if box is None else box.share for box in boxes]
            columns["where"] = [_where(box) for box in boxes]
            if batch.gold is not None:
                marks = gold_cells(batch.gold.cpu(), (heat.shape[1], heat.shape[2]))
                columns["points_at_gold"] = self._pointing.add(heat.flatten(1), marks)
            yield pd.DataFrame(columns)

    def truth(self) -> dict[str, float | None]:
        """Returns the scores over all pictures with gold, after `frames` has been read."""
        return self._pointing.truth()

    def _explanation(self, batch: ImageBatch) -> Explanation:
        """Computes logits and heat, and adds channel gates, in as many passes as memory requires."""
        net, parts = self.module.net, []
        gates = [site for site in sites(net) if isinstance(net.get_submodule(site), _CHANNEL_GATES)]
        size = pictures_at_once(net, batch.pixels)
        for pixels, labels in zip(torch.split(batch.pixels, size), torch.split(batch.labels, size), strict=True):
            with record(net, layers=gates) as found:
                parts.append(self.module.explanation(pixels))
            self.gates.add(found, torch.where(labels >= 0, labels, parts[-1].logits.argmax(-1)))
        return Explanation(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _where(box: Region | None) -> str:
    if box is None:
        return "nowhere"
    return box.where if box.stands_out else "nothing in particular"
