"""Where a model looks at all pictures of a split, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from zoo.attention import ChannelGate, EfficientChannel, SqueezeExcitation, record, sites
from zoo.maps.score import Pointing
from zoo.tasks.vision.batch import Images
from zoo.tasks.vision.maps.scored import Look, at_once, gold_cells
from zoo.tasks.vision.maps.tables import GateTable
from zoo.tasks.vision.maps.words import Region, region

if TYPE_CHECKING:
    import pandas as pd

    from zoo.tasks.vision.data.image_data import ImageData
    from zoo.tasks.vision.module import ImageClassifier

_CHANNEL_GATES = (SqueezeExcitation, EfficientChannel, ChannelGate)


class Survey:
    """One pass; memory does not grow with the number of pictures, except for one number each.

    Attributes:
        gates: Channel gates by class, filled while `frames` is read: by label, and by prediction where that is not
            known.
    """

    def __init__(self, module: ImageClassifier, data: ImageData, split: str) -> None:
        self.module, self.data, self.split = module, data, split
        self.gates = GateTable(data.pictures.label_names)
        self._count = len(data.pictures.numbers(split))
        self._pointing = Pointing()

    def __len__(self) -> int:
        return self._count

    def frames(self) -> Iterator[pd.DataFrame]:
        """id, split, label, prediction, probability, where it looks: a rectangle, its share, whether that is gold."""
        import pandas as pd

        module = self.module
        for batch in self.data.loader(self.split):
            with torch.inference_mode():
                look = self._look(batch)
                said = module.predicted(batch, look.logits)
            heat = look.heat.cpu()
            boxes = [region(each) for each in heat]
            columns: dict[str, Any] = {key: said[key] for key in ("id", "split", "label", "prediction", "probability")}
            for name in ("top", "left", "bottom", "right"):
                columns[name] = pd.array([None if box is None else getattr(box, name) for box in boxes], dtype="Int64")
            columns["share"] = [0.0 if box is None else box.share for box in boxes]
            columns["where"] = [_where(box) for box in boxes]
            if batch.gold is not None:
                marks = gold_cells(batch.gold.cpu(), (heat.shape[1], heat.shape[2]))
                columns["points_at_gold"] = self._pointing.add(heat.flatten(1), marks)
            yield pd.DataFrame(columns)

    def truth(self) -> dict[str, float | None]:
        """The scores over all pictures that have gold, once `frames` has been read."""
        return self._pointing.truth()

    def _look(self, batch: Images) -> Look:
        """One pass, or as many as memory asks for, each with its channel gates."""
        net, looks = self.module.net, []
        gates = [site for site in sites(net) if isinstance(net.get_submodule(site), _CHANNEL_GATES)]
        size = at_once(net, batch.pixels)
        for pixels, labels in zip(torch.split(batch.pixels, size), torch.split(batch.labels, size), strict=True):
            with record(net, layers=gates) as found:
                looks.append(self.module.look(pixels))
            self.gates.add(found, torch.where(labels >= 0, labels, looks[-1].logits.argmax(-1)))
        return Look(*(torch.cat(parts) for parts in zip(*looks, strict=True)))


def _where(box: Region | None) -> str:
    if box is None:
        return "nowhere"
    return box.where if box.stands_out else "nothing in particular"
