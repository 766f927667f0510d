"""Makes the tables of translation in docs/results/translation.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from measured import clock_of, of_runs, of_runs_with_protocol, on_processor, read_runs, with_runs

PLANTED = {
    "nmt-planted_translation": "recurrent, additive",
    "nmt-planted_translation-coverage": "recurrent, coverage",
    "transformer_nmt-planted_translation": "Transformer",
    "nmt-planted_translation-uniform": "recurrent, uniform (control)",
    "nmt-planted_translation-none": "recurrent, without attention (control)",
}
SUMMARIES = {
    "nmt-planted_summaries": "recurrent, additive",
    "nmt-planted_summaries-coverage": "recurrent, coverage",
    "nmt-planted_summaries-uniform": "recurrent, uniform (control)",
}
MULTI30K = {
    "nmt_multi30k": "recurrent, English to German",
    "nmt_multi30k-de-en": "recurrent, German to English",
    "nmt_multi30k-de-en-small": "recurrent and narrower, German to English",
    "transformer_multi30k": "Transformer, German to English",
}
LEFT_OUT = {"repetition": "test/repetition", "omission": "test/omission", "uncovered": "test/uncovered"}


def planted() -> Iterator[str]:
    """Makes a table of BLEU and of the truth of maps on planted pairs."""
    truth = {"pointing": "truth/pointing", "one place off": "truth/one_off", "alignment error": "truth/alignment_error"}
    return of_runs(PLANTED, {"test BLEU": "test/bleu", **truth, **LEFT_OUT})


def planted_lengths() -> Iterator[str]:
    """Makes a table of BLEU by the number of words of the source, means over seeds."""
    found = {name: [run["bleu_by_length"] for run in read_runs(each)] for each, name in with_runs(PLANTED)}
    classes = [row["source words"] for row in next(iter(found.values()), [[]])[0]]
    yield f"| test BLEU at | {' | '.join(classes)} words |"
    yield "|---" * (len(classes) + 1) + "|"
    for name, runs in found.items():
        cells = [f"{statistics.mean(rows[at]['bleu'] for rows in runs):.1f}" for at in range(len(classes))]
        yield f"| {' | '.join([name, *cells])} |"


def summaries() -> Iterator[str]:
    """Makes a table of ROUGE, and of what planted summaries repeat and leave out."""
    rouge = {f"ROUGE-{name}": f"test/rouge_{name.lower()}" for name in ("1", "2", "L")}
    return of_runs(SUMMARIES, {**rouge, **LEFT_OUT, "pointing": "truth/pointing"})


def multi30k() -> Iterator[str]:
    """Makes a table of what was measured on Multi30k's test set of 2016, with the signature of the scores."""
    columns = {"test BLEU": "test/bleu", "chrF": "test/chrf", "perplexity": "test/perplexity"}
    return of_runs_with_protocol(MULTI30K, columns)


def benchmark() -> Iterator[str]:
    """Makes the table of training, greedy search and beam search against other implementations."""
    (found,) = read_runs("benchmark-translation")
    clock = clock_of(found)
    columns = [
        f"training step, ms of {clock}",
        "x ours",
        "greedy, sentences/s",
        "ours x",
        "beam 5, sentences/s",
        "ours x",
    ]
    yield f"| model | implementation | {' | '.join(columns)} | peak memory, MiB |"
    yield "|---" * 9 + "|"
    for group, each in found["groups"].items():
        for name, milliseconds in each["step_ms"].items():
            cells = [group if name == "ours" else "", name, f"{milliseconds:.0f}", _ratio(each, "ratio", name)]
            for search in ("greedy", "beam"):
                speed = each.get(f"{search}_per_second", {}).get(name)
                cells += ["" if speed is None else f"{speed:.0f}", _ratio(each, f"{search}_ratio", name)]
            yield f"| {' | '.join([*cells, format(each['peak_mib'][name], '.0f')])} |"
    yield ""
    yield f"`{found['command']}`: {found['threads']} thread{on_processor(found)}."


def lengths() -> Iterator[str]:
    """Makes the table of time and memory by the length of translations."""
    (found,) = read_runs("benchmark-translation")
    kinds = {"step_ms": "training step, ms", "greedy_ms": "greedy, ms", "peak_mib": "peak memory, MiB"}
    lengths = list(next(iter(found["by_length"].values()))["step_ms"])
    yield f"| model | | {' | '.join(lengths)} tokens | exponent |"
    yield "|---" * (len(lengths) + 3) + "|"
    for group, each in found["by_length"].items():
        for kind, title in kinds.items():
            values = [f"{value:,.0f}" for value in each[kind].values()]
            cells = [group if kind == "step_ms" else "", title, *values, f"{each['exponents'][kind]:.2f}"]
            yield f"| {' | '.join(cells)} |"


def _ratio(group: dict[str, Any], kind: str, name: str) -> str:
    return f"{group[kind][name]:.2f}" if name in group.get(kind, {}) else ""
