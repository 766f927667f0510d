"""Makes the tables of question answering in docs/results/answering.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from measured import clock_of, of_runs, on_processor, read_runs, with_runs

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
        measured = [run["kinds"] for run in read_runs(experiment) if "kinds" in run]  # `measure.py --table kinds`
        runs = [{row["kind"]: float(row["accuracy"]) for row in kinds_of_run} for kinds_of_run in measured]
        if not runs:
            continue
        yield f"| {name} | {' | '.join(f'{statistics.mean(run[kind] for run in runs):.3f}' for kind in kinds)} |"


def sick() -> Iterator[str]:
    """Makes a table of SICK, with random word vectors and with others."""
    names = {
        "esim_sick": "`esim`",
        "esim_sick-vectors": "`esim`, word vectors",
        "esim_sick-uniform": "`esim`, uniform (control)",
    }
    if not any(with_runs(names)):
        yield "Not measured yet."
        return
    yield from of_runs(names, {"test accuracy": "test/accuracy", "validation accuracy": "val/accuracy"})


def benchmark() -> Iterator[str]:
    """Makes a table of a training step of BiDAF against the form with a tensor of pairs."""
    (found,) = read_runs("benchmark-answering")
    clock = clock_of(found)
    yield f"| implementation | training step, ms of {clock} | x ours | peak memory, MiB |"
    yield "|---" * 4 + "|"
    for side, ms in found["step_ms"].items():
        ratio = f"{found['ratio'][side]:.2f}" if side in found["ratio"] else ""
        yield f"| {side} | {ms:.0f} | {ratio} | {found['peak_mib'][side]:.0f} |"
    yield ""
    yield f"`{found['command']}`: {found['threads']} thread{on_processor(found)}."
