"""The interface between a domain and the run, checkpoints and the command line: `Task` and `TaskData`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torchmetrics import Metric, MetricCollection

from zoo import distributed
from zoo.attention import Attention
from zoo.data.encodings import UTF8, Encoding
from zoo.data.loader import Loader
from zoo.data.splits import SPLITS
from zoo.errors import ConfigError, DataError
from zoo.memory import disable_onednn_cache
from zoo.optim import OptimizerConfig
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import CommandOption

if TYPE_CHECKING:
    from zoo.attention import AttentionMap
    from zoo.data.line_index import TextLines
    from zoo.data.tables import OnBadRow
    from zoo.data.unknown_labels import UnknownLabels
    from zoo.maps.explainer import Explainer, MapOptions
    from zoo.tasks.baselines import Baseline
    from zoo.tasks.data_summary import Summary

Mode = Literal["min", "max"]

EXAMPLE = "example"
"""Column with the index, within its batch, of the example that a row belongs to."""


@dataclass(frozen=True)
class Invariance:
    """A change of a batch that must leave some outputs unchanged, which the preflight verifies.

    Args:
        part: Part of the batch that is changed: "padding", "later positions".
        batch: The batch with this part changed.
        kept: `module(batch) -> Tensor`: selects the outputs that must not change.
    """

    part: str
    batch: Any
    kept: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Published:
    """Weights that others trained and published, under this model's parameter names.

    Args:
        weights: Parameter name -> weight. Parameters that are missing keep their initial values.
        data: Vocabularies that the weights were trained with, in the form of `TaskData.state`.
        is_part: Whether they are weights of a part of the model alone, so that most others may be missing.
    """

    weights: Mapping[str, Tensor]
    data: Mapping[str, Any]
    is_part: bool = False


class Task(pl.LightningModule, ABC):
    """A model with its loss, metrics and decoding.

    `test_step` logs `test/...` and, on data with gold attention, `truth/...`.
    """

    primary: str
    """The metric by which the best weights are chosen, such as val/accuracy."""
    primary_mode: Mode
    """The better direction of `primary`: max for an accuracy, min for an error rate."""
    primary_worst: ClassVar[float | None] = None
    """Value of `primary` for a model that has learned nothing, such as an error rate of 1. Between epochs that are no
    better than that, the loss decides. None: there is no such value."""
    headline: ClassVar[Sequence[str]]
    """Names of the test metrics in the table at the end of a run, such as accuracy; metrics.json holds all."""
    optional_parts: ClassVar[Sequence[str]] = ("reward",)
    """Names of parts that fine-tuning may add or leave out, besides mechanisms of attention."""
    rewards: ClassVar[bool] = False
    """Whether the training step rewards hard attention for its draws (`HardReinforce`)."""
    optimization: OptimizerConfig
    about: dict[str, Any]
    """The section `zoo` of the checkpoint that the model was loaded from; empty for a new model."""

    def __init__(self, *, optimization: OptimizerConfig) -> None:
        super().__init__()
        self.optimization = optimization
        self.about = {}

    @classmethod
    def mode_of(cls, metric: str) -> Mode | None:
        """Returns the better direction of a metric, or None if it is not known."""
        if metric == cls.primary:
            return cls.primary_mode
        return "min" if metric.endswith("loss") else None

    def log_training(self, metrics: Mapping[str, Tensor], examples: int) -> None:
        """Logs metrics of a training step, each a mean over the examples of all processes.

        Args:
            metrics: Such as `train/loss`.
            examples: Number of examples in the batch of this process.
        """
        is_shared = distributed.world_size() > 1
        self.log_dict(dict(metrics), on_step=True, on_epoch=False, batch_size=examples, sync_dist=is_shared)

    def log_evaluation(self, metrics: Mapping[str, Metric] | MetricCollection, examples: int = 1) -> None:
        """Logs metrics of an evaluation, each computed from the sums of all processes when the split ends.

        A number would be this process's own mean, weighted by its batches; a metric is updated before it is logged.

        Args:
            metrics: Such as `val/loss`.
            examples: Number of examples in the batch of this process.
        """
        if not isinstance(metrics, MetricCollection):
            for name, metric in metrics.items():
                if not isinstance(metric, Metric):
                    raise TypeError(f"{name}: an evaluation logs metrics, whose sums all processes share, not numbers")
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=examples)

    def log_computed(self, metric: Metric, prefix: str) -> None:
        """Logs the figures of a metric that computes several, at the end of an evaluation, and resets it.

        Args:
            metric: It returns name -> figure of all processes.
            prefix: Goes before the names: `val/`.
        """
        self.log_dict({f"{prefix}{name}": figure for name, figure in metric.compute().items()})
        metric.reset()

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode, except that a batch norm with frozen parameters keeps its statistics."""
        super().train(mode)
        for module in self.modules() if mode else ():
            if isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters()):
                module.eval()
        return self

    @abstractmethod
    def explain(self, batch: Any) -> AttentionMap:
        """Returns the map that is scored against gold attention, with layers and heads reduced as configured."""

    def maps(self, data: Any, options: MapOptions) -> Explainer:
        """Returns the maps of `data` that `zoo maps` writes and `zoo evaluate --worst` describes."""
        raise ConfigError(f"{type(self).__name__} has no maps: its class does not define `maps`")

    def gold_attention(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns site -> gold attention of a training batch, shaped as the weights of that site without heads."""
        return {}

    def find_reward_sites(self) -> list[str]:
        """Returns the names of the attention sites that pass no gradient and learn from a reward alone."""
        sites = [(name, part) for name, part in self.named_modules() if isinstance(part, Attention)]
        return [name for name, site in sites if site.normalizer.traits.needs_reward]

    def check_rewards(self) -> None:
        """Refuses, at start-up, attention that this training step would never teach."""
        if not self.rewards and (found := self.find_reward_sites()):
            raise ConfigError(
                f"model: {found[0]} draws keys without a gradient and learns from rewards, which only models that "
                "write texts give; attention=hard passes a gradient"
            )

    def query_masks(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns site -> mask (b,q) of queries that are not padding, for sites whose support does not hold it."""
        return {}

    @abstractmethod
    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns the predictions of a batch as columns, with one entry for each example.

        They are: id, split, label, prediction, probability or score, loss.
        """

    def invariants(self, batch: Any) -> Sequence[Invariance]:
        """Returns changes that must not affect the output: of padding, of later positions of a causal model."""
        return ()

    def shrink_batch(self, batch: Any, share: float) -> Any | None:
        """Returns a batch whose training step takes about that share of this one's memory.

        The estimate of memory needs it where the number and length of examples do not say how large a step is. Default:
        they do, and there is None.
        """
        return None

    def costs(self, batch: Any) -> Sequence[str]:
        """Returns lines on the cost of parts of the model, for the report of the preflight."""
        return ()

    frozen_remedy: ClassVar[str] = (
        "init=CHECKPOINT gives them those of a trained model; optimization.freeze=[] trains them."
    )
    """What a message advises if weights are frozen as they were drawn."""

    def begin(self, data: Any) -> None:
        """Initialises weights from the data of a new run, such as word vectors; those of a checkpoint come later."""

    predict_options: ClassVar[Sequence[CommandOption]] = ()
    """Options of `zoo predict` for this model; those that are given are keyword arguments of `predictor`."""
    decoding_options: ClassVar[Sequence[CommandOption]] = ()
    """Options of `zoo evaluate` and `zoo maps` for this model; those that are given are keyword arguments of
    `set_decoding`. `predict_options` has them too."""

    @property
    def input_columns(self) -> Sequence[str]:
        """Names of the columns of `predict_step` in which people read an example again, such as its question."""
        return ()

    def set_decoding(self, **how: Any) -> None:
        """Has the model decode as the options of a command say."""

    @property
    def answer_column(self) -> str:
        """Name of the column that `zoo predict --format text` writes."""
        return "prediction"

    @property
    def reference_column(self) -> str:
        """Name of the column of `zoo predict` that has what is right, where it is known."""
        return "label"

    def predictor(self) -> Callable[[Any], dict[str, list[Any]]]:
        """Returns a function from a batch to the columns that `zoo predict` writes, in the order of the batch.

        If an example may have several rows or none, the column `EXAMPLE` holds the example of each row. This column is
        not written.
        """
        return self.predict_step

    def stream_predictions(self, **how: Any) -> Iterator[dict[str, Any]] | None:
        """Returns the rows that `zoo predict` writes of an input that is still arriving, each as soon as it is known.

        Args:
            how: The options that were given, as for `predictor`.

        Returns:
            The rows, or None if no option names such an input.
        """
        return None

    def write_sidecars(self, examples: Iterator[list[dict[str, Any]]], **how: Any) -> Iterator[list[dict[str, Any]]]:
        """Passes on the rows that `zoo predict` writes, in the order of the input, and may write files beside them.

        Args:
            examples: What `predictor` returned, as the rows of each example.
            how: The options that were given, as for `predictor`.
        """
        return examples

    @abstractmethod
    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns vocabulary -> parameter -> the axis of the parameter that has one entry for each name.

        Fine-tuning uses it to keep the weights of names that both data sets have.
        """

    def resize_parameter(self, name: str, old: Tensor, shape: torch.Size) -> Tensor | None:
        """Resizes a parameter for fine-tuning at another resolution or length; returns None if it cannot be resized."""
        return None

    def load_published(self, name: str) -> Published:
        """Returns published weights, for `init=SOURCE:NAME`."""
        raise ConfigError(f"init={name}: there are no published weights for this model")

    def layer_groups(self) -> Sequence[str]:
        """Returns prefixes of parameter names from input to output, for layer-wise decay of the learning rate."""
        return ()

    def baselines(self, data: Any) -> Sequence[Baseline]:
        """Returns simple answers to the same question, for `zoo baseline` and the end of a run."""
        return ()

    def protocol(self) -> str | None:
        """Returns how the test metrics are measured, if their names leave it open; stored with the metrics."""
        return None

    def verdicts(self, metrics: Mapping[str, Any], examples: int) -> Sequence[str]:
        """Returns sentences on what a run has not learned and what to try, for its end; none if nothing is wrong.

        Args:
            metrics: The metrics of the run's evaluation, and those of validation with the best weights.
            examples: Number of training examples.
        """
        return ()

    def tables(self) -> Mapping[str, list[dict[str, Any]]]:
        """Returns results of the last evaluation that are tables: name -> rows."""
        return {}


class TaskData(pl.LightningDataModule, ABC):
    """A data set: a source, which is read at first use, and the batches made of its examples.

    Args:
        source: Source of the examples; its type is the domain's own.
        batching: Options of batches.
    """

    order_seed: int = 0
    """Seed of the order and augmentation of training examples; the run sets it to its own seed."""
    unknown_labels: UnknownLabels | None = None
    """Where labels go that `from_files` reads and the trained model does not have. None: they are errors."""
    is_input = False
    """True if these are the user's own examples for a trained model, rather than its training data."""
    is_generated = False
    """True if the examples are not read from files but generated."""
    is_fine_tuned = False
    """True if training starts from a checkpoint (`init=`), also after it was resumed."""
    on_bad_row: OnBadRow = "error"
    """Policy for bad rows of the files that `from_files` reads."""
    encoding: Encoding = UTF8
    """Encoding of these files."""

    def __init__(self, source: Any, batching: BatchOptions) -> None:
        super().__init__()
        self.source = source
        self.batching = batching
        self.max_epochs = batching.max_epochs
        self.trained: dict[str, Any] | None = None
        """State of the checkpoint whose vocabularies the data must use; None: the data builds its own."""
        self._content: Any = None

    @property
    def trained_state(self) -> dict[str, Any]:
        """The state of the checkpoint whose vocabularies the data must use."""
        if self.trained is None:
            raise DataError("these examples have no given texts, of which a model that is not trained learns its words")
        return self.trained

    @abstractmethod
    def read(self) -> Any:
        """Reads the source, with the vocabularies of `trained` if it is set."""

    def names(self, content: Any) -> Mapping[str, Sequence[str]]:
        """Returns the vocabularies of what `read` returned, under their names in `state`."""
        return {}

    @property
    def content(self) -> Any:
        """The result of `read`, which is called once."""
        if self._content is None:
            content = self.read()
            if self.trained is not None:
                _check_names(self.names(content), self.trained)
            self._content = content
        return self._content

    def setup(self, stage: str | None = None) -> None:
        _ = self.content

    def sizes(self) -> dict[str, int]:
        """Returns the keyword arguments of the model that depend on the data, such as the number of classes."""
        return self.sizes_of(self.state())

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        """Returns the sizes that a `state` decides. Those of a checkpoint are compared with them before it is built.

        A domain that does not say it overrides `sizes`, and nothing is compared.
        """
        return {}

    def check_input_sizes(self, state: Mapping[str, Any]) -> None:
        """Refuses sizes in the state of a checkpoint that take more memory than a file may ask for."""

    def train_size(self) -> int:
        """Returns the number of training examples in an epoch."""
        return len(self.examples("train").entries)

    def summary(self) -> Summary:
        """Returns what the data hold, which `zoo check` prints: sizes, labels, the longest examples, vocabularies."""
        from zoo.tasks.data_summary import Summary

        return Summary(noun="example", sizes={split: len(self.examples(split).entries) for split in SPLITS})

    def empty_hint(self, split: str) -> str:
        """Returns a sentence, without full stop, on why a split is empty or how to fill it."""
        return "Give it examples"

    def protocol(self) -> str | None:
        """Returns how examples are held out, if the data does not define it; stored with the metrics."""
        return None

    def threads(self) -> int | None:
        """Returns the number of CPU threads worth using for batches of this size; None: torch's default."""
        return None

    def state(self) -> dict[str, Any]:
        """Returns the vocabularies and preprocessing in plain types, for the checkpoint; see `restore`."""
        return {what: list(found) for what, found in self.names(self.content).items()}

    form: ClassVar[Mapping[str, Any]]
    """Form of `state` (`zoo.validation`). The state in a checkpoint is checked against it before any file is read."""

    def restore(self, state: dict[str, Any]) -> None:
        """Makes the data use the vocabularies of a checkpoint instead of its own."""
        self.trained = state
        self._content = None

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Keeps what training from a checkpoint keeps of its data, such as a tokeniser; before the data is read."""

    @abstractmethod
    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> Any:
        """Returns the source of the user's own examples for a model that was trained on this data."""

    def from_files(self, paths: Sequence[Path], state: dict[str, Any]) -> Self:
        """Returns a data set of the user's own files for a model that was trained on this data."""
        return self._replace_source(self.input_source(paths, state), state)

    input_options: ClassVar[Sequence[CommandOption]] = ()
    """Options of `zoo evaluate`, `predict` and `maps` for this data. Each sets the attribute of the same name before
    the data is read."""
    written: ClassVar[CommandOption | None] = None
    """Repeatable option of `zoo predict` that takes an example from the command line instead of from a file."""

    first_text: int = 1
    """Number of the first example of `from_texts`, for its name; each part of a stream continues the numbering."""

    def text_source(self, texts: Sequence[str], state: dict[str, Any]) -> Any:
        """Returns the source of examples that were given on the command line with the option `written`."""
        raise NotImplementedError(f"{type(self).__name__} reads examples from files only")

    def from_texts(self, texts: Sequence[str], state: dict[str, Any]) -> Self:
        """Returns a data set of examples given on the command line for a model that was trained on this data."""
        return self._replace_source(self.text_source(texts, state), state)

    def _replace_source(self, source: Any, state: dict[str, Any]) -> Self:
        data = copy.copy(self)
        data.source, data.is_input = source, True
        data.restore(state)
        return data

    @property
    def mapped_split(self) -> str:
        """The split whose maps are written: `all` for the user's own examples, otherwise `test`."""
        return "all" if self.is_input else "test"

    @abstractmethod
    def examples(self, split: str, *, training: bool = False) -> Examples:
        """Returns the examples of a split (train, val, test or all); for training, with augmentation and sampling."""

    def loader(self, split: str) -> Loader:
        """Returns the batches of a split (train, val, test or all) in order, without augmentation."""
        return self._make_ordered_loader(self.examples(split))

    def train_dataloader(self) -> Loader:
        examples = self.examples("train", training=True)
        return self._loader(examples, self.batching.batch_size, shuffle=True, seed=self.order_seed, even=True)

    def val_dataloader(self) -> Loader:
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")

    def predict_dataloader(self) -> Loader:
        return self.prediction_loader("all")

    def prediction_loader(self, split: str) -> Loader:
        """Returns the batches of a split (train, val, test or all) in order, also of examples without an answer."""
        return self.loader(split)

    def text_lines(self) -> TextLines | None:
        """Returns where the examples stand, if each is a line of a text file; None if they are rows or files."""
        return None

    def train_evaluation(self) -> tuple[Loader, str | None]:
        """Returns a loader of the training split for the evaluation at the end, and a note if it is a sample."""
        loader, most = self.loader("train"), self.batching.eval_examples
        count = len(loader.examples)
        if most is None or count <= most:
            return loader, None
        return loader.sample(most), f"train: {most:,} of {count:,} examples"

    def _make_ordered_loader(self, examples: Examples) -> Loader:
        """Returns the batches of an evaluation."""
        return self._loader(examples, self.batching.eval_batch_size or self.batching.batch_size)

    def _loader(self, examples: Examples, batch_size: int | None, **order: Any) -> Loader:
        if examples.lengths is not None:  # as many shapes as batches
            disable_onednn_cache()
        return Loader(
            examples.entries,
            collate=examples.collate,
            batch_size=batch_size or max(1, len(examples.entries)),
            lengths=examples.lengths,
            max_tokens=examples.max_tokens,
            augment=examples.augment,
            num_workers=self.batching.num_workers,
            shared=examples.shared,
            **order,
        )


def _check_names(names: Mapping[str, Sequence[str]], trained: Mapping[str, Sequence[str]]) -> None:
    """Raises DataError if the vocabularies differ from those of the trained model."""
    for what, found in names.items():
        if list(trained[what]) != list(found):
            raise DataError(
                f"the model was trained on other {what} than this data has ({len(trained[what])} against "
                f"{len(found)}); fine-tune it on this data with init=CHECKPOINT"
            )
