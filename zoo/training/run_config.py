"""Holds the resolved configuration of one run, and the names of the files in its directory and of its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

LAST, BEST, RESULT, CONFIG = "checkpoints/last.ckpt", "checkpoints/best.ckpt", "metrics.json", "config.yaml"
TRIAL = "ZOO_TRIAL"
"""The environment variable of a trial: journal, pruner, direction and metric of the search, and the trial's number."""


@dataclass(frozen=True)
class RunConfig:
    """The options of a run, by name; what is built from a node of the tree stays a mapping.

    Args:
        tree: The plain values that Hydra has composed, as they stand in config.yaml and in checkpoints.
    """

    tree: Mapping[str, Any]

    @property
    def model(self) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.tree["model"]
        return node

    @property
    def data(self) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.tree["data"]
        return node

    @property
    def trainer(self) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.tree["trainer"]
        return node

    @property
    def callbacks(self) -> Mapping[str, Mapping[str, Any]]:
        node: Mapping[str, Mapping[str, Any]] = self.tree["callbacks"]
        return node

    @property
    def loggers(self) -> Mapping[str, Mapping[str, Any]]:
        node: Mapping[str, Mapping[str, Any]] = self.tree["logger"]
        return node

    @property
    def penalty(self) -> Mapping[str, Any]:
        node: Mapping[str, Any] = self.tree.get("penalty", {})
        return node

    @property
    def names(self) -> Mapping[str, str | None]:
        """The name of the choice of each group."""
        names: Mapping[str, str | None] = self.tree["names"]
        return names

    @property
    def overrides(self) -> Sequence[str]:
        """The command, without its program."""
        overrides: Sequence[str] = self.tree["overrides"]
        return overrides

    @property
    def seed(self) -> int:
        return int(self.tree["seed"])

    @property
    def threads(self) -> int | None:
        threads: int | None = self.tree["threads"]
        return threads

    @property
    def init(self) -> str | None:
        """The checkpoint from whose weights a new run starts, or the name of published weights."""
        init: str | None = self.tree["init"]
        return init

    @property
    def resume(self) -> str | None:
        """The checkpoint of the run that is continued, or `auto`."""
        resume: str | None = self.tree["resume"]
        return resume

    @property
    def run_dir(self) -> str | None:
        run_dir: str | None = self.tree["run_dir"]
        return run_dir

    def replace(self, **changes: Any) -> Self:
        """Returns a configuration with other values at the top of the tree."""
        return type(self)({**self.tree, **changes})


def get_active_penalties(penalties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the group `penalty` that have an effect: weights other than 0, and `layers`."""
    factors = {name: factor for name, factor in penalties.items() if factor and name != "layers"}
    layers = {} if penalties.get("layers") is None else {"layers": penalties["layers"]}
    return {**factors, **layers} if factors else {}
