"""Starts a model from the weights of another, whose labels, features or tokens are matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.attention import sites
from zoo.checkpoints import checkpoint
from zoo.errors import CheckpointError, join_few
from zoo.tasks.base import Task, TaskData


@dataclass(frozen=True)
class VocabularyMatch:
    """The names of one vocabulary that were kept, are new, and were dropped."""

    vocabulary: str
    kept: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class TransferReport:
    """The result of copying weights.

    Args:
        vocabularies: What became of their names.
        copied: The number of copied weights.
        initialized: The names of new weights.
        tokenizers: The tokenizers of the data: name -> whether it is that of the checkpoint.
    """

    vocabularies: tuple[VocabularyMatch, ...]
    copied: int
    initialized: tuple[str, ...]
    tokenizers: Mapping[str, bool]


def load_source(module: Task, name: Path | str) -> Mapping[str, Any]:
    """Reads a checkpoint, or weights that were published elsewhere (`torchvision:resnet50`)."""
    if not is_published(name):
        return checkpoint.read(name)
    weights = module.load_published(str(name))
    return {"state_dict": weights.weights, "zoo": {"data": weights.data}, "is_part": weights.is_part}


def is_published(name: Path | str) -> bool:
    """Returns whether `init` names published weights instead of a file."""
    return ":" in str(name) and not Path(name).exists()


def reuse_data_state(data: TaskData, name: Path | str | None, resumed: Mapping[str, Any] | None = None) -> None:
    """Lets data that is not read yet keep what the checkpoint that a run starts from has of it, such as a tokeniser.

    Args:
        name: The checkpoint, or weights that were published elsewhere, of which nothing is kept; None: none.
        resumed: The content of the checkpoint that the run continues. A run that was fine-tuned still has its `name`.
    """
    data.is_fine_tuned = name is not None
    content = resumed
    if content is None and name is not None and not is_published(name):
        content = checkpoint.read(name)
    if content is not None:
        data.inherit_from_checkpoint(content["zoo"]["data"])


@torch.no_grad()
def load_matching_weights(
    module: Task, data: Mapping[str, Any], content: Mapping[str, Any], path: Path | str
) -> TransferReport:
    """Copies into `module` the weights that a checkpoint has for it.

    Args:
        module: A new module.
        data: The state of the new data: vocabulary -> names.
        content: The content of the checkpoint.
        path: The path of the checkpoint, for messages.
    """
    checkpoint.check_names(module, content, path)
    old_weights, old_data = content["state_dict"], content["zoo"]["data"]
    axes: dict[str, dict[int, str]] = {}
    for vocabulary, parameters in module.vocabularies().items():
        for parameter, axis in parameters.items():
            axes.setdefault(parameter, {})[axis] = vocabulary
    copied, initialized, own = 0, [], module.state_dict()
    for name, weight in own.items():
        if name not in old_weights:
            initialized.append(name)
            continue
        by_axis = {axis % weight.dim(): vocabulary for axis, vocabulary in axes.get(name, {}).items()}
        old = old_weights[name]
        if not by_axis and weight.shape != old.shape:
            resized = module.resize_parameter(name, old, weight.shape)
            old = old if resized is None else resized
        if _copy(name, weight, old, by_axis, old_data, data, path):
            copied += 1
        else:
            initialized.append(name)
    unknown, lacking = [n for n in old_weights if n not in own], [n for n in own if n not in old_weights]
    if content.get("is_part", False):
        lacking = []
    _check_same_model(module, unknown, lacking, path)
    matched = tuple(
        _match_vocabulary(vocabulary, old_data[vocabulary], data[vocabulary]) for vocabulary in module.vocabularies()
    )
    tokenizers = {name: old_data.get(name) == state for name, state in data.items() if name.endswith("tokeniser")}
    return TransferReport(matched, copied, tuple(initialized), tokenizers)


def _check_same_model(module: Task, unknown: Sequence[str], lacking: Sequence[str], path: Path | str) -> None:
    """Checks that both models have the same weights, except for those of mechanisms, which may differ. A mechanism that
    compares nothing also has no projections of queries and keys."""
    mechanisms = tuple(f"{mechanism}." for mechanism in (*sites(module), *module.optional_parts))
    compared = tuple(
        f"{name}.{part_name}." for name, part in module.named_modules() for part_name in getattr(part, "compared", ())
    )
    for what, names in (("there is no place here for its", unknown), ("it lacks", lacking)):
        strange = [name for name in names if not name.startswith(mechanisms)]
        if any(not f"{name}.".startswith(compared) for name in strange):
            raise CheckpointError(f"{path} is of another model: {what} {join_few(strange, 3)}")


def _match_vocabulary(vocabulary: str, old: Sequence[str], new: Sequence[str]) -> VocabularyMatch:
    before, after = set(old), set(new)
    return VocabularyMatch(
        vocabulary=vocabulary,
        kept=tuple(name for name in new if name in before),
        new=tuple(name for name in new if name not in before),
        dropped=tuple(name for name in old if name not in after),
    )


def _copy(
    name: str,
    weight: Tensor,
    old: Tensor,
    by_axis: Mapping[int, str],
    old_data: Mapping[str, Any],
    new_data: Mapping[str, Any],
    path: Path | str,
) -> bool:
    """Copies one weight, by name along the axes of vocabularies; returns whether it had a name in common."""
    fixed = [axis for axis in range(weight.dim()) if axis not in by_axis]
    if weight.dim() != old.dim() or any(weight.shape[axis] != old.shape[axis] for axis in fixed):
        raise CheckpointError(
            f"{path} is of another model: {name} is {tuple(old.shape)} there and {tuple(weight.shape)} here; "
            "give the options that it was trained with, or leave out model= to take them from it"
        )
    for axis, vocabulary in by_axis.items():
        if old.shape[axis] != len(old_data[vocabulary]):
            message = (
                f"{name} has {old.shape[axis]:,} rows there, and there are {len(old_data[vocabulary]):,} {vocabulary}"
            )
            raise CheckpointError(f"{path} is of another model: {message}")
    chosen = old
    rows: list[Tensor] = [torch.arange(size) for size in weight.shape]
    for axis, vocabulary in by_axis.items():
        old_rows = {entry: row for row, entry in enumerate(old_data[vocabulary])}
        pairs = [(row, old_rows[entry]) for row, entry in enumerate(new_data[vocabulary]) if entry in old_rows]
        rows[axis] = torch.tensor([to for to, _ in pairs], dtype=torch.int64)
        chosen = chosen.index_select(axis, torch.tensor([of for _, of in pairs], dtype=torch.int64))
    if not rows:  # a single number, such as the count of batches of a batch norm
        weight.copy_(chosen)
        return True
    weight[torch.meshgrid(*rows, indexing="ij")] = chosen.to(weight.dtype)
    return all(len(indices) for indices in rows)
