"""Tables of recommendation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from runs import read_runs, shown_command, spread, with_runs

SESSIONS = {
    "sasrec-planted_sessions": "SASRec, rotary positions",
    "sasrec-planted_sessions-learned": "SASRec, learned positions",
    "sasrec-planted_sessions-uniform": "SASRec, uniform (control)",
    "din-planted_sessions": "DIN",
}
MIXERS = {
    "sasrec-planted_sessions": "softmax",
    "sasrec-planted_sessions-linear": "linear",
    "sasrec-planted_sessions-window": "window",
    "sasrec-planted_sessions-fourier": "fourier",
    "sasrec-planted_sessions-recurrent": "recurrent",
    "sasrec-planted_sessions-convolution": "convolution",
    "sasrec-planted_sessions-state_space": "state_space",
    "sasrec-planted_sessions-uniform": "uniform (control)",
}
WEIGHTLESS = ("fourier", "recurrent", "convolution", "state_space")
"""Whose scored map is of occlusion."""
ML_1M = {
    "sasrec_ml1m": ("SASRec", ".8245 / .5905", ".2500 / .1341"),
    "sasrec_plus_ml1m": ("SASRec, full softmax", "", ".3152 / .1821"),
    "gsasrec_ml1m": ("gSASRec", "", ".3003 / .1726"),
    "din_ml1m": ("DIN", "", ""),
}


def sessions() -> Iterator[str]:
    """Hits and truth scores on planted sessions."""
    yield "| model | test HR@1 | popularity | pointing | train - val | parameters | seconds | seeds | command |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(SESSIONS):
        runs = read_runs(experiment)
        cells = [
            name,
            spread([run["test/hr@1"] for run in runs]),
            f"{runs[0]['test/popularity_hr@1']:.3f}",
            spread([run["truth/pointing_accuracy"] for run in runs]),
            f"{statistics.mean(run['train/hr@1'] - run['val/hr@1'] for run in runs if 'val/hr@1' in run):+.3f}",
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f}",
            str(len(runs)),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def mixers() -> Iterator[str]:
    """What stands in attention's place, on the same sessions and epochs."""
    yield "| `attention=` | test HR@1 | HR@10 | NDCG@10 | pointing | parameters | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(MIXERS):
        runs = read_runs(experiment)
        pointing = spread([run["truth/pointing_accuracy"] for run in runs])
        cells = [name, *(spread([run[f"test/{metric}"] for run in runs]) for metric in ("hr@1", "hr@10", "ndcg@10"))]
        cells += [f"{pointing} (occlusion)" if name in WEIGHTLESS else pointing, f"{runs[0]['parameters']:,}"]
        cells.append(f"{statistics.mean(run['seconds'] for run in runs):.0f}")
        yield f"| {' | '.join(cells)} |"


def ml_1m() -> Iterator[str]:
    """Hits and gains on MovieLens-1M, by both protocols."""
    yield (
        "| model | HR@10 / NDCG@10 among 100 | published | of all items | published | coverage@10 | epochs | seconds "
        "| seeds | command |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
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
        cells += [f"{statistics.mean(run['seconds'] for run in runs):,.0f}", str(len(runs))]
        yield f"| {' | '.join(cells)} | `{shown_command(runs[0])}` |"
