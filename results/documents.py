"""Makes the table of planted reviews in docs/documents.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from measured import on_processor, read_runs, shown_command, spread, with_runs

PLANTED = {"han-planted_reviews": "HAN", "han-planted_reviews-uniform": "HAN, uniform (control)"}


def planted() -> Iterator[str]:
    """Makes a table of accuracy and truth scores on planted reviews."""
    yield "| model | test accuracy | sentence pointing | word pointing | parameters | seconds (CPU) | seeds | command |"
    yield "|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(PLANTED):
        runs = read_runs(experiment)
        cells = [
            name,
            *(spread([run[each] for run in runs]) for each in ("test/accuracy", *_TRUTH)),
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f} "
            f"({statistics.mean(run['cpu_seconds'] for run in runs):.0f})",
            ", ".join(str(run["seed"]) for run in runs),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def benchmark() -> Iterator[str]:
    """Makes the table of a training step of HAN against padded implementations."""
    (found,) = read_runs("benchmark-documents")
    clock = "CPU time" if found["clock"] == "processor" else "wall clock"
    yield f"| implementation | training step, ms of {clock} | peak memory, MiB | x ours |"
    yield "|---|---|---|---|"
    for name, milliseconds in found["step_ms"].items():
        ratio = found["ratio"].get(name, 1.0)
        yield f"| {name} | {milliseconds:.0f} | {found['peak_mib'][name]:.0f} | {ratio:.2f} |"
    yield ""
    sizes = f"{found['documents']} documents, {found['sentences']:,} sentences, {found['words']:,} words"
    yield f"`{found['command']}`:"
    yield f"{sizes} in a batch; {found['threads']} thread{on_processor(found)}."


_TRUTH = ("truth/sentence_pointing", "truth/word_pointing")
