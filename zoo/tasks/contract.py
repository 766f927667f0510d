"""What a domain offers to the run, the checkpoint and the command line. Everything else is its own affair."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from zoo.attention import AttentionMap
from zoo.data.loader import Loader
from zoo.data.tables import OnBadRow
from zoo.errors import ConfigError, DataError
from zoo.maps.source import MapOptions, MapSource
from zoo.tasks.batches import Batching, Examples
from zoo.tasks.command_options import CommandOption
from zoo.training.optimisation import Optimisation

Mode = Literal["min", "max"]

EXAMPLE = "example"
"""The column that says which example of a batch a row is of, from 0."""


@dataclass(frozen=True)
class Invariance:
    """A change of a batch that must not change some of the outputs; the preflight makes it and looks.

    Args:
        what: Of what the outputs are to be independent: "padding", "later positions".
        batch: The batch, changed there.
        kept: The outputs that must stay as they were, of `module(batch)`.
    """

    what: str
    batch: Any
    kept: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Published:
    """Weights that others trained and published, under this model's names.

    Args:
        weights: By parameter; what is left out stays as initialised.
        data: The vocabularies that they know, as a data set's `state`.
    """

    weights: Mapping[str, Tensor]
    data: Mapping[str, Any]


class Task(pl.LightningModule, ABC):
    """A model with its loss, metrics and decoding. `test_step` logs `test/...` and, on data with gold, `truth/...`."""

    primary: str
    """The metric by which the best weights are chosen, such as val/accuracy."""
    primary_mode: Mode
    """Whether more or less of it is better: max for an accuracy, min for an error rate."""
    headline: ClassVar[Sequence[str]]
    """The few test metrics that a run's closing table shows, such as accuracy; all are in metrics.json."""
    optimisation: Optimisation
    about: dict[str, Any]
    """What the checkpoint says of itself, once loaded from one."""

    def __init__(self, *, optimisation: Optimisation) -> None:
        super().__init__()
        self.optimisation = optimisation
        self.about = {}

    @classmethod
    def mode_of(cls, metric: str) -> Mode | None:
        """Whether more or less of a metric is better; None where that is not known."""
        if metric == cls.primary:
            return cls.primary_mode
        return "min" if metric.endswith("loss") else None

    def configure_optimizers(self) -> Any:
        return self.optimisation.configure(self)

    def train(self, mode: bool = True) -> Self:
        """A batch norm whose parameters are frozen keeps its statistics too."""
        super().train(mode)
        for module in self.modules() if mode else ():
            if isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters()):
                module.eval()
        return self

    @abstractmethod
    def explain(self, batch: Any) -> AttentionMap:
        """The map that is scored against the gold attention: layers and heads reduced as the configuration says."""

    def maps(self, data: Any, options: MapOptions) -> MapSource:
        """The maps of this model on data of its domain, for `zoo maps` and `zoo evaluate --worst`."""
        raise ConfigError(f"{type(self).__name__} has no maps: it does not say what can be drawn of its data")

    def gold_attention(self, batch: Any) -> Mapping[str, Tensor]:
        """Where attention belongs in a training batch, for guidance: by site, as its weights without heads."""
        return {}

    def real_queries(self, batch: Any) -> Mapping[str, Tensor]:
        """Which queries of a training batch are no padding, (b,q), for sites whose support does not say it."""
        return {}

    @abstractmethod
    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        """A column a key, an entry an example: id, split, label, prediction, probability or score, loss."""

    def invariants(self, batch: Any) -> Sequence[Invariance]:
        """What outputs must not depend on: padding, later positions of a causal model, far parts of a graph."""
        return ()

    def costs(self, batch: Any) -> Sequence[str]:
        """What parts of the model cost, a line each, for the preflight."""
        return ()

    predict_options: ClassVar[Sequence[CommandOption]] = ()
    """Options of `zoo predict` for this model; `answering` takes those that are given, by their names."""

    def answering(self) -> Callable[[Any], dict[str, list[Any]]]:
        """What `zoo predict` makes of a batch: a column a key, a row an example, in the batch's order.

        Where an example may have several rows or none, a column `EXAMPLE` says of each row which of the batch it
        belongs to; it is not written.
        """
        return self.predict_step

    @abstractmethod
    def vocabularies(self) -> dict[str, dict[str, int]]:
        """For fine-tuning by name: vocabulary of the data -> parameter -> its axis with one entry a name."""

    def resized(self, name: str, old: Tensor, shape: torch.Size) -> Tensor | None:
        """For fine-tuning at another resolution or length: a parameter brought to this shape; None if it has none."""
        return None

    def published(self, name: str) -> Published:
        """For `init=SOURCE:NAME`: weights that were published elsewhere."""
        raise ConfigError(f"init={name}: there are no published weights for this model")

    def stages(self) -> Sequence[str]:
        """Prefixes of parameter names from the input to the output, for rates that fall with depth."""
        return ()

    def protocol(self) -> str | None:
        """How the test metrics are measured, where their names leave that open; stored beside them."""
        return None

    def tables(self) -> Mapping[str, list[dict[str, Any]]]:
        """What the last evaluation found that is no number: a list of rows a table."""
        return {}


class TaskData(pl.LightningDataModule, ABC):
    """Where batches come from: a source that is read when it is first needed, and how batches are made of it.

    Args:
        source: Where the examples come from.
        batching: How they become batches.
    """

    order_seed: int = 0
    """Of the order of training examples and of their augmentation; the run sets it to its own seed."""
    is_input = False
    """Whether these are the user's own examples for a trained model, and not the data that it was trained on."""
    on_bad_row: OnBadRow = "error"
    """What becomes of bad rows of the files that `for_input` reads."""

    def __init__(self, source: Any, batching: Batching) -> None:
        super().__init__()
        self.source = source
        self.batching = batching
        self.max_epochs = batching.max_epochs
        self.trained: dict[str, Any] | None = None
        """The state of a checkpoint, whose vocabularies the data is to have."""
        self._content: Any = None

    @abstractmethod
    def read(self) -> Any:
        """Reads the source, with the vocabularies of `trained` where that is given."""

    def names(self, content: Any) -> Mapping[str, Sequence[str]]:
        """The vocabularies of what was read, by their names in `state`."""
        return {}

    @property
    def content(self) -> Any:
        """What was read, once."""
        if self._content is None:
            content = self.read()
            if self.trained is not None:
                _check_names(self.names(content), self.trained)
            self._content = content
        return self._content

    def setup(self, stage: str | None = None) -> None:
        _ = self.content

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """What the model must know of the data, as its keyword arguments."""

    def train_size(self) -> int:
        """Examples an epoch."""
        return len(self.examples("train").entries)

    def emptiness(self, split: str) -> str:
        """Why a split has no example, and what to do, without a full stop."""
        return "Give it examples"

    def protocol(self) -> str | None:
        """How examples are held out, where that is not given by the data; stored beside the metrics."""
        return None

    def threads(self) -> int | None:
        """CPU threads that pay off for batches of this size; None for torch's choice."""
        return None

    def state(self) -> dict[str, Any]:
        """Vocabularies and preprocessing in plain types, for the checkpoint; `restore` takes them back."""
        return {what: list(found) for what, found in self.names(self.content).items()}

    form: ClassVar[Mapping[str, Any]]
    """What `state` is made of (`zoo.forms`): that of a checkpoint is held against it before anything is read."""

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's vocabularies instead of its own."""
        self.trained = state
        self._content = None

    @abstractmethod
    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> Any:
        """The source of the user's own examples for a model that was trained on this data."""

    def for_input(self, paths: Sequence[Path], state: dict[str, Any]) -> Self:
        """The user's own examples, in files, for a model that was trained on this data."""
        return self._of(self.input_source(paths, state), state)

    input_options: ClassVar[Sequence[CommandOption]] = ()
    """Options of `zoo evaluate`, `predict` and `maps` for this data, each an attribute of it that is set before the
    data is read."""
    written: ClassVar[CommandOption | None] = None
    """The repeated option of `zoo predict` by which examples are written on the command line instead of in files."""

    def text_source(self, texts: Sequence[str], state: dict[str, Any]) -> Any:
        """The source of examples that were written on the command line, where `written` says how."""
        raise NotImplementedError(f"{type(self).__name__} has examples in files alone")

    def for_text(self, texts: Sequence[str], state: dict[str, Any]) -> Self:
        """Examples that were written on the command line, for a model that was trained on this data."""
        return self._of(self.text_source(texts, state), state)

    def _of(self, source: Any, state: dict[str, Any]) -> Self:
        data = copy.copy(self)
        data.source, data.is_input = source, True
        data.restore(state)
        return data

    @property
    def mapped_split(self) -> str:
        """The split whose maps are written: `all` of the user's own examples, otherwise `test`."""
        return "all" if self.is_input else "test"

    @abstractmethod
    def examples(self, split: str, *, training: bool = False) -> Examples:
        """Those of train, val or test, or `all`; for training, changed and drawn as it needs them."""

    def loader(self, split: str) -> Loader:
        """Batches of train, val or test, or of `all` examples, in their order and not augmented."""
        return self._loader(self.examples(split), self.batching.eval_batch_size or self.batching.batch_size)

    def train_dataloader(self) -> Loader:
        examples = self.examples("train", training=True)
        return self._loader(examples, self.batching.batch_size, shuffle=True, seed=self.order_seed, even=True)

    def val_dataloader(self) -> Loader:
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")

    def predict_dataloader(self) -> Loader:
        return self.loader("all")

    def train_evaluation(self) -> tuple[Loader, str | None]:
        """The training split, or a sample of it, for the evaluation at the end; and what is a sample of what."""
        loader, most = self.loader("train"), self.batching.eval_examples
        count = len(loader.examples)
        if most is None or count <= most:
            return loader, None
        return loader.sample(most), f"train: {most:,} of {count:,} examples"

    def _loader(self, examples: Examples, batch_size: int | None, **order: Any) -> Loader:
        return Loader(
            examples.entries,
            collate=examples.collate,
            batch_size=batch_size or max(1, len(examples.entries)),
            lengths=examples.lengths,
            augment=examples.augment,
            num_workers=self.batching.num_workers,
            shared=examples.shared,
            **order,
        )


def _check_names(names: Mapping[str, Sequence[str]], trained: Mapping[str, Sequence[str]]) -> None:
    """Refuses data whose vocabularies are not those of the trained model that it is to serve."""
    for what, found in names.items():
        if list(trained[what]) != list(found):
            raise DataError(
                f"the model was trained on other {what} than this data has ({len(trained[what])} against "
                f"{len(found)}); fine-tune it on this data with init=CHECKPOINT"
            )
