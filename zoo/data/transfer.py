"""Moves batches to a device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

import torch

Batch = TypeVar("Batch")


def to_device(batch: Batch, device: torch.device | str) -> Batch:
    """Returns a batch, which is a dataclass, with all its fields on a device; the same object if they are there."""
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}  # type: ignore[arg-type]
    elsewhere = {name: part.to(device) for name, part in parts.items() if hasattr(part, "to")}
    if all(part is parts[name] for name, part in elsewhere.items()):
        return batch
    return replace(batch, **elsewhere)  # type: ignore[type-var]
