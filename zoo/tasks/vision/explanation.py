"""Maps of pictures: a table of all pictures of a split, and drawings of some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, DenseSupport, sites
from zoo.attention.recording.recorder import Recording
from zoo.errors import pluralize
from zoo.maps import LabelledMap
from zoo.maps.describe import number
from zoo.maps.explainer import (
    ExplainedExample,
    Explainer,
    LabelledAttention,
    MapOptions,
    Table,
    one_a_label,
    picture_name,
)
from zoo.nn.images.classifier import TokenNet
from zoo.tasks.vision.batch import ImageBatch, Picture, collate
from zoo.tasks.vision.maps.heatmaps import Explanation
from zoo.tasks.vision.maps.image_table import Survey
from zoo.tasks.vision.maps.map_labels import heads_over_picture, label_maps, scored_map
from zoo.tasks.vision.maps.perturbation import PerturbableImage
from zoo.tasks.vision.maps.regions import where_it_looks
from zoo.tasks.vision.plots import Panels, gate_figure, sheet

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zoo.tasks.vision.datamodule import ImageData
    from zoo.tasks.vision.task import ImageClassifier


class ImageExplainer(Explainer):
    """Maps of the pictures of a split, and tables.

    The table `places` has a row for each picture of the split, `gates` the mean channel gates of each class, and `heat`
    the scored maps of the pictures that are drawn.
    """

    noun = "picture"

    def __init__(self, module: ImageClassifier, data: ImageData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data, self.pictures = module, data, data.pictures
        self.scored = [module.explain_by]
        self.split = data.mapped_split
        self._survey = Survey(module, data, self.split)
        self._has_gates = False

    def names(self) -> list[str]:
        return list(self.pictures.ids)

    def sample(self, count: int) -> list[int]:
        numbers = self.pictures.numbers(self.split)
        return [int(numbers[at]) for at in one_a_label(self.pictures.labels[numbers].tolist())[:count]]

    def tables(self) -> Iterator[Table]:
        yield Table("places", self._survey.frames())
        gates = self._survey.gates.frame(list(sites(self.net)))
        self._has_gates = bool(len(gates))
        if self._has_gates:
            yield Table("gates", [gates], figure=gate_figure(gates))

    def examples(self) -> Iterator[ExplainedExample]:
        for which in self.positions:
            batch = self._batch(which)
            with torch.inference_mode(), self.record_sites() as found:
                explanation = self.module.explanation(batch.pixels)
            yield _OnePicture(self.module, self.data, self.pictures[which], batch, found, explanation)

    def truth(self) -> dict[str, float | None]:
        return self._survey.truth()

    @property
    def truth_label(self) -> str:
        return f"{self._noun}, {self.module.explain_by}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"pictures": len(self._survey), "split": self.split}

    def summary(self, out: str) -> list[str]:
        gates = ", channel gates by class" if self._has_gates else ""
        shown = f"{len(self._survey):,} {self._noun} in places.{self.options.table_format}{gates}, in {out}"
        return [shown, *super().summary(out)]

    def make_perturbable(self, position: int) -> list[PerturbableImage]:
        return [PerturbableImage(self.module, self._batch(position))]

    def describe_chosen(self) -> list[str]:
        how = self.module.explain_by
        return [where_it_looks(self.module.heat(self._batch(which))[0], how) for which in self.positions]

    @property
    def _noun(self) -> str:
        return f"{'test ' * (self.split == 'test')}{pluralize('picture', len(self._survey))}"

    def _batch(self, which: int) -> ImageBatch:
        """Returns a batch of one preprocessed picture."""
        seen = self.data.preprocessing
        names = self.pictures.label_names
        return collate([seen(self.pictures[which])], mean=seen.mean, std=seen.std, label_names=names)


@dataclass(frozen=True, eq=False)
class _OnePicture(ExplainedExample):
    """One picture with the prediction, the scored map and the recording of one pass."""

    module: ImageClassifier
    data: ImageData
    picture: Picture
    batch: ImageBatch
    found: Recording
    explanation: Explanation

    @property
    def heat(self) -> Float[Tensor, "r c"]:
        return self.explanation.heat[0].cpu()

    @property
    def probabilities(self) -> Float[Tensor, " classes"]:
        return self.explanation.logits[0].float().softmax(-1)

    @property
    def id(self) -> str:
        return self.batch.ids[0]

    @property
    def label(self) -> str:
        label = int(self.batch.labels[0])
        return self.batch.label_names[label] if label >= 0 else ""

    @property
    def prediction(self) -> str:
        return self.batch.label_names[int(self.probabilities.argmax())]

    @property
    def probability(self) -> float:
        return float(self.probabilities.max())

    @property
    def description(self) -> str:
        return where_it_looks(self.heat, self.module.explain_by)

    @property
    def title(self) -> str:
        prediction = f"predicted {self.prediction} ({number(self.probability)})"
        return f"{prediction}, is {self.label}" if self.label else prediction

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the net's input."""
        return self.batch.pixels.shape[2], self.batch.pixels.shape[3]

    @property
    def about(self) -> Mapping[str, Any]:
        return {"label": self.label, "prediction": self.prediction, "probability": self.probability}

    @property
    def words(self) -> list[str]:
        return [f"{self.id}: {self.title}; {self.description}"]

    def maps(self) -> Iterator[LabelledAttention]:
        gold, how = self.batch.gold, self.module.explain_by
        yield from label_maps(self.module.net, self.found, self.size, gold)
        own = AttentionMap(how, self.heat.reshape(1, 1, 1, -1), DenseSupport.axes, DenseSupport(), (0,))
        yield scored_map(own, (self.heat.shape[0], self.heat.shape[1]), gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        height, width = self.picture.pixels.shape[1:]
        figure = sheet(
            self.picture,
            self.heat,
            title=self.title,
            name=self.module.explain_by.replace("_", " "),
            description=self.description,
            seen=self.data.preprocessing.find_crop(height, width),
            panels=self._panels(),
        )
        yield picture_name(Path(self.id).stem, number), figure

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        yield Table("heat", [self._rows()])

    def _panels(self) -> list[Panels]:
        """Returns rows of panels: each layer, averaged over its heads, and each head of the last layer with several."""
        net = self.module.net
        layer = {site: at for at, site in enumerate(sites(net))}
        maps = {site: heads_over_picture(net, each, self.size) for site, each in self.found.items()}
        over = {site: each for site, each in maps.items() if each is not None}
        gates = [site for site in over if self.found[site].axes == ("batch", "height", "width")]
        pool, first = (net.pool_site, net.class_site) if isinstance(net, TokenNet) else (None, None)
        tokens = [site for site in over if site not in gates and site != pool]
        pooled = [site for site in over if site == pool]
        whose = "the attention that each place receives" if first is None else "the class token's attention"
        made = [
            Panels("spatial gates", [_block(site) for site in gates], [over[site][0] for site in gates]),
            Panels(
                f"{whose}, average of the heads",
                [f"layer {layer[site]}" for site in tokens] + ["sequence pooling" for _ in pooled],
                [over[site].mean(0) for site in tokens + pooled],
            ),
        ]
        several = [site for site in tokens if len(over[site]) > 1]
        if several:
            last = several[-1]
            names = [f"head {head}" for head in self.found[last].heads]
            made.append(Panels(f"layer {layer[last]}, head by head", names, list(over[last])))
        return made

    def _rows(self) -> pd.DataFrame:
        """Returns a table of the scored map: id, row, column, heat."""
        import pandas as pd

        rows, columns = self.heat.shape
        return pd.DataFrame(
            {
                "id": self.id,
                "row": torch.arange(1, rows + 1).repeat_interleave(columns).numpy(),
                "column": torch.arange(1, columns + 1).repeat(rows).numpy(),
                "heat": self.heat.flatten().numpy(),
            }
        )


def _block(site: str) -> str:
    """Returns the name of the block that a gate belongs to."""
    return site.removeprefix("gates.").removesuffix(".spatial").removesuffix(".gate")
