"""The data set of a trained model, for figures that are measured on its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.composing.build import build


def data_of(about: Mapping[str, Any], root: Path | None, **changed: Any) -> Any:
    """Returns the checkpoint's own data, read with its vocabulary.

    Args:
        about: What the checkpoint says of its run.
        root: Folder of the published data. Default: as in training.
        changed: Options that differ from those of the training.
    """
    given = {} if root is None else {"root": str(root)}
    data: Any = build({**about["config"]["data"], **changed, **given}, "data")
    data.restore(about["data"])
    data.setup()
    return data
