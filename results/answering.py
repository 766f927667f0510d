"""Makes the tables of question answering in docs/answering.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from measured import of_runs, read_runs, with_runs

PICTURES = {
    "coattention-planted_questions": "`coattention`",
    "coattention-planted_questions-alternating": "`coattention`, alternating",
    "coattention-planted_questions-uniform": "`coattention`, uniform (control)",
}
PLANTED = {
    **PICTURES,
    "bidaf-planted_passages": "`bidaf`",
    "bidaf-planted_passages-uniform": "`bidaf`, uniform (control)",
    "esim-planted_inference": "`esim`",
    "esim-planted_inference-uniform": "`esim`, uniform (control)",
}


def planted() -> Iterator[str]:
    """Makes a table of answers and of where the models looked, on planted data."""
    answers = {"accuracy": "test/accuracy", "exact match": "test/exact_match", "F1": "test/f1"}
    return of_runs(PLANTED, {**answers, "pointing": "truth/pointing"})


def by_kind() -> Iterator[str]:
    """Makes a table of the accuracy of each kind of question about pictures."""
    kinds = ("colour", "shape", "count", "relation")
    yield f"| model | {' | '.join(kinds)} |"
    yield "|---" * (len(kinds) + 1) + "|"
    for experiment, name in with_runs(PICTURES):
        runs = [{row["kind"]: float(row["accuracy"]) for row in run["kinds"]} for run in read_runs(experiment)]
        yield f"| {name} | {' | '.join(f'{statistics.mean(run[kind] for run in runs):.3f}' for kind in kinds)} |"
