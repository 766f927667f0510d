"""Defines the groups of configurations, from each of which one file is chosen by name: `model=gat`.

Composing, building, the command line, listing and tests all read this table.
"""

from __future__ import annotations

from typing import NamedTuple

_OPTIMIZATION = ("zoo.optim.", "torch.optim.")


class Group(NamedTuple):
    """A folder of the same name under conf/.

    Args:
        description: What is chosen, for the command line's help.
        allowed_prefixes: Beginnings of what a `_target_` in it may be. A configuration inside a checkpoint comes from a
            stranger, and any callable would run code. Nothing is built where there are none.
        is_open: Whether parts may also come from installed packages.
        is_mechanism: Whether it is for those models alone that have a place for it.
        is_optional: Whether nothing need be chosen.
        is_listed: Whether there is a choice to show and to keep with a run.
        injected: Options of its parts that the run knows.
    """

    description: str
    allowed_prefixes: tuple[str, ...] = ()
    is_open: bool = False
    is_mechanism: bool = False
    is_optional: bool = False
    is_listed: bool = True
    injected: frozenset[str] = frozenset()


GROUPS = {
    "model": Group(
        "what to train",
        (
            "zoo.tasks.",
            "zoo.nn.",
            "zoo.attention.",
            "zoo.decoding.",
            "torch.nn.",
            "torchvision.models.",
            *_OPTIMIZATION,
        ),
        is_open=True,
    ),
    "data": Group("what to train it on", ("zoo.tasks.",), is_open=True),
    "attention": Group("a mechanism of attention", ("zoo.attention.",), is_open=True, is_mechanism=True),
    "gate": Group("a gate of convolutional networks", ("zoo.attention.", "torch.nn."), is_open=True, is_mechanism=True),
    "loss": Group("a loss of models that take several", ("zoo.tasks.",), is_open=True, is_mechanism=True),
    "decoder": Group("a recurrent decoder", ("zoo.nn.", "torch.nn."), is_open=True, is_mechanism=True),
    "penalty": Group("losses on attention weights"),
    "optimizer": Group("an optimizer", _OPTIMIZATION),
    "scheduler": Group("how the learning rate changes", _OPTIMIZATION),
    "trainer": Group("processors, processes and precision"),
    "callbacks": Group(
        "what is kept, and when to stop", ("zoo.training.",), injected=frozenset({"run_dir", "metadata"})
    ),
    "logger": Group("where metrics go", ("zoo.training.",), injected=frozenset({"run_dir"})),
    "experiment": Group("a published recipe", is_optional=True),
    "debug": Group("a short run that looks for errors", is_optional=True),
    "paths": Group("where data is read and runs are written", is_listed=False),
}

LISTED = tuple(name for name, group in GROUPS.items() if group.is_listed)
MECHANISMS = tuple(name for name, group in GROUPS.items() if group.is_mechanism)
INJECTED = {name: set(group.injected) for name, group in GROUPS.items() if group.injected}
GROUPS_BY_NODE = {**GROUPS, "optimization": GROUPS["optimizer"]}
"""The groups, and the part of train.yaml that is made of the optimizer and the schedule."""
