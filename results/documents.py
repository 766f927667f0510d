"""Makes the tables of documents in docs/results/documents.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured import clock_of, of_runs, on_processor, read_runs, shown_command, spread, with_runs

PLANTED = {
    "han-planted_reviews": "HAN",
    "han-planted_reviews-uniform": "HAN, uniform (control)",
    "flat_attention-planted_reviews": "flat attention, LSTM",
    "flat_attention-planted_reviews-uniform": "flat attention, uniform (control)",
    "long_document-planted_notes": "long document",
    "long_document-planted_notes-uniform": "long document, uniform (control)",
}
FLAT = {
    "flat_attention_imdb": "BiLSTM",
    "flat_attention_imdb-average": "average",
    "flat_attention_imdb-uniform": "BiLSTM, uniform (control)",
    "flat_attention_imdb-average-uniform": "average, uniform (control)",
}
PUBLISHED = {"flat_attention_imdb": "0.437", "flat_attention_imdb-average": "0.675"}
"""Tau with gradients in Jain & Wallace 2019, table 2."""
OWN_TEXTS = {
    "own-texts-packages-1000": "package descriptions, 20 topics",
    "own-texts-packages-5000": "package descriptions, 20 topics",
    "own-texts-imdb-1000": "IMDB, good or bad",
    "own-texts-imdb-5000": "IMDB, good or bad",
    "own-texts-imdb-24000": "IMDB, good or bad",
}
IMDB = {"han_imdb": "HAN, good or bad", "han_imdb_ratings": "HAN, eight ratings"}


def planted() -> Iterator[str]:
    """Makes a table of accuracy and truth scores on planted reviews."""
    return of_runs(PLANTED, _columns("test accuracy", "sentence pointing", "word pointing"))


def imdb() -> Iterator[str]:
    """Makes a table of what was measured on IMDB's test reviews."""
    return of_runs(IMDB, _columns("test accuracy", "macro F1", "mean absolute error", "calibration error"))


def lengths() -> Iterator[str]:
    """Makes the table of accuracy, time and memory of two models by the length of texts."""
    (found,) = read_runs("benchmark-documents-length")
    clock = clock_of(found)
    yield "| words | batch | model | test accuracy | training step, ms a text | MiB | inference, ms a text | MiB |"
    yield "|---|---|---|---|---|---|---|---|"
    for words, each in found["lengths"].items():
        for model, name in (("han", "HAN"), ("long_document", "long document")):
            runs = [run for trained, _ in with_runs({f"{model}-planted_{words}": name}) for run in read_runs(trained)]
            cells = [
                f"{int(words):,}",
                str(each["texts"]),
                name,
                spread([run["test/accuracy"] for run in runs]) if runs else "",
            ]
            for kind in ("step", "pass"):
                cells += [f"{each[model][f'{kind}_ms'] / each['texts']:.1f}", f"{each[model][f'{kind}_mib']:.0f}"]
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"`{found['command']}`: {clock}, {found['threads']} thread{on_processor(found)}. Accuracy:"
    for model in ("han", "long_document"):
        for trained, _ in with_runs({f"{model}-planted_{words}": "" for words in found["lengths"]}):
            yield f"`{read_runs(trained)[0]['command']}`"


def fine_tuning() -> Iterator[str]:
    """Makes the table of fine-tuning on few reviews, by what becomes of the vocabulary."""
    runs = read_runs("fine-tuning-imdb")
    ways = {
        "unite": "fine-tuned, `data.vocabulary=unite` (default)",
        "keep": "fine-tuned, `keep`",
        "new": "fine-tuned, `new`",
        "scratch": "HAN from scratch",
        "tfidf": "TF-IDF with logistic regression",
    }
    sizes = [name for name in runs[0] if name.isdecimal()]
    yield f"| test accuracy | {' | '.join(f'{size} reviews' for size in sizes)} |"
    yield "|---" * (len(sizes) + 1) + "|"
    for way, name in ways.items():
        cells = [spread([run[size][way]["test/accuracy"] for run in runs]) for size in sizes]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    before = spread([runs[0]["origin"]["test/accuracy"]])
    yield f"Before it is fine-tuned, the model has {before}. Seeds {', '.join(str(run['seed']) for run in runs)}."
    yield f"`{runs[0]['command']}`"


def own_texts() -> Iterator[str]:
    """Makes the table of HAN on texts of one's own, with the chosen options and without, beside TF-IDF."""
    columns = ["texts", "training texts", "HAN without", "HAN as chosen", "TF-IDF", "epochs", "CPU seconds as chosen"]
    yield f"| {' | '.join([*columns, 'seeds', 'command'])} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(OWN_TEXTS):
        runs = read_runs(experiment)
        cells = [
            name,
            f"{runs[0]['size']:,}",
            *(spread([run[way]["test/accuracy"] for run in runs if way in run]) for way in ("plain", "chosen")),
            f"{runs[0]['tfidf']['test/accuracy']:.3f}",
            str(runs[0]["chosen"]["epochs"]),
            f"{statistics.mean(run['chosen']['cpu_seconds'] for run in runs):.0f}",
            ", ".join(str(run["seed"]) for run in runs),
            f"`{runs[0]['command']}`",
        ]
        yield f"| {' | '.join(cells)} |"


def large_file() -> Iterator[str]:
    """Makes the table of a large file: memory of the processes, and the time in which training waited."""
    (found,) = read_runs("benchmark-documents-file")
    rows = {
        "file": f"{found['bytes'] / 1e9:.2f} GB, {found['texts']:,} texts, {found['words']:,} words",
        "training": f"{found['steps']:,} steps in {found['seconds']:.0f} s",
        "peak memory of the run": f"{found['peak_mib']:,} MiB",
        "peak memory of the process that makes batches": f"{found['worker_peak_mib']:,} MiB",
        "both, shared pages counted once": f"{found['together_peak_mib']:,} MiB",
        "waiting for batches": f"{found['data_wait']:.2%} of the time",
    }
    yield "| | |"
    yield "|---|---|"
    for name, value in rows.items():
        yield f"| {name} | {value} |"
    yield ""
    yield f"`{found['command']}` trains with"
    yield f"`{' '.join(found['overrides'])}`, {found['threads']} thread{on_processor(found)}."


def agreement() -> Iterator[str]:
    """Makes the table of Jain & Wallace: accuracy on IMDB, and how attention agrees with the importance of words."""
    columns = ["encoder", "test accuracy", "F1", "tau with gradients", "published", "tau with leaving out a word"]
    yield f"| {' | '.join([*columns, 'epochs', 'CPU minutes', 'seeds', 'command'])} |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(FLAT):
        runs = read_runs(experiment)
        cells = [
            name,
            spread([run["test/accuracy"] for run in runs]),
            spread([run["test/f1_macro"] for run in runs]),
            _faithfulness(runs, "word", "map", "kendall_tau_frozen_gradient"),
            PUBLISHED.get(experiment, ""),
            _faithfulness(runs, "word", "map", "kendall_tau_leave_one_out"),
            f"{runs[0]['epochs']}",
            f"{statistics.mean(run['cpu_seconds'] for run in runs) / 60:.0f}",
            ", ".join(str(run["seed"]) for run in runs),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def faithfulness() -> Iterator[str]:
    """Makes the table of what the answers of these models depend on, by words and by sentences."""
    rankings = "map, gradient, random"
    columns = ["encoder", "left out", f"comprehensiveness: {rankings}", f"sufficiency: {rankings}", "probability"]
    yield f"| {' | '.join([*columns, 'falls with uniform weights', 'changes with permuted ones'])} |"
    yield "|---|---|---|---|---|---|---|"
    of_no_input = ("probability", "fall_with_uniform_weights", "change_with_permuted_weights")
    for experiment, name in with_runs(FLAT):
        runs = [run for run in read_runs(experiment) if "faithfulness" in run]
        for kind in ("word", "sentence") if runs else ():
            compared = [
                ", ".join(_faithfulness(runs, kind, each, measure) for each in rankings.split(", "))
                for measure in ("comprehensiveness", "sufficiency")
            ]
            controls = [_faithfulness(runs, "", "", measure) if kind == "word" else "" for measure in of_no_input]
            yield f"| {' | '.join([name if kind == 'word' else '', f'{kind}s', *compared, *controls])} |"


def _faithfulness(runs: Sequence[Mapping[str, Any]], left_out: str, ranking: str, measure: str) -> str:
    """Returns a measure of faithfulness of some runs; an empty string if it was not measured, or is not defined."""
    key = {"left_out": left_out, "ranking": ranking, "measure": measure}
    means = [each for run in runs for each in run.get("faithfulness", {"means": []})["means"]]
    values = [each["mean"] for each in means if key.items() <= each.items() and each["mean"] is not None]
    return spread(values) if values else ""


def benchmark() -> Iterator[str]:
    """Makes the table of a training step of HAN against padded implementations."""
    (found,) = read_runs("benchmark-documents")
    clock = clock_of(found)
    yield f"| implementation | training step, ms of {clock} | peak memory, MiB | x ours |"
    yield "|---|---|---|---|"
    for name, milliseconds in found["step_ms"].items():
        ratio = found["ratio"].get(name, 1.0)
        yield f"| {name} | {milliseconds:.0f} | {found['peak_mib'][name]:.0f} | {ratio:.2f} |"
    yield ""
    sizes = f"{found['documents']} documents, {found['sentences']:,} sentences, {found['words']:,} words"
    yield f"`{found['command']}`:"
    yield f"{sizes} in a batch; {found['threads']} thread{on_processor(found)}."


_METRICS = {
    "test accuracy": "test/accuracy",
    "macro F1": "test/f1_macro",
    "mean absolute error": "test/mae",
    "calibration error": "test/calibration_error",
    "sentence pointing": "truth/sentence_pointing",
    "word pointing": "truth/word_pointing",
}


def _columns(*titles: str) -> dict[str, str]:
    return {title: _METRICS[title] for title in titles}
