"""`zoo maps` and the maps of `zoo evaluate --worst` for pictures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, DenseSupport, record, sites
from zoo.attention.observing.record import Recording
from zoo.errors import ConfigError, DataError, nearest, visible
from zoo.maps import Writer
from zoo.maps import frames as tables
from zoo.maps.labelling import Heads
from zoo.maps.words import number
from zoo.tasks.vision.batch import Images, Picture, collate
from zoo.tasks.vision.data.dataset import PictureSet
from zoo.tasks.vision.data.image_data import ImageData
from zoo.tasks.vision.maps.figures import Panels, gate_figure, sheet
from zoo.tasks.vision.maps.heat import has_class_token, pooling_site
from zoo.tasks.vision.maps.hottest import where_it_looks
from zoo.tasks.vision.maps.recorded import heads_over_picture, named, scored
from zoo.tasks.vision.maps.survey import Survey
from zoo.tasks.vision.module import ImageClassifier

if TYPE_CHECKING:
    import pandas as pd


def export(
    module: ImageClassifier,
    data: ImageData,
    out: Path,
    *,
    heads: Heads = "each",
    layers: Sequence[int | str] | None = None,
    budget: int | None = None,
    ids: Sequence[str] | None = None,
    pictures: int = 4,
    table_format: tables.Format = "csv",
    overwrite: bool = False,
) -> None:
    """Writes where the model looks at every picture, and for some of them arrays, drawings and words.

    Every picture: of the test split, or of the user's own all. `places` has a row for each, `gates` the mean channel
    gates of each class, scores.json the truth over them. Some: those of `ids`, or `pictures` of them; maps of all
    layers, of which ten thousand pictures would fill a disk, are written for these alone.
    """
    found = data.pictures
    assert found is not None
    split = "test" if {"train", "val"} & set(found.splits.tolist()) else "all"
    drawn = _known(ids, found) if ids is not None else _typical(found, split, pictures)
    site_names = list(sites(module.net))
    _check_layers(module, layers)
    every = Survey(module, data, split)
    about = {"pictures": len(every), "split": split, "data": module.about["config"]["names"]["data"]}
    cut: dict[str, int] = {}
    said: list[str] = []
    hot: list[pd.DataFrame] = []
    with Writer(
        out,
        model=module.about["model"],
        checkpoint=module.about["path"],
        layers=[*site_names, module.explain_by],
        heads=heads,
        about=about,
        overwrite=overwrite,
    ) as writer:
        for at, which in enumerate(drawn, start=1):
            one = _Example.of(module, data, which, layers, budget)
            one.write(module, writer)
            figure = one.figure(module, data)
            figure.savefig(writer.file(f"pictures/{_file_name(at, one.id)}"), dpi=110)
            said.append(f"{one.id}: {one.title}; {one.said}")
            hot.append(one.table())
            cut |= one.found.cut
        if hot:
            tables.write(hot, writer.file(f"heat.{table_format}"), format=table_format)
            writer.file("words.txt").write_text("".join(f"{line}\n" for line in said), encoding="utf-8")
        tables.write(every.frames(), writer.file(f"places.{table_format}"), format=table_format)
        gates = every.gates.frame(site_names)
        if len(gates):
            tables.write([gates], writer.file(f"gates.{table_format}"), format=table_format)
            gate_figure(gates).savefig(writer.file("pictures/gates.png"), dpi=110)
        writer.truth = every.truth()
    of = f"{'test ' * (split == 'test')}picture{'s' * (len(every) != 1)}"
    print(f"{len(every):,} {of} in places.{table_format}{', channel gates by class' if len(gates) else ''}, in {out}")
    print(f"maps and drawings of {len(drawn)} picture{'s' * (len(drawn) != 1)}")
    if cut:
        sized = ", ".join(f"{site} {size:,}" for site, size in cut.items())
        print(f"the budget of {budget:,} bytes a picture left out {sized}")
    for measure, value in writer.truth.items():
        print(f"truth/{measure} {value:.4f} ({of}, {module.explain_by})")
    for sentence in said:
        print(visible(sentence))


def describe(module: ImageClassifier, data: ImageData, ids: Sequence[str]) -> list[str]:
    """For each picture, in words, where the scored map looks."""
    found = data.pictures
    assert found is not None
    said = []
    for which in _known(ids, found):
        heat = module.heat(_batch(data, [which]))[0]
        said.append(where_it_looks(heat, module.explain_by))
    return said


@dataclass(frozen=True, eq=False)
class _Example:
    """One picture, what the model says of it, and what was recorded meanwhile."""

    id: str
    picture: Picture
    batch: Images
    found: Recording
    heat: Float[Tensor, "r c"]
    label: str
    prediction: str
    probability: float
    said: str

    @classmethod
    def of(
        cls,
        module: ImageClassifier,
        data: ImageData,
        which: int,
        layers: Sequence[int | str] | None,
        budget: int | None,
    ) -> _Example:
        assert data.pictures is not None
        batch = _batch(data, [which])
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.filterwarnings("ignore", "the budget of")  # what it left out is said at the end
            with record(module.net, layers=layers, budget=budget) as found:
                probabilities = module(batch)[0].float().softmax(-1)
        probability, predicted = probabilities.max(-1)
        heat = module.heat(batch)[0].cpu()
        label = int(batch.labels[0])
        return cls(
            id=batch.ids[0],
            picture=data.pictures[which],
            batch=batch,
            found=found,
            heat=heat,
            label=batch.label_names[label] if label >= 0 else "",
            prediction=batch.label_names[int(predicted)],
            probability=float(probability),
            said=where_it_looks(heat, module.explain_by),
        )

    @property
    def title(self) -> str:
        said = f"predicted {self.prediction} ({number(self.probability)})"
        return f"{said}, is {self.label}" if self.label else said

    @property
    def size(self) -> tuple[int, int]:
        """What the net was given."""
        return self.batch.pixels.shape[2], self.batch.pixels.shape[3]

    def write(self, module: ImageClassifier, writer: Writer) -> None:
        gold = self.batch.gold
        about = {"label": self.label, "prediction": self.prediction, "probability": self.probability}
        own = AttentionMap(module.explain_by, self.heat.reshape(1, 1, 1, -1), DenseSupport.axes, DenseSupport(), (0,))
        writer.note(self.found)
        for each in (*named(module.net, self.found, self.size, gold), scored(own, _grid(self.heat), gold)):
            writer.add(self.id, each.maps, axis_labels=each.axis_labels, gold=each.gold, nouns=each.nouns, about=about)

    def figure(self, module: ImageClassifier, data: ImageData) -> Any:
        height, width = self.picture.pixels.shape[1:]
        return sheet(
            self.picture,
            self.heat,
            title=self.title,
            name=module.explain_by.replace("_", " "),
            said=self.said,
            seen=data.preprocessing.seen(height, width),
            panels=self._panels(module),
        )

    def _panels(self, module: ImageClassifier) -> list[Panels]:
        """Each layer, averaged over its heads; each head of the last layer that has several."""
        net = module.net
        layer = {site: at for at, site in enumerate(sites(net))}
        maps = {site: heads_over_picture(net, each, self.size) for site, each in self.found.items()}
        over = {site: each for site, each in maps.items() if each is not None}
        gates = [site for site in over if self.found[site].axes == ("batch", "height", "width")]
        tokens = [site for site in over if site not in gates and site != pooling_site(net)]
        pooled = [site for site in over if site == pooling_site(net)]
        whose = "the class token's attention" if has_class_token(net) else "the attention that each place receives"
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

    def table(self) -> pd.DataFrame:
        """id, row, column, heat."""
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


def _batch(data: ImageData, numbers: Sequence[int]) -> Images:
    """Some pictures as the net takes them."""
    assert data.pictures is not None
    seen = data.preprocessing
    prepared = [seen(data.pictures[which]) for which in numbers]
    return collate(prepared, mean=seen.mean, std=seen.std, label_names=data.pictures.label_names)


def _typical(found: PictureSet, split: str, count: int) -> list[int]:
    """Pictures to draw when none are asked for: the first of each label, then the next."""
    seen: dict[int, int] = {}
    ranked = []
    for which in found.numbers(split).tolist():
        label = int(found.labels[which])
        seen[label] = seen.get(label, 0) + 1
        ranked.append((seen[label], which))
    return [which for _, which in sorted(ranked)[:count]]


def _known(ids: Sequence[str], found: PictureSet) -> list[int]:
    at = {name: which for which, name in enumerate(found.ids)}
    for each in ids:
        if each not in at:
            raise DataError(f"there is no picture {each!r}. {nearest(each, at) if len(at) < 10_000 else ''}".rstrip())
    return [at[each] for each in ids]


def _check_layers(module: ImageClassifier, layers: Sequence[int | str] | None) -> None:
    try:
        with record(module.net, layers=layers):
            pass
    except ValueError as error:  # a layer that the model does not have
        raise ConfigError(f"layers: {error}") from error


def _grid(heat: Float[Tensor, "r c"]) -> tuple[int, int]:
    return heat.shape[0], heat.shape[1]


def _block(site: str) -> str:
    """The block that a gate belongs to."""
    return site.removeprefix("gates.").removesuffix(".spatial").removesuffix(".gate")


def _file_name(at: int, name: str) -> str:
    """An id, often a path, as the name of a file; the number in front tells namesakes apart."""
    stem = Path(name).stem
    return f"{at}_{''.join(c if c.isalnum() or c in '-_' else '_' for c in stem)[:60]}.png"
