"""Makes the tables of recommendation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured import on_processor, read_runs, shown_command, spread, with_runs

SESSIONS = {
    "sasrec-planted_sessions": "SASRec, rotary positions",
    "sasrec-planted_sessions-learned": "SASRec, learned positions",
    "sasrec-planted_sessions-uniform": "SASRec, uniform (control)",
    "din-planted_sessions": "DIN",
}
BASKETS = {
    "din-planted_baskets": "DIN",
    "din-planted_baskets-uniform": "DIN, uniform (control)",
    "sasrec-planted_baskets": "SASRec, rotary positions",
}
MIXERS = {
    "sasrec-planted_sessions": "softmax",
    "sasrec-planted_sessions-linear": "linear",
    "sasrec-planted_sessions-window": "window of 8",
    "sasrec-planted_sessions-fourier": "fourier",
    "sasrec-planted_sessions-recurrent": "recurrent",
    "sasrec-planted_sessions-convolution": "convolution",
    "sasrec-planted_sessions-state_space": "state_space",
    "sasrec-planted_sessions-uniform": "uniform (control)",
}
ML_1M = {
    "sasrec_ml1m": ("SASRec", ".8245 / .5905", ".2500 / .1341"),
    "sasrec_plus_ml1m": ("SASRec, full softmax", "", ".3152 / .1821"),
    "din_ml1m": ("DIN", "", ""),
}


def planted() -> Iterator[str]:
    """Makes the table of hits and truth scores on planted sessions and planted baskets."""
    columns = ("model", "test HR@1", "HR@10", "AUC", "pointing", "train - val", "parameters", "seconds", "seeds")
    yield f"| data | {' | '.join(columns)} | command |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for data, experiments in (("sessions", SESSIONS), ("baskets", BASKETS)):
        for experiment, name in with_runs(experiments):
            runs = read_runs(experiment)
            found = [
                spread([run[metric] for run in runs]) if metric in runs[0] else ""
                for metric in ("test/hr@1", "test/hr@10", "test/auc", "truth/pointing_accuracy")
            ]
            gaps = [run["train/hr@10"] - run["val/hr@10"] for run in runs if {"train/hr@10", "val/hr@10"} <= set(run)]
            cells = [
                *(data, name, *found, f"{statistics.mean(gaps):+.3f}" if gaps else ""),
                f"{runs[0]['parameters']:,}",
                _seconds(runs),
                str(len(runs)),
                f"`{shown_command(runs[0])}`",
            ]
            yield f"| {' | '.join(cells)} |"


def _seconds(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the seconds of training, or the CPU time of the whole command if it was measured on a shared machine."""
    if "cpu_seconds" in runs[0]:
        return f"{statistics.mean(run['cpu_seconds'] for run in runs):.0f} (CPU time of the whole command)"
    return f"{statistics.mean(run['seconds'] for run in runs):.0f}" if "wall_seconds" in runs[0] else ""


def mixers() -> Iterator[str]:
    """Makes the table of mixers in place of attention, on the same sessions and epochs."""
    yield "| `attention=` | test HR@1 | HR@10 | NDCG@10 | pointing | parameters |"
    yield "|---|---|---|---|---|---|"
    for experiment, name in with_runs(MIXERS):
        runs = read_runs(experiment)
        pointing = [run["truth/pointing_accuracy"] for run in runs if "truth/pointing_accuracy" in run]
        cells = [name, *(spread([run[f"test/{metric}"] for run in runs]) for metric in ("hr@1", "hr@10", "ndcg@10"))]
        cells += [spread(pointing) if pointing else "no weights", f"{runs[0]['parameters']:,}"]
        yield f"| {' | '.join(cells)} |"


def ml_1m() -> Iterator[str]:
    """Makes the table of hits and gains on MovieLens-1M, with both protocols."""
    columns = ("HR@10 / NDCG@10 among 100", "published", "of all items", "published", "coverage@10", "epochs", "seeds")
    yield f"| model | {' | '.join(columns)} | command |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs({key: title for key, (title, *_) in ML_1M.items()}):
        runs = read_runs(experiment)
        is_sampled = "sampled" in runs[0]["protocol"]
        pairs = [
            " / ".join(spread([run[f"test/{prefix}{metric}"] for run in runs], 4) for metric in ("hr@10", "ndcg@10"))
            if f"test/{prefix}hr@10" in runs[0]
            else ""
            for prefix in ("", "full_")
        ]
        sampled, full = pairs if is_sampled else ("", pairs[0])
        _, published, published_full = ML_1M[experiment]
        covered = [run["test/coverage@10"] for run in runs if "test/coverage@10" in run]
        cells = [name, sampled, published, full, published_full, spread(covered) if covered else ""]
        cells += [f"{statistics.mean(run['epochs'] for run in runs):.0f}"]
        cells += [str(len(runs))]
        yield f"| {' | '.join(cells)} | `{shown_command(runs[0])}` |"


def benchmark() -> Iterator[str]:
    """Makes the table of times against padded batches and RecBole."""
    (found,) = read_runs("benchmark-recommendation")
    yield "| | ours | peer | (peer / ours) |"
    yield "|---|---|---|---|"
    for workload, measured in found["padded"].items():
        for peer, ratio in measured["ratio"].items():
            yield (
                f"| training, microseconds a target: {workload}, against {peer} | {measured['target_us']['ours']:.1f} "
                f"| {measured['target_us'][peer]:.1f} | {ratio:.2f} |"
            )
    for loss in ("one negative", "full softmax"):
        us = found["recbole"][loss]["target_us"]
        fastest = min((name for name in us if name != "ours"), key=lambda name: us[name])
        yield (
            f"| training, microseconds a target: ML-1M, {loss}, against {fastest} | {us['ours']:.1f} "
            f"| {us[fastest]:,.0f} | {us[fastest] / us['ours']:.0f} |"
        )
    ranking = found["recbole"]["full ranking"]
    users = ranking["users_a_second"]
    fastest = max((name for name in users if name != "ours"), key=lambda name: users[name])
    yield (
        f"| full ranking of 3,416 items, users a second, against {fastest} | {users['ours']:,} | {users[fastest]:,} "
        f"| {users['ours'] / users[fastest]:.2f} times as many |"
    )
    yield ""
    on = f"threads: {found['threads']}{on_processor(found)}"
    yield f"`{found['command']}`, torch {found['torch']}, {on}; medians, interleaved."


def scale() -> Iterator[str]:
    """Makes the table of a million items and ten million interactions."""
    (found,) = read_runs("benchmark-recommendation-scale")
    yield "| | time | peak memory, MiB |"
    yield "|---|---|---|"
    for name, measured in found["million"].items():
        is_ranking = "users_a_second" in measured
        time = f"{measured['users_a_second']:.0f} users/s" if is_ranking else f"{measured['step_ms']:.0f} ms a step"
        targets = "" if is_ranking else f", {measured['targets']:,} targets"
        yield f"| 1,000,000 items x 64: {name}{targets} | {time} | {measured['peak_mib']:,} |"
    for count, measured in found["stream"].items():
        if isinstance(measured, dict):
            yield (
                f"| {count} interactions read, one epoch | {measured['read_s']:.1f} + {measured['epoch_s']:.1f} s "
                f"| {measured['peak_mib']:,} |"
            )
    yield ""
    yield f"`{found['command']}`, torch {found['torch']}, threads: {found['threads']}{on_processor(found)}."
