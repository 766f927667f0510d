"""Exports what a domain outside of this project imports: parts of the core, and the interfaces of data, tasks and maps.

    from zoo.extend import Task, TaskData, dataset

CONTRIBUTING walks through a whole domain, and `tests/outside_package` is one. Other modules may change their names and
places; what stands here stays.
"""

from zoo import distributed
from zoo.attention import (
    AttentionMap,
    DenseSupport,
    MultiheadAttention,
    Normalizer,
    Position,
    Recording,
    Restriction,
    Score,
    Traits,
    Use,
    record,
)
from zoo.data.tables import OnBadRow, Row, read_table
from zoo.data.transfer import to_device
from zoo.errors import ConfigError, DataError, did_you_mean
from zoo.lazy_exports import exports
from zoo.maps import LabelledMap, describe, label_map, plots
from zoo.maps.explainer import (
    Axis,
    ExplainedExample,
    Explainer,
    LabelledAttention,
    MapOptions,
    SiteAxes,
    picture_name,
)
from zoo.maps.metrics import pointing
from zoo.maps.perturbation import Perturbable, gradient_at_rows
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Task, TaskData
from zoo.tasks.batching import Examples
from zoo.tasks.dataset_registry import dataset
from zoo.types import PositiveInt, Seed, validate_ranges

__all__ = [
    "AttentionMap",
    "Axis",
    "ConfigError",
    "DataError",
    "DenseSupport",
    "Examples",
    "ExplainedExample",
    "Explainer",
    "LabelledAttention",
    "LabelledMap",
    "MapOptions",
    "MultiheadAttention",
    "Normalizer",
    "OnBadRow",
    "OptimizerConfig",
    "Perturbable",
    "Position",
    "PositiveInt",
    "Recording",
    "Restriction",
    "Row",
    "Score",
    "Seed",
    "SiteAxes",
    "Task",
    "TaskData",
    "Traits",
    "Use",
    "dataset",
    "describe",
    "did_you_mean",
    "distributed",
    "exports",
    "gradient_at_rows",
    "label_map",
    "picture_name",
    "plots",
    "pointing",
    "read_table",
    "record",
    "to_device",
    "validate_ranges",
]
