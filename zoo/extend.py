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
from zoo.errors import ConfigError, DataError, did_you_mean
from zoo.lazy_exports import exports
from zoo.maps import LabelledMap, draw, labelled, words
from zoo.maps.occludable import Occludable, gradient_at_rows
from zoo.maps.score import pointing
from zoo.maps.source import MapOptions, MappedExample, MapSource, NamedMap, picture_name
from zoo.optim import OptimizerConfig
from zoo.tasks.batches import Examples, moved
from zoo.tasks.contract import Task, TaskData
from zoo.tasks.datasets import dataset
from zoo.types import PositiveInt, Seed, validate_ranges

__all__ = [
    "AttentionMap",
    "ConfigError",
    "DataError",
    "DenseSupport",
    "Examples",
    "LabelledMap",
    "MapOptions",
    "MapSource",
    "MappedExample",
    "MultiheadAttention",
    "NamedMap",
    "Normalizer",
    "Occludable",
    "OnBadRow",
    "OptimizerConfig",
    "Position",
    "PositiveInt",
    "Recording",
    "Restriction",
    "Row",
    "Score",
    "Seed",
    "Task",
    "TaskData",
    "Traits",
    "Use",
    "dataset",
    "did_you_mean",
    "distributed",
    "draw",
    "exports",
    "gradient_at_rows",
    "labelled",
    "moved",
    "picture_name",
    "pointing",
    "read_table",
    "record",
    "validate_ranges",
    "words",
]
